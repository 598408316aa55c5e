//! Random schedules, each named by a seed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use shuttle::scheduler::{RandomScheduler, Scheduler};
use shuttle::thread::Thread;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use vellum::platform::CpuId;
use vellum::platform::Machine as _;
use vellum_machine::Machine;

use crate::bursts::Bursts;
use crate::hook::{self, By};

thread_local! {
    /// Tasks of the running schedule that have been named, for waking them.
    static TASKS: RefCell<HashMap<u64, Thread>> = RefCell::default();
}

/// The task number of code that runs outside of an exploration.
const NO_TASK: u64 = u64::MAX;

/// For `MachineConfig::scheduler`: the tasks of an exploration are the tasks
/// of the machine, and nothing in it blocks the host thread they share.
pub static SCHEDULER: vellum_machine::Scheduler = vellum_machine::Scheduler {
    yield_now,
    step: hook::step,
    current_task,
    park,
    unpark,
};

fn task() -> Option<usize> {
    shuttle::current::try_get_current_task().map(usize::from)
}

fn yield_now() {
    if task().is_some() {
        shuttle::thread::yield_now();
    } else {
        std::thread::yield_now();
    }
}

fn current_task() -> u64 {
    let Some(task) = task() else {
        return NO_TASK;
    };
    let task = task as u64;
    TASKS.with_borrow_mut(|tasks| {
        tasks.entry(task).or_insert_with(shuttle::thread::current);
    });
    task
}

fn park() {
    assert!(
        task().is_some(),
        "a machine with the exploring scheduler was made to sleep outside of an exploration"
    );
    shuttle::thread::park();
}

fn unpark(task: u64) {
    let thread = TASKS.with_borrow(|tasks| tasks.get(&task).cloned());
    if let Some(thread) = thread {
        thread.unpark();
    }
}

/// Forgets the tasks of a schedule that is over.
pub(crate) fn forget_tasks() {
    TASKS.with_borrow_mut(HashMap::clear);
}

/// What is explored. Not a type parameter: for each type the compiler would
/// build the whole scheduler once more.
pub(crate) type Test = Arc<dyn Fn() + Send + Sync>;

/// How schedules are explored.
#[derive(Clone, Copy, Debug)]
pub struct Exploration {
    /// Seed of the first schedule; the next one has the next seed.
    pub seed: u64,
    /// Number of schedules.
    pub schedules: u64,
    /// Preemption points after which a schedule counts as hung.
    pub max_steps: usize,
    /// Stack of each task in bytes.
    pub stack_bytes: usize,
    /// Whether tasks run in bursts and are held back, instead of being chosen
    /// anew at each step: finds what needs a task to stand still for long.
    pub bursts: bool,
}

impl Exploration {
    /// `schedules` schedules from `seed` on, with room for most tests.
    pub fn new(seed: u64, schedules: u64) -> Exploration {
        Exploration {
            seed,
            schedules,
            max_steps: 5_000_000,
            stack_bytes: 1 << 20,
            bursts: false,
        }
    }

    /// Runs `test` under each schedule until one fails.
    pub fn find_failure(self, test: impl Fn() + Send + Sync + 'static) -> Option<Failure> {
        self.find_failure_of(Arc::new(test))
    }

    fn find_failure_of(self, test: Test) -> Option<Failure> {
        (0..self.schedules).find_map(|nth| {
            let seed = self.seed.wrapping_add(nth);
            self.run(seed, Arc::clone(&test))
                .err()
                .map(|message| Failure { seed, message })
        })
    }

    /// Runs `test` under the schedule named `seed`.
    fn run(self, seed: u64, test: Test) -> Result<(), String> {
        let mut config = Config::new();
        config.stack_size = self.stack_bytes;
        config.max_steps = MaxSteps::FailAfter(self.max_steps);
        // The seed says it all.
        config.failure_persistence = FailurePersistence::None;
        let scheduler: Box<dyn Scheduler + Send> = if self.bursts {
            Box::new(Bursts::new(seed))
        } else {
            Box::new(RandomScheduler::new_from_seed(seed, 1))
        };
        let runner = Runner::new(scheduler, config);
        forget_tasks();
        let run = AssertUnwindSafe(|| hook::exploring(By::Seed, || runner.run(move || test())));
        match catch_unwind(run) {
            Ok(_) => Ok(()),
            Err(panic) => Err(panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without a message")
                .to_owned()),
        }
    }
}

/// A schedule under which a test fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Its seed: exploring one schedule from it on repeats the failure.
    pub seed: u64,
    /// Message of the panic.
    pub message: String,
}

/// Runs `test` under `schedules` random schedules. `test` builds what it needs
/// anew each time and starts tasks with [`run_cpus`] or `shuttle::thread`.
///
/// # Panics
/// If `test` fails under a schedule; the message names the schedule's seed.
pub fn explore(seed: u64, schedules: u64, test: impl Fn() + Send + Sync + 'static) {
    if let Some(failure) = find_failure(seed, schedules, test) {
        panic!(
            "failed under schedule {0} (repeat with `explore({0}, 1, …)`): {1}",
            failure.seed, failure.message
        );
    }
}

/// Like [`explore`], but returns the failure.
pub fn find_failure(
    seed: u64,
    schedules: u64,
    test: impl Fn() + Send + Sync + 'static,
) -> Option<Failure> {
    Exploration::new(seed, schedules).find_failure(test)
}

/// Runs `work` once on every CPU of `machine`, each in a task of its own.
/// Returns the results in the order of CPUs. Inside an exploration only.
///
/// # Panics
/// If one of the tasks panicked.
pub fn run_cpus<R: Send>(machine: &Machine, work: impl Fn(CpuId) -> R + Sync) -> Vec<R> {
    run_cpus_of(machine, &work)
}

fn run_cpus_of<R: Send>(machine: &Machine, work: &(dyn Fn(CpuId) -> R + Sync)) -> Vec<R> {
    shuttle::thread::scope(|scope| {
        let tasks: Vec<_> = (0..machine.cpus())
            .map(|cpu| {
                let cpu = CpuId(cpu as u16);
                scope.spawn(move || machine.run_on(cpu, || work(cpu)))
            })
            .collect();
        tasks
            .into_iter()
            .map(|task| match task.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}
