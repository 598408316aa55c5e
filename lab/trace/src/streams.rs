//! A whole trace in memory, task by task.

use crate::error::TraceError;
use crate::event::{Event, TaskId};
use crate::reader::TraceReader;

/// Every event of a trace, grouped by task; inside a task in its own order.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    events: Vec<Event>,
    /// Where each task's events begin, and the end.
    starts: Vec<usize>,
}

impl Streams {
    /// Loads all events of `reader`.
    pub(super) fn load(reader: &TraceReader) -> Result<Self, TraceError> {
        let mut events = Vec::new();
        for event in reader.events() {
            events.push(event?);
        }
        events.sort_by_key(|event| event.task);
        let tasks = reader.header().tasks.len();
        let mut starts = vec![0; tasks + 1];
        for event in &events {
            starts[event.task.0 as usize + 1] += 1;
        }
        for task in 0..tasks {
            starts[task + 1] += starts[task];
        }
        Ok(Streams { events, starts })
    }

    /// The events of `task` in its own order; empty for an unknown task.
    pub fn task(&self, task: TaskId) -> &[Event] {
        let task = task.0 as usize;
        match (self.starts.get(task), self.starts.get(task + 1)) {
            (Some(begin), Some(end)) => &self.events[*begin..*end],
            _ => &[],
        }
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }
}
