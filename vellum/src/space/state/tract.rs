//! Tracts: a space that many CPUs change at once, taken apart.
//!
//! A space has a lock and a tree of its regions. Where CPUs wait for that lock again and again
//! to change regions far from each other's, the space is divided (`divide.rs`) into tracts: pages
//! in a row whose regions have a lock and a tree of their own. Whoever changes regions in one
//! tract takes its lock alone. Whoever needs more takes the lock of the space, and then those of
//! all tracts, ascending; the space is *whole* then.
//!
//! * Tracts cover all pages, and no region reaches from one into the next. Regions on two sides of
//!   a boundary stay two, until the space is united again.
//! * A tract's range and tree are changed by the holder of its lock; which tracts there are, by
//!   a holder of the space's lock and of the locks of all tracts concerned.
//! * Readers without a lock validate two counts: that of the space, which advances with every
//!   change that the holder of its lock makes, and that of the tract.
//! * What a space may have more is dealt out to its tracts, so that it never has more than its
//!   limits allow. Who holds all locks has taken it back.
//!
//! RadixVM (2013) and CortenMM (2025) let changes of disjoint ranges of one space run beside each
//! other always, without regions. Here a space whose lock nobody waits for has none of this.

use alloc::boxed::Box;
use core::mem::offset_of;

use super::account::{Left, RegionCounts};
use super::locked::LockedSpace;
use super::manager::Vm;
use super::region::Region;
use super::spaces::Live;
use super::tree::{KeepsNodes, RegionTree};
use crate::addr::{PageRange, Vpn};
use crate::frame::{AuditError, Site};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::slab::{Arena, ArenaCensus, ArenaMaker, Handle, Item, WhilePinned};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::report::Fields;
use crate::sync::{Pin, SeqCount, SleepLock};
use crate::table::Format;
use crate::tree::{Found, RangeNode, RangeTree, Walk};

/// Tracts in their arena, and the nodes of the trees that spaces find them by.
///
/// These are looked at without a pin, so nobody has the arena give frames of theirs back. Its type is
/// that of the nodes of regions, so that the trees are compiled once.
pub(crate) struct Tracts {
    pub(crate) items: Arena<Tract>,
    nodes: Arena<RangeNode, WhilePinned>,
}

impl Tracts {
    /// In a place of their own, so that making a manager needs no more stack than it did.
    #[inline(never)]
    pub(in crate::space) fn new(arenas: &ArenaMaker) -> Box<Tracts> {
        Box::new(Tracts {
            items: arenas.make(),
            nodes: arenas.make(),
        })
    }

    /// Checks the arena of the nodes; see [`Arena::audit`].
    pub(crate) fn audit_nodes(&self) -> Result<ArenaCensus, AuditError> {
        self.nodes.audit()
    }
}

/// Pages in a row of a space, and what guards the regions there.
///
/// Faults read the first line; the second is that of the lock.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Tract {
    handle: AtomicU32,
    /// The handle of its space, or 0.
    space: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
    /// Advances with every change of the tree by the holder of the tract's lock.
    pub(in crate::space) seq: SeqCount,
    link: AtomicU32,
    /// The tract below, when all of them end.
    below: AtomicU32,
    /// Root of the tree of regions.
    tree: AtomicU64,
    pub(in crate::space) guarded: Guarded,
}

/// What only the holder of a tract's lock uses.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(in crate::space) struct Guarded {
    pub(in crate::space) lock: SleepLock,
    pub(in crate::space) waits: Waits,
    /// What its regions added to those of the space.
    pub(in crate::space) counts: RegionCounts,
    /// Most of it.
    pub(in crate::space) most: Allowance,
}

/// How much more of pages, regions and data a tract may get.
#[derive(Debug, Default)]
pub(in crate::space) struct Allowance {
    pages: AtomicU64,
    regions: AtomicU64,
    data: AtomicU64,
}

