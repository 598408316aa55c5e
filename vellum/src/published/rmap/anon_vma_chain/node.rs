//! The nodes of `anon_vma_chain`: anon_vmas, and links between them and regions.

use crate::frame::Site;
use crate::slab::{Arena, Handle, Item};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{BitGuard, BitLock, Pin};
use crate::tree::{Interval, IntervalItem, IntervalTree};

const LOCK_BIT: u32 = 0;

/// What the private pages that one region made name.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct AnonVmaNode {
    lock: AtomicU32,
    /// Root of the interval tree of links. 0: nobody has this anon_vma.
    root: AtomicU32,
    /// Regions whose own anon_vma this is: they make pages that name it.
    owners: AtomicU32,
    /// Anon_vmas whose parent this is.
    children: AtomicU32,
    /// The one that was the parent region's own when fork made this, or 0.
    parent: AtomicU32,
    link: AtomicU32,
}

/// One region's membership in one anon_vma: a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct AnonVmaLink {
    interval: Interval,
    /// Linear indices of the region, from its first to the one after its last.
    first: AtomicU64,
    end: AtomicU64,
    region: AtomicU32,
    /// 0: vacant.
    anon_vma: AtomicU32,
    /// The next link of the same region.
    next: AtomicU32,
    link: AtomicU32,
}

/// What a region embeds.
#[derive(Debug, Default)]
pub struct Memberships {
    /// Its own anon_vma, which the pages it makes name, or 0.
    pub(super) own: AtomicU32,
    /// Its links, the own anon_vma's among them.
    pub(super) links: AtomicU32,
    /// While it is merged: the region that its links go to, or 0.
    pub(super) heir: AtomicU32,
}

impl Memberships {
    /// The region's own anon_vma, or 0.
    #[inline]
    pub fn own(&self) -> u32 {
        self.own.load(Ordering::Acquire)
    }

    pub(super) fn first_link(&self) -> Handle<AnonVmaLink> {
        Handle::from_raw(self.links.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, own: u32, links: u32) {
        self.links.store(links, Ordering::Relaxed);
        self.own.store(own, Ordering::Release);
    }
}

impl Item for AnonVmaNode {
    const SITE: Site = Site::AnonVma;
    const SHARE: usize = 8;

    fn vacant() -> Self {
        AnonVmaNode {
            lock: AtomicU32::new(0),
            root: AtomicU32::new(0),
            owners: AtomicU32::new(0),
            children: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            link: AtomicU32::new(0),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl AnonVmaNode {
    /// Begins to be used. Stale lookups may hold the lock, and find nothing.
    pub(super) fn begin(&self, parent: u32) {
        self.owners.store(0, Ordering::Relaxed);
        self.children.store(0, Ordering::Relaxed);
        self.parent.store(parent, Ordering::Relaxed);
    }

    pub(super) fn parent(&self) -> u32 {
        self.parent.load(Ordering::Relaxed)
    }

    pub(super) fn owners(&self) -> u32 {
        self.owners.load(Ordering::Relaxed)
    }

    pub(super) fn children(&self) -> u32 {
        self.children.load(Ordering::Relaxed)
    }

    /// One more child, or one less. Beside others.
    pub(super) fn count_child(&self, change: u32) {
        self.children.fetch_add(change, Ordering::Relaxed);
    }

    /// Whether no region is linked to it.
    pub(super) fn is_unused(&self) -> bool {
        self.root.load(Ordering::Relaxed) == 0
    }

    pub(super) fn is_locked(&self) -> bool {
        self.lock.load(Ordering::Relaxed) != 0
    }

    /// Whether a fork may make it the child's own instead of making another:
    /// nobody makes pages that name it, and at most one anon_vma descends from
    /// it. Exact under the lock.
    pub(super) fn is_reusable(&self) -> bool {
        self.owners() == 0 && self.children() < 2
    }

    pub(super) fn lock<'a>(
        &'a self,
        links: &'a Arena<AnonVmaLink>,
        pin: &'a Pin<'_>,
    ) -> LockedAnonVma<'a> {
        LockedAnonVma {
            _guard: self.lock.lock_bit(LOCK_BIT, pin),
            tree: IntervalTree::new(links, &self.root),
            anon_vma: self,
        }
    }

    /// The tree, while nothing else runs.
    pub(super) fn tree<'a>(
        &'a self,
        links: &'a Arena<AnonVmaLink>,
    ) -> IntervalTree<'a, AnonVmaLink> {
        IntervalTree::new(links, &self.root)
    }
}

/// A locked anon_vma.
pub(super) struct LockedAnonVma<'a> {
    pub anon_vma: &'a AnonVmaNode,
    pub tree: IntervalTree<'a, AnonVmaLink>,
    _guard: BitGuard<'a, AtomicU32>,
}

impl LockedAnonVma<'_> {
    /// One region more makes pages that name this anon_vma, or one less.
    pub fn count_owner(&self, change: u32) {
        let owners = self.anon_vma.owners().wrapping_add(change);
        self.anon_vma.owners.store(owners, Ordering::Relaxed);
    }
}

impl Item for AnonVmaLink {
    const SITE: Site = Site::AnonVmaChain;
    const SHARE: usize = 8;

    fn vacant() -> Self {
        AnonVmaLink {
            interval: Interval::default(),
            first: AtomicU64::new(0),
            end: AtomicU64::new(0),
            region: AtomicU32::new(0),
            anon_vma: AtomicU32::new(0),
            next: AtomicU32::new(0),
            link: AtomicU32::new(0),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl IntervalItem for AnonVmaLink {
    fn interval(&self) -> &Interval {
        &self.interval
    }

    fn first_index(&self) -> u64 {
        self.first.load(Ordering::Relaxed)
    }

    fn end_index(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }
}

impl AnonVmaLink {
    /// Sets everything of a link that is in no tree.
    pub(super) fn set(&self, anon_vma: u32, region: u32, (first, end): (u64, u64), next: u32) {
        self.anon_vma.store(anon_vma, Ordering::Relaxed);
        self.region.store(region, Ordering::Relaxed);
        self.set_range(first, end);
        self.next.store(next, Ordering::Relaxed);
    }

    pub(super) fn set_range(&self, first: u64, end: u64) {
        self.first.store(first, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }

    pub(super) fn set_region(&self, region: u32) {
        self.region.store(region, Ordering::Relaxed);
    }

    /// Marks the link vacant.
    pub(super) fn clear(&self) {
        self.anon_vma.store(0, Ordering::Relaxed);
    }

    pub(super) fn anon_vma(&self) -> u32 {
        self.anon_vma.load(Ordering::Relaxed)
    }

    pub(super) fn region(&self) -> u32 {
        self.region.load(Ordering::Relaxed)
    }

    pub(super) fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Relaxed);
    }

    pub(super) fn has_range(&self, range: (u64, u64)) -> bool {
        (self.first_index(), self.end_index()) == range
    }

    pub(super) fn next(&self) -> Handle<AnonVmaLink> {
        Handle::from_raw(self.next.load(Ordering::Relaxed))
    }
}
