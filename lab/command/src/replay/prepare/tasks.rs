//! The tasks of a replay: where each is and what it must wait for.

use super::schedule::Place;
use super::service::Owed;

/// A task of one copy.
#[derive(Clone, Default, Debug)]
pub(super) struct Task {
    /// It has a space and a stream.
    pub(super) started: bool,
    /// It has ended.
    pub(super) ended: bool,
    /// Slot of its space.
    pub(super) space: u32,
    /// Stream of its operations: that of the CPU it runs on, or its own.
    pub(super) stream: u32,
    /// Its last operation.
    pub(super) last: Option<Place>,
    /// What its next operation must wait for, besides `last`.
    pub(super) causes: Vec<Place>,
    /// Who waits until it executes a program or ends (`CLONE_VFORK`).
    pub(super) vfork_parent: Option<usize>,
    /// Page of its last fault; what a fault-around event belongs to.
    pub(super) last_fault: u64,
    /// Service of the recorded kernel that is in CPU times to come.
    pub(super) owed: Owed,
}

/// `CLONE_VM`: the child uses the parent's space.
pub(super) const CLONE_VM: u64 = 0x100;
/// `CLONE_VFORK`: the parent waits until the child executes a program or ends.
pub(super) const CLONE_VFORK: u64 = 0x4000;