/// Who has waited for a lock, to see whether what they change could be taken apart.
#[derive(Debug, Default)]
pub(in crate::space) struct Waits {
    /// How many, since the last division.
    count: AtomicU32,
    /// The page that the last of them was to change, and 1; or 0.
    page: AtomicU64,
}

impl Waits {
    /// Somebody has waited, who now has the lock. Returns how often that was, and the page of the
    /// one before.
    pub(in crate::space) fn note(&self, page: Vpn) -> (u32, Option<Vpn>) {
        let count = self.count.load(Ordering::Relaxed).saturating_add(1);
        self.count.store(count, Ordering::Relaxed);
        let before = self.page.load(Ordering::Relaxed);
        self.page.store(page.0 + 1, Ordering::Relaxed);
        (count, before.checked_sub(1).map(Vpn))
    }

    pub(in crate::space) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.page.store(0, Ordering::Relaxed);
    }
}

impl Item for Tract {
    const SITE: Site = Site::Tract;
    const FIELDS: Fields = &[("range and tree", 0), ("lock", offset_of!(Tract, guarded))];

    fn vacant() -> Self {
        Tract {
            handle: AtomicU32::new(0),
            space: AtomicU32::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            seq: SeqCount::default(),
            link: AtomicU32::new(0),
            below: AtomicU32::new(0),
            tree: AtomicU64::new(0),
            guarded: Guarded::default(),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl Tract {
    pub(in crate::space) fn handle(&self) -> Handle<Tract> {
        Handle::from_raw(self.handle.load(Ordering::Relaxed))
    }

    /// Its pages. Exact for the holder of its lock or of the space's.
    pub(in crate::space) fn range(&self) -> PageRange {
        PageRange {
            start: Vpn(self.start.load(Ordering::Relaxed)),
            end: Vpn(self.end.load(Ordering::Relaxed)),
        }
    }

    /// Whether it is a tract of the space with this handle that holds the page. The answer stays
    /// right for the holder of its lock, and for who validates the space's count.
    #[inline]
    pub(in crate::space) fn covers(&self, space: u32, page: Vpn) -> bool {
        // Who holds the lock may have waited for it since an earlier life of the tract, and sees by
        // this all that made it one again.
        self.space.load(Ordering::Acquire) == space && self.range().contains(page)
    }

    /// A tract of these pages that is no space's until [`Tract::publish`]. Its lock may be somebody's
    /// who has waited for it since an earlier life of it, and is about to find out.
    pub(in crate::space) fn begin(&self, handle: Handle<Tract>, range: PageRange) {
        self.handle.store(handle.raw(), Ordering::Relaxed);
        self.tree.store(0, Ordering::Relaxed);
        self.guarded.waits.reset();
        self.guarded.counts.reset();
        let nothing = Left {
            pages: 0,
            regions: 0,
            data: 0,
        };
        self.guarded.most.set(nothing);
        self.set_range(range);
    }

    /// From now on the tract is of the space with this handle, and of whoever has its lock.
    pub(in crate::space) fn publish(&self, space: u32) {
        self.space.store(space, Ordering::Release);
    }

    pub(in crate::space) fn below(&self) -> Handle<Tract> {
        Handle::from_raw(self.below.load(Ordering::Relaxed))
    }

    pub(in crate::space) fn set_below(&self, below: Handle<Tract>) {
        self.below.store(below.raw(), Ordering::Relaxed);
    }

    pub(in crate::space) fn set_range(&self, range: PageRange) {
        self.start.store(range.start.0, Ordering::Relaxed);
        self.end.store(range.end.0, Ordering::Relaxed);
    }

    /// It is nobody's tract any more.
    pub(in crate::space) fn end(&self) {
        self.space.store(0, Ordering::Relaxed);
        self.set_range(PageRange::default());
    }

    /// What it may get.
    pub(in crate::space) fn left(&self) -> Left {
        let counts = &self.guarded.counts;
        let left = |most: &AtomicU64, used: u64| {
            // More may have gone than came, since the counts began.
            let left = most.load(Ordering::Relaxed).wrapping_sub(used);
            if (left as i64) < 0 { 0 } else { left }
        };
        let most = &self.guarded.most;
        Left {
            pages: left(&most.pages, counts.pages.get()),
            regions: left(&most.regions, counts.regions.get()),
            data: left(&most.data, counts.data.get()),
        }
    }

    /// Gives half of what the tract may get to another.
    pub(in crate::space) fn halve(&self, other: &Tract) {
        let half = self.left().part(2);
        let most = &self.guarded.most;
        other.guarded.most.set(half);
        let words = [&most.pages, &most.regions, &most.data];
        for (word, given) in words.into_iter().zip([half.pages, half.regions, half.data]) {
            let kept = word.load(Ordering::Relaxed).wrapping_sub(given);
            word.store(kept, Ordering::Relaxed);
        }
    }
}

impl Allowance {
    /// Each stays below 2^62, so that counts beside them do not overflow.
    pub(in crate::space) fn set(&self, most: Left) {
        let set = |word: &AtomicU64, most: u64| word.store(most.min(1 << 62), Ordering::Relaxed);
        set(&self.pages, most.pages);
        set(&self.regions, most.regions);
        set(&self.data, most.data);
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// The tracts of a space by page. Empty as long as it is not divided.
    pub(in crate::space) fn tracts<'a>(
        &'a self,
        space: Live<'a, R>,
    ) -> RangeTree<'a, Tract, WhilePinned> {
        // SAFETY: the words of all spaces of a manager are changed by nothing but trees made
        // here, and `make_space` empties them. The nodes are those of tracts only, and no frame of
        // theirs is given back ([`Tracts`]).
        unsafe { RangeTree::new(&self.tracts.nodes, &self.tracts.items, &space.get().tracts) }
    }

    /// The tree of the regions of a tract.
    pub(in crate::space) fn tract_tree<'a>(
        &'a self,
        _by: impl KeepsNodes<'a>,
        tract: &'a Tract,
    ) -> RegionTree<'a, R> {
        // SAFETY: the roots of all tracts of a manager are changed by nothing but trees made
        // here, and `Tract::begin` empties them. The nodes stay by what the caller has.
        unsafe { RangeTree::new(&self.region_nodes, &self.regions, &tract.tree) }
    }

