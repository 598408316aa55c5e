//! The regions of a space by address.
//!
//! Whoever changes the tree shows a [`SeqWrite`]: faults that look while it
//! lives start over, so a change of several steps is seen whole or not at all.

use super::closed::Closed;
use super::locked::{LockedSpace, UndividedSpace};
use super::manager::Vm;
use super::region::{Region, RegionView, Tagged, Traits};
use super::spaces::{Live, Rules};
use crate::addr::{PageRange, Vpn};
use crate::frame::{OutOfMemory, Relief};
use crate::platform::Platform;
use crate::rmap::{RegionRef, ReverseMap};
use crate::slab::{Handle, WhilePinned};
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, SeqWrite};
use crate::table::Format;
use crate::tree::{Found, RangeTree, Room, Spot};

/// Regions of a space, or of one of its tracts, that are made between two looks at how many it may
/// have.
const STEP: u64 = 64;
/// Regions that may be waiting for their place in one tree.
const MOST_SPARE: u64 = 3;

/// A region's handle.
pub(in crate::space) type RegionHandle<R> = Handle<Region<R>>;

/// A region in no tree, its gate closed, and room for it in a space's.
#[must_use]
pub(in crate::space) struct Spare<'p, R: ReverseMap> {
    pub(in crate::space) handle: RegionHandle<R>,
    room: Room<'p>,
}

/// The regions of a space, or of one of its tracts, by page.
pub(in crate::space) type RegionTree<'a, R> = RangeTree<'a, Region<R>, WhilePinned>;

/// A place in one.
pub(in crate::space) type RegionSpot<'a, R> = Spot<'a, Region<R>, WhilePinned>;

/// What keeps the nodes of a tree of regions while somebody looks at it: a pin, or the lock that
/// guards it.
pub(in crate::space) trait KeepsNodes<'a> {}

impl<'a> KeepsNodes<'a> for &'a Pin<'_> {}

