//! mremap: grow, shrink, move.

use super::change::Cuts;
use super::limits::{Change, MayCut};
use super::map_request::{MapRequest, Placement};
use super::unmap::DeadObjects;
use crate::addr::{PageRange, Prot, Vpn};
use crate::frame::{NoPage, OutOfMemory};
use crate::object::INDEX_END;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::state::closed::{Closed, ClosedRegion};
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{Region, RegionView, Tagged, Traits};
use crate::space::state::spaces::SpaceId;
use crate::space::state::tree::{RegionTree, Spare};
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, Unpinned};
use crate::table::{Entry, Format, Gather, LockedTable, Span, Tables, Users};
use crate::tree::Room;

/// Where a mapping goes that is resized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemapPlacement {
    /// It stays where it is.
    InPlace,
    /// It stays if it can grow there, and moves to a gap if not (`MREMAP_MAYMOVE`).
    MayMove,
    /// It moves there, in place of what is mapped (`MREMAP_FIXED`).
    Fixed(Vpn),
    /// All regions of the range move there, in place of what is mapped, and gaps between them stay
    /// gaps (`MREMAP_FIXED` since Linux 6.17). Their size stays.
    AllTo(Vpn),
    /// Its pages move to a gap, and what they leave stays mapped, as if nobody had used it
    /// (`MREMAP_DONTUNMAP`).
    Leave,
    /// The same, to there, in place of what is mapped.
    LeaveFor(Vpn),
}

impl RemapPlacement {
    /// Where it goes whatever is mapped there.
    fn target(self) -> Option<Vpn> {
        match self {
            RemapPlacement::Fixed(target) | RemapPlacement::LeaveFor(target) => Some(target),
            _ => None,
        }
    }

    /// Whether the place that it leaves stays mapped.
    fn leaves(self) -> bool {
        matches!(self, RemapPlacement::Leave | RemapPlacement::LeaveFor(_))
    }
}

/// Where the memory is afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remapped {
    /// The pages.
    pub range: PageRange,
    /// Whether they moved.
    pub moved: bool,
}

/// A resizing of a range.
struct Remap<'a, P: Platform, F: Format, R: ReverseMap> {
    vm: &'a Vm<P, F, R>,
    pin: &'a Pin<'a>,
    space: LockedSpace<'a, R>,
    /// All regions of the space.
    tree: RegionTree<'a, R>,
    range: PageRange,
    new_pages: u64,
    placement: RemapPlacement,
}

