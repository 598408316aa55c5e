//! Entries for frames that the manager does not manage: memory of devices, and frames that the
//! embedder keeps for itself.
//!
//! Such an entry is a live entry of its table, and nothing else: its frame may have no record, is
//! counted by nobody, and no reverse mapping knows the entry. So code that goes over entries asks
//! their region first ([`Traits::UNMANAGED`](crate::space::Traits::UNMANAGED)), or, without one,
//! whether the frame is managed ([`Vm::managed`]).
//!
//! Entries are large where pages and frames are aligned alike, whatever the design says of
//! superpages. They keep no spare table to be split into. A call that splits one has it made first,
//! and fails without it before it changes anything.
//!
//! Mapping at once makes and keeps the tables first, which may fail, then whatever replaces what is
//! mapped there, and fills them in the end.

use super::zap::Zap;
use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::OutOfMemory;
use crate::object::ObjectKind;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::FaultError;
use crate::space::state::extras::LEVEL;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::RegionView;
use crate::space::state::spaces::Live;
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::sync::Pin;
use crate::table::{Format, Gather, LockedTable, Marks, Span, Users};

/// Entries in a row in one table, of one size.
#[derive(Clone, Copy)]
struct Row {
    page: Vpn,
    first: Pfn,
    level: u32,
    entries: usize,
}

