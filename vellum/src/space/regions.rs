//! The regions of a space by address, for holders of the space's lock.
//!
//! Whoever changes the tree shows a [`SeqWrite`]: faults that look while it
//! lives start over, so a change of several steps is seen whole or not at all.

use super::manager::{Live, Vm};
use super::region::{ByAddress, Region, RegionView};
use crate::addr::{PageRange, Vpn};
use crate::frame::OutOfMemory;
use crate::platform::Platform;
use crate::rmap::{RegionRef, ReverseMap};
use crate::slab::Handle;
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, SeqWrite};
use crate::table::Format;
use crate::tree::Tree;

/// A region's handle.
pub(super) type RegionHandle<R> = Handle<Region<R>>;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    pub(super) fn region(&self, handle: RegionHandle<R>) -> &Region<R> {
        self.regions.get(handle)
    }

    /// The region as reverse mapping sees it, with the pages it has now.
    pub(super) fn region_ref(&self, handle: RegionHandle<R>) -> RegionRef<'_, R::Region> {
        let region = self.region(handle);
        self.region_ref_with(handle, region.space(), &region.view())
    }

    /// The same with the space and pages that it will have.
    pub(super) fn region_ref_with(
        &self,
        handle: RegionHandle<R>,
        space: u32,
        view: &RegionView,
    ) -> RegionRef<'_, R::Region> {
        RegionRef {
            handle: handle.raw(),
            space,
            pages: view.range,
            first: view.offset,
            state: &self.region(handle).rmap,
        }
    }

    /// Tells reverse mapping that a region will have, or has by now, the pages
    /// from `offset` on that `range` shows.
    pub(super) fn tell_resized(
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

    pub(super) fn tree<'a>(&'a self, space: Live<'a, R>) -> Tree<'a, ByAddress<R>> {
        Tree::new(&self.regions, &space.get().tree)
    }

    /// The first region that ends behind `page`, or none.
    pub(super) fn region_from(&self, space: Live<'_, R>, page: Vpn) -> RegionHandle<R> {
        let tree = self.tree(space);
        let before = tree.last_at_most(page.0);
        if before.is_none() {
            return tree.first();
        }
        if self.region(before).range().end > page {
            return before;
        }
        tree.next(before)
    }

    /// Calls `each` for the regions that overlap `range`, ascending. `each`
    /// may remove the region it is called for.
    pub(super) fn for_regions<E>(
        &self,
        space: Live<'_, R>,
        range: PageRange,
        mut each: impl FnMut(RegionHandle<R>, RegionView) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut handle = self.region_from(space, range.start);
        while !handle.is_none() {
            let view = self.region(handle).view();
            if view.range.start >= range.end {
                break;
            }
            let next = self.tree(space).next(handle);
            each(handle, view)?;
            handle = next;
        }
        Ok(())
    }

    /// A region in no tree, its gate closed.
    pub(super) fn make_region(&self, pin: &Pin<'_>) -> Result<RegionHandle<R>, OutOfMemory> {
        self.regions.alloc(pin, &self.memory)
    }

    /// Puts a region into the trees of its space and object and opens it.
    pub(super) fn link_region(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        _write: &SeqWrite<'_>,
        handle: RegionHandle<R>,
        view: &RegionView,
    ) {
        let region = self.region(handle);
        region.set(space.handle(), view);
        if view.object != 0 {
            self.objects
                .regions(&self.regions, view.object)
                .insert(pin, handle);
        }
        self.tree(space).insert(handle);
        space.account.regions.fetch_add(1, Ordering::Relaxed);
        space
            .account
            .pages
            .fetch_add(view.range.pages(), Ordering::Relaxed);
        region.gate.open();
    }

    /// Leaves a closed region the pages of `kept`, its first, and makes `tail`
    /// a region of the `rest`, which it opens.
    pub(super) fn split_region(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        _write: &SeqWrite<'_>,
        (head, kept): (RegionHandle<R>, PageRange),
        (tail, rest): (RegionHandle<R>, &RegionView),
    ) {
        let (first, second) = (self.region(head), self.region(tail));
        let offset = first.view().offset;
        let apply = || {
            second.set(space.handle(), rest);
            first.set_range(kept, offset);
            self.tree(space).changed(head);
            self.tree(space).insert(tail);
        };
        if rest.object == 0 {
            apply();
        } else {
            self.objects
                .regions(&self.regions, rest.object)
                .split(pin, head, tail, apply);
        }
        self.tell_resized(pin, head, kept, offset);
        space.account.regions.fetch_add(1, Ordering::Relaxed);
        second.gate.open();
    }

    /// Gives the pages of `tail` to `head`, which lies before it, and ends it.
    /// Both are closed. The object, if there is one, keeps a user.
    pub(super) fn join_regions(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        _write: &SeqWrite<'_>,
        head: RegionHandle<R>,
        tail: RegionHandle<R>,
    ) {
        let (first, second) = (self.region(head), self.region(tail));
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
            self.tree(space).remove(tail);
            first.set_range(both, kept.offset);
            self.tree(space).changed(head);
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
        space.account.regions.fetch_sub(1, Ordering::Relaxed);
        self.end_region(pin, tail);
    }

    /// A region in no tree any more is nobody's.
    fn end_region(&self, pin: &Pin<'_>, handle: RegionHandle<R>) {
        let env = self.env(pin);
        self.rmap.region_ended(&env, self, self.region_ref(handle));
        self.region(handle).forget();
        self.regions.retire(pin, handle);
    }

    /// Takes a closed region out of its trees. It maps nothing any more.
    /// Returns its object if that lost its last user.
    pub(super) fn unlink_region(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        _write: &SeqWrite<'_>,
        handle: RegionHandle<R>,
    ) -> Option<u32> {
        self.tree(space).remove(handle);
        self.retire_region(pin, space, handle)
    }

    /// The rest of [`Vm::unlink_region`], for a region that is in no tree of
    /// its space any more.
    pub(super) fn retire_region(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        handle: RegionHandle<R>,
    ) -> Option<u32> {
        let region = self.region(handle);
        let view = region.view();
        space.account.regions.fetch_sub(1, Ordering::Relaxed);
        space
            .account
            .pages
            .fetch_sub(view.range.pages(), Ordering::Relaxed);
        if view.object != 0 {
            self.objects
                .regions(&self.regions, view.object)
                .remove(pin, handle);
        }
        self.end_region(pin, handle);
        (view.object != 0 && self.objects.release(view.object)).then_some(view.object)
    }

    /// Changes which pages a region holds; `offset` belongs to the new start.
    /// The region keeps its place among the others.
    pub(super) fn resize_region(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        _write: &SeqWrite<'_>,
        handle: RegionHandle<R>,
        range: PageRange,
        offset: u64,
    ) {
        let region = self.region(handle);
        let view = region.view();
        let grows = range.pages() > view.range.pages();
        // A fault that saw the new start with the old offset would give its
        // page the linear index of another.
        let closes = grows && (R::KEEPS_RANGES || range.start != view.range.start);
        if closes {
            region.gate.close();
            self.wait_out_region(pin, space, handle.raw());
        }
        if grows {
            self.tell_resized(pin, handle, range, offset);
        }
        let apply = || {
            region.set_range(range, offset);
            self.tree(space).changed(handle);
        };
        if view.object == 0 {
            apply();
        } else {
            self.objects
                .regions(&self.regions, view.object)
                .change(pin, handle, apply);
        }
        if !grows {
            self.tell_resized(pin, handle, range, offset);
        }
        if closes {
            region.gate.open();
        }
        let growth = range.pages().wrapping_sub(view.range.pages());
        space.account.pages.fetch_add(growth, Ordering::Relaxed);
    }

    /// The highest gap of `pages` pages within `bounds`.
    pub(super) fn find_gap(
        &self,
        space: Live<'_, R>,
        pages: u64,
        bounds: PageRange,
    ) -> Option<Vpn> {
        let root = self.tree(space).root();
        if root.is_none() {
            return highest_fit(bounds, pages, bounds);
        }
        let (lowest, highest) = (self.region(root).lowest(), self.region(root).highest());
        highest_fit(between(highest, bounds.end.0), pages, bounds)
            .or_else(|| self.gap_below(space, root, pages, bounds))
            .or_else(|| highest_fit(between(0, lowest), pages, bounds))
    }

    /// The highest gap between two regions of a subtree. Depth is that of the
    /// tree.
    fn gap_below(
        &self,
        space: Live<'_, R>,
        handle: RegionHandle<R>,
        pages: u64,
        bounds: PageRange,
    ) -> Option<Vpn> {
        if handle.is_none() {
            return None;
        }
        #[cfg(test)]
        super::tests::count_step();
        let region = self.region(handle);
        let outside = region.highest() <= bounds.start.0 || region.lowest() >= bounds.end.0;
        if region.widest() < pages || outside {
            return None;
        }
        let tree = self.tree(space);
        let (left, right) = (tree.left(handle), tree.right(handle));
        let range = region.range();
        let behind = || {
            let next = self.region(right).lowest();
            highest_fit(between(range.end.0, next), pages, bounds)
        };
        let before = || {
            let previous = self.region(left).highest();
            highest_fit(between(previous, range.start.0), pages, bounds)
        };
        self.gap_below(space, right, pages, bounds)
            .or_else(|| if right.is_none() { None } else { behind() })
            .or_else(|| if left.is_none() { None } else { before() })
            .or_else(|| self.gap_below(space, left, pages, bounds))
    }
}

fn between(start: u64, end: u64) -> PageRange {
    PageRange {
        start: Vpn(start),
        end: Vpn(end),
    }
}

/// The last place for `pages` pages in the part of `gap` within `bounds`.
fn highest_fit(gap: PageRange, pages: u64, bounds: PageRange) -> Option<Vpn> {
    let gap = gap.intersection(bounds);
    (gap.pages() >= pages && !gap.is_empty()).then(|| Vpn(gap.end.0 - pages))
}