    /// The tract that holds `page`, if the space is divided. Another one, or none, beside
    /// somebody who changes which tracts there are: [`Tract::covers`] tells.
    #[inline]
    pub(in crate::space) fn find_tract<'a>(
        &'a self,
        space: Live<'a, R>,
        page: Vpn,
    ) -> Option<&'a Tract> {
        let found = self.tracts(space).last_at_most(page.0);
        found.filter(|tract| tract.covers(space.handle(), page))
    }

    /// The same for the holder of that tract's lock, or of the space's.
    pub(in crate::space) fn tract_at<'a>(&'a self, space: Live<'a, R>, page: Vpn) -> &'a Tract {
        let mut spins = 0;
        loop {
            if let Some(tract) = self.find_tract(space, page) {
                return tract;
            }
            // Somebody divides another tract.
            self.memory.platform().relax(spins);
            spins += 1;
        }
    }

    /// The tree that a region at `page` is in, or belongs in.
    #[inline]
    pub(in crate::space) fn tree_at<'a>(
        &'a self,
        space: LockedSpace<'a, R>,
        page: Vpn,
    ) -> RegionTree<'a, R> {
        if !space.is_divided() {
            return self.tree(space, *space);
        }
        self.tract_tree(space, self.tract_at(*space, page))
    }

    /// Whether a tract begins at `page`: no region lies on both sides, and those that meet there
    /// stay two.
    #[inline]
    pub(in crate::space) fn is_boundary(&self, space: LockedSpace<'_, R>, page: Vpn) -> bool {
        space.is_divided()
            && (page >= F::USER_END || self.tract_at(*space, page).range().start == page)
    }

    /// What a change at `page` is counted with.
    #[inline]
    pub(in crate::space) fn seq_at<'a>(
        &'a self,
        space: LockedSpace<'a, R>,
        page: Vpn,
    ) -> &'a SeqCount {
        match space.is_in_tracts() {
            true => &self.tract_at(*space, page).seq,
            false => &space.get().seq,
        }
    }

    /// Where regions and pages of a space, or of one tract of it, are counted.
    #[inline]
    pub(in crate::space) fn counts_of<'a>(
        space: Live<'a, R>,
        tract: Option<&'a Tract>,
    ) -> &'a RegionCounts {
        tract.map_or(&space.get().account.counts, |tract| &tract.guarded.counts)
    }

    /// Where regions and pages that come or go at `page` are counted.
    #[inline]
    pub(in crate::space) fn counts_at<'a>(
        &'a self,
        space: LockedSpace<'a, R>,
        page: Vpn,
    ) -> &'a RegionCounts {
        match space.is_in_tracts() {
            true => &self.tract_at(*space, page).guarded.counts,
            false => &space.get().account.counts,
        }
    }

    /// The first region that ends after `page`, in any tract, if all locks are held, otherwise
    /// in that of the page.
    #[cold]
    pub(super) fn found_in_tracts<'a>(
        &'a self,
        space: LockedSpace<'a, R>,
        mut page: Vpn,
    ) -> Option<Found<'a, Region<R>>> {
        while page < F::USER_END {
            let tract = self.tract_at(*space, page);
            let found = self.tract_tree(space, tract).first_ending_after(page.0);
            if found.is_some() || !space.is_whole() {
                return found;
            }
            page = tract.range().end;
        }
        None
    }

    /// The regions from the first one that ends after `page` on that lie in one tree, ascending,
    /// and the page where the next tree begins.
    #[inline]
    pub(super) fn walk_at<'a>(
        &'a self,
        space: LockedSpace<'a, R>,
        page: Vpn,
    ) -> (Walk<'a, Region<R>, WhilePinned>, Vpn) {
        if !space.is_divided() {
            return (self.tree(space, *space).walk(page.0), F::USER_END);
        }
        let tract = self.tract_at(*space, page);
        (
            self.tract_tree(space, tract).walk(page.0),
            tract.range().end,
        )
    }

    /// Calls `each` for every tract of a space, ascending, while the caller holds the space's
    /// lock.
    pub(in crate::space) fn for_tracts<'a>(
        &'a self,
        space: Live<'a, R>,
        mut each: impl FnMut(&'a Tract),
    ) {
        for found in self.tracts(space).walk(0) {
            each(found.item);
        }
    }

    /// Looks at a tree of regions without a lock. `page` tells which; `None` if it was being
    /// changed.
    #[inline]
    pub(in crate::space) fn look<'a, T>(
        &'a self,
        pin: &'a Pin<'_>,
        space: Live<'a, R>,
        page: Vpn,
        read: impl FnOnce(RegionTree<'a, R>) -> T,
    ) -> Option<T> {
        let begun = space.seq.begin()?;
        // What no space can map is in no tract, and not in the tree either.
        if space.is_divided() && page < F::USER_END {
            return self.look_in_tract(pin, space, page, begun, read);
        }
        let seen = read(self.tree(pin, space));
        space.seq.valid(begun).then_some(seen)
    }

    fn look_in_tract<'a, T>(
        &'a self,
        pin: &'a Pin<'_>,
        space: Live<'a, R>,
        page: Vpn,
        begun: u32,
        read: impl FnOnce(RegionTree<'a, R>) -> T,
    ) -> Option<T> {
        let tract = self.find_tract(space, page)?;
        let begun_here = tract.seq.begin()?;
        let seen = read(self.tract_tree(pin, tract));
        (tract.seq.valid(begun_here) && space.seq.valid(begun)).then_some(seen)
    }
}
