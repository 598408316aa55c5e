//! How long tasks ran, from the records of context switches.
//!
//! Each task has a clock that runs while the task is on a CPU. A reading tells
//! how far it went since the reading before. A clock that may have missed
//! something says so once, and is right again from the next record on: a task
//! that makes a record runs at that moment, whatever was lost before.
//!
//! Times are nanoseconds since the recording began and never go back.

use vellum_trace::TaskId;

/// The clocks of all tasks.
#[derive(Default)]
pub struct Stopwatch {
    clocks: Vec<Clock>,
    /// How often records were lost.
    losses: u64,
}

#[derive(Clone, Copy)]
struct Clock {
    state: State,
    /// What the task ran, up to the state's beginning.
    ran_ns: u64,
    /// What the readings came to, and what no reading told.
    told_us: u64,
    /// Nothing was missed since the last reading.
    complete: bool,
    /// [`Stopwatch::losses`] that the clock knows of.
    losses: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Off,
    On {
        since_ns: u64,
    },
    /// Records were lost since its last one.
    Unknown,
}

impl Stopwatch {
    /// `task` was created, and does not run yet.
    pub fn born(&mut self, task: TaskId) {
        let losses = self.losses;
        *self.slot(task) = Clock::new(losses);
    }

    /// `task` runs when the recording begins.
    pub fn runs_from_the_start(&mut self, task: TaskId) {
        self.born(task);
        self.slot(task).state = State::On { since_ns: 0 };
    }

    /// `task` was put on a CPU.
    pub fn switched_in(&mut self, task: TaskId, now_ns: u64) {
        let clock = self.clock(task);
        // If it ran already, its leaving a CPU was missed.
        clock.complete &= clock.state == State::Off;
        clock.state = State::On { since_ns: now_ns };
    }

    /// `task` left its CPU.
    pub fn switched_out(&mut self, task: TaskId, now_ns: u64) {
        let clock = self.clock(task);
        clock.stop(now_ns);
        clock.state = State::Off;
    }

    /// `task` made a record, so it runs.
    pub fn acts(&mut self, task: TaskId, now_ns: u64) {
        let clock = self.clock(task);
        if !matches!(clock.state, State::On { .. }) {
            clock.complete = false;
            clock.state = State::On { since_ns: now_ns };
        }
    }

    /// Records were lost, of whatever task.
    pub fn lost(&mut self) {
        self.losses += 1;
    }

    /// Microseconds that `task` ran since the last reading; `None` if that is
    /// not known. What is less than a microsecond counts next time.
    ///
    /// Of a task that ran all the time it is the difference of the two times,
    /// each in whole microseconds.
    pub fn read(&mut self, task: TaskId, now_ns: u64) -> Option<u64> {
        let clock = self.clock(task);
        let running = matches!(clock.state, State::On { .. });
        if running {
            clock.stop(now_ns);
            clock.state = State::On { since_ns: now_ns };
        }
        let complete = clock.complete;
        clock.complete = clock.state != State::Unknown;
        // The time off the CPU is rounded up, and stays as it is while the task
        // runs. So the sum of all readings never exceeds what the task ran.
        let off_us = (now_ns - clock.ran_ns).div_ceil(1000);
        let ran_us = (now_ns / 1000).saturating_sub(off_us).max(clock.told_us);
        let since_us = ran_us - clock.told_us;
        clock.told_us = ran_us;
        complete.then_some(since_us)
    }

    /// Microseconds that tasks ran on CPUs that they have left, after their last readings.
    pub fn untold_us(&self) -> u64 {
        let untold = |clock: &Clock| (clock.ran_ns / 1000).saturating_sub(clock.told_us);
        self.clocks.iter().map(untold).sum()
    }

    /// The task's clock, which has heard of all losses.
    fn clock(&mut self, task: TaskId) -> &mut Clock {
        let losses = self.losses;
        let clock = self.slot(task);
        if clock.losses != losses {
            clock.losses = losses;
            clock.state = State::Unknown;
            clock.complete = false;
        }
        clock
    }

    fn slot(&mut self, task: TaskId) -> &mut Clock {
        let (task, losses) = (task.0 as usize, self.losses);
        if self.clocks.len() <= task {
            self.clocks.resize(task + 1, Clock::new(losses));
        }
        &mut self.clocks[task]
    }
}

impl Clock {
    fn new(losses: u64) -> Self {
        Clock {
            state: State::Off,
            ran_ns: 0,
            told_us: 0,
            complete: true,
            losses,
        }
    }

