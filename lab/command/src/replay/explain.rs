//! Why a replay may go otherwise than the recording, as far as the trace knows.

use vellum_engine::{Divergence, OpError};

/// What the trace itself says about a recorded fault: why a replay may find the
/// page mapped already, or the access refused.
///
/// The value is found while the trace is prepared and costs nothing in the
/// replay: when an operation diverges, this is its explanation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Expectation {
    /// Nothing in the trace explains a divergence here.
    AsRecorded,
    /// The kernel's fault-around offered the page to this mapping earlier, but
    /// it was not in the page cache then. The replay had it.
    OfferedAround,
    /// A neighbour in the fault-around window was touched earlier: the windows
    /// of the kernel and of the replay differ.
    FaultAround,
    /// The trace has an earlier fault of the same kind on this page: the kernel
    /// had taken the page away, or had let the access fault twice.
    Repeated,
    /// As [`Expectation::Repeated`], and several tasks use the space: they raced
    /// for the page.
    Raced,
    /// The page was resident in the parent at fork. The kernel leaves pages of
    /// files and shared memory for the child to fault in; the replay may copy
    /// the entry.
    InheritedAtFork,
    /// A write after a read of shared memory. The kernel write-protects such
    /// pages to learn when they become dirty; the replay may map them writable.
    SharedWrite,
    /// The recorded access was itself refused: the program got a signal, or the
    /// system call an error.
    Refused,
}

impl Expectation {
    /// Every value, in the order of its number.
    pub const ALL: [Expectation; 8] = [
        Expectation::AsRecorded,
        Expectation::OfferedAround,
        Expectation::FaultAround,
        Expectation::Repeated,
        Expectation::Raced,
        Expectation::InheritedAtFork,
        Expectation::SharedWrite,
        Expectation::Refused,
    ];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Expectation::AsRecorded => "unexplained",
            Expectation::OfferedAround => "offered-around",
            Expectation::FaultAround => "fault-around",
            Expectation::Repeated => "repeated",
            Expectation::Raced => "raced",
            Expectation::InheritedAtFork => "inherited-at-fork",
            Expectation::SharedWrite => "shared-write",
            Expectation::Refused => "refused",
        }
    }

    /// One line for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Expectation::AsRecorded => "nothing in the trace explains it",
            Expectation::OfferedAround => {
                "the kernel's fault-around offered the page, but it was not cached yet"
            }
            Expectation::FaultAround => "a neighbour in the fault-around window was touched before",
            Expectation::Repeated => "the trace has an earlier fault of this page",
            Expectation::Raced => "another task of the same space faulted the page before",
            Expectation::InheritedAtFork => {
                "resident in the parent at fork, where the kernel copies no entry"
            }
            Expectation::SharedWrite => {
                "the kernel write-protects shared pages to track when they become dirty"
            }
            Expectation::Refused => "the recorded access was refused too",
        }
    }

    /// Whether it explains that an operation went as `divergence` says.
    pub fn explains(self, divergence: Divergence) -> bool {
        match divergence {
            Divergence::AlreadyMapped => {
                !matches!(self, Expectation::AsRecorded | Expectation::Refused)
            }
            Divergence::MappedLarge | Divergence::MappedFolio => true,
            Divergence::Failed(OpError::Protection | OpError::NoRegion | OpError::PastEnd) => {
                self == Expectation::Refused
            }
            Divergence::Failed(_) => false,
        }
    }
}
