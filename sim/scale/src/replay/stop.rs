//! Why a replay stopped before its end.

use std::fmt;

use vellum_engine::op::Op;

use super::program::Wait;

/// A task that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// Its number.
    pub task: u32,
    /// Operations that it has completed.
    pub done: u32,
    /// What it waits for.
    pub wait: Wait,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blocked { task, done, wait } = self;
        let Wait { task: other, ops } = wait;
        write!(
            f,
            "task {task}, before its operation {done}, waits until task {other} has completed {ops}"
        )
    }
}

/// Why a replay stopped before its end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Stop {
    /// Tasks wait for each other in a circle: each for the next, and the last for the first.
    #[error("tasks wait for each other in a circle and none can go on: {}", list(.0))]
    Circle(Vec<Blocked>),
    /// An operation found no memory.
    #[error(
        "task {task}, operation {operation}: {op:?} found no memory left; \
         give the machine more, or the program fewer tasks at once"
    )]
    OutOfMemory {
        /// The task.
        task: u32,
        /// The operation's number in the task.
        operation: u32,
        /// The operation.
        op: Op,
    },
    /// Virtual time has run out.
    #[error("task {task} was not done after {hours} hours of virtual time, the most there is")]
    TooLong {
        /// A task that was running.
        task: u32,
        /// The limit.
        hours: u64,
    },
}

/// Tasks of a circle that are told in full.
const TOLD: usize = 8;

fn list(circle: &[Blocked]) -> String {
    let told: Vec<String> = circle.iter().take(TOLD).map(Blocked::to_string).collect();
    let rest = circle.len().saturating_sub(TOLD);
    match rest {
        0 => told.join("; "),
        _ => format!("{}; and {rest} more", told.join("; ")),
    }
}