    /// Adds the time on the CPU that ends now.
    fn stop(&mut self, now_ns: u64) {
        match self.state {
            State::On { since_ns } => self.ran_ns += now_ns - since_ns,
            State::Off | State::Unknown => self.complete = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TaskId = TaskId(0);
    const B: TaskId = TaskId(3);

    fn us(microseconds: u64) -> u64 {
        microseconds * 1000
    }

    /// A stopwatch with both tasks just born.
    fn stopwatch() -> Stopwatch {
        let mut stopwatch = Stopwatch::default();
        stopwatch.born(A);
        stopwatch.born(B);
        stopwatch
    }

    #[test]
    fn only_the_time_on_a_cpu_counts() {
        let mut stopwatch = stopwatch();
        stopwatch.switched_in(A, us(10));
        stopwatch.switched_out(A, us(14));
        stopwatch.switched_in(A, us(100));
        assert_eq!(stopwatch.read(A, us(103)), Some(7));
        assert_eq!(stopwatch.read(A, us(105)), Some(2));
        stopwatch.switched_out(A, us(106));
        assert_eq!(stopwatch.read(A, us(200)), Some(1));
        assert_eq!(stopwatch.read(A, us(300)), Some(0));
        assert_eq!(stopwatch.untold_us(), 0);
        stopwatch.switched_in(A, us(400));
        stopwatch.switched_out(A, us(450));
        assert_eq!(stopwatch.untold_us(), 50);
        assert_eq!(stopwatch.read(B, us(300)), Some(0));
    }

    #[test]
    fn the_command_runs_when_the_recording_begins() {
        let mut stopwatch = Stopwatch::default();
        stopwatch.runs_from_the_start(A);
        stopwatch.acts(A, 0);
        assert_eq!(stopwatch.read(A, 0), Some(0));
        stopwatch.switched_out(A, us(40));
        stopwatch.switched_in(A, us(50));
        assert_eq!(stopwatch.read(A, us(51)), Some(41));
    }

    #[test]
    fn a_task_that_migrates_counts_on_both_cpus() {
        let mut stopwatch = stopwatch();
        stopwatch.switched_in(A, us(0));
        stopwatch.switched_in(B, us(0));
        // Both change CPUs in one moment.
        stopwatch.switched_out(A, us(5));
        stopwatch.switched_out(B, us(5));
        stopwatch.switched_in(A, us(5));
        stopwatch.switched_in(B, us(5));
        assert_eq!(stopwatch.read(A, us(9)), Some(9));
        assert_eq!(stopwatch.read(B, us(8)), Some(8));
    }

    #[test]
    fn parts_of_microseconds_are_not_lost() {
        let mut stopwatch = stopwatch();
        stopwatch.switched_in(A, us(1));
        let read: Option<u64> = (1..=10).map(|n| stopwatch.read(A, us(1) + n * 700)).sum();
        assert_eq!(read, Some(7));
        stopwatch.switched_in(B, us(1));
        let mut total = 0;
        for n in 1..=10 {
            stopwatch.switched_out(B, n * us(3));
            stopwatch.switched_in(B, n * us(3) + 100);
            total += stopwatch.read(B, n * us(3) + 200).unwrap();
        }
        // It ran for 28.3 us.
        assert_eq!(total, 28);
    }

    #[test]
    fn a_task_that_runs_all_the_time_runs_as_long_as_the_clock_goes_on() {
        let mut stopwatch = stopwatch();
        stopwatch.switched_in(A, 300);
        stopwatch.read(A, 1500);
        for (from, to) in [(1500, 2900), (2900, 4100), (4100, 4200), (4200, 9999)] {
            let passed: u64 = to / 1000 - from / 1000;
            assert_eq!(stopwatch.read(A, to), Some(passed), "{from} to {to}");
        }
    }

    #[test]
    fn a_loss_makes_one_reading_unknown() {
        let mut stopwatch = stopwatch();
        stopwatch.switched_in(A, us(0));
        stopwatch.lost();
        stopwatch.acts(A, us(9));
        assert_eq!(stopwatch.read(A, us(10)), None);
        assert_eq!(stopwatch.read(A, us(12)), Some(2));
        // One that sleeps meanwhile is not known to sleep until it is heard of.
        assert_eq!(stopwatch.read(B, us(12)), None);
        assert_eq!(stopwatch.read(B, us(13)), None);
        stopwatch.switched_in(B, us(20));
        assert_eq!(stopwatch.read(B, us(21)), None);
        assert_eq!(stopwatch.read(B, us(24)), Some(3));
        let young = TaskId(4);
        stopwatch.born(young);
        stopwatch.switched_in(young, us(30));
        assert_eq!(stopwatch.read(young, us(31)), Some(1));
    }

    #[test]
    fn a_loss_does_not_count_what_may_have_been_sleep() {
        let mut stopwatch = stopwatch();
        stopwatch.switched_in(A, us(0));
        stopwatch.lost();
        stopwatch.switched_out(A, us(50));
        stopwatch.switched_in(A, us(60));
        assert_eq!(stopwatch.read(A, us(61)), None);
        assert_eq!(stopwatch.read(A, us(62)), Some(1));
    }

    #[test]
    fn switches_that_contradict_each_other_make_one_reading_unknown() {
        // Two CPUs whose clocks differ by a hair: in before out.
        let mut stopwatch = stopwatch();
        stopwatch.switched_in(A, us(0));
        stopwatch.switched_in(A, us(5));
        stopwatch.switched_out(A, us(5));
        stopwatch.acts(A, us(7));
        assert_eq!(stopwatch.read(A, us(7)), None);
        assert_eq!(stopwatch.read(A, us(9)), Some(2));
        stopwatch.switched_out(A, us(10));
        stopwatch.switched_out(A, us(11));
        assert_eq!(stopwatch.read(A, us(12)), None);
        assert_eq!(stopwatch.read(A, us(13)), Some(0));
    }
}
