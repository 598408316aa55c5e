//! What calls that change regions have in common: checking ranges, cutting
//! regions at a range's edges, closing gates, merging.

use super::limits::{Change, MayCut};
use crate::addr::{PageRange, Prot, Vpn};
use crate::frame::OutOfMemory;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::slab::Handle;
use crate::space::state::closed::Closed;
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{NewWord, RegionView, Tagged, Traits};
use crate::space::state::spaces::SpaceId;
use crate::space::state::tree::{RegionHandle, Spare};
use crate::sync::{Pin, SeqWrite, Unpinned};
use crate::table::Format;
use core::ops::ControlFlow;

/// The pages before which regions were cut to hold a range of whole regions.
#[derive(Clone, Copy, Default)]
#[must_use = "a call that fails undoes its cuts"]
pub(super) struct Cuts([Option<Vpn>; 2]);

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Calls `change` with the lock of the space, if all of `range` is mapped.
    pub(in crate::space) fn with_covered(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
        change: impl Fn(&Pin<'_>, LockedSpace<'_, R>) -> Result<(), MapError>,
    ) -> Result<(), MapError> {
        self.with_room(unpinned, |unpinned| {
            self.with_undivided(unpinned, id, |pin, space| {
                let is_covered = self.is_covered(*space, range);
                is_covered.then_some(()).ok_or(MapError::NotMapped)?;
                change(pin, *space)
            })
        })
    }

    /// Gives the regions in `range` other traits.
    ///
    /// # Errors
    /// [`MapError::Limit`], and [`MapError::OutOfMemory`] if a region cannot be cut; nothing
    /// changed.
    pub(in crate::space) fn change_traits(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
        word: &NewWord,
    ) -> Result<(), MapError> {
        let may_cut = self.check_limits(space, range.start, &Change::Word(range, word))?;
        // The cuts stay: nothing can fail any more.
        let _ = self.isolate(pin, space, range, &may_cut)?;
        let closed = self.close_regions(pin, space, range);
        closed.for_each(|region, view| {
            self.set_word(space, region, &view, word);
        });
        drop(closed);
        self.merge_range(pin, space, range);
        Ok(())
    }

    /// Gives a region another word. Returns its rights.
    #[inline(never)]
    pub(super) fn set_word(
        &self,
        space: LockedSpace<'_, R>,
        region: Closed<'_, R>,
        view: &RegionView,
        word: &NewWord,
    ) -> Prot {
        let pages = view.range.pages();
        let (prot, traits) = word.of(view);
        // In this order: reclaim never sees fewer locked pages than there are.
        let counts = self.counts_at(space, view.range.start);
        counts.count_pages((prot, traits), pages);
        region.set_word(prot, traits);
        if let Some(policy) = word.policy {
            region.set_policy(policy);
        }
        counts.count_pages((view.prot, view.traits), pages.wrapping_neg());
        prot
    }

    /// Cuts the regions that reach over the edges of `range`, so that it holds
    /// whole regions only. All gates stay open.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing was cut.
    pub(super) fn isolate(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
        _: &MayCut,
    ) -> Result<Cuts, OutOfMemory> {
        let edges = [range.start, range.end];
        let mut spares = [None, None];
        for (edge, spare) in edges.into_iter().zip(&mut spares) {
            if self.region_cut_by(space, edge).is_none() {
                continue;
            }
            match self.make_region(pin, space, edge) {
                Ok(region) => *spare = Some(region),
                Err(error) => {
                    self.free_spares(pin, spares);
                    return Err(error);
                }
            }
        }
        let mut cuts = Cuts::default();
        if spares.iter().all(Option::is_none) {
            return Ok(cuts);
        }
        for (nth, edge) in edges.into_iter().enumerate() {
            match self.cut(pin, space, edge, &mut spares[nth]) {
                Ok(cut) => cuts.0[nth] = cut.then_some(edge),
                Err(error) => {
                    self.free_spares(pin, spares);
                    self.undo_cuts(pin, space, cuts);
                    return Err(error);
                }
            }
        }
        Ok(cuts)
    }

    /// Makes one region again of each two that a call which fails has cut.
    pub(super) fn undo_cuts(&self, pin: &Pin<'_>, space: LockedSpace<'_, R>, cuts: Cuts) {
        for page in cuts.0.into_iter().flatten() {
            self.merge_at(pin, space, page);
        }
    }

    fn free_spares(&self, pin: &Pin<'_>, spares: [Option<Spare<'_, R>>; 2]) {
        for spare in spares.into_iter().flatten() {
            self.regions.free(pin, spare.handle);
        }
    }

    /// The region that lies on both sides of the boundary before `page`.
    pub(super) fn region_cut_by(&self, space: LockedSpace<'_, R>, page: Vpn) -> RegionHandle<R> {
        if self.is_boundary(space, page) {
            return Handle::NONE;
        }
        let handle = self.region_from(space, page);
        if !handle.is_none() && self.region(handle).range().start < page {
            return handle;
        }
        Handle::NONE
    }

    /// Cuts the region that lies on both sides of the boundary before `page`,
    /// taking `spare` as its second part. Returns whether there was such a region.
    fn cut(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        page: Vpn,
        spare: &mut Option<Spare<'_, R>>,
    ) -> Result<bool, OutOfMemory> {
        let head = self.region_cut_by(space, page);
        let Some(tail) = spare.take_if(|_| !head.is_none()) else {
            return Ok(false);
        };
        let region = self.region(head);
        let view = region.view();
        let kept = PageRange {
            end: page,
            ..view.range
        };
        let rest = view.part(PageRange {
            start: page,
            ..view.range
        });
        let closed = self.close_region(pin, space, region);
        let demoted = self.demote_across(pin, *space, region, page);
        let split = demoted.and_then(|()| {
            self.rmap.region_split(
                &self.env(pin),
                self,
                self.region_ref(head),
                self.region(tail.handle)
                    .region_ref_with(space.handle(), &rest),
            )
        });
        if let Err(error) = split {
            *spare = Some(tail);
            return Err(error);
        }
        if view.object != 0 {
            self.hold_for_copy(pin, view.object, head);
        }
        // Asked anew: a fault may have made a private page until the gate closed.
        let rest = RegionView {
            traits: region.view().traits,
            ..rest
        };
        let write = self.seq_at(space, page).write(pin);
        self.split_region(pin, space, &write, (closed.closed(), kept), (tail, &rest));
        drop(write);
        Ok(true)
    }

    /// Whether `tail` continues what `head` shows, in every respect.
    pub(super) fn continues(head: &Tagged, tail: &Tagged) -> bool {
        let is_tagged_alike = (head.tag, head.policy) == (tail.tag, tail.policy);
        let (head, tail) = (&head.view, &tail.view);
        let kind = |view: &RegionView| (view.prot, view.object, view.traits.without(Traits::GROWN));
        head.range.end == tail.range.start
            && is_tagged_alike
            && kind(head) == kind(tail)
            && head.index_of(head.range.end) == tail.offset
    }

    /// Makes one region of the two that meet before `page`, if they match.
    pub(in crate::space) fn merge_at(&self, pin: &Pin<'_>, space: LockedSpace<'_, R>, page: Vpn) {
        if self.is_boundary(space, page) {
            return;
        }
        let tail = self.region_from(space, page);
        if !tail.is_none() && self.region(tail).range().start == page {
            self.merge_with_previous(pin, space, tail);
        }
    }

    /// Makes one region of `middle` and those before and after it that match.
    pub(super) fn merge_around(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        middle: RegionHandle<R>,
    ) {
        let merged = self.merge_with_previous(pin, space, middle);
        self.merge_at(pin, space, self.region(merged).range().end);
    }

    /// Makes one region of `tail` and the one before it, if they meet and match.
    /// Returns the region that `tail` is in.
    fn merge_with_previous(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        tail: RegionHandle<R>,
    ) -> RegionHandle<R> {
        let second = self.region(tail);
        let after = second.tagged();
        let before = after.view.range.start.0.checked_sub(1);
        let Some(first) = before.and_then(|page| {
            // In the same tree: boundaries of tracts stay.
            let tree = self.tree_at(space, after.view.range.start);
            tree.last_at_most(page)
        }) else {
            return tail;
        };
        let (head, shown) = (first.handle(), first.tagged());
        // A region that is being unmapped without the lock stays as it is.
        let changes = space.unmappings.is_none() || (first.gate.is_open() && second.gate.is_open());
        let matches = Self::continues(&shown, &after)
            && changes
            && self.rmap.regions_mergeable(&first.rmap, &second.rmap);
        if !matches {
            return tail;
        }
        // Both: a fault in either may be about to set what decides whether they
        // can be merged.
        let closed = [first, second].map(|region| self.close_region(pin, space, region));
        if !self.rmap.regions_mergeable(&first.rmap, &second.rmap) {
            return tail;
        }
        // Asked anew: a fault may have made a private page until the gate closed.
        let grown = second.view().traits;
        if grown.has(Traits::HAS_PRIVATE) {
            first.note_private();
        }
        if grown.has(Traits::GUARDED) {
            first.note_guards();
        }
        let [kept, gone] = closed;
        let write = self.seq_at(space, shown.view.range.start).write(pin);
        if space.is_tracked() {
            first.inherit_lost(second);
        }
        self.join_regions(pin, space, &write, kept.closed(), gone.closed());
        gone.left();
        drop(write);
        head
    }

    /// Whether every page of `range` lies in some region.
    pub(in crate::space) fn is_covered(&self, space: LockedSpace<'_, R>, range: PageRange) -> bool {
        let mut next = range.start;
        let _ = self.for_regions(space, range, |_, view| {
            if view.range.start > next {
                return Err(ControlFlow::<()>::Break(()));
            }
            next = view.range.end;
            Ok(())
        });
        next >= range.end
    }

    /// Changes which pages a region holds; each that it has before and after shows
    /// the same. The region keeps its place among the others.
    pub(in crate::space) fn resize_region(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        _write: &SeqWrite<'_>,
        handle: RegionHandle<R>,
        range: PageRange,
    ) {
        let region = self.region(handle);
        let view = region.view();
        let moved = range.start.0.wrapping_sub(view.range.start.0);
        let offset = view.offset.wrapping_add(moved);
        let grows = range.pages() > view.range.pages();
        // A fault that saw the new start with the old offset would give its
        // page the linear index of another.
        let closes = grows && (R::KEEPS_RANGES || range.start != view.range.start);
        let closed = closes.then(|| self.close_region(pin, space, region));
        if grows {
            if space.is_tracked() {
                region.lose();
            }
            self.tell_resized(pin, handle, range, offset);
        }
        let apply = || {
            region.set_range(range, offset);
            self.tree_at(space, view.range.start).resize(
                view.range.start.0,
                range.start.0,
                range.end.0,
            );
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
        drop(closed);
        let growth = range.pages().wrapping_sub(view.range.pages());
        self.counts_at(space, view.range.start)
            .count_pages((view.prot, view.traits), growth);
    }
}
