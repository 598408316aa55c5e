//! A schedule written by hand: who runs until what.
//!
//! Random schedules find a race in thousands of runs if it needs a task to stand
//! still at one point while others do several things. Where such a race is
//! known, a script says so in as many steps, and one run finds it.
//!
//! A step names a task and a condition. The task runs until it is about to make
//! an access with the condition true, or, without a condition, until it has
//! ended; then it stands still until a later step names it. A task that waits
//! for another (it spins, or sleeps) lets the others go on meanwhile: a script
//! cannot make them wait for each other for good.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::explore::Test;
use crate::hook::{self, By};

/// Switches after which a script counts as hung.
const MOST_STEPS: usize = 3_000_000;

/// One step of a script.
pub struct Step {
    task: usize,
    until: Option<Box<dyn Fn() -> bool>>,
    /// Whether the task may end before it has reached that.
    may_end: bool,
}

impl Step {
    /// Task number `task` runs until it is about to make an access and
    /// `reached` says yes. `reached` looks, waits for nothing, and takes no lock.
    pub fn until(task: usize, reached: impl Fn() -> bool + 'static) -> Step {
        Step {
            task,
            until: Some(Box::new(reached)),
            may_end: false,
        }
    }

    /// Task number `task` runs to its end.
    pub fn end(task: usize) -> Step {
        Step {
            task,
            until: None,
            may_end: false,
        }
    }

    /// The same, but the task may end before it has reached that.
    pub fn or_end(self) -> Step {
        Step {
            may_end: true,
            ..self
        }
    }

    /// The task of `preemption` runs until its access, or to its end if it makes fewer.
    pub fn preempted(preemption: &Preemption) -> Step {
        let Preemption { task, before, .. } = *preemption;
        let seen = Arc::clone(&preemption.seen);
        Step {
            task,
            until: Some(Box::new(move || {
                seen.fetch_add(1, Ordering::Relaxed) >= before
            })),
            may_end: true,
        }
    }
}

/// Where one of two tasks stands still until the other has ended.
#[derive(Clone, Debug)]
pub struct Preemption {
    task: usize,
    before: usize,
    /// Accesses that the task has made or was about to make.
    seen: Arc<AtomicUsize>,
}

impl Preemption {
    /// The script of it.
    pub fn steps(&self) -> Vec<Step> {
        let (task, other) = (self.task, 1 - self.task);
        vec![Step::preempted(self), Step::end(other), Step::end(task)]
    }
}

/// Runs `test`, which starts two tasks by the script of what it is given, for every
/// single preemption there is: each of the tasks stands still before each of its
/// accesses in turn, while the other does all it has to do.
///
/// # Panics
/// If `test` panics; the preemption is printed.
pub fn sweep(test: impl Fn(&Preemption) + Send + Sync + 'static) {
    let test = Arc::new(test);
    for task in [0, 1] {
        let test = Arc::clone(&test);
        sweep_task(task, 0.., move |preemption| test(preemption));
    }
}

/// The same for the preemptions of one task, before those of its accesses that `accesses` names:
/// ascending, counted from the step of [`Step::preempted`] on. What else is in the script is up to
/// `test`.
///
/// # Panics
/// If `test` panics; the preemption is printed.
pub fn sweep_task(
    task: usize,
    accesses: impl IntoIterator<Item = usize>,
    test: impl Fn(&Preemption) + Send + Sync + 'static,
) {
    let test = Arc::new(test);
    for before in accesses {
        let seen = Arc::default();
        let preemption = Preemption { task, before, seen };
        let (test, given) = (Arc::clone(&test), preemption.clone());
        let run = AssertUnwindSafe(|| run_scripted(move || test(&given)));
        if let Err(panic) = catch_unwind(run) {
            println!("task {task} stood still before its access {before}");
            resume_unwind(panic);
        }
        if preemption.seen.load(Ordering::Relaxed) <= before {
            break;
        }
    }
}

