//! Finding, making and freeing the tables of one space.

use core::marker::PhantomData;
use core::ops::Range;

use super::format::Format;
use super::gather::Gather;
use super::locked::{LockedTable, SpaceLock};
use super::pages::TablePages;
use super::pte::PteRef;
use super::reach::{are_zero, table_words, uses_windows, with_table_words};
use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::PhysicalMemory;
use crate::platform::Machine;
use crate::sync::Pin;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The tables of one space, for a pinned caller.
pub struct Tables<'a, P: Machine, F> {
    pub(super) memory: &'a PhysicalMemory<P>,
    pub(super) source: &'a dyn TablePages<P>,
    pub(super) pin: &'a Pin<'a>,
    pub(super) root: Pfn,
    pub(super) owner: u32,
    /// The lock of all of them, if they have one.
    pub(super) whole: SpaceLock<'a>,
    /// Tables below this level are unlinked when they are empty.
    pub(super) kept_from: u32,
    /// Whether the caller holds no spin lock when it links tables, and so may wait for its turn.
    pub(super) is_by_turns: bool,
    format: PhantomData<F>,
}

impl<'a, P: Machine, F: Format> Tables<'a, P, F> {
    /// The tables under `root`, of the space with handle `owner`.
    ///
    /// # Safety
    /// `root` comes from [`Tables::make_root`] with this format, memory and source, and
    /// was not given to a [`Gather`] before the caller pinned. Entries that are put
    /// into these tables but by `Tables` itself are leaves.
    pub unsafe fn new(
        memory: &'a PhysicalMemory<P>,
        source: &'a dyn TablePages<P>,
        pin: &'a Pin<'a>,
        root: Pfn,
        owner: u32,
    ) -> Self {
        Tables {
            memory,
            source,
            pin,
            root,
            owner,
            whole: None,
            kept_from: Self::KEPT_FROM,
            is_by_turns: false,
            format: PhantomData,
        }
    }

    /// The same tables, whose locks are all `whole`, if there is one. Everybody who locks
    /// tables of the space says so.
    #[inline]
    pub(crate) fn under(self, whole: SpaceLock<'a>) -> Self {
        Tables { whole, ..self }
    }

    /// The same tables, of which only those of level 1 are unlinked when they are empty, if
    /// `keeps` says so: those above are shared by pages that lie far apart. What they leave is for
    /// [`Tables::unlink_kept`].
    #[inline]
    pub(crate) fn keeping_upper(self, keeps: bool) -> Self {
        Tables {
            kept_from: Self::kept_from(keeps),
            ..self
        }
    }

    /// For one of many CPUs that may link tables at once, who holds no spin lock when it does:
    /// they wait for each other in a queue.
    #[inline]
    pub(crate) fn by_turns(self) -> Self {
        Tables {
            is_by_turns: true,
            ..self
        }
    }

    /// Unlinks the empty tables that stayed linked, and no others.
    pub(crate) fn unlink_kept(self, gather: &mut Gather<'_, P>) {
        let tables = self.keeping_upper(false);
        let mut next = Vpn(0);
        while next < F::USER_END {
            let (table, level, _) = tables.descend_to(next, 2);
            next = Vpn((next.0 | (F::pages_at(level + u32::from(level == 2)) - 1)) + 1);
            let locked = LockedTable::lock(tables.memory, tables.pin, table, tables.whole);
            if let Some(locked) = locked {
                tables.unlink_if_empty(locked, gather);
            }
        }
    }

    /// The leaf entry that covers `page`, or what stands where one of level 1 would: 0, or
    /// the entry of a page in swap; and its level. Reads without locks, so the entry may
    /// change at once.
    #[inline]
    pub fn peek(&self, page: Vpn) -> (u64, u32) {
        let (entry, (_, level)) = self.find(page);
        (entry, level)
    }

