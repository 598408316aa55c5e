//! Entries that were cleared or changed without the space's lock, until no CPU knows them as they
//! were.

use super::flush::TakenAway;
use crate::addr::{Pfn, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::Live;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::table::{Format, Gather, LockedTable};

/// Entries that one visit changes before their CPUs are flushed.
const BATCH: usize = 64;

/// An entry that was changed.
pub(in crate::space) struct StaleEntry<'a> {
    /// Handle of its space.
    pub(in crate::space) space: u32,
    pub(in crate::space) page: Vpn,
    /// Its table, if no entry of it was live any more.
    pub(in crate::space) emptied: Option<Pfn>,
    /// From before the change.
    pub(in crate::space) taken: TakenAway<'a>,
}

/// Entries whose old translations are still to be flushed.
pub(in crate::space) struct Stale<'a> {
    entries: [Option<StaleEntry<'a>>; BATCH],
    used: usize,
}

impl<'a> Stale<'a> {
    pub(in crate::space) fn new() -> Self {
        Stale {
            entries: [const { None }; BATCH],
            used: 0,
        }
    }

    pub(in crate::space) fn is_full(&self) -> bool {
        self.used == BATCH
    }

    pub(in crate::space) fn push(&mut self, entry: StaleEntry<'a>) {
        self.entries[self.used] = Some(entry);
        self.used += 1;
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Whether CPUs may know pages of the space by places from which `mremap`
    /// has moved them. Asked after an entry was cleared, under the lock of whose
    /// table the move made it.
    fn is_moving(space: Live<'_, R>) -> bool {
        space.moving.load(Ordering::Acquire) != 0
    }

    /// Has the whole space flushed if one of its moves is under way.
    pub(in crate::space) fn note_move(space: Live<'_, R>, gather: &mut Gather<'_, P>) {
        if Self::is_moving(space) {
            gather.stale(Vpn(0));
            gather.stale(Vpn(F::USER_END.0 - 1));
        }
    }

    /// Flushes and forgets stale entries, and unlinks the tables that they left
    /// empty. The caller is pinned since before the entries were found.
    pub(in crate::space) fn flush_stale(&self, pin: &Pin<'_>, stale: &mut Stale<'_>) {
        let entries = stale.entries[..stale.used].iter_mut();
        for entry in entries.filter_map(Option::take) {
            let space = self.live_at(entry.space);
            match entry.emptied {
                None if Self::is_moving(space) => self.flush_range(pin, space, None),
                None => self.flush_page(pin, space, entry.page),
                Some(table) => self.unlink_emptied(pin, space, entry.page, table),
            }
            drop(entry.taken);
        }
        stale.used = 0;
    }

    /// Unlinks a table of `space` if it is still empty, and flushes: it, and
    /// `page`, whose entry in it was cleared.
    #[cold]
    fn unlink_emptied(&self, pin: &Pin<'_>, space: Live<'_, R>, page: Vpn, table: Pfn) {
        let mut gather = self.gather(pin, space);
        gather.stale(page);
        Self::note_move(space, &mut gather);
        // While a table is linked its space has not ended; whoever ends the
        // space, or unmaps the range, finds the table and unlinks it first.
        if let Some(table) = LockedTable::lock(&self.memory, pin, table, self.tables_lock(space)) {
            self.tables(pin, space).unlink_if_empty(table, &mut gather);
            self.count_tables(pin, space, 0, gather.tables_freed());
        }
    }
}