/// A script on its way.
struct Running {
    steps: Vec<Step>,
    /// The present step.
    at: usize,
    /// The tasks that have ended.
    ended: Vec<bool>,
    /// The task of the exploration that started them.
    starter: usize,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

impl Running {
    /// The number that the scheduler knows a task by: they are started in order.
    fn number(&self, task: usize) -> usize {
        self.starter + 1 + task
    }

    /// The task whose turn it is; none if all steps are done.
    fn turn(&mut self) -> Option<usize> {
        while let Some(step) = self.steps.get(self.at) {
            if !self.ended[step.task] {
                return Some(self.number(step.task));
            }
            // A task that has ended will reach nothing any more.
            if step.until.is_some() && !step.may_end {
                return None;
            }
            self.at += 1;
        }
        None
    }
}

fn current() -> Option<usize> {
    shuttle::current::try_get_current_task().map(usize::from)
}

/// Called before each access, outside of points of preemption.
pub(crate) fn before_access() {
    RUNNING.with(|running| {
        let Ok(mut running) = running.try_borrow_mut() else {
            return;
        };
        let Some(running) = running.as_mut() else {
            return;
        };
        while let Some(turn) = running.turn()
            && Some(turn) == current()
            && let Some(reached) = &running.steps[running.at].until
            && reached()
        {
            running.at += 1;
        }
    });
}

/// Runs `tasks` by a script, each as a task of its own; `run` starts the given
/// number of tasks in order and waits for them, calling what it is given with
/// the number of each. Inside [`run_scripted`] only.
///
/// # Panics
/// If a task panics, or a step was not reached.
pub fn follow(tasks: usize, steps: Vec<Step>, run: impl FnOnce(&(dyn Fn(usize) + Sync))) {
    let starter = current().expect("a script is followed inside of `run_scripted`");
    let running = Running {
        steps,
        at: 0,
        ended: vec![false; tasks],
        starter,
    };
    RUNNING.set(Some(running));
    run(&|task| {
        RUNNING.with_borrow_mut(|running| {
            if let Some(running) = running {
                running.ended[task] = true;
            }
        });
    });
    let Some(mut running) = RUNNING.take() else {
        return;
    };
    running.turn();
    assert!(
        running.at == running.steps.len(),
        "step {} of the script was not reached",
        running.at
    );
}

/// Runs `test` once; what it starts with [`follow`] runs by its script.
///
/// # Panics
/// If `test` panics.
pub fn run_scripted(test: impl Fn() + Send + Sync + 'static) {
    run_test(Arc::new(test));
}

fn run_test(test: Test) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.failure_persistence = FailurePersistence::None;
    let runner = Runner::new(Scripted::default(), config);
    RUNNING.take();
    crate::explore::forget_tasks();
    let run = AssertUnwindSafe(|| hook::exploring(By::Script, || runner.run(move || test())));
    if let Err(panic) = catch_unwind(run) {
        RUNNING.take();
        resume_unwind(panic);
    }
}

/// Lets run whose turn it is.
#[derive(Default)]
struct Scripted {
    done: bool,
    /// Counts up, to take turns where the script does not say.
    step: usize,
}

impl Scheduler for Scripted {
    fn new_execution(&mut self) -> Option<Schedule> {
        let first = !core::mem::replace(&mut self.done, true);
        first.then(|| Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let ids: Vec<TaskId> = runnable.iter().map(|task| task.id()).collect();
        let turn = RUNNING.with_borrow_mut(|running| running.as_mut().and_then(Running::turn));
        let waits = |id: TaskId| is_yielding && current == Some(id);
        if let Some(turn) = turn
            && let Some(&id) = ids.iter().find(|&&id| usize::from(id) == turn)
            && (!waits(id) || ids.len() == 1)
        {
            return Some(id);
        }
        // It waits for one of the others, or has not been started.
        let others: Vec<TaskId> = ids.iter().copied().filter(|&id| !waits(id)).collect();
        let from = if others.is_empty() { &ids } else { &others };
        self.step += 1;
        Some(from[self.step % from.len()])
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}