/// A move of a range within its space.
struct Move<'a, P: Platform, F: Format, R: ReverseMap> {
    vm: &'a Vm<P, F, R>,
    pin: &'a Pin<'a>,
    space: LockedSpace<'a, R>,
    /// All regions of the space.
    tree: RegionTree<'a, R>,
    range: PageRange,
    /// Where it goes: it may be longer there, or shorter.
    to: PageRange,
    /// The first pages of `range`, which move.
    kept: PageRange,
    /// Whether a region like it takes its place.
    leaves: bool,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::remap`](crate::space::Space::remap).
    pub(crate) fn remap(
        &self,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        new_pages: u64,
        placement: RemapPlacement,
    ) -> Result<Remapped, MapError> {
        let unpinned = Unpinned::at_door();
        // Of several regions, those that have moved when memory runs out stay where they are.
        let mut moved = 0;
        let range = match pages {
            0 => PageRange::new(Self::checked_range(start, 1)?.start, 0),
            _ => Self::checked_range(start, pages)?,
        };
        self.with_room(unpinned, |unpinned| {
            self.remap_once(unpinned, id, (range, new_pages), placement, &mut moved)
        })
    }

    fn remap_once(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        (range, new_pages): (PageRange, u64),
        placement: RemapPlacement,
        moved: &mut u64,
    ) -> Result<Remapped, MapError> {
        let mut dead = DeadObjects::default();
        let result = self.with_undivided(unpinned.reborrow(), id, |pin, space| {
            // Where it goes is checked when it is known.
            if new_pages == 0 || new_pages > F::USER_END.0 {
                return Err(MapError::BadRange);
            }
            let remap = Remap {
                vm: self,
                pin,
                space: *space,
                tree: self.own_tree(space),
                range,
                new_pages,
                placement,
            };
            match range.is_empty() {
                true => remap.duplicate(&mut dead),
                false => remap.run(moved, &mut dead),
            }
        });
        self.after_removal(unpinned, dead);
        result
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Remap<'_, P, F, R> {
    fn run(&self, moved: &mut u64, dead: &mut DeadObjects) -> Result<Remapped, MapError> {
        let Remap {
            vm,
            pin,
            space,
            range,
            new_pages,
            placement,
            ..
        } = *self;
        let keeps_size = placement.leaves() || matches!(placement, RemapPlacement::AllTo(_));
        if keeps_size && new_pages != range.pages() {
            return Err(MapError::BadRange);
        }
        if let RemapPlacement::AllTo(target) = placement {
            return self.move_all(target, moved, dead);
        }
        let handle = vm.region_from(space, range.start);
        if handle.is_none() {
            return Err(MapError::NotMapped);
        }
        let view = vm.region(handle).view();
        if view.range.start > range.start || view.range.end < range.end {
            return Err(MapError::NotMapped);
        }
        if view.object != 0 && view.index_of(range.start) + new_pages > INDEX_END {
            return Err(MapError::BadRange);
        }
        if view.is_unmanaged() && (new_pages > range.pages() || placement.leaves()) {
            // The frames behind are none that anybody has named.
            return Err(MapError::WrongKind);
        }
        let word = (view.prot, view.traits);
        if let Some(target) = placement.target() {
            return self.move_to(target, word, dead);
        }
        if placement == RemapPlacement::Leave {
            return self.move_to(self.gap()?, word, dead);
        }
        let resized = PageRange::new(range.start, new_pages);
        if new_pages <= range.pages() {
            if new_pages < range.pages() {
                let tail = PageRange {
                    start: resized.end,
                    end: range.end,
                };
                vm.unmap_locked(pin, space, tail, dead)?;
            }
            return Ok(Remapped {
                range: resized,
                moved: false,
            });
        }
        let more = new_pages - range.pages();
        vm.check_limits(space, range.end, &Change::Growth(word, more))?;
        let growth = PageRange {
            start: range.end,
            end: resized.end,
        };
        let free = resized.end <= F::USER_END && vm.is_free(space, growth);
        if view.range.end == range.end && free {
            let grown = PageRange {
                start: view.range.start,
                end: resized.end,
            };
            let write = space.seq.write(pin);
            vm.resize_region(pin, space, &write, handle, grown);
            drop(write);
            vm.merge_at(pin, space, grown.end);
            return Ok(Remapped {
                range: resized,
                moved: false,
            });
        }
        if placement != RemapPlacement::MayMove {
            return Err(MapError::Occupied);
        }
        self.move_to(self.gap()?, word, dead)
    }

    /// A gap for it.
    fn gap(&self) -> Result<Vpn, MapError> {
        self.vm
            .place_in_gap(self.space, (self.new_pages, 0), Vm::<P, F, R>::bounds())
            .ok_or(MapError::NoGap)
    }

    /// Maps once more what a shared mapping shows from the range's start on (an old size of 0).
    fn duplicate(&self, dead: &mut DeadObjects) -> Result<Remapped, MapError> {
        let Remap { vm, pin, space, .. } = *self;
        let handle = vm.region_from(space, self.range.start);
        if handle.is_none() || !vm.region(handle).range().contains(self.range.start) {
            return Err(MapError::NotMapped);
        }
        let Tagged { view, tag, policy } = vm.region(handle).tagged();
        if !view.is_shared() || view.object == 0 || view.is_unmanaged() {
            return Err(MapError::WrongKind);
        }
        let (index, pages) = (view.index_of(self.range.start), self.new_pages);
        if index + pages > INDEX_END {
            return Err(MapError::BadRange);
        }
        let target = match self.placement.target() {
            Some(target) => target,
            None if self.placement == RemapPlacement::MayMove => self.gap()?,
            None => return Err(MapError::Occupied),
        };
        let to = Vm::<P, F, R>::checked_range(target, pages)?;
        if self.placement.leaves() || to.contains(self.range.start) {
            return Err(MapError::BadRange);
        }
        let request = MapRequest {
            prot: view.prot,
            traits: view.traits.without(Traits::HIDDEN),
            tag,
            ..MapRequest::anonymous(pages, view.prot)
        };
        let request = request.at(Placement::Fixed(target));
        vm.hold_for_copy(pin, view.object, handle);
        let mapped = vm.map_as(pin, space, (&request, policy), (view.object, index), dead);
        if mapped.is_err() {
            let is_last = vm.objects.release(view.object);
            debug_assert!(!is_last, "object lost its last user while it is mapped");
        }
        mapped.map(|_| Remapped {
            range: to,
            moved: true,
        })
    }

    /// Moves all regions of the range, cut off at its ends, with the gaps between them (Linux
    /// 6.17). The first pages of it, `moved`, have done so before.
    fn move_all(
        &self,
        target: Vpn,
        moved: &mut u64,
        dead: &mut DeadObjects,
    ) -> Result<Remapped, MapError> {
        let Remap {
            vm, space, range, ..
        } = *self;
        let to = Vm::<P, F, R>::checked_range(target, range.pages())?;
        if to.overlaps(range) {
            return Err(MapError::BadRange);
        }
        let mut left = PageRange {
            start: range.start.offset(*moved),
            end: range.end,
        };
        while let Some(found) = vm.found_from(space, left.start)
            && found.start < range.end.0
        {
            let view = found.item.view();
            if *moved == 0 && view.range.start > range.start {
                break;
            }
            let part = view.range.intersection(left);
            let one = Remap {
                range: part,
                new_pages: part.pages(),
                ..*self
            };
            let offset = part.start.0 - range.start.0;
            one.move_to(target.offset(offset), (view.prot, view.traits), dead)?;
            left.start = part.end;
            *moved = part.end.0 - range.start.0;
            if left.is_empty() {
                break;
            }
        }
        match *moved {
            0 => Err(MapError::NotMapped),
            _ => Ok(Remapped {
                range: to,
                moved: true,
            }),
        }
    }

    /// Moves the range, whose region has these rights and traits, to `target`, in place of what is
    /// mapped there.
    fn move_to(
        &self,
        target: Vpn,
        word: (Prot, Traits),
        dead: &mut DeadObjects,
    ) -> Result<Remapped, MapError> {
        let Remap {
            vm,
            pin,
            space,
            range,
            new_pages,
            ..
        } = *self;
        let to = Vm::<P, F, R>::checked_range(target, new_pages)?;
        if to.overlaps(range) || target < space.layout.lowest() {
            return Err(MapError::BadRange);
        }
        let growth = new_pages.saturating_sub(range.pages());
        let leaves = self.placement.leaves();
        let change = match leaves {
            true => Change::Move {
                from: range,
                to,
                word: (word.0, Self::left_by(word.1)),
                more: range.pages(),
                regions: 1,
            },
            false => Change::Move {
                from: range,
                to,
                word,
                more: growth,
                regions: 0,
            },
        };
        let may_cut = vm.check_limits(space, target, &change)?;
        let kept = PageRange::new(range.start, range.pages().min(new_pages));
        let moving = Move {
            vm,
            pin,
            space,
            tree: self.tree,
            range,
            to,
            kept,
            leaves,
        };
        moving.run(&may_cut, dead)?;
        Ok(Remapped {
            range: to,
            moved: true,
        })
    }

    /// The traits of a region that stays where one with these has moved away.
    fn left_by(traits: Traits) -> Traits {
        traits.without(Traits::HIDDEN.union(Traits::LOCKED))
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Move<'_, P, F, R> {
    fn run(&self, may_cut: &MayCut, dead: &mut DeadObjects) -> Result<(), MapError> {
        let (vm, pin, space, to) = (self.vm, self.pin, self.space, self.to);
        // Everything that can fail comes first (invariant 12). With the target
        // and the tail cut off, unmapping them cannot.
        let mut cuts = [Cuts::default(); 3];
        let spare = match self.leaves {
            true => Some(vm.make_region(pin, space, self.range.start)?),
            false => None,
        };
        let (closed, room) = match self.prepare(may_cut, &mut cuts) {
            Ok(prepared) => prepared,
            Err(error) => {
                if let Some(spare) = spare {
                    vm.regions.free(pin, spare.handle);
                }
                for cuts in cuts {
                    vm.undo_cuts(pin, space, cuts);
                }
                return Err(error.into());
            }
        };
        vm.unmap_locked(pin, space, to, dead)?;
        space.moving.store(1, Ordering::Relaxed);
        let delayed = vm.delay_flush(pin);
        let mut gather = vm.gather(pin, *space);
        self.relocate(closed.closed(), room, spare, &mut gather);
        Vm::<P, F, R>::note_unflushed(*space, self.kept, &mut gather);
        drop(gather);
        drop(delayed);
        space.moving.store(0, Ordering::Release);
        drop(closed);
        let tail = PageRange {
            start: self.kept.end,
            end: self.range.end,
        };
        if !tail.is_empty() {
            vm.unmap_locked(pin, space, tail, dead)?;
        }
        for end in [to, self.kept]
            .into_iter()
            .take(1 + usize::from(self.leaves))
        {
            vm.merge_at(pin, space, end.start);
            vm.merge_at(pin, space, end.end);
        }
        Ok(())
    }

    /// Does all of the move that can fail: makes whole regions of the ranges,
    /// the tables that moved entries need, and what reverse mapping needs.
    /// Returns the region to be moved, and room for it at its new place.
    ///
    /// # Errors
    /// [`NoPage`]; nothing has changed but what `cuts` names.
    fn prepare(
        &self,
        may_cut: &MayCut,
        cuts: &mut [Cuts; 3],
    ) -> Result<(ClosedRegion<'_, R>, Room<'_>), NoPage> {
        let (vm, pin, space) = (self.vm, self.pin, self.space);
        for (cuts, part) in cuts.iter_mut().zip([self.to, self.range, self.kept]) {
            *cuts = vm.isolate(pin, space, part, may_cut)?;
        }
        let room = self.tree.make_room(pin, &vm.memory)?;
        let handle = vm.region_from(space, self.kept.start);
        // Closed from here on: a fault could make a table for an entry whose
        // target has none.
        let closed = vm.close_region(pin, space, vm.region(handle));
        let prepared = vm
            .demote_range(pin, *space, vm.region(handle), self.kept)
            .and_then(|()| self.make_target_tables())
            .map_err(NoPage::from)
            .and_then(|()| vm.prepare_to_move(pin, space, closed.closed()));
        if let Err(error) = prepared {
            let mut gather = vm.gather(pin, *space);
            self.release_target_tables(&mut gather);
            drop(gather);
            return Err(error);
        }
        Ok((closed, room))
    }

    /// Where a page that moves goes.
    fn target_of(&self, page: Vpn) -> Vpn {
        Vpn(self
            .to
            .start
            .0
            .wrapping_add(page.0.wrapping_sub(self.kept.start.0)))
    }

    /// Makes the tables that moved entries need, and keeps them linked, so that
    /// moving cannot fail. What it made when it failed is for the caller to
    /// release.
    fn make_target_tables(&self) -> Result<(), OutOfMemory> {
        let tables = self.vm.tables(self.pin, *self.space);
        let mut made = 0;
        let mut result = Ok(());
        for span in tables.spans(self.kept) {
            let (first, count) = (span.table.page(span.first), span.count as u64);
            drop(span);
            // A span's pages may fall into two tables.
            for page in [first, first.offset(count - 1)] {
                match self.target_table(&tables, self.target_of(page), &mut made) {
                    Ok(table) => table.keep(),
                    Err(error) => result = Err(error),
                }
            }
        }
        self.vm.count_tables(self.pin, *self.space, made, 0);
        result
    }

    /// The level-1 table for a page of the target, locked. A superpage that is there, and
    /// will be unmapped, is demoted.
    fn target_table<'t>(
        &self,
        tables: &Tables<'t, P, F>,
        page: Vpn,
        made: &mut u32,
    ) -> Result<LockedTable<'t, F>, OutOfMemory> {
        let (vm, pin, space) = (self.vm, self.pin, self.space);
        loop {
            let table = tables.lock_or_make(page, made)?;
            if table.level() == 1 {
                return Ok(table);
            }
            drop(table);
            let region = vm.region(vm.region_from(space, page));
            vm.demote(pin, *space, region, page)?;
        }
    }

    /// Lets the tables go that [`Move::make_target_tables`] kept, and frees those
    /// that no entry lives in.
    fn release_target_tables(&self, gather: &mut Gather<'_, P>) {
        let target = PageRange::new(self.to.start, self.kept.pages());
        for span in self.vm.tables(self.pin, *self.space).spans(target) {
            span.table.release();
        }
        self.free_empty_tables(target, gather);
    }

    /// Frees the tables of a range that no entry lives in.
    fn free_empty_tables(&self, range: PageRange, gather: &mut Gather<'_, P>) {
        let tables = self.vm.tables(self.pin, *self.space);
        let before = gather.tables_freed();
        for span in tables.spans(range) {
            tables.unlink_if_empty(span.table, gather);
        }
        let freed = gather.tables_freed() - before;
        self.vm.count_tables(self.pin, *self.space, 0, freed);
    }

    /// Moves the region and its entries. With a `spare`, a region like it takes its place before
    /// a fault finds nothing there.
    fn relocate(
        &self,
        region: Closed<'_, R>,
        room: Room<'_>,
        spare: Option<Spare<'_, R>>,
        gather: &mut Gather<'_, P>,
    ) {
        let (vm, pin, space, to) = (self.vm, self.pin, self.space, self.to);
        let (handle, tagged) = (region.handle(), region.tagged());
        let view = tagged.view;
        debug_assert_eq!(view.range, self.kept);
        if to.pages() > self.kept.pages() {
            let grown = PageRange::new(self.kept.start, to.pages());
            vm.tell_resized(pin, handle, grown, view.offset);
        }
        let mut write = None;
        let apply = || {
            self.entries(&region, gather);
            write = Some(space.seq.write(pin));
            self.tree.remove(pin, self.kept.start.0);
            region.set_range(to, view.offset);
            // At this place all of it is new.
            region.lose();
            self.tree.insert(pin, room, handle, to.start.0, to.end.0);
        };
        if view.object == 0 {
            apply();
        } else {
            // Truncation looks for the object's pages under the same lock and
            // must not look where they have just been.
            vm.objects
                .regions(&vm.regions, view.object)
                .change(pin, handle, apply);
        }
        if let (Some(spare), Some(write)) = (spare, &write) {
            let left = RegionView {
                traits: Remap::<P, F, R>::left_by(view.traits),
                offset: match view.object {
                    0 => view.range.start.0,
                    _ => view.offset,
                },
                ..view
            };
            if view.object != 0 {
                vm.hold_for_copy(pin, view.object, handle);
            }
            let tagged = Tagged {
                view: left,
                ..tagged
            };
            vm.link_region(pin, space, write, (spare, &tagged), None);
        }
        drop(write);
        if P::PARTS.hooks && view.traits.has_any(Traits::HOOKS) {
            vm.wake_hooked(pin, space.handle(), view.range);
        }
        let growth = to.pages().wrapping_sub(self.kept.pages());
        let counts = &space.account.counts;
        counts.count_pages((view.prot, view.traits), growth);
    }

    fn entries(&self, region: &Region<R>, gather: &mut Gather<'_, P>) {
        let tables = self.vm.tables(self.pin, *self.space);
        for span in tables.spans(self.kept) {
            self.span(region, &tables, &span, gather);
        }
        // Not before all have moved: a table that holds nothing yet, or nothing
        // any more, may be the one that later entries move to.
        self.free_empty_tables(self.kept, gather);
        self.release_target_tables(gather);
    }

    fn span(
        &self,
        region: &Region<R>,
        tables: &Tables<'_, P, F>,
        span: &Span<'_, F>,
        gather: &mut Gather<'_, P>,
    ) {
        let source = &span.table;
        let (first, end) = (span.first, span.first + span.count);
        (self.vm).end_runs(self.pin, *self.space, source, first..end);
        let mut moved = 0;
        for index in first..end {
            if source.load(index) == 0 {
                continue;
            }
            let page = source.page(index);
            let target = self.target_of(page);
            gather.stale(page);
            moved += 1;
            if tables.leaf_table(target) == Some(source.table()) {
                self.entry(region, (source, page), (source, target));
                moved -= 1;
                continue;
            }
            let Some(table) = tables.lock(target) else {
                unreachable!("a table that was made for the move is gone");
            };
            self.entry(region, (source, page), (&table, target));
        }
        source.count_cleared(moved);
        self.vm.end_reservation(self.pin, source);
    }

    /// Moves the entry of one page, from its table to that of another.
    fn entry(
        &self,
        region: &Region<R>,
        (source, from): (&LockedTable<'_, F>, Vpn),
        (target, to): (&LockedTable<'_, F>, Vpn),
    ) {
        let (vm, pin) = (self.vm, self.pin);
        let (old_index, new_index) = (F::index(from, 1), F::index(to, 1));
        let entry = source.clear(old_index, Users::Hardware);
        target.fill(new_index, entry);
        if source.table() != target.table() {
            target.count_made(1);
        }
        let Entry::Leaf(pfn) = F::decode(entry, 1) else {
            // A page in swap comes back at its new place, whatever it was before.
            return;
        };
        if vm.managed(pfn).is_none() {
            return;
        }
        let env = vm.env(pin);
        let mut ctx = R::Ctx::default();
        let place = region.place(*self.space);
        let old = Run::single(pfn, source.pte(old_index), from);
        let new = Run::single(pfn, target.pte(new_index), to);
        vm.rmap.shift(&env, &mut ctx, &old, &new, place);
        vm.rmap.finish(&env, ctx);
    }
}
