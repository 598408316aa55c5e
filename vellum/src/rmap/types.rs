//! What the calls of a design are about: runs of entries, regions as designs
//! see them, what a visit found, and what a design counted.

use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::PhysicalMemory;
use crate::platform::Platform;
use crate::sync::Pin;
use crate::table::PteRef;

/// What every call of a design may use.
pub struct Env<'a, P: Platform> {
    /// Frames and their records.
    pub memory: &'a PhysicalMemory<P>,
    /// The CPU the caller is pinned to.
    pub pin: &'a Pin<'a>,
}

/// Consecutive entries of one table that map consecutive frames.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// First frame.
    pub frame: Pfn,
    /// Number of entries.
    pub count: u32,
    /// Log2 of the frames that each entry maps.
    pub order: u32,
    /// First entry.
    pub pte: PteRef,
    /// First page.
    pub page: Vpn,
}

impl Run {
    /// One entry that maps one frame.
    #[inline]
    pub const fn single(frame: Pfn, pte: PteRef, page: Vpn) -> Run {
        Run {
            frame,
            count: 1,
            order: 0,
            pte,
            page,
        }
    }

    /// One entry that maps `1 << order` frames.
    #[inline]
    pub const fn large(frame: Pfn, order: u32, pte: PteRef, page: Vpn) -> Run {
        Run {
            order,
            ..Run::single(frame, pte, page)
        }
    }

    /// A large leaf as a design is told of it: as one run if the frames have one record,
    /// or the design lists leaves ([`TracksLeaves::LISTS_LEAVES`](super::TracksLeaves::LISTS_LEAVES)),
    /// and otherwise frame by frame.
    pub fn told(&self, as_one: bool) -> impl Iterator<Item = Run> + use<> {
        let parts = (!as_one).then(|| self.parts());
        as_one
            .then_some(*self)
            .into_iter()
            .chain(parts.into_iter().flatten())
    }

    /// The frames of a run of one entry, each as a run of that entry.
    pub fn parts(&self) -> impl Iterator<Item = Run> + use<> {
        let Run {
            frame,
            order,
            pte,
            page,
            ..
        } = *self;
        (0..1 << order).map(move |step| {
            let page = page.offset(u64::from(step));
            Run::single(frame.offset(step), pte, page)
        })
    }
}

/// The region and space an entry belongs to, as far as designs need them.
#[derive(Debug)]
pub struct Place<'r, S, T> {
    /// Handle of the space.
    pub space: u32,
    /// The design's state in the space.
    pub space_state: &'r T,
    /// The design's state in the region.
    pub region: &'r S,
    /// What `Place::linear` adds to a page, wrapping: the region's first linear
    /// index less its first page (Linux: `vm_pgoff - (vm_start >> PAGE_SHIFT)`).
    pub linear_offset: u64,
}

impl<S, T> Place<'_, S, T> {
    /// Linear index of `page`: the page of the object that the region shows
    /// there; in a region without object, the page that the memory was first
    /// mapped at. It survives fork, split, merge and mremap.
    #[cfg(feature = "published")]
    #[inline]
    pub(crate) fn linear(&self, page: Vpn) -> u64 {
        page.0.wrapping_add(self.linear_offset)
    }
}

impl<S, T> Clone for Place<'_, S, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, T> Copy for Place<'_, S, T> {}

/// A region as a value, for events that concern regions.
#[derive(Debug)]
pub struct RegionRef<'r, S> {
    /// Its handle, for [`Topology::region`](super::Topology::region). Never 0.
    pub handle: u32,
    /// Handle of its space.
    pub space: u32,
    /// Its pages.
    pub pages: PageRange,
    /// Linear index of its first page; see `Place::linear`.
    pub first: u64,
    /// The design's state in it.
    pub state: &'r S,
}

impl<S> RegionRef<'_, S> {
    /// Linear index after that of its last page.
    #[inline]
    pub fn end(&self) -> u64 {
        self.first + self.pages.pages()
    }

    /// The page with linear index `index`, if it is in the region.
    #[inline]
    pub fn page_of(&self, index: u64) -> Option<Vpn> {
        // Read without locks, start and end may be of different moments.
        let distance = index.wrapping_sub(self.first);
        let page = Vpn(self.pages.start.0.wrapping_add(distance));
        self.pages.contains(page).then_some(page)
    }
}

impl<S> Clone for RegionRef<'_, S> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for RegionRef<'_, S> {}

/// Where consecutive pages of an object may be mapped by consecutive entries.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// The first page.
    pub index: u64,
    /// How many pages: at least one, and no more than the table has entries for.
    pub pages: u32,
    /// The first page's level-1 entry, or nothing if there is no table for it.
    pub entry: Option<PteRef>,
}

/// What [`ClearsEntries::clear`](super::ClearsEntries::clear) did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cleared {
    /// Entries cleared.
    pub entries: u32,
    /// Page tables unlinked because they were empty then.
    pub tables: u32,
}

/// Counts of one design, summed over CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RmapStats {
    /// Entries added for a first or further mapping.
    pub adds: u64,
    /// Entries added by fork.
    pub duplicates: u64,
    /// Entries removed.
    pub removes: u64,
    /// Entries moved to another place.
    pub moves: u64,
    /// Pages that became exclusive to the writer again.
    pub turns: u64,
    /// Nodes taken for chains.
    pub node_allocs: u64,
    /// Nodes given back.
    pub node_frees: u64,
    /// Locks of frames taken.
    pub locks: u64,
    /// Chain nodes read while searching for an entry to remove.
    pub nodes_searched: u64,
    /// Locks of frames that were not free (`rmap=pv`).
    pub contended: u64,
    /// Those waited for so long that a thread would have gone to sleep.
    pub parked: u64,
    /// Times that such a thread would have been woken while the lock was not free.
    pub woken_in_vain: u64,
    /// Times that an operation began anew with the queue of those that have to flush.
    pub flush_queue_restarts: u64,
    /// Times that somebody waited until others had flushed.
    pub flush_waits: u64,
    /// Entries cleared to make room for nodes.
    pub reclaimed: u64,
    /// Bytes of nodes in use.
    pub bytes: u64,
    /// Highest number of such bytes.
    pub peak_bytes: u64,
}

/// What a visit met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VisitReport {
    /// Entries found and handed to the visitor.
    pub hits: u32,
    /// Places looked at that did not map the frame.
    pub false_probes: u32,
    /// Locks that were not free, each a reason to start over.
    pub lock_failures: u32,
    /// Entries the visitor cleared.
    pub unmapped: u32,
}

impl VisitReport {
    /// Adds the counts of another visit.
    pub fn merge(&mut self, other: VisitReport) {
        self.hits += other.hits;
        self.false_probes += other.false_probes;
        self.lock_failures += other.lock_failures;
        self.unmapped += other.unmapped;
    }
}

/// What a visitor did with a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The entry still maps the frame; go on.
    Keep,
    /// The visitor cleared the entry through the slot; go on. The entry's
    /// reference to the frame passes to the visitor, who drops it after the
    /// flush.
    Unmapped,
    /// The entry still maps the frame; the visitor has seen enough.
    Stop,
}
