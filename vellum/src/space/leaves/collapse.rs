//! Making superpages of single pages that are in use, as Linux's khugepaged does (Arcangeli
//! 2011): the pages are copied to a run of frames that takes their place.
//!
//! Faults are kept out of the region meanwhile, so no entry is filled. First the pages lose the
//! right to be stored to and all CPUs forget them, so that nothing changes while they are
//! copied, and whoever loads from them goes on doing so. Then the table's entry is replaced by
//! the superpage's under the locks of both tables. What memory is needed is had before anything
//! changes.
//!
//! Reclaim and pins enter no region. Only the lock of the table keeps a page where it is: each
//! is copied under it, and under it all are looked at again before they are replaced. If one
//! has gone to swap, was dropped or pinned by then, all stay as they are, and the next store to
//! each gets its right back through a fault.

use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::{NoPage, Request, Site};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::state::account::Resident;
use crate::space::state::closed::Closed;
use crate::space::state::error::MapError;
use crate::space::state::extras::LEVEL;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{Region, Traits};
use crate::space::state::spaces::{Live, SpaceId};
use crate::sync::{Pin, Unpinned};
use crate::table::{Entry, Format, LockedTable, Marks, Tables, Users};

/// What a call of [`Space::collapse`](crate::space::Space::collapse) did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collapse {
    /// Ranges of a superpage's size that were looked at.
    pub scanned: u64,
    /// Superpages made.
    pub collapsed: u64,
    /// Where the next call goes on; the end of the space when there is nothing after it.
    pub next: Vpn,
}

/// The frames and the table that a superpage needs.
struct SuperpageParts {
    first: Pfn,
    spare: Pfn,
}

