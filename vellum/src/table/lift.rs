//! Moving page tables from low to high memory, so that others can have the low.
//!
//! A table that moves is emptied entry by entry into its successor, whose name then
//! takes the place of its own in the table above. Meanwhile both are locked. A processor
//! that still has the old table cached finds an empty entry there and faults, and the
//! fault finds the page mapped. A reader without a lock may find the entry in neither
//! ([`Tables::peek_settled`]). Whoever locks the old table gets the new one
//! ([`LockedTable::lock`]).

use super::format::{Entry, Format};
use super::gather::Gather;
use super::locked::{LockedTable, Users};
use super::pages::Wanted;
use super::pte::PteRef;
use super::reach::uses_windows;
use super::walk::Tables;
use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::Site;
use crate::platform::{Machine, Zone};

/// An entry on its way from one table to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MovedEntry {
    /// Where it was.
    pub(crate) from: PteRef,
    /// Where it is.
    pub(crate) to: PteRef,
    /// The page that it maps.
    pub(crate) page: Vpn,
    /// The first frame that it maps.
    pub(crate) frame: Pfn,
}

impl<'a, P: Machine, F: Format> Tables<'a, P, F> {
    /// The leaf entry that covers `page`, or 0, and its level, as [`Tables::peek`] gives
    /// it. An entry that is empty because its table is being moved is waited for, and so is
    /// a large leaf that is being split, or a contiguous run that ends.
    #[inline]
    pub(crate) fn peek_settled(&self, page: Vpn) -> (u64, u32) {
        let (entry, level) = self.peek(page);
        // A leaf that is being split, and entries of a contiguous run that ends, forbid
        // everything meanwhile.
        let is_broken = || F::is_mapped(entry) && F::prot(entry, level).is_none();
        let may_change = match level {
            1 if F::CONTIGUOUS_ORDER > 0 => is_broken(),
            1 => entry == 0 && uses_windows::<F>(),
            _ => is_broken(),
        };
        if may_change {
            return self.peek_locked(page);
        }
        (entry, level)
    }

    /// The same of an entry that was found empty, under the lock of its table.
    #[inline(never)]
    fn peek_locked(&self, page: Vpn) -> (u64, u32) {
        let Some(table) = self.lock(page) else {
            return (0, 1);
        };
        let level = table.level();
        (table.load(F::index(page, level)), level)
    }

    /// Moves tables of the lowest level that lie in low memory and cover a part of
    /// `range` to high memory, at most `most`, as long as there is any. `moved` is told
    /// of each entry with the tables locked. Returns how many were moved, and where to
    /// go on.
    pub(crate) fn lift(
        &self,
        range: PageRange,
        most: u32,
        gather: &mut Gather<'_, P>,
        mut moved: impl FnMut(&MovedEntry),
    ) -> (u32, Vpn) {
        let mut next = range.start;
        let mut count = 0;
        while next < range.end && count < most {
            let (table, level, entry) = self.way_to(next, 1);
            if level > 1 {
                debug_assert!(!F::is_mapped(entry) || F::is_leaf(entry, level));
                next = Vpn((next.0 | (F::pages_at(level) - 1)) + 1);
                continue;
            }
            if self.memory.is_direct(table) {
                match self.lift_one(next, gather, &mut moved) {
                    Ok(lifted) => count += u32::from(lifted),
                    Err(NoRoom) => return (count, next),
                }
            }
            next = Vpn((next.0 | (F::pages_at(2) - 1)) + 1);
        }
        (count, next)
    }

    /// Moves the table for `page`, if it is one of low memory with entries.
    fn lift_one(
        &self,
        page: Vpn,
        gather: &mut Gather<'_, P>,
        moved: &mut impl FnMut(&MovedEntry),
    ) -> Result<bool, NoRoom> {
        // Had before the lock, as everything that can fail.
        let Some(successor) = self.take_high(page) else {
            return Err(NoRoom);
        };
        let lifts = |table: &LockedTable<'a, F>| {
            table.level() == 1 && table.live() > 0 && self.memory.is_direct(table.table())
        };
        let (Some(old), Some(new)) = (
            self.lock(page).filter(lifts),
            LockedTable::<F>::lock(self.memory, self.pin, successor, self.whole),
        ) else {
            // SAFETY: taken for this call, never linked, and all its entries are zero.
            unsafe { self.give_back(successor, 1) };
            return Ok(false);
        };
        let above = self.lock_above(&old);
        old.end_reservation(self.memory, self.pin);
        let mut live = 0;
        for index in 0..F::ENTRIES {
            // A processor may mark the entry until it is gone.
            let entry = match old.load(index) {
                0 => continue,
                _ => old.clear(index, Users::Hardware),
            };
            new.fill(index, entry);
            live += 1;
            // Of the entry of a page in swap, nobody knows.
            if let Entry::Leaf(frame) = F::decode(entry, 1) {
                moved(&MovedEntry {
                    from: old.pte(index),
                    to: new.pte(index),
                    page: old.page(index),
                    frame,
                });
            }
        }
        new.count_made(live);
        old.count_cleared(live);
        above.update(F::index(old.base(), 2), Users::Hardware, |_| {
            F::table_entry(successor, 2)
        });
        old.mark_moved(&new);
        gather.table(old.table());
        Ok(true)
    }

    /// A table of high memory for the entries of the one for `page`.
    fn take_high(&self, page: Vpn) -> Option<Pfn> {
        let wanted = Wanted {
            site: Site::TablePage,
            level: 1,
            zone: Zone::High,
            entry: 0,
        };
        let table = self.source.take(self.memory, self.pin, wanted).ok()?;
        self.memory.charge_table_anyway(self.pin, self.root, table);
        let base = F::table_base(page, 1);
        self.memory.frame(table).init_table(self.owner, 1, base, 0);
        if self.memory.is_direct(table) {
            // High memory is used up, too.
            // SAFETY: taken for this call, never linked, and all its entries are zero.
            unsafe { self.give_back(table, 1) };
            return None;
        }
        Some(table)
    }
}

/// There is no high memory for another table.
struct NoRoom;
