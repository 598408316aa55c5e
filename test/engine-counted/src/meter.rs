//! The core's atomic operations while operations are executed.
//!
//! The instrumented core calls listeners of the whole process. This one counts in
//! a variable of the calling thread, so CPUs that run at the same time share no
//! line for it. A meter takes what its own executions added to that variable,
//! and leaves out whatever else the thread did: other engines, statistics,
//! audits.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use vellum::sync::report::{Access, Kind, listen};

/// What is counted, in the order of [`slot`].
const NAMES: [&str; 4] = [
    "atomic loads",
    "atomic stores",
    "atomic read-modify-writes",
    "full fences",
];

type Counts = [u64; NAMES.len()];

thread_local! {
    /// Atomic operations of this thread so far.
    static COUNTED: [Cell<u64>; NAMES.len()] = const { [const { Cell::new(0) }; NAMES.len()] };
}

fn counted() -> Counts {
    COUNTED.with(|counted| counted.each_ref().map(Cell::get))
}

/// Place of a kind of operation among the counts. Fences that are not full
/// have none: processors that keep stores in order need no instruction for them.
/// What is not atomic is not counted.
fn slot(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Load => Some(0),
        Kind::Store => Some(1),
        Kind::ReadModifyWrite => Some(2),
        Kind::FullFence => Some(3),
        _ => None,
    }
}

fn on_access(access: Access) {
    if let Some(slot) = slot(access.kind) {
        COUNTED.with(|counted| counted[slot].update(|count| count + 1));
    }
}

/// Counts the atomic operations of one engine.
pub(crate) struct Meter {
    totals: [AtomicU64; NAMES.len()],
}

impl Meter {
    pub(crate) fn new() -> Meter {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| {
            if let Err(error) = listen(on_access) {
                panic!("{error}");
            }
        });
        Meter {
            totals: Default::default(),
        }
    }

    /// Does `work`, which executes operations on the calling thread.
    pub(crate) fn during(&self, work: impl FnOnce()) {
        let before = counted();
        work();
        let after = counted();
        for (total, (before, after)) in self.totals.iter().zip(before.into_iter().zip(after)) {
            total.fetch_add(after - before, Ordering::Relaxed);
        }
    }

    /// Counts since the engine was built, by name, in a fixed order.
    pub(crate) fn counters(&self) -> [(&'static str, u64); NAMES.len()] {
        std::array::from_fn(|slot| (NAMES[slot], self.totals[slot].load(Ordering::Relaxed)))
    }
}