impl<P: Platform, F: Format, R: ReverseMap> Zap<'_, P, F, R> {
    /// Clears the entries of a span. There is always room for what is to be flushed.
    #[cold]
    #[inline(never)]
    pub(super) fn unmanaged(&self, span: &Span<'_, F>, gather: &mut Gather<'_, P>) -> Option<Vpn> {
        let (table, level) = (&span.table, span.table.level());
        let mut cleared = 0;
        for index in span.first..span.first + span.count {
            if table.load(index) != 0 {
                table.clear(index, self.users);
                gather.stale_leaf(table.page(index), F::pages_at(level));
                cleared += 1;
            }
        }
        table.count_cleared(cleared);
        self.vm
            .events(self.pin)
            .zapped_entries
            .add(u64::from(cleared));
        None
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// The frame that a region shows at its first page, which is none of the manager's, and whether
    /// all of it is to have entries from the start.
    pub(crate) fn unmanaged_frames(&self, view: &RegionView) -> Option<(Pfn, bool)> {
        if view.object == 0 {
            return None;
        }
        match self.objects.get(view.object).kind() {
            // What does not fit is refused when it is asked for.
            ObjectKind::Unmanaged { first, at_once } => {
                Some((first.offset(view.offset as u32), at_once))
            }
            _ => None,
        }
    }

    /// The pages of a region, from whose start on it shows the frames from `first` on, in rows.
    fn rows(range: PageRange, first: Pfn) -> impl Iterator<Item = Row> {
        let large = F::pages_at(LEVEL);
        let is_aligned_alike =
            F::MAX_LEAF_LEVEL >= LEVEL && (range.start.0 ^ u64::from(first.0)) & (large - 1) == 0;
        let mut next = range.start;
        core::iter::from_fn(move || {
            let (page, left) = (
                next,
                range.end.0.checked_sub(next.0).filter(|&left| left > 0)?,
            );
            let level = match is_aligned_alike && page.0 & (large - 1) == 0 && left >= large {
                true => LEVEL,
                false => 1,
            };
            let in_table = (F::ENTRIES - F::index(page, level)) as u64;
            let entries = in_table.min(left / F::pages_at(level));
            next = page.offset(entries * F::pages_at(level));
            Some(Row {
                page,
                first: first.offset((page.0 - range.start.0) as u32),
                level,
                entries: entries as usize,
            })
        })
    }

    /// The leaves of a region's frames: all marks are set, as nobody asks for them, and some
    /// processors would fault where one is missing.
    fn unmanaged_leaf(view: &RegionView, frame: Pfn, level: u32) -> u64 {
        let marks = match view.prot.can_write() {
            true => Marks::DIRTY,
            false => Marks::ACCESSED,
        };
        F::leaf(frame, level, view.prot, marks)
    }

    /// Makes all entries of a region that shows frames which are not managed, if it is one that has
    /// them from the start. The space is locked, and nothing is mapped there.
    ///
    /// # Errors
    /// [`OutOfMemory`]; none was made.
    pub(in crate::space) fn map_unmanaged(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        view: &RegionView,
    ) -> Result<(), OutOfMemory> {
        if let Some((first, true)) = self.unmanaged_frames(view) {
            self.keep_unmanaged(pin, space, view.range, first)?;
            self.fill_unmanaged(pin, space, view, first);
        }
        Ok(())
    }

    /// Makes the tables for entries in `range` that show the frames from `first` on, and keeps them
    /// linked. Large leaves of what is mapped there, and will go, are split where they are in the
    /// way.
    ///
    /// # Errors
    /// [`OutOfMemory`]; no table is kept.
    pub(in crate::space) fn keep_unmanaged(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
        first: Pfn,
    ) -> Result<(), OutOfMemory> {
        for (kept, row) in Self::rows(range, first).enumerate() {
            if let Err(error) = self.keep_row(pin, space, &row) {
                self.release_rows(pin, *space, Self::rows(range, first).take(kept));
                return Err(error);
            }
        }
        Ok(())
    }

    fn keep_row(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        row: &Row,
    ) -> Result<(), OutOfMemory> {
        loop {
            let table = self.unmanaged_table(pin, *space, row.page, row.level)?;
            if table.level() == row.level {
                table.keep();
                return Ok(());
            }
            drop(table);
            let region = self.region(self.region_from(space, row.page));
            self.demote(pin, *space, region, row.page)?;
        }
    }

    /// The table of a level for a page, or one of a larger leaf, locked, made if need be, and
    /// counted.
    fn unmanaged_table<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        space: Live<'a, R>,
        page: Vpn,
        level: u32,
    ) -> Result<LockedTable<'a, F>, OutOfMemory> {
        let mut made = 0;
        let table = self
            .tables(pin, space)
            .lock_or_make_at(page, level, &mut made);
        self.count_tables(pin, space, made, 0);
        table
    }

    /// Lets go of the tables that [`Vm::keep_unmanaged`] kept for entries that are not made.
    pub(in crate::space) fn release_unmanaged(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
        first: Pfn,
    ) {
        self.release_rows(pin, *space, Self::rows(range, first));
    }

    #[cold]
    fn release_rows(&self, pin: &Pin<'_>, space: Live<'_, R>, rows: impl Iterator<Item = Row>) {
        for row in rows {
            // It is there.
            if let Ok(table) = self.unmanaged_table(pin, space, row.page, row.level) {
                table.release();
                self.leave_table(pin, space, table);
            }
        }
    }

    /// Makes all entries of a region in the tables that [`Vm::keep_unmanaged`] kept.
    pub(in crate::space) fn fill_unmanaged(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        view: &RegionView,
        first: Pfn,
    ) {
        for row in Self::rows(view.range, first) {
            let table = self.unmanaged_table(pin, *space, row.page, row.level);
            let Some(table) = table.ok().filter(|table| table.level() == row.level) else {
                unreachable!("a table that was made for the mapping is gone");
            };
            let (level, pages) = (row.level, F::pages_at(row.level) as u32);
            table.fill_row(F::index(row.page, level), row.entries, |step| {
                Self::unmanaged_leaf(view, row.first.offset(step as u32 * pages), level)
            });
            table.count_made(row.entries as u32);
            table.release();
        }
    }

    /// A fault in a region of frames that are not managed, whose entry is missing.
    pub(in crate::space) fn map_unmanaged_page(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Result<FaultStep, FaultError> {
        let view = fault.view();
        let Some((first, _)) = self.unmanaged_frames(&view) else {
            return Err(FaultError::PastEnd);
        };
        // The row of a large leaf is one for this page alone, unless there is a table already.
        let around = Self::pages_around(fault.page).intersection(view.range);
        let offset = (around.start.0 - view.range.start.0) as u32;
        let row = Self::rows(around, first.offset(offset)).next();
        let (page, level) = match row {
            Some(row) if row.level > 1 && fault.lowest.1 > 1 => (row.page, row.level),
            _ => (fault.page, 1),
        };
        let table = self.unmanaged_table(fault.pin, fault.space, page, level)?;
        let index = F::index(page, level);
        if table.level() != level || table.load(index) != 0 {
            self.leave_table(fault.pin, fault.space, table);
            return Ok(FaultStep::Again);
        }
        let frame = first.offset((page.0 - view.range.start.0) as u32);
        table.fill(index, Self::unmanaged_leaf(&view, frame, level));
        table.count_made(1);
        Ok(FaultStep::Done(Resolved::Mapped))
    }

    /// The pages that a large leaf for `page` would map.
    fn pages_around(page: Vpn) -> PageRange {
        let large = F::pages_at(LEVEL);
        PageRange::new(Vpn(page.0 & !(large - 1)), large)
    }

    /// A fault met a large leaf of a frame that is not managed, which lacks a right.
    #[cold]
    pub(super) fn upgrade_unmanaged(&self, fault: &Fault<'_, P, F, R>) -> FaultStep {
        let Some((table, _, _)) = fault.lock_leaf() else {
            return FaultStep::Again;
        };
        let level = table.level();
        let prot = fault.view().prot;
        table.update(F::index(fault.page, level), Users::Hardware, |entry| {
            F::with_prot(entry, level, prot)
        });
        FaultStep::Done(Resolved::Upgraded)
    }

    /// Splits the large leaf that covers `page` of a region of frames that are not managed, if there
    /// is one. The caller keeps the region from changing and holds no table lock.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the leaf is as it was.
    #[cold]
    #[inline(never)]
    pub(super) fn split_unmanaged(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        page: Vpn,
    ) -> Result<(), OutOfMemory> {
        let tables = self.tables(pin, space);
        let is_large = |table: &LockedTable<'_, F>| table.level() > 1;
        if !tables.lock(page).as_ref().is_some_and(is_large) {
            return Ok(());
        }
        let base = Self::pages_around(page).start;
        let spare = tables.make_spare(base, LEVEL - 1)?;
        match tables.lock(page).filter(is_large) {
            Some(table) => {
                tables.keep_spare(&table, spare);
                let flush = || self.flush_locked_page(pin, space, base);
                tables.demote(&table, F::index(page, LEVEL), flush, |_| ());
                self.count_tables(pin, space, 1, 0);
            }
            None => tables.unmake_spare(spare),
        }
        Ok(())
    }
}
