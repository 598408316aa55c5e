//! mremap: grow, shrink, move.

use super::change::Cuts;
use super::error::MapError;
use super::manager::{Live, SpaceId, Vm};
use super::map::Placement;
use super::region::{Region, RegionView};
use super::regions::RegionHandle;
use super::unmap::DeadObjects;
use crate::addr::{PageRange, Vpn};
use crate::frame::OutOfMemory;
use crate::object::INDEX_END;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::table::{Format, Gather, LockedTable, Span, Tables, Users};
use crate::tree::Room;

/// Where the memory is afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remapped {
    /// The pages.
    pub range: PageRange,
    /// Whether they moved.
    pub moved: bool,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Resizes the mapping of `pages` pages at `start`, which lies in one
    /// region, to `new_pages`. `placement` [`Placement::Fixed`] moves it
    /// there; [`Placement::Anywhere`] moves it if it cannot grow where it is;
    /// any other keeps it in place.
    ///
    /// # Errors
    /// [`MapError`]; the space is as it was.
    pub fn remap(
        &self,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        new_pages: u64,
        placement: Placement,
    ) -> Result<Remapped, MapError> {
        let range = Self::checked_range(start, pages)?;
        let mut dead = DeadObjects::default();
        let result = self.with_locked(id, |pin, space| {
            // Where it goes is checked when it is known.
            if new_pages == 0 || new_pages > F::USER_END.0 {
                return Err(MapError::BadRange);
            }
            self.remap_locked(pin, space, range, new_pages, placement, &mut dead)
        });
        self.destroy_objects(dead);
        result
    }

    fn remap_locked(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        range: PageRange,
        new_pages: u64,
        placement: Placement,
        dead: &mut DeadObjects,
    ) -> Result<Remapped, MapError> {
        let handle = self.region_from(space, range.start);
        if handle.is_none() {
            return Err(MapError::NotMapped);
        }
        let view = self.region(handle).view();
        if view.range.start > range.start || view.range.end < range.end {
            return Err(MapError::NotMapped);
        }
        if view.object != 0 && view.index_of(range.start) + new_pages > INDEX_END {
            return Err(MapError::BadRange);
        }
        if let Placement::Fixed(target) = placement {
            return self.move_to(pin, space, range, new_pages, target, dead);
        }
        let resized = PageRange::new(range.start, new_pages);
        if new_pages <= range.pages() {
            if new_pages < range.pages() {
                let tail = PageRange {
                    start: resized.end,
                    end: range.end,
                };
                self.unmap_locked(pin, space, tail, dead)?;
            }
            return Ok(Remapped {
                range: resized,
                moved: false,
            });
        }
        self.check_limits(space, new_pages - range.pages(), 0)?;
        let growth = PageRange {
            start: range.end,
            end: resized.end,
        };
        let free = resized.end <= F::USER_END && self.is_free(space, growth);
        if view.range.end == range.end && free {
            let grown = PageRange {
                start: view.range.start,
                end: resized.end,
            };
            let write = space.seq.write(pin);
            self.resize_region(pin, space, &write, handle, grown, view.offset);
            drop(write);
            self.merge_at(pin, space, grown.end);
            return Ok(Remapped {
                range: resized,
                moved: false,
            });
        }
        if placement != Placement::Anywhere {
            return Err(MapError::Occupied);
        }
        let target = self
            .find_gap(space, new_pages, Self::bounds())
            .ok_or(MapError::NoGap)?;
        self.move_to(pin, space, range, new_pages, target, dead)
    }

    /// Moves `range` to `target`, where it has `new_pages` pages, in place of
    /// what is mapped there.
    fn move_to(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        range: PageRange,
        new_pages: u64,
        target: Vpn,
        dead: &mut DeadObjects,
    ) -> Result<Remapped, MapError> {
        let to = Self::checked_range(target, new_pages)?;
        if to.overlaps(range) {
            return Err(MapError::BadRange);
        }
        self.check_limits(space, new_pages.saturating_sub(range.pages()), 0)?;
        let kept = PageRange::new(range.start, range.pages().min(new_pages));
        let tail = PageRange {
            start: kept.end,
            end: range.end,
        };
        // Everything that can fail comes first (invariant 12). With the target
        // and the tail cut off, unmapping them cannot.
        let mut cuts = [Cuts::default(); 3];
        let prepared = self.prepare_move(pin, space, (range, kept), to, &mut cuts);
        let (handle, room) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                for cuts in cuts {
                    self.undo_cuts(pin, space, cuts);
                }
                return Err(error.into());
            }
        };
        self.unmap_locked(pin, space, to, dead)?;
        let view = self.region(handle).view();
        space.moving.store(1, Ordering::Relaxed);
        let mut gather = self.gather(pin, space);
        self.relocate(pin, space, (handle, room), &view, to, &mut gather);
        drop(gather);
        space.moving.store(0, Ordering::Release);
        self.region(handle).gate.open();
        if !tail.is_empty() {
            self.unmap_locked(pin, space, tail, dead)?;
        }
        self.merge_at(pin, space, to.start);
        self.merge_at(pin, space, to.end);
        Ok(Remapped {
            range: to,
            moved: true,
        })
    }

    /// Does all of a move of `kept`, the first pages of `range`, to `to` that can
    /// fail: makes whole regions of the ranges, the tables that moved entries
    /// need, and what reverse mapping needs. Returns the region to be moved, its
    /// gate closed, and room for it at its new place.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing has changed but what `cuts` names.
    fn prepare_move<'p>(
        &self,
        pin: &'p Pin<'_>,
        space: Live<'_, R>,
        (range, kept): (PageRange, PageRange),
        to: PageRange,
        cuts: &mut [Cuts; 3],
    ) -> Result<(RegionHandle<R>, Room<'p>), OutOfMemory> {
        for (cuts, part) in cuts.iter_mut().zip([to, range, kept]) {
            *cuts = self.isolate(pin, space, part)?;
        }
        let room = self.tree(space).make_room(pin, &self.memory)?;
        let handle = self.region_from(space, kept.start);
        // Closed from here on: a fault could make a table for an entry whose
        // target has none.
        self.close_gates(pin, space, kept);
        let view = self.region(handle).view();
        let prepared = self
            .make_target_tables(pin, space, kept, to.start)
            .and_then(|()| self.prepare_to_move(pin, space, handle, &view));
        if let Err(error) = prepared {
            let target = PageRange::new(to.start, kept.pages());
            let mut gather = self.gather(pin, space);
            self.release_target_tables(pin, space, target, &mut gather);
            drop(gather);
            self.region(handle).gate.open();
            return Err(error);
        }
        Ok((handle, room))
    }

    /// Makes the tables that moved entries need, and keeps them linked, so that
    /// moving cannot fail. What it made when it failed is for the caller to
    /// release.
    fn make_target_tables(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        from: PageRange,
        to: Vpn,
    ) -> Result<(), OutOfMemory> {
        let tables = self.tables(pin, space);
        let moved = |page: Vpn| Vpn(to.0 + (page.0 - from.start.0));
        let mut made = 0;
        let mut result = Ok(());
        for span in tables.spans(from) {
            let (first, count) = (span.table.page(span.first), span.count as u64);
            drop(span);
            // A span's pages may fall into two tables.
            for page in [moved(first), moved(first.offset(count - 1))] {
                match tables.lock_or_make(page) {
                    Ok((table, new)) => {
                        made += new;
                        table.keep();
                    }
                    Err(error) => result = Err(error),
                }
            }
        }
        self.count_tables(pin, space, made, 0);
        result
    }

    /// Lets the tables of a range go that [`Vm::make_target_tables`] kept, and
    /// frees those that no entry lives in.
    fn release_target_tables(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        target: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        for span in self.tables(pin, space).spans(target) {
            span.table.release();
        }
        self.free_empty_tables(pin, space, target, gather);
    }

    /// Frees the tables of a range that no entry lives in.
    fn free_empty_tables(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        range: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        let tables = self.tables(pin, space);
        let before = gather.tables_freed();
        for span in tables.spans(range) {
            tables.unlink_if_empty(span.table, gather);
        }
        self.count_tables(pin, space, 0, gather.tables_freed() - before);
    }

    /// Moves a closed region and its entries.
    fn relocate(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        (handle, room): (RegionHandle<R>, Room<'_>),
        view: &RegionView,
        to: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        let region = self.region(handle);
        if to.pages() > view.range.pages() {
            self.tell_resized(
                pin,
                handle,
                PageRange::new(view.range.start, to.pages()),
                view.offset,
            );
        }
        let apply = || {
            self.move_entries(pin, space, region, view.range, to.start, gather);
            let write = space.seq.write(pin);
            let tree = self.tree(space);
            tree.remove(pin, view.range.start.0);
            region.set_range(to, view.offset);
            tree.insert(pin, room, handle, to.start.0, to.end.0);
            drop(write);
        };
        if view.object == 0 {
            apply();
        } else {
            // Truncation looks for the object's pages under the same lock and
            // must not look where they have just been.
            self.objects
                .regions(&self.regions, view.object)
                .change(pin, handle, apply);
        }
        let growth = to.pages().wrapping_sub(view.range.pages());
        space.account.pages.add(growth);
    }

    fn move_entries(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        region: &Region<R>,
        from: PageRange,
        to: Vpn,
        gather: &mut Gather<'_, P>,
    ) {
        let tables = self.tables(pin, space);
        for span in tables.spans(from) {
            let delta = to.0.wrapping_sub(from.start.0);
            self.move_span(pin, space, region, &tables, &span, delta, gather);
        }
        // Not before all have moved: a table that holds nothing yet, or nothing
        // any more, may be the one that later entries move to.
        self.free_empty_tables(pin, space, from, gather);
        self.release_target_tables(pin, space, PageRange::new(to, from.pages()), gather);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one move")]
    fn move_span(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        region: &Region<R>,
        tables: &Tables<'_, P, F>,
        span: &Span<'_, F>,
        delta: u64,
        gather: &mut Gather<'_, P>,
    ) {
        let source = &span.table;
        let mut moved = 0;
        for index in span.first..span.first + span.count {
            if source.load(index) == 0 {
                continue;
            }
            let page = source.page(index);
            let target = Vpn(page.0.wrapping_add(delta));
            gather.stale(page);
            moved += 1;
            if tables.leaf_table(target) == Some(source.table()) {
                self.move_entry(pin, space, region, source, index, source, target);
                moved -= 1;
                continue;
            }
            let Some(table) = tables.lock(target) else {
                unreachable!("a table that was made for the move is gone");
            };
            self.move_entry(pin, space, region, source, index, &table, target);
        }
        source.count_cleared(moved);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one move")]
    fn move_entry(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        region: &Region<R>,
        source: &LockedTable<'_, F>,
        index: usize,
        target: &LockedTable<'_, F>,
        page: Vpn,
    ) {
        let entry = source.clear(index, Users::Hardware);
        let to = F::index(page, 1);
        target.fill(to, entry);
        if source.table() != target.table() {
            target.count_made(1);
        }
        let pfn = F::frame(entry, 1);
        if pfn == self.zero_page {
            return;
        }
        let env = self.env(pin);
        let mut ctx = R::Ctx::default();
        let place = region.place(space);
        let old = Run::single(pfn, source.pte(index), source.page(index));
        let new = Run::single(pfn, target.pte(to), page);
        self.rmap.shift(&env, &mut ctx, &old, &new, place);
        self.rmap.finish(&env, ctx);
    }
}
