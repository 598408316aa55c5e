//! Nodes that are at rest: whose frames keep their places on the lists while pages come and go.

use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU32, Ordering};

/// The node is at rest.
const AT_REST: u32 = 1;
/// It was at rest, and not all have ended who may have seen it so.
const ENDING: u32 = 2;
/// One who takes pages off the node's lists.
const ONE_BUSY: u32 = 4;

/// Whether a node is at rest, and how many take pages off its lists. While anybody does, it is
/// not.
///
/// Whoever finds it at rest, pinned, may leave a frame where it is listed. Nobody takes frames
/// off the lists before all have ended who have found it so.
#[derive(Default)]
pub(super) struct Rest(CachePadded<AtomicU32>);

impl Rest {
    /// Whether the node is at rest. Holds for as long as the caller stays pinned.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.0.load(Ordering::Relaxed) & AT_REST != 0
    }

    /// The node is at rest from now on, unless somebody takes pages off its lists.
    pub(super) fn begin(&self) {
        // Read first: mostly it is at rest already.
        if self.0.load(Ordering::Relaxed) == 0 {
            let _ = (self.0).compare_exchange(0, AT_REST, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The caller, who is not pinned, is about to take pages off the node's lists, until the
    /// result is dropped. Returns as well whether this ends the node's rest.
    pub(super) fn disturb(&self, wait_for_pins: impl FnOnce()) -> (Disturbed<'_>, bool) {
        let Rest(word) = self;
        let mut before = word.load(Ordering::Relaxed);
        let after = loop {
            let after = match before & AT_REST {
                0 => before + ONE_BUSY,
                _ => (before ^ AT_REST | ENDING) + ONE_BUSY,
            };
            let exchanged =
                word.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Relaxed);
            match exchanged {
                Ok(_) => break after,
                Err(now) => before = now,
            }
        };
        let disturbed = Disturbed(self);
        if after & ENDING != 0 {
            wait_for_pins();
            // It may be another's wait that ends first: no rest begins before both have gone, so
            // both waited for the end of the same.
            word.fetch_and(!ENDING, Ordering::AcqRel);
        }
        (disturbed, before & AT_REST != 0)
    }
}

/// Somebody who takes pages off the lists of a node.
pub(super) struct Disturbed<'a>(&'a Rest);

impl Drop for Disturbed<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(ONE_BUSY, Ordering::AcqRel);
    }
}