/// What single pages have in common, and how many there are.
#[derive(Clone, Copy, Default)]
struct Singles {
    private: u64,
    zero: u64,
    marks: Marks,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::collapse`](crate::space::Space::collapse).
    pub(crate) fn collapse(
        &self,
        id: SpaceId,
        start: Vpn,
        ranges: u64,
        least: u32,
    ) -> Result<Collapse, MapError> {
        let mut unpinned = Unpinned::at_door();
        let mut report = Collapse {
            scanned: 0,
            collapsed: 0,
            next: Vpn(start.0 & !(Self::SUPERPAGE - 1)),
        };
        if !self.has_superpages() {
            report.next = F::USER_END;
            return Ok(report);
        }
        while report.scanned < ranges && report.next < F::USER_END {
            let made = self.with_locked(unpinned.reborrow(), id, |pin, space| {
                let space = *space;
                let handle = self.region_from(space, report.next);
                if handle.is_none() {
                    report.next = F::USER_END;
                    return Ok(false);
                }
                let region = self.region(handle);
                let first = region.range().start.0.next_multiple_of(Self::SUPERPAGE);
                let base = report.next.max(Vpn(first));
                let range = PageRange::new(base, Self::SUPERPAGE);
                if range.end > region.range().end {
                    // Not beyond the next region's first page, which may be in this range.
                    let end = region.range().end.0;
                    report.next = Vpn(end.next_multiple_of(Self::SUPERPAGE));
                    return Ok(false);
                }
                report.next = range.end;
                report.scanned += 1;
                self.collapse_range(pin, space, region, range, least)
            })?;
            report.collapsed += u64::from(made);
            self.memory.heed_crowd(unpinned.reborrow());
        }
        Ok(report)
    }

    /// Makes a superpage of a range of the region, if its pages allow that.
    fn collapse_range(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        region: &Region<R>,
        range: PageRange,
        least: u32,
    ) -> Result<bool, MapError> {
        let view = region.view();
        let tables = self.tables(pin, *space);
        let suits = |table: &LockedTable<'_, F>| {
            self.singles(table)
                .filter(|found| found.private > 0 && found.private + found.zero >= u64::from(least))
        };
        // With hooks, what is missing would be made, and what is watched be lost.
        let refused = Traits::NOT_HUGE.union(Traits::HOOKS);
        if view.object != 0 || view.is_shared() || view.traits.has_any(refused) {
            return Ok(false);
        }
        if tables.lock(range.start).as_ref().and_then(suits).is_none() {
            return Ok(false);
        }
        let parts = self.superpage_parts(pin, &tables, (*space, region, range.start))?;
        let env = self.env(pin);
        let mut ctx = R::Ctx::default();
        let prepared = self
            .rmap
            .prepare(&env, &mut ctx, region.place(*space), 1)
            .and_then(|()| (self.rmap).prepare_private(&env, self, region.region_ref()));
        let closed = self.close_region(pin, space, region);
        // Nobody is inside: no entry is filled, and none gets the right to be stored to.
        let found = tables.lock(range.start).and_then(|table| {
            let found = suits(&table).filter(|_| prepared.is_ok())?;
            self.end_runs(pin, *space, &table, 0..F::ENTRIES);
            for index in 0..F::ENTRIES {
                if F::is_mapped(table.load(index)) {
                    table.update(index, Users::Hardware, F::write_protect);
                }
            }
            Some(found)
        });
        let ctx = match found {
            Some(found) => {
                self.flush_range(pin, *space, Some(range));
                self.copy_singles(pin, &tables, range.start, parts.first);
                self.replace_singles(pin, *space, closed.closed(), range, (&parts, found), ctx)
            }
            None => Err(ctx),
        };
        let made = ctx.map_err(|ctx| {
            self.rmap.finish(&env, ctx);
            tables.unmake_spare(parts.spare);
            self.memory.put_order(pin, parts.first, Self::ORDER);
        });
        drop(closed);
        prepared?;
        Ok(made.is_ok())
    }

    fn superpage_parts(
        &self,
        pin: &Pin<'_>,
        tables: &Tables<'_, P, F>,
        at: (Live<'_, R>, &Region<R>, Vpn),
    ) -> Result<SuperpageParts, NoPage> {
        let spare = tables.make_spare(at.2, LEVEL - 1)?;
        let request = Request::page(Site::Superpage).order(Self::ORDER);
        match self.alloc_private(pin, request, at) {
            Ok(first) => Ok(SuperpageParts { first, spare }),
            Err(error) => {
                tables.unmake_spare(spare);
                self.events(pin).superpage_failures.bump();
                Err(error)
            }
        }
    }

    /// What a table of level 1 maps, if it is nothing but private pages that nobody else
    /// maps or refers to, and the zero page.
    fn singles(&self, table: &LockedTable<'_, F>) -> Option<Singles> {
        let mut found = Singles::default();
        if table.level() > 1 {
            return None;
        }
        for index in 0..F::ENTRIES {
            let entry = table.load(index);
            if entry == 0 {
                continue;
            }
            // A page in swap is not brought back for this.
            let Entry::Leaf(frame) = F::decode(entry, 1) else {
                return None;
            };
            let marks = F::marks(entry);
            found.marks.accessed |= marks.accessed;
            found.marks.dirty |= marks.dirty;
            if frame == self.zero_page {
                found.zero += 1;
            } else if self.is_exclusive(frame) && self.memory.frame(frame).counts().pins() == 0 {
                found.private += 1;
            } else {
                return None;
            }
        }
        Some(found)
    }

    /// Copies the pages of a table, which nobody stores to, to a run of frames: those that are
    /// still there when it is their turn, each under the lock of the table.
    fn copy_singles(&self, pin: &Pin<'_>, tables: &Tables<'_, P, F>, base: Vpn, first: Pfn) {
        for step in 0..Self::SUPERPAGE {
            let page = base.offset(step);
            let to = first.offset(step as u32);
            let table = tables.lock(page).filter(|table| table.level() == 1);
            let entry = table
                .as_ref()
                .map_or(0, |table| table.load(F::index(page, 1)));
            match F::is_mapped(entry) {
                true => self.memory.copy(pin, F::frame(entry, 1), to),
                false => self.memory.zero(pin, to),
            }
        }
    }

    /// Puts the superpage in the place of the table and its pages, if all are there that were
    /// `found`, and may be replaced. Gives back what was prepared if not.
    fn replace_singles(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        region: Closed<'_, R>,
        range: PageRange,
        (parts, found): (&SuperpageParts, Singles),
        mut ctx: R::Ctx,
    ) -> Result<(), R::Ctx> {
        let tables = self.tables(pin, space);
        let Some(table) = tables.lock(range.start) else {
            return Err(ctx);
        };
        // No entry has come: if there are as many, they are the same.
        let is_same = |now: &Singles| (now.private, now.zero) == (found.private, found.zero);
        let Some(found) = self.singles(&table).filter(is_same) else {
            return Err(ctx);
        };
        self.end_reservation(pin, &table);
        let parent = tables.lock_above(&table);
        let (env, place) = (self.env(pin), region.place(space));
        let first = parts.first;
        let index = F::index(range.start, LEVEL);
        let run = Self::large_run(&parent, index, first);
        // Stores come back through faults, one for all pages.
        let prot = region.prot().read_only();
        let leaf = F::leaf(first, LEVEL, prot, found.marks);
        let flush = || self.flush_locked_table(pin, space, range);
        let dead = Tables::<P, F>::promote(&table, &parent, leaf, flush, || {
            for index in 0..F::ENTRIES {
                if table.load(index) != 0 {
                    // No CPU walks the table any more.
                    let entry = table.clear(index, Users::None);
                    let single = (index, F::frame(entry, 1));
                    self.drop_single(pin, &table, single, place, &mut ctx);
                }
            }
            table.count_cleared((found.private + found.zero) as u32);
            self.own_run_privately(pin, &run, place, &mut ctx);
            tables.keep_spare(&parent, parts.spare);
        });
        drop((table, parent));
        // Before a flush: the context may hold a lock.
        self.rmap.finish(&env, ctx);
        let mut gather = self.gather(pin, space);
        gather.table(dead);
        drop(gather);
        region.note_private();
        self.note_inserted(pin, first, Inserted::Anonymous);
        // The spare table comes for the one that goes.
        self.count_tables(pin, space, 1, 1);
        for (kind, more) in [
            (Resident::Anonymous, Self::SUPERPAGE - found.private),
            (Resident::Zero, found.zero.wrapping_neg()),
        ] {
            self.count_resident(pin, space, kind, more);
        }
        self.events(pin).superpage_collapses.bump();
        Ok(())
    }

    /// The entry at `index` of a table, which mapped `frame` and which all CPUs have
    /// forgotten, is gone.
    fn drop_single(
        &self,
        pin: &Pin<'_>,
        table: &LockedTable<'_, F>,
        (index, frame): (usize, Pfn),
        place: crate::rmap::Place<'_, R::Region, R::Space>,
        ctx: &mut R::Ctx,
    ) {
        if frame == self.zero_page {
            return;
        }
        let env = self.env(pin);
        let gone = Run::single(frame, table.pte(index), table.page(index));
        self.rmap.remove(&env, ctx, &gone, place);
        self.memory.frame(frame).remove_mapping();
        self.rmap.unmapped(&env, frame);
        self.note_removed(pin, frame);
        self.memory.put(pin, frame);
    }
}
