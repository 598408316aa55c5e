//! Nodes that are at rest: whose frames keep their places on the lists while pages come and go.

use alloc::boxed::Box;

use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use crate::sync::report::name;

/// The node is at rest.
const AT_REST: u32 = 1;
/// It was at rest, and not all have ended who may have seen it so.
const ENDING: u32 = 2;
/// One who takes pages off the node's lists.
const ONE_BUSY: u32 = 4;

/// Which nodes are at rest, and which frames are where their pages would come to.
pub(super) struct Rests {
    /// Beside each frame, one more than the node's number if the frame is on the node's list that
    /// private pages come to, else 0. Changes under the lock of the node's lists. They know it,
    /// too, but a fault would have to fetch sixteen times as many lines to ask them.
    homes: Box<[AtomicU8]>,
    /// That of each node, after one that never is at rest.
    nodes: Box<[Rest]>,
}

impl Rests {
    /// For so many frames; with none of them, no frame stays where it is.
    pub(super) fn new(frames: usize, nodes: usize) -> Rests {
        let homes: Box<[AtomicU8]> = (0..frames).map(|_| AtomicU8::new(0)).collect();
        name("homes of pages at rest", &[], homes.as_ptr(), homes.len());
        let nodes: Box<[Rest]> = (0..=nodes).map(|_| Rest::default()).collect();
        name("nodes at rest", &[], nodes.as_ptr(), nodes.len());
        Rests { homes, nodes }
    }

    /// Whether a private page that has come to a frame may stay where that is listed. Holds for
    /// as long as the caller stays pinned.
    #[inline]
    pub(super) fn hold(&self, number: u32) -> bool {
        let Some(home) = self.homes.get(number as usize) else {
            return false;
        };
        let home = usize::from(home.load(Ordering::Relaxed));
        self.nodes.get(home).is_some_and(Rest::holds)
    }

    /// That of a node.
    pub(super) fn of(&self, node: usize) -> &Rest {
        &self.nodes[node + 1]
    }

    /// A frame is on the list of a node that private pages come to, or on none of these.
    pub(super) fn set_home(&self, number: u32, node: Option<usize>) {
        if let Some(place) = self.homes.get(number as usize) {
            let home = node.map_or(0, |node| node + 1);
            place.store(u8::try_from(home).unwrap_or(0), Ordering::Relaxed);
        }
    }
}

/// Whether a node is at rest, and how many take pages off its lists. While anybody does, it is
/// not.
///
/// Whoever finds it at rest, pinned, may leave a frame where it is listed. Nobody takes frames
/// off the lists before all have ended who have found it so.
#[derive(Default)]
pub(super) struct Rest(CachePadded<AtomicU32>);

impl Rest {
    #[inline]
    fn holds(&self) -> bool {
        self.0.load(Ordering::Relaxed) & AT_REST != 0
    }

    /// The node is at rest from now on, unless somebody takes pages off its lists.
    pub(super) fn begin(&self) {
        // Read first: mostly it is at rest already.
        if self.0.load(Ordering::Relaxed) == 0 {
            let _ = (self.0).compare_exchange(0, AT_REST, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The caller is about to take pages off the node's lists, until the result is dropped. Returns
    /// as well whether this ends the node's rest.
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
            // A fault shows its page and then looks at the home, and who takes a frame clears the
            // home and then looks for the page. Without a fence in the fault, which would cost more
            // than all of this saves, both could miss what the other did.
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
