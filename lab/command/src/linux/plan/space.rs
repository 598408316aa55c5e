//! An address space of the plan, and what it has put off.

use super::TaskNumber;
use crate::replay::regions::Regions;

/// Operations that a space has put off.
#[derive(Clone, Default)]
pub(super) struct Queue {
    pub(super) words: Vec<u64>,
    /// Places in `words` where the id of a task's process goes.
    pub(super) waits: Vec<(usize, TaskNumber)>,
    /// Who does them.
    pub(super) holder: Option<TaskNumber>,
    /// Files that change and that they use.
    pub(super) files: Vec<u32>,
}

/// A space.
#[derive(Clone, Default)]
pub(super) struct Space {
    pub(super) regions: Regions,
    /// End of the heap in pages, once there is one.
    pub(super) heap: Option<u64>,
    /// Tasks in it.
    pub(super) users: u32,
    /// Whose pages it may share.
    pub(super) group: Option<u32>,
    pub(super) queue: Queue,
}

impl Space {
    /// An empty one with one user.
    pub(super) fn alone() -> Self {
        Self {
            users: 1,
            ..Self::default()
        }
    }

    /// What a fork makes of it; the group is not set.
    pub(super) fn forked(&self) -> Self {
        Self {
            regions: self.regions.clone(),
            heap: self.heap,
            ..Self::alone()
        }
    }
}