impl<'a, R: ReverseMap> KeepsNodes<'a> for LockedSpace<'a, R> {}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    pub(in crate::space) fn region(&self, handle: RegionHandle<R>) -> &Region<R> {
        self.regions.get(handle)
    }

    /// The region as reverse mapping sees it, with the pages it has now.
    pub(in crate::space) fn region_ref(&self, handle: RegionHandle<R>) -> RegionRef<'_, R::Region> {
        self.region(handle).region_ref()
    }

    /// Tells reverse mapping that a region will have, or has by now, the pages
    /// from `offset` on that `range` shows.
    pub(in crate::space) fn tell_resized(
        &self,
        pin: &Pin<'_>,
        handle: RegionHandle<R>,
        range: PageRange,
        offset: u64,
    ) {
        let region = RegionRef {
            pages: range,
            first: offset,
            ..self.region_ref(handle)
        };
        self.rmap.region_resized(&self.env(pin), self, region);
    }

    pub(in crate::space) fn tree<'a>(
        &'a self,
        _by: impl KeepsNodes<'a>,
        space: Live<'a, R>,
    ) -> RegionTree<'a, R> {
        // SAFETY: the roots of all spaces of a manager are changed by nothing
        // but trees made here, and `make_space` empties them. The nodes stay by what the caller has.
        unsafe { RangeTree::new(&self.region_nodes, &self.regions, &space.get().tree) }
    }

    /// The tree of a space that is in no tracts: all its regions.
    pub(in crate::space) fn own_tree<'a>(
        &'a self,
        space: UndividedSpace<'a, R>,
    ) -> RegionTree<'a, R> {
        self.tree(*space, **space)
    }

    /// The first region that ends after `page`, with its range.
    ///
    /// In a space in tracts, the first one in the tract of the page, unless all are locked.
    #[inline]
    pub(in crate::space) fn found_from<'a>(
        &'a self,
        space: LockedSpace<'a, R>,
        page: Vpn,
    ) -> Option<Found<'a, Region<R>>> {
        match space.is_divided() {
            false => self.tree(space, *space).first_ending_after(page.0),
            true => self.found_in_tracts(space, page),
        }
    }

    /// The first region that ends after `page`, or none.
    pub(in crate::space) fn region_from(
        &self,
        space: LockedSpace<'_, R>,
        page: Vpn,
    ) -> RegionHandle<R> {
        self.found_from(space, page)
            .map_or(Handle::NONE, |found| found.item.handle())
    }

    /// Calls `each` for the regions that overlap `range`, ascending. `each`
    /// may change them, but not which pages they hold.
    pub(in crate::space) fn for_regions<E>(
        &self,
        space: LockedSpace<'_, R>,
        range: PageRange,
        mut each: impl FnMut(RegionHandle<R>, RegionView) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut page = range.start;
        while page < range.end {
            let (regions, end) = self.walk_at(space, page);
            for found in regions {
                if found.start >= range.end.0 {
                    return Ok(());
                }
                each(found.item.handle(), found.item.view())?;
            }
            page = end;
        }
        Ok(())
    }

    /// Whether the space may have one region more, or a few ([`Arena::may_have_more`]). Asked once
    /// for `STEP` regions, because what tracts have is counted in all of them.
    #[inline]
    fn may_have_region(&self, pin: &Pin<'_>, space: LockedSpace<'_, R>, page: Vpn) -> bool {
        let here = self.counts_at(space, page).regions.get();
        here < STEP || here % STEP > MOST_SPARE || self.has_its_share(pin, space)
    }

    #[cold]
    fn has_its_share(&self, pin: &Pin<'_>, space: LockedSpace<'_, R>) -> bool {
        let regions = self.region_counts(*space).regions.get();
        // What tracts count are changes, and each may be read before another's.
        let has_share = regions as i64 <= 0 || self.regions.may_have_more(regions);
        if !has_share {
            self.memory.note_refusal(pin, Relief::Others);
        }
        has_share
    }

    /// A region for the space, in no tree, its gate closed, with room for it at a page. At most
    /// three may be waiting for their place in one tree at a time.
    pub(in crate::space) fn make_region<'p>(
        &self,
        pin: &'p Pin<'_>,
        space: LockedSpace<'_, R>,
        page: Vpn,
    ) -> Result<Spare<'p, R>, OutOfMemory> {
        if !self.may_have_region(pin, space, page) {
            return Err(OutOfMemory);
        }
        let handle = self.regions.alloc(pin, &self.memory)?;
        self.region(handle).set_handle(handle);
        match self.tree_at(space, page).make_room(pin, &self.memory) {
            Ok(room) => Ok(Spare { handle, room }),
            Err(error) => {
                self.regions.free(pin, handle);
                Err(error)
            }
        }
    }

    /// Puts a region into the trees of its space and object and opens it. If it is a copy that
    /// fork makes, `original` is what it copies.
    pub(in crate::space) fn link_region(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        write: &SeqWrite<'_>,
        (spare, tagged): (Spare<'_, R>, &Tagged),
        original: Option<RegionHandle<R>>,
    ) {
        let start = tagged.view.range.start;
        let spot = self.tree_at(space, start).spot(start.0);
        self.link_region_at(spot, pin, space, write, (spare, tagged), original);
    }

    /// The same at the spot where its range begins.
    #[inline]
    pub(in crate::space) fn link_region_at(
        &self,
        spot: RegionSpot<'_, R>,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        _write: &SeqWrite<'_>,
        (Spare { handle, room }, tagged): (Spare<'_, R>, &Tagged),
        original: Option<RegionHandle<R>>,
    ) {
        let region = self.region(handle);
        let view = &tagged.view;
        region.set(space.handle(), tagged);
        if view.traits.has(Traits::GROWS_DOWN) {
            space.has_stack.store(1, Ordering::Relaxed);
        }
        if view.traits.has_any(Traits::RULED) {
            space.add_rules(Rules::OF_REGIONS);
        }
        if view.object != 0 {
            let regions = self.objects.regions(&self.regions, view.object);
            match original {
                Some(original) => regions.insert_copy(&self.memory, pin, original, handle),
                None => regions.insert(&self.memory, pin, handle),
            }
        }
        let range = view.range;
        spot.insert(pin, room, handle, range.end.0);
        let counts = self.counts_at(space, range.start);
        counts.regions.bump();
        counts.count_pages((view.prot, view.traits), range.pages());
        region.gate.begin(pin.cpu());
        region.gate.open();
    }

    /// Leaves a region the pages of `kept`, its first, and makes `tail`
    /// a region of the `rest`, which it opens.
    pub(in crate::space) fn split_region(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        _write: &SeqWrite<'_>,
        (first, kept): (Closed<'_, R>, PageRange),
        (Spare { handle: tail, room }, rest): (Spare<'_, R>, &RegionView),
    ) {
        let (head, second) = (first.handle(), self.region(tail));
        let offset = first.view().offset;
        let apply = || {
            let tagged = Tagged {
                view: *rest,
                ..first.tagged()
            };
            second.set(space.handle(), &tagged);
            if space.is_tracked() {
                second.inherit_lost(&first);
            }
            first.set_range(kept, offset);
            let tree = self.tree_at(space, kept.start);
            tree.resize(kept.start.0, kept.start.0, kept.end.0);
            tree.insert(pin, room, tail, rest.range.start.0, rest.range.end.0);
        };
        if rest.object == 0 {
            apply();
        } else {
            self.objects
                .regions(&self.regions, rest.object)
                .split(pin, head, tail, apply);
        }
        self.tell_resized(pin, head, kept, offset);
        self.counts_at(space, kept.start).regions.bump();
        second.gate.begin(pin.cpu());
        second.gate.open();
    }

    /// Gives the pages of `second` to `first`, which lies before it, and ends it.
    /// The object, if there is one, keeps a user.
    pub(in crate::space) fn join_regions(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        _write: &SeqWrite<'_>,
        first: Closed<'_, R>,
        second: Closed<'_, R>,
    ) {
        let (head, tail) = (first.handle(), second.handle());
        let (kept, object) = (first.view(), second.view().object);
        let both = PageRange {
            start: kept.range.start,
            end: second.range().end,
        };
        self.rmap.region_merged(
            &self.env(pin),
            self,
            self.region_ref(head),
            self.region_ref(tail),
        );
        self.tell_resized(pin, head, both, kept.offset);
        let apply = || {
            let tree = self.tree_at(space, both.start);
            tree.remove(pin, second.range().start.0);
            first.set_range(both, kept.offset);
            tree.resize(both.start.0, both.start.0, both.end.0);
        };
        if object == 0 {
            apply();
        } else {
            self.objects
                .regions(&self.regions, object)
                .join(pin, head, tail, apply);
            let last = self.objects.release(object);
            debug_assert!(!last, "object lost its last user in a merge");
        }
        self.counts_at(space, both.start).regions.sub(1);
        self.end_region(pin, tail);
    }

    /// A region in no tree any more is nobody's.
    fn end_region(&self, pin: &Pin<'_>, handle: RegionHandle<R>) {
        let env = self.env(pin);
        self.rmap.region_ended(&env, self, self.region_ref(handle));
        self.region(handle).forget();
        self.regions.retire(pin, handle);
    }

    /// Takes a region out of its trees. It maps nothing any more.
    /// Returns its object if that lost its last user.
    pub(in crate::space) fn unlink_region(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        _write: &SeqWrite<'_>,
        region: Closed<'_, R>,
    ) -> Option<u32> {
        let start = region.range().start;
        self.tree_at(space, start).remove(pin, start.0);
        self.retire_region(pin, space, region)
    }

    /// The rest of [`Vm::unlink_region`], for a region that is in no tree of
    /// its space any more.
    pub(in crate::space) fn retire_region(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        region: Closed<'_, R>,
    ) -> Option<u32> {
        let (handle, view) = (region.handle(), region.view());
        let counts = self.counts_at(space, view.range.start);
        counts.regions.sub(1);
        let gone = view.range.pages().wrapping_neg();
        counts.count_pages((view.prot, view.traits), gone);
        if P::PARTS.hooks && view.traits.has_any(Traits::HOOKS) {
            self.wake_hooked(pin, space.handle(), view.range);
        }
        let is_last = view.object != 0 && {
            let regions = self.objects.regions(&self.regions, view.object);
            regions.remove(pin, handle)
        };
        self.end_region(pin, handle);
        is_last.then_some(view.object)
    }

    /// One user more of an object that `original` maps, for a region made of that one.
    pub(in crate::space) fn hold_for_copy(
        &self,
        pin: &Pin<'_>,
        object: u32,
        original: RegionHandle<R>,
    ) {
        let regions = self.objects.regions(&self.regions, object);
        let is_held = regions.hold(pin, Some(original));
        debug_assert!(is_held, "a region maps an object that has ended");
    }

    /// The highest gap of `pages` pages within `bounds` that comes too close to
    /// no stack. The bounds lie in one tract.
    pub(in crate::space) fn find_gap(
        &self,
        space: LockedSpace<'_, R>,
        pages: u64,
        mut bounds: PageRange,
    ) -> Option<Vpn> {
        loop {
            let (from, to) = (bounds.start.0, bounds.end.0);
            let tree = self.tree_at(space, bounds.start);
            let start = Vpn(tree.highest_gap(pages, from, to)?);
            let end = start.offset(pages);
            let kept_off = self.end_below_stack(space, end);
            if kept_off == end {
                let Some(kept) = space.layout.kept_in(PageRange::new(start, pages)) else {
                    return Some(start);
                };
                if kept.start <= bounds.start {
                    return None;
                }
                bounds.end = kept.start;
                continue;
            }
            // There may be room further down in this gap, or below the region
            // that ends it.
            let below = tree.last_at_most(start.0);
            let gap_start = below.map_or(bounds.start, |below| below.range().end);
            bounds.end = kept_off.max(gap_start);
        }
    }

    /// Where a mapping that would end at `end` must end so that it leaves free
    /// what a region that grows down keeps free below itself. Nothing lies
    /// between `end` and the next region.
    pub(in crate::space) fn end_below_stack(&self, space: LockedSpace<'_, R>, end: Vpn) -> Vpn {
        if space.has_stack.load(Ordering::Relaxed) == 0 {
            return end;
        }
        let above = match self.is_boundary(space, end) {
            true => None,
            false => self.found_from(space, end),
        };
        let limit = match above {
            Some(above) if above.item.view().traits.has(Traits::GROWS_DOWN) => above.start,
            // The next tract may begin with a stack.
            None if space.is_in_tracts() => self.tract_at(*space, Vpn(end.0 - 1)).range().end.0,
            _ => return end,
        };
        if limit == F::USER_END.0 {
            return end;
        }
        let gap = space.limits.get().stack_gap_pages;
        end.min(Vpn(limit.saturating_sub(gap)))
    }
}
