//! CPU times of the events of a cut.

use crate::Event;

/// Carries the CPU times of a trace over to a cut.
///
/// What a task ran before an event that the cut leaves out counts for its next
/// event there. Of the time between two events of which only the second lies in
/// the cut, the cut gets the share that lies in it: nothing tells when in
/// between the task ran.
pub struct CpuTimes {
    /// The trace has CPU times.
    known: bool,
    tasks: Vec<Clock>,
}

#[derive(Clone)]
struct Clock {
    /// Time of the task's last event in the trace, or of its creation.
    last_us: u64,
    /// CPU time in the cut since its last event there.
    owed_us: Option<u64>,
    /// CPU time that the cut's events have.
    given_us: u64,
}

impl CpuTimes {
    pub fn new(known: bool, tasks: usize) -> Self {
        let clock = Clock {
            last_us: 0,
            owed_us: known.then_some(0),
            given_us: 0,
        };
        CpuTimes {
            known,
            tasks: vec![clock; tasks],
        }
    }

    /// Something happened to `task` in the trace, in the cut or not.
    pub fn pass(&mut self, task: usize, time_us: u64) {
        self.tasks[task].last_us = time_us;
    }

    /// Counts the time before an event in the cut, which began at `began_us`.
    pub fn count(&mut self, event: &Event, began_us: u64) {
        let clock = &mut self.tasks[event.task.0 as usize];
        let (last, now) = (clock.last_us, event.time_us);
        let share = event.ran_us.map(|ran| {
            if last >= began_us {
                return ran;
            }
            let inside = u128::from(ran) * u128::from(now - began_us) / u128::from(now - last);
            u64::try_from(inside).unwrap_or(u64::MAX)
        });
        let sum = clock.owed_us.zip(share);
        clock.owed_us = sum.map(|(owed, share)| owed.saturating_add(share));
    }

    /// The CPU time of the task's next event in the cut, `time_us` after the
    /// cut began. Writers raise times by microseconds, so that a task may seem
    /// to have run for longer than it was there.
    pub fn give(&mut self, task: usize, time_us: u64) -> Option<u64> {
        let clock = &mut self.tasks[task];
        let owed = std::mem::replace(&mut clock.owed_us, self.known.then_some(0));
        let given = owed?.min(time_us.saturating_sub(clock.given_us));
        clock.given_us += given;
        Some(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventKind, TaskId};

    fn event(time_us: u64, ran_us: Option<u64>) -> Event {
        Event {
            time_us,
            task: TaskId(0),
            kind: EventKind::Exit,
            ran_us,
        }
    }

    #[test]
    fn events_left_out_add_their_time_to_the_next_one() {
        let mut times = CpuTimes::new(true, 1);
        for time in [10, 20, 30] {
            times.count(&event(time, Some(7)), 0);
            times.pass(0, time);
        }
        assert_eq!(times.give(0, 30), Some(21));
        assert_eq!(times.give(0, 30), Some(0));
    }

    #[test]
    fn a_time_that_is_not_known_makes_the_sum_unknown_once() {
        let mut times = CpuTimes::new(true, 1);
        times.count(&event(10, None), 0);
        times.count(&event(20, Some(5)), 0);
        assert_eq!(times.give(0, 20), None);
        times.count(&event(30, Some(5)), 0);
        assert_eq!(times.give(0, 30), Some(5));
    }

    #[test]
    fn the_cut_gets_its_share_of_the_time_across_its_beginning() {
        let mut times = CpuTimes::new(true, 1);
        times.pass(0, 100);
        times.count(&event(200, Some(40)), 150);
        assert_eq!(times.give(0, 50), Some(20));
    }

    #[test]
    fn no_task_runs_for_longer_than_the_cut_has_lasted() {
        let mut times = CpuTimes::new(true, 1);
        times.pass(0, 150);
        times.count(&event(160, Some(12)), 150);
        assert_eq!(times.give(0, 10), Some(10));
        assert_eq!(CpuTimes::new(false, 1).give(0, 10), None);
    }
}
