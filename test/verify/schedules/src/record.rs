//! A list of the atomic accesses that a piece of code makes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;

use vellum::sync::report::Kind;

use crate::hook;

/// Bytes in a cache line.
const LINE_BYTES: usize = 64;

thread_local! {
    /// Whether there is a list: looked at before every access.
    static ON: Cell<bool> = const { Cell::new(false) };
    static RECORDING: RefCell<Option<Vec<Recorded>>> = const { RefCell::new(None) };
}

/// One access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// What it did.
    pub kind: Kind,
    /// Address of the atomic; 0 for a fence.
    pub address: usize,
}

impl Recorded {
    fn is_fence(&self) -> bool {
        matches!(self.kind, Kind::Fence | Kind::FullFence)
    }
}

/// Accesses in the order they were made.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Accesses(pub Vec<Recorded>);

impl Accesses {
    /// Number of accesses of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.0.iter().filter(|access| access.kind == kind).count()
    }

    /// The accesses to cache lines that hold bytes of `memory`.
    pub fn on_lines_of(&self, memory: &Range<usize>) -> Accesses {
        let first = memory.start / LINE_BYTES;
        let end = memory.end.div_ceil(LINE_BYTES);
        let touches = |access: &&Recorded| {
            !access.is_fence() && (first..end).contains(&(access.address / LINE_BYTES))
        };
        Accesses(self.0.iter().filter(touches).copied().collect())
    }

    /// The accesses that need their cache line for themselves: stores and
    /// read-modify-writes.
    pub fn writing(&self) -> Accesses {
        let writes =
            |access: &&Recorded| matches!(access.kind, Kind::Store | Kind::ReadModifyWrite);
        Accesses(self.0.iter().filter(writes).copied().collect())
    }

    /// Start addresses of the cache lines accessed.
    pub fn lines(&self) -> BTreeSet<usize> {
        self.0
            .iter()
            .filter(|access| !access.is_fence())
            .map(|access| access.address / LINE_BYTES * LINE_BYTES)
            .collect()
    }
}

/// Runs `work` and returns its result with the accesses that it made on the
/// calling host thread. Not inside another recording.
///
/// # Panics
/// If the calling thread records already.
pub fn record_accesses<R>(work: impl FnOnce() -> R) -> (R, Accesses) {
    struct Stop;
    impl Drop for Stop {
        fn drop(&mut self) {
            ON.set(false);
            RECORDING.take();
        }
    }
    hook::install();
    let before = RECORDING.replace(Some(Vec::new()));
    let stop = Stop;
    assert!(before.is_none(), "this thread records its accesses already");
    ON.set(true);
    let result = work();
    let accesses = RECORDING.take().unwrap_or_default();
    drop(stop);
    (result, Accesses(accesses))
}

#[inline]
pub(crate) fn is_on() -> bool {
    ON.get()
}

pub(crate) fn on_access(kind: Kind, address: usize) {
    RECORDING.with_borrow_mut(|recording| {
        if let Some(accesses) = recording {
            accesses.push(Recorded { kind, address });
        }
    });
}
