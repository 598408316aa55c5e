//! Entries that were used: finding and forgetting accessed marks table by table.
//!
//! Where many pages of a table may have been used, going through its entries costs less than
//! looking each page up by reverse mapping: eight entries share a cache line. Tables of few
//! entries are left to reverse mapping, and so are for a while those in which walks find
//! nothing: the next walk passes them by, then three, then seven.

use core::ops::Range;

use super::format::Format;
use super::locked::{LINE_ENTRIES, LockedTable, Users};
use super::reach::uses_windows;
use super::walk::Tables;
use crate::addr::{Pfn, Vpn};
use crate::platform::Machine;
use crate::sync::atomic::Ordering;

/// Entries that are looked at under one hold of a table's lock.
const TOGETHER: usize = 64;
/// A table with fewer entries is left to reverse mapping: to read it all takes as long as to
/// look its pages up.
const FEW: u32 = LINE_ENTRIES as u32;

/// Walks without a use that are counted: the next seven then pass a table by.
const MOST_IDLE: u32 = 3;

/// What a walk did at one place.
pub(crate) enum Step {
    /// There is no table of the lowest level, or none any more.
    Nothing,
    /// The table was passed by.
    Skipped,
    /// So many entries of the table were used.
    Looked(u64),
}

/// Whether an entry of the lowest level maps a page that was used.
#[inline]
fn is_used<F: Format>(entry: u64) -> bool {
    F::is_mapped(entry) && F::marks(entry).accessed
}

impl<F: Format> LockedTable<'_, F> {
    /// Takes the accessed marks of entries of a table of the lowest level, and tells what they
    /// map. Returns how many were marked.
    fn take_used(&self, entries: Range<usize>, used: &mut dyn FnMut(Pfn)) -> u64 {
        let mut count = 0;
        for index in entries {
            let entry = self.load(index);
            if !is_used::<F>(entry) {
                continue;
            }
            if F::is_contiguous(entry) {
                count += self.take_used_run(index, used);
                continue;
            }
            let (entry, _) = self.update(index, Users::Hardware, |entry| {
                let mut marks = F::marks(entry);
                marks.accessed = false;
                F::with_marks(entry, marks)
            });
            used(F::frame(entry, 1));
            count += 1;
        }
        count
    }

    /// The same of the entries around one that was used; nothing at other levels. Walks look
    /// at the table again.
    pub(crate) fn take_used_around(&self, index: usize, used: &mut dyn FnMut(Pfn)) -> u64 {
        if self.level() > 1 {
            return 0;
        }
        if self.idle() != 0 {
            self.set_idle(0);
        }
        let first = index - index % TOGETHER;
        self.take_used(first..(first + TOGETHER).min(F::ENTRIES), used)
    }
}

impl<P: Machine, F: Format> Tables<'_, P, F> {
    /// Takes the accessed marks of the table of the lowest level for `page`, if there is one and
    /// it is the turn of the table in the walk of this number. Returns what was done, and where
    /// the walk goes on.
    pub(crate) fn take_used(
        &self,
        page: Vpn,
        number: u32,
        used: &mut dyn FnMut(Pfn),
    ) -> (Step, Vpn) {
        let (table, level, entry) = self.way_to(page, 1);
        if level > 1 {
            let is_leaf = F::is_mapped(entry);
            return (Step::Nothing, self.behind(page, (table, level), is_leaf));
        }
        let next = Vpn((page.0 | (F::pages_at(2) - 1)) + 1);
        let frame = self.memory.frame(table).table();
        let idle = frame.idle();
        if frame.live() < FEW || number & ((1 << idle) - 1) != 0 {
            return (Step::Skipped, next);
        }
        let mut count = 0;
        for first in (0..F::ENTRIES).step_by(TOGETHER) {
            let entries = first..(first + TOGETHER).min(F::ENTRIES);
            // A window costs more than a lock.
            let may_be_used = uses_windows::<F>()
                || self.with_words((table, 1), |words| {
                    let words = &words[entries.clone()];
                    let is_used = |entry| is_used::<F>(entry);
                    words
                        .iter()
                        .any(|word| is_used(word.load(Ordering::Relaxed)))
                });
            if !may_be_used {
                continue;
            }
            let Some(locked) = LockedTable::<F>::lock(self.memory, self.pin, table, self.whole)
            else {
                return (Step::Nothing, next);
            };
            count += locked.take_used(entries, used);
        }
        let times = if count > 0 {
            0
        } else {
            MOST_IDLE.min(idle + 1)
        };
        if times != idle
            && let Some(locked) = LockedTable::<F>::lock(self.memory, self.pin, table, self.whole)
        {
            locked.set_idle(times);
        }
        (Step::Looked(count), next)
    }

    /// The first page behind `page` for which `table` leads to something, if it leads to
    /// nothing for `page`, or to a leaf; or else the first that it does not cover.
    fn behind(&self, page: Vpn, (table, level): (Pfn, u32), is_leaf: bool) -> Vpn {
        let covered = F::pages_at(level);
        let after = |index: usize| Vpn(F::table_base(page, level).0 + index as u64 * covered);
        let index = F::index(page, level) + 1;
        if is_leaf {
            return after(index);
        }
        self.with_words((table, level), |words| {
            let leads = |index: &usize| F::is_mapped(words[*index].load(Ordering::Relaxed));
            after((index..F::ENTRIES).find(leads).unwrap_or(F::ENTRIES))
        })
    }
}
