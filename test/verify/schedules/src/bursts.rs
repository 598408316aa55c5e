//! A scheduler whose tasks run in bursts and are held back.
//!
//! Choosing anew at every step mixes tasks finely, but practically never lets
//! one stand still in the middle of something while another completes a whole
//! operation; many races need just that. Here each schedule draws how long
//! tasks run on average, and from time to time a task is held back for a long
//! stretch, unless nobody else can go on.
//!
//! Mostly the running task goes on. The points of preemption ask for that here
//! ([`goes_on`]) and bother the explorer only if another task may be next: a step
//! costs it many times what it costs the core. The schedule is the same as if
//! every step were its own.

use std::cell::RefCell;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// Mean bursts, in steps, that a schedule chooses from.
const BURSTS: [u64; 5] = [2, 8, 32, 128, 512];
/// Steps a task is held back for, at most.
const LONGEST_HOLD: u64 = 4096;

/// Steps of a schedule after which all are the explorer's, which counts them and
/// ends a schedule that hangs.
const UNCOUNTED: u64 = 3_000_000;

thread_local! {
    /// The schedule that runs on this host thread, if it is one of bursts.
    static SCHEDULE: RefCell<Option<Draws>> = const { RefCell::new(None) };
}

/// Whether the running task goes on after this step, and it is known already.
pub(crate) fn goes_on() -> bool {
    SCHEDULE.with_borrow_mut(|schedule| schedule.as_mut().is_some_and(Draws::goes_on))
}

/// The schedule of one seed, on this host thread.
pub(crate) struct Bursts {
    seed: u64,
    done: bool,
}

impl Bursts {
    pub(crate) fn new(seed: u64) -> Bursts {
        Bursts { seed, done: false }
    }
}

impl Drop for Bursts {
    fn drop(&mut self) {
        let _ = SCHEDULE.try_with(|schedule| schedule.take());
    }
}

/// What is drawn for a schedule.
struct Draws {
    state: u64,
    burst: u64,
    step: u64,
    held: Option<(TaskId, u64)>,
    /// Whether the present step was begun by [`Draws::goes_on`], which said no.
    ends_burst: bool,
}

impl Draws {
    fn new(seed: u64) -> Draws {
        let mut draws = Draws {
            state: seed,
            burst: 0,
            step: 0,
            held: None,
            ends_burst: false,
        };
        draws.burst = BURSTS[draws.below(BURSTS.len() as u64) as usize];
        draws
    }

    fn goes_on(&mut self) -> bool {
        if self.step >= UNCOUNTED {
            return false;
        }
        let goes_on = self.step(false);
        self.ends_burst = !goes_on;
        goes_on
    }

    /// Begins a step. Returns whether the running task goes on.
    fn step(&mut self, is_yielding: bool) -> bool {
        self.step += 1;
        if self.held.is_some_and(|(_, until)| until <= self.step) {
            self.held = None;
        }
        !is_yielding && self.below(self.burst) != 0
    }

    /// The next number of the SplitMix64 sequence.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let goes_on = !core::mem::take(&mut self.ends_burst) && self.step(is_yielding);
        if let Some(current) = current
            && goes_on
            && runnable.iter().any(|task| task.id() == current)
        {
            return Some(current);
        }
        if let Some(current) = current
            && !is_yielding
            && self.held.is_none()
            && self.below(4) == 0
        {
            let stretch = 1 + self.below(LONGEST_HOLD);
            self.held = Some((current, self.step + stretch));
        }
        let held = self.held.map(|(task, _)| task);
        // A task that yields waits for another: it goes on only if it is alone.
        let may_run =
            |task: &&&Task| Some(task.id()) != held && !(is_yielding && Some(task.id()) == current);
        let free: Vec<TaskId> = runnable
            .iter()
            .filter(may_run)
            .map(|task| task.id())
            .collect();
        if free.is_empty() {
            self.held = None;
            let any = self.below(runnable.len() as u64) as usize;
            return Some(runnable[any].id());
        }
        let choice = self.below(free.len() as u64) as usize;
        Some(free[choice])
    }
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        if core::mem::replace(&mut self.done, true) {
            return None;
        }
        SCHEDULE.set(Some(Draws::new(self.seed)));
        Some(Schedule::new(self.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        SCHEDULE.with_borrow_mut(|schedule| {
            (schedule.as_mut()?).next_task(runnable, current, is_yielding)
        })
    }

    fn next_u64(&mut self) -> u64 {
        SCHEDULE.with_borrow_mut(|schedule| schedule.as_mut().map_or(0, Draws::draw))
    }
}