    /// The same, with the lowest table on the way, which the caller may lock under the
    /// same pin.
    #[inline(always)]
    pub fn find(&self, page: Vpn) -> (u64, (Pfn, u32)) {
        let (table, level, entry) = self.descend(page);
        let is_page = level == 1 || F::is_mapped(entry) && F::is_leaf(entry, level);
        (if is_page { entry } else { 0 }, (table, level))
    }

    /// [`Tables::find`] for those who have time.
    #[cold]
    #[inline(never)]
    pub(crate) fn find_apart(&self, page: Vpn) -> (u64, (Pfn, u32)) {
        self.find(page)
    }

    #[inline]
    pub(super) fn with_words<T>(&self, table: (Pfn, u32), f: impl FnOnce(&[AtomicU64]) -> T) -> T {
        with_table_words::<F, P, T>(self.memory, self.pin, table, f)
    }

    /// The lowest table on the way to `page`, its level, and its entry.
    #[inline(always)]
    fn descend(&self, page: Vpn) -> (Pfn, u32, u64) {
        let (table, level, entry) = self.way_to(page, 1);
        if !uses_windows::<F>() || level > 1 {
            return (table, level, entry);
        }
        let entry = self.with_words((table, level), |words| {
            let index = F::index(page, level);
            F::seen(words[index].load(Ordering::Acquire), index)
        });
        (table, level, entry)
    }

    /// The same, but no further than to the table at level `lowest`. All tables on the
    /// way have addresses.
    #[inline(always)]
    fn descend_to(&self, page: Vpn, lowest: u32) -> (Pfn, u32, u64) {
        let mut table = self.root;
        let mut level = F::LEVELS;
        loop {
            let words = table_words::<F, P>(self.memory, table);
            let index = F::index(page, level);
            let entry = F::seen(words[index].load(Ordering::Acquire), index);
            if level <= lowest || !F::is_mapped(entry) || F::is_leaf(entry, level) {
                return (table, level, entry);
            }
            table = F::frame(entry, level);
            level -= 1;
        }
    }

    /// [`Tables::descend_to`] for callers that need no entry of a table at `lowest`:
    /// reading it might take a window. If it is 1 and there may be windows, the entry
    /// returned for a table at that level is 0.
    #[inline]
    pub(super) fn way_to(&self, page: Vpn, lowest: u32) -> (Pfn, u32, u64) {
        if !uses_windows::<F>() || lowest > 1 {
            return self.descend_to(page, lowest);
        }
        let (table, level, entry) = self.descend_to(page, 2);
        if level == 2 && F::is_mapped(entry) && !F::is_leaf(entry, level) {
            return (F::frame(entry, level), 1, 0);
        }
        (table, level, entry)
    }

    /// The level-1 table that holds the entry for `page`, if there is one.
    pub(crate) fn leaf_table(&self, page: Vpn) -> Option<Pfn> {
        let (table, level, _) = self.way_to(page, 1);
        (level == 1).then_some(table)
    }

    /// The entry of a leaf that covers `page`, or where one of level 1 would be, if there is
    /// a table for that.
    pub(crate) fn leaf_entry(&self, page: Vpn) -> Option<PteRef> {
        let (table, level, entry) = self.way_to(page, 1);
        let is_leaf = level == 1 || F::is_mapped(entry) && F::is_leaf(entry, level);
        is_leaf.then(|| PteRef {
            table,
            index: F::index(page, level) as u16,
        })
    }

    /// Whether an entry of `range` maps a page. Reads without locks: the answer is
    /// good for a caller who keeps others from filling entries of the range, and has
    /// waited for those who did.
    pub(crate) fn has_leaves(&self, range: PageRange) -> bool {
        let mut next = range.start;
        while next < range.end {
            let (table, level, entry) = self.way_to(next, 1);
            if level > 1 {
                if F::is_mapped(entry) {
                    return true;
                }
                next = Vpn((next.0 | (F::pages_at(level) - 1)) + 1);
                continue;
            }
            let first = F::index(next, level);
            let count = (F::ENTRIES - first).min((range.end.0 - next.0) as usize);
            let is_used = |word: &AtomicU64| word.load(Ordering::Acquire) != 0;
            let words = first..first + count;
            if self.with_words((table, level), |all| all[words].iter().any(is_used)) {
                return true;
            }
            if uses_windows::<F>() && self.has_leaves_below(next, first..first + count) {
                return true;
            }
            next = next.offset(count as u64);
        }
        false
    }

