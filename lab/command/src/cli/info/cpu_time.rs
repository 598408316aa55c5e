//! How long the tasks of a trace ran.

use serde::Serialize;

use vellum_trace::{Event, Header, TaskId};

/// Tasks that are listed.
const BUSIEST: usize = 4;

/// CPU time of a whole trace.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct CpuTime {
    /// What the events add up to.
    pub seconds: f64,
    /// Events before which the task's CPU time is not known.
    pub unknown_events: u64,
    /// The tasks that ran longest.
    pub busiest: Vec<BusyTask>,
}

/// A task that ran for long.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct BusyTask {
    pub task: u32,
    pub pid: u32,
    /// The command that it ran last.
    pub command: String,
    pub seconds: f64,
}

/// Adds CPU times up.
pub struct Tally {
    ran_us: Vec<u64>,
    unknown_events: u64,
}

impl Tally {
    pub fn new(header: &Header) -> Self {
        Tally {
            ran_us: vec![0; header.tasks.len()],
            unknown_events: 0,
        }
    }

    /// Adds the time of one event.
    pub fn take(&mut self, event: &Event) {
        match event.ran_us {
            Some(ran_us) => self.ran_us[event.task.0 as usize] += ran_us,
            None => self.unknown_events += 1,
        }
    }

    /// The sums; `None` if the trace has no CPU times. `command` names what a
    /// task ran last.
    pub fn report(self, header: &Header, command: impl Fn(TaskId) -> String) -> Option<CpuTime> {
        if !header.cpu_times {
            return None;
        }
        let mut order: Vec<usize> = (0..self.ran_us.len()).collect();
        order.retain(|task| self.ran_us[*task] > 0);
        order.sort_by_key(|task| std::cmp::Reverse(self.ran_us[*task]));
        order.truncate(BUSIEST);
        let seconds = |us: u64| us as f64 / 1e6;
        let busy = |task: usize| BusyTask {
            task: task as u32,
            pid: header.tasks[task].pid,
            command: command(TaskId(task as u32)),
            seconds: seconds(self.ran_us[task]),
        };
        Some(CpuTime {
            seconds: seconds(self.ran_us.iter().sum()),
            unknown_events: self.unknown_events,
            busiest: order.into_iter().map(busy).collect(),
        })
    }
}

impl std::fmt::Display for CpuTime {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:.6} s", self.seconds)?;
        for (index, task) in self.busiest.iter().enumerate() {
            let lead = if index == 0 { "; most in" } else { "," };
            let BusyTask {
                task,
                command,
                seconds,
                ..
            } = task;
            write!(out, "{lead} task {task} ({command}) {seconds:.6} s")?;
        }
        match self.unknown_events {
            0 => Ok(()),
            1 => write!(out, "; not known before 1 event"),
            count => write!(out, "; not known before {count} events"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_trace::{EventKind, Task};

    fn tally(cpu_times: bool, events: &[(u32, Option<u64>)]) -> Option<CpuTime> {
        let task = |pid| Task {
            pid,
            process: pid,
            parent: None,
        };
        let header = Header {
            tasks: (100..106).map(task).collect(),
            cpu_times,
            ..Header::default()
        };
        let mut tally = Tally::new(&header);
        for (task, ran_us) in events {
            tally.take(&Event {
                time_us: 0,
                task: TaskId(*task),
                kind: EventKind::Brk { end: 0 },
                ran_us: *ran_us,
            });
        }
        tally.report(&header, |task| format!("c{}", task.0))
    }

    #[test]
    fn the_busiest_tasks_come_first_and_idle_ones_not_at_all() {
        let events = [
            (1, Some(5)),
            (3, Some(2_000_000)),
            (1, Some(6)),
            (2, None),
            (0, Some(0)),
        ];
        let text = tally(true, &events).unwrap().to_string();
        let expected = "2.000011 s; most in task 3 (c3) 2.000000 s, task 1 (c1) 0.000011 s; \
                        not known before 1 event";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_trace_without_cpu_times_has_no_sum() {
        assert_eq!(tally(false, &[(0, None)]), None);
    }
}
