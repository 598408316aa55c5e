//! A scheduler whose tasks run in bursts and are held back.
//!
//! Choosing anew at every step mixes tasks finely, but practically never lets
//! one stand still in the middle of something while another completes a whole
//! operation; many races need just that. Here each schedule draws how long
//! tasks run on average, and from time to time a task is held back for a long
//! stretch, unless nobody else can go on.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// Mean bursts, in steps, that a schedule chooses from.
const BURSTS: [u64; 5] = [2, 8, 32, 128, 512];
/// Steps a task is held back for, at most.
const LONGEST_HOLD: u64 = 4096;

/// The schedule of one seed.
pub(crate) struct Bursts {
    seed: u64,
    state: u64,
    done: bool,
    burst: u64,
    step: u64,
    held: Option<(TaskId, u64)>,
}

impl Bursts {
    pub(crate) fn new(seed: u64) -> Bursts {
        Bursts {
            seed,
            state: seed,
            done: false,
            burst: 0,
            step: 0,
            held: None,
        }
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
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        if core::mem::replace(&mut self.done, true) {
            return None;
        }
        self.burst = BURSTS[self.below(BURSTS.len() as u64) as usize];
        Some(Schedule::new(self.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        self.step += 1;
        if self.held.is_some_and(|(_, until)| until <= self.step) {
            self.held = None;
        }
        let goes_on = !is_yielding && self.below(self.burst) != 0;
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

    fn next_u64(&mut self) -> u64 {
        self.draw()
    }
}