    /// Log2 of the pages of the largest block around `page`, aligned to its size and with
    /// fewer pages than a table, none of which has an entry; at most `most`. [`Tables::find`]
    /// has found an empty entry for the page, in `lowest`. Reads without locks.
    pub(crate) fn empty_around(&self, page: Vpn, lowest: (Pfn, u32), most: u32) -> u32 {
        if lowest.1 > 1 {
            return most;
        }
        let index = F::index(page, 1);
        self.with_words(lowest, |words| {
            let is_empty = |block: usize, order: u32| {
                let first = block << order;
                are_zero(&words[first..first + (1 << order)])
            };
            if is_empty(index >> most, most) {
                return most;
            }
            // The other half of each block, from the smallest on.
            let is_used = |order: &u32| !is_empty(index >> order ^ 1, *order);
            (0..most).find(is_used).unwrap_or(most)
        })
    }

    /// Whether an entry of those at `indices` of the lowest table for `page` is used, under
    /// its lock: without it, the entries of a table that is being moved are nowhere.
    #[cold]
    fn has_leaves_below(&self, page: Vpn, mut indices: Range<usize>) -> bool {
        let table = self.lock(page);
        table.is_some_and(|table| table.level() > 1 || indices.any(|index| table.load(index) != 0))
    }

    /// Locks the table that holds the leaf for `page`, or would hold it at
    /// level 1; `None` if there is no such table.
    #[inline]
    pub fn lock(&self, page: Vpn) -> Option<LockedTable<'a, F>> {
        loop {
            let (table, level, _) = self.way_to(page, 1);
            let Some(locked) = LockedTable::lock(self.memory, self.pin, table, self.whole) else {
                continue;
            };
            let entry = locked.load(F::index(page, level));
            if level == 1 || (F::is_mapped(entry) && F::is_leaf(entry, level)) {
                return Some(locked);
            }
            if !F::is_mapped(entry) {
                return None;
            }
        }
    }

    /// Unlinks `table` if it is empty and not kept ([`LockedTable::keep`]), and
    /// each table above that becomes empty by it. The root stays, with the
    /// tables that it was made with. Nobody sees another empty table linked, since
    /// whoever empties a table keeps its lock until here, or comes back to it
    /// (invariant 5).
    #[inline]
    pub fn unlink_if_empty(&self, table: LockedTable<'a, F>, gather: &mut Gather<'_, P>) {
        self.unlink_up(table, None, gather);
    }

    /// [`Tables::unlink_if_empty`] with the table above, if the caller has locked
    /// it already. Returns the lowest table that stays, locked.
    #[inline]
    pub(super) fn unlink_up(
        &self,
        mut table: LockedTable<'a, F>,
        mut above: Option<LockedTable<'a, F>>,
        gather: &mut Gather<'_, P>,
    ) -> LockedTable<'a, F> {
        while table.is_unused() && table.level() < self.kept_from {
            let parent = above.take().unwrap_or_else(|| self.lock_above(&table));
            if table.level() == 1 {
                table.end_reservation(self.memory, self.pin);
            }
            let dead = Self::unlink(&table, &parent);
            table = parent;
            gather.table(dead);
        }
        table
    }

    /// Takes `table` out of `parent`, which leads to it; returns it for the gather.
    #[inline]
    pub(super) fn unlink(table: &LockedTable<'a, F>, parent: &LockedTable<'a, F>) -> Pfn {
        parent.clear(F::index(table.base(), parent.level()), super::Users::None);
        parent.count_cleared(1);
        table.mark_dead();
        table.table()
    }

    /// Locks the table that leads to `table`, which is locked and linked.
    pub(crate) fn lock_above(&self, table: &LockedTable<'a, F>) -> LockedTable<'a, F> {
        let above = table.level() + 1;
        loop {
            // The table is linked and locked, so its parents are linked too;
            // one that is just being marked dead would have to be empty.
            let (parent, level, _) = self.descend_to(table.base(), above);
            debug_assert!(level == above, "linked table without a parent");
            if let Some(locked) = LockedTable::<F>::lock(self.memory, self.pin, parent, self.whole)
            {
                return locked;
            }
        }
    }

    /// Locks the level-1 table for `page` that `above` leads to, if there is one
    /// and that needs no waiting: who has locked it may be waiting for `above`.
    #[inline]
    pub(super) fn try_lock_below(
        &self,
        above: &LockedTable<'a, F>,
        page: Vpn,
    ) -> Option<LockedTable<'a, F>> {
        let level = above.level();
        let entry = above.load(F::index(page, level));
        if level != 2 || !F::is_mapped(entry) || F::is_leaf(entry, level) {
            return None;
        }
        let below = F::frame(entry, level);
        LockedTable::try_lock(self.memory, self.pin, below, self.whole).ok()?
    }

    /// Visits the existing tables with leaves in `range`.
    pub fn spans(&self, range: PageRange) -> Spans<'_, 'a, P, F> {
        Spans {
            tables: self,
            next: range.start,
            end: range.end,
        }
    }
}

