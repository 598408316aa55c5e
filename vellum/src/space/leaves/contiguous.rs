//! Contiguous runs (`contiguous=on`): folios whose entries tell the processor that they lie in
//! a row.
//!
//! A folio that covers an aligned run of the format ([`Format::CONTIGUOUS_ORDER`]) has its
//! entries made with the hint. Nothing gives a run the hint later. Whoever is about to change
//! an entry, with its table locked, takes the hint off the run first ([`Vm::end_runs`]), of all
//! runs of the table that the call is about at once, with one flush. Clearing all of a run needs
//! nothing of that.
//!
//! So the pages of a run are private memory that one entry maps: fork ends the runs of what it
//! shares. Reclaim ends a run when it looks at one of its pages: until then, the marks of one
//! entry are about sixteen pages, and from then on each is judged by itself.

use core::ops::Range;

use crate::addr::Vpn;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Slot};
use crate::space::state::manager::Vm;
use crate::space::state::spaces::Live;
use crate::sync::Pin;
use crate::table::{Format, LockedTable};

/// The place of an entry with the hint that a visit found.
#[derive(Clone, Copy)]
pub(in crate::space) struct FoundRun {
    space: u32,
    page: Vpn,
}

impl FoundRun {
    /// That of an entry, if it has the hint.
    #[inline]
    pub(in crate::space) fn of<F: Format>(slot: &Slot<'_, F>) -> Option<FoundRun> {
        slot.is_in_run().then(|| FoundRun {
            space: slot.space(),
            page: slot.page(),
        })
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Whether there may be contiguous runs.
    #[inline]
    pub(in crate::space) fn has_runs(&self) -> bool {
        F::CONTIGUOUS_ORDER != 0 && self.design.contiguous
    }

    /// Ends every contiguous run that has one of `entries`, which are about to change. The
    /// caller holds the lock of the table and no other.
    #[inline]
    pub(in crate::space) fn end_runs(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        table: &LockedTable<'_, F>,
        entries: Range<usize>,
    ) {
        if self.has_runs() {
            let flush = |pages| self.flush_locked(pin, space, pages);
            let count = table.end_runs(entries, flush);
            self.events(pin).contiguous_ends.add(count);
        }
    }

    /// Ends the runs of which `entries` are a part and not all.
    #[inline]
    pub(in crate::space) fn end_cut_runs(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        table: &LockedTable<'_, F>,
        entries: Range<usize>,
    ) {
        if !self.has_runs() || entries.is_empty() {
            return;
        }
        for edge in [entries.start, entries.end - 1] {
            let run = LockedTable::<F>::run_around(edge);
            if run.start < entries.start || run.end > entries.end {
                self.end_runs(pin, space, table, edge..edge + 1);
            }
        }
    }

    /// Ends the run of an entry that a visit found, unless that is over. The caller holds no
    /// lock. What space has the handle meanwhile does not matter: its pages stay what they are.
    #[cold]
    pub(in crate::space) fn end_found_run(&self, pin: &Pin<'_>, found: FoundRun) {
        let space = self.live_at(found.space);
        let Some(tables) = self.tables_if_any(pin, space) else {
            return;
        };
        if let Some(table) = tables.lock(found.page) {
            let index = F::index(found.page, 1);
            self.end_runs(pin, space, &table, index..index + 1);
        }
    }
}
