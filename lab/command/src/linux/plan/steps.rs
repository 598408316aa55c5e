//! A plan: steps of tasks and the words that they execute.

use std::ops::Range;

use crate::replay::Class;

/// Number of classes.
pub const CLASSES: usize = Class::ALL.len();

/// A task of the trace, or the keeper, which is the last.
pub type TaskNumber = u32;

/// How a step ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The task waits for its next step.
    Waits,
    /// It creates `child`; the last word of the step is the child's slot.
    Creates {
        /// The new task.
        child: TaskNumber,
        /// Its class: fork, or one more user of the space.
        class: Class,
        /// It is a process of its own.
        process: bool,
        /// The task goes on only when the child has left its memory.
        vfork: bool,
    },
    /// It executes a program. Other tasks of its process end by that.
    Executes {
        /// Those tasks.
        ends: Vec<TaskNumber>,
    },
    /// It ends.
    Exits,
}

/// What a task does before another one may go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Who.
    pub task: TaskNumber,
    /// Its words in [`Plan::words`].
    pub words: Range<usize>,
    /// How it ends.
    pub ending: Ending,
}

/// How often the kernel is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entries {
    /// System calls about memory and files.
    pub calls: u64,
    /// Touches, each of which faulted when it was recorded.
    pub touches: u64,
}

/// A trace as steps of real processes.
#[derive(Debug)]
pub struct Plan {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// What they do.
    pub words: Vec<u64>,
    /// Places in `words` where the id of a process has to be put: that of the task
    /// beside it. Ascending.
    pub waits: Vec<(usize, TaskNumber)>,
    /// First lengths of the files, in pages.
    pub files: Vec<u64>,
    /// The keeper's number; tasks have those below.
    pub keeper: TaskNumber,
    /// Most tasks that live at once, the keeper included.
    pub most_tasks: usize,
    /// Operations planned.
    pub ops: u64,
    /// Entries into the kernel, by class.
    pub entries: [Entries; CLASSES],
    /// Operations by class.
    pub ops_by_class: [u64; CLASSES],
    /// Accesses left out because the recording refused them.
    pub refused: u64,
    /// Waits left out because nobody waits for that process here.
    pub waits_left_out: u64,
    /// `vfork`s replayed as plain sharing, because the parent did not wait.
    pub vforks_loosened: u64,
}