/// A part of one locked table.
pub struct Span<'a, F: Format> {
    /// The table.
    pub table: LockedTable<'a, F>,
    /// First entry of the range in it.
    pub first: usize,
    /// Entries of the range in it.
    pub count: usize,
}

/// Walks a range table by table, each locked while the caller has it.
///
/// Every level-1 table in the range is visited once, whether its entries are
/// live or not, and every larger leaf once; what has no table is skipped in
/// steps of the largest empty extent. A larger leaf comes whole, even if the range
/// covers a part of it: callers split those at the edges before.
pub struct Spans<'t, 'a, P: Machine, F> {
    tables: &'t Tables<'a, P, F>,
    next: Vpn,
    end: Vpn,
}

impl<'a, P: Machine, F: Format> Spans<'_, 'a, P, F> {
    /// Continues from `page`, which is in the range: for callers that had to
    /// let go of a table half done.
    pub(crate) fn rewind(&mut self, page: Vpn) {
        self.next = page;
    }
}

impl<'a, P: Machine, F: Format> Iterator for Spans<'_, 'a, P, F> {
    type Item = Span<'a, F>;

    fn next(&mut self) -> Option<Span<'a, F>> {
        while self.next < self.end {
            let page = self.next;
            let (table, level, _) = self.tables.way_to(page, 1);
            let Tables {
                memory, pin, whole, ..
            } = *self.tables;
            let Some(locked) = LockedTable::<F>::lock(memory, pin, table, whole) else {
                continue;
            };
            let first = F::index(page, level);
            if level == 1 {
                let count = (F::ENTRIES - first).min((self.end.0 - page.0) as usize);
                self.next = page.offset(count as u64);
                return Some(Span {
                    table: locked,
                    first,
                    count,
                });
            }
            // Empty entries in a row are passed over without a way to each.
            for index in first..F::ENTRIES {
                let entry = locked.load(index);
                let is_mapped = F::is_mapped(entry);
                if is_mapped && !F::is_leaf(entry, level) {
                    break;
                }
                self.next = Vpn((self.next.0 | (F::pages_at(level) - 1)) + 1);
                if is_mapped {
                    return Some(Span {
                        table: locked,
                        first: index,
                        count: 1,
                    });
                }
                if self.next >= self.end {
                    break;
                }
            }
        }
        None
    }
}
