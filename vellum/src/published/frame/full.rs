//! The cache of the zone lists: for each node, which zones were found full a short while
//! ago, so that a search need not look at them again (Linux 2.6.20 to 4.3).
//!
//! The kernels of 2014 first marked a zone whenever it was found full, also when the
//! cache had not been asked yet and on machines with one node (`zonecache=eager`); then
//! only in a search that had asked it (`zonecache=lazy`), and not if it had frames but
//! too many dirty pages for this request. Linux forgot all marks after a
//! second; there is no clock here, and they are forgotten after [`LIFE`] searches that ask.

use alloc::boxed::Box;

use crate::design::ZoneCache;
use crate::platform::NodeId;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Searches that ask the cache until it forgets.
pub(super) const LIFE: u32 = 1024;

/// The cache of one node's list of zones. A zone beyond the bits is never marked.
#[derive(Default)]
struct NodeCache {
    full: AtomicU64,
    asked: AtomicU32,
}

/// The caches of all nodes.
pub(super) struct FullZones {
    use_of: ZoneCache,
    nodes: Box<[CachePadded<NodeCache>]>,
}

impl FullZones {
    pub(super) fn new(use_of: ZoneCache, nodes: usize) -> FullZones {
        FullZones {
            use_of,
            nodes: (0..nodes).map(|_| CachePadded::default()).collect(),
        }
    }

    fn of(&self, node: NodeId) -> &NodeCache {
        self.nodes
            .get(usize::from(node.0))
            .unwrap_or(&self.nodes[0])
    }

    /// Whether a search that found its first zone full asks the cache from then on.
    pub(super) fn is_asked(&self) -> bool {
        self.use_of != ZoneCache::Off && self.nodes.len() > 1
    }

    /// A search begins to ask: old marks are forgotten.
    pub(super) fn begin(&self, node: NodeId) {
        let cache = self.of(node);
        let asked = cache.asked.load(Ordering::Relaxed) + 1;
        if asked >= LIFE {
            cache.full.store(0, Ordering::Relaxed);
            cache.asked.store(0, Ordering::Relaxed);
        } else {
            cache.asked.store(asked, Ordering::Relaxed);
        }
    }

    /// Whether a zone, by its place in the node's list, is worth a look.
    pub(super) fn is_worth(&self, node: NodeId, place: usize) -> bool {
        let full = self.of(node).full.load(Ordering::Relaxed);
        place >= u64::BITS as usize || full >> place & 1 == 0
    }

    /// Whether a zone is marked for its dirty pages too, although it has frames for
    /// others.
    pub(super) fn marks_at_limit(&self) -> bool {
        self.use_of == ZoneCache::Eager
    }

    /// A zone was found full, in a search that had `asked` or not.
    pub(super) fn mark(&self, node: NodeId, place: usize, asked: bool) {
        let marks = match self.use_of {
            ZoneCache::Eager => true,
            ZoneCache::Lazy => asked,
            ZoneCache::Off => false,
        };
        if marks && place < u64::BITS as usize {
            self.of(node).full.fetch_or(1 << place, Ordering::Relaxed);
        }
    }
}
