//! Finding, making and freeing the tables of one space.

use core::marker::PhantomData;

use super::format::Format;
use super::gather::Gather;
use super::locked::{LockedTable, table_words};
use super::pages::{TablePages, Wanted};
use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::{OutOfMemory, PhysicalMemory, Site};
use crate::platform::Platform;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

/// The tables of one space, for a pinned caller.
pub struct Tables<'a, P: Platform, F> {
    memory: &'a PhysicalMemory<P>,
    source: &'a dyn TablePages<P>,
    pin: &'a Pin<'a>,
    root: Pfn,
    owner: u32,
    format: PhantomData<F>,
}

impl<'a, P: Platform, F: Format> Tables<'a, P, F> {
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
            format: PhantomData,
        }
    }

    /// The leaf entry that covers `page`, or 0, and its level. Reads without
    /// locks, so the entry may change at once.
    #[inline]
    pub fn peek(&self, page: Vpn) -> (u64, u32) {
        let (entry, (_, level)) = self.find(page);
        (entry, level)
    }

    /// The same, with the lowest table on the way, which the caller may lock under the
    /// same pin.
    #[inline]
    pub fn find(&self, page: Vpn) -> (u64, (Pfn, u32)) {
        let (table, level, entry) = self.descend(page);
        let is_leaf = F::is_mapped(entry) && F::is_leaf(entry, level);
        (if is_leaf { entry } else { 0 }, (table, level))
    }

    #[inline]
    fn word(&self, table: Pfn, level: u32, page: Vpn) -> u64 {
        table_words::<F, P>(self.memory, table)[F::index(page, level)].load(Ordering::Acquire)
    }

    /// The lowest table on the way to `page`, its level, and its entry.
    #[inline]
    fn descend(&self, page: Vpn) -> (Pfn, u32, u64) {
        self.descend_to(page, 1)
    }

    /// The same, but no further than to the table at level `lowest`.
    #[inline]
    fn descend_to(&self, page: Vpn, lowest: u32) -> (Pfn, u32, u64) {
        let mut table = self.root;
        let mut level = F::LEVELS;
        loop {
            let entry = self.word(table, level, page);
            if level <= lowest || !F::is_mapped(entry) || F::is_leaf(entry, level) {
                return (table, level, entry);
            }
            table = F::frame(entry, level);
            level -= 1;
        }
    }

    /// The level-1 table that holds the entry for `page`, if there is one.
    pub fn leaf_table(&self, page: Vpn) -> Option<Pfn> {
        let (table, level, _) = self.descend(page);
        (level == 1).then_some(table)
    }

    /// Whether an entry of `range` maps a page. Reads without locks: the answer is
    /// good for a caller who keeps others from filling entries of the range, and has
    /// waited for those who did.
    pub fn has_leaves(&self, range: PageRange) -> bool {
        let mut next = range.start;
        while next < range.end {
            let (table, level, entry) = self.descend(next);
            if level > 1 {
                if F::is_mapped(entry) {
                    return true;
                }
                next = Vpn((next.0 | (F::pages_at(level) - 1)) + 1);
                continue;
            }
            let first = F::index(next, level);
            let count = (F::ENTRIES - first).min((range.end.0 - next.0) as usize);
            let words = &table_words::<F, P>(self.memory, table)[first..first + count];
            if words.iter().any(|word| word.load(Ordering::Acquire) != 0) {
                return true;
            }
            next = next.offset(count as u64);
        }
        false
    }

    /// Locks the table that holds the leaf for `page`, or would hold it at
    /// level 1; `None` if there is no such table.
    #[inline]
    pub fn lock(&self, page: Vpn) -> Option<LockedTable<'a, F>> {
        loop {
            let (table, level, _) = self.descend(page);
            let Some(locked) = LockedTable::lock(self.memory, self.pin, table) else {
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

    /// Locks the table for a leaf at `page`, making the tables that are
    /// missing. A larger leaf that covers the page already stands in the table
    /// returned, whose level tells. Adds to `made` how many tables were made and
    /// linked.
    ///
    /// # Errors
    /// [`OutOfMemory`]. Tables may have been linked that others have unlinked
    /// since: they were freed by those, who counted that, so `made` counts them
    /// here as well.
    #[inline]
    pub fn lock_or_make(
        &self,
        page: Vpn,
        made: &mut u32,
    ) -> Result<LockedTable<'a, F>, OutOfMemory> {
        self.lock_or_make_at(page, 1, made)
    }

    /// [`Tables::lock_or_make`] for a leaf at `leaf_level`.
    ///
    /// # Errors
    /// As [`Tables::lock_or_make`].
    pub fn lock_or_make_at(
        &self,
        page: Vpn,
        leaf_level: u32,
        made: &mut u32,
    ) -> Result<LockedTable<'a, F>, OutOfMemory> {
        loop {
            let (table, level, entry) = self.descend_to(page, leaf_level);
            if level == leaf_level || F::is_mapped(entry) {
                if let Some(locked) = LockedTable::lock(self.memory, self.pin, table) {
                    let entry = locked.load(F::index(page, level));
                    if level == leaf_level || (F::is_mapped(entry) && F::is_leaf(entry, level)) {
                        return Ok(locked);
                    }
                }
                continue;
            }
            *made += self.link(page, table, level, leaf_level, 0)?;
        }
    }

    /// Maps `page` by `leaf` in a new level-1 table below `table`, which
    /// [`Tables::find`] named under the same pin with its `level` above 1.
    /// The entry is in the table before the table is linked, with one store: a
    /// new table is neither locked nor read, so that it need not be in the
    /// cache. Returns how many tables were made; 0 if the page got a table
    /// meanwhile, and then nothing was mapped.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing was linked.
    #[inline]
    pub fn link_leaf(
        &self,
        page: Vpn,
        (table, level): (Pfn, u32),
        leaf: u64,
    ) -> Result<u32, OutOfMemory> {
        debug_assert!(level > 1, "a page with a table needs no new one");
        self.link(page, table, level, 1, leaf)
    }

    /// Makes the tables for `page` below `top`, down to `lowest`, and links
    /// them with one store. The entry of the lowest is `leaf`, or empty if
    /// that is 0.
    #[inline(always)]
    fn link(
        &self,
        page: Vpn,
        top: Pfn,
        top_level: u32,
        lowest: u32,
        leaf: u64,
    ) -> Result<u32, OutOfMemory> {
        let mut entry = F::table_entry(self.make(page, lowest, leaf)?, lowest + 1);
        if lowest + 1 < top_level {
            entry = self.make_above(page, lowest, top_level, entry)?;
        }
        if let Some(locked) = LockedTable::<F>::lock(self.memory, self.pin, top) {
            let index = F::index(page, top_level);
            if locked.load(index) == 0 {
                locked.fill(index, entry);
                locked.count_made(1);
                return Ok(top_level - lowest);
            }
        }
        self.unmake(page, lowest, top_level, entry);
        Ok(0)
    }

    /// Makes the tables between the one at `lowest`, which `entry` names, and
    /// `top_level`; returns the entry for the highest. Gives all back if it fails.
    #[inline(never)]
    fn make_above(
        &self,
        page: Vpn,
        lowest: u32,
        top_level: u32,
        mut entry: u64,
    ) -> Result<u64, OutOfMemory> {
        for level in lowest + 1..top_level {
            let made = self.make(page, level, entry);
            let table = made.inspect_err(|_| self.unmake(page, lowest, level, entry))?;
            entry = F::table_entry(table, level + 1);
        }
        Ok(entry)
    }

    /// Makes a table at `level` whose only entry, that of `page`, is `entry`;
    /// an empty one if that is 0.
    #[inline]
    fn make(&self, page: Vpn, level: u32, entry: u64) -> Result<Pfn, OutOfMemory> {
        let index = F::index(page, level);
        let wanted = Wanted {
            site: Site::TablePage,
            level,
            entry: index,
        };
        let table = self.source.take(self.memory, self.pin, wanted)?;
        let live = u32::from(entry != 0);
        let base = F::table_base(page, level);
        self.memory
            .frame(table)
            .init_table(self.owner, level, base, live);
        if entry != 0 {
            let words = table_words::<F, P>(self.memory, table);
            words[index].store(entry, Ordering::Relaxed);
        }
        Ok(table)
    }

    /// Empties and gives back the tables for `page` that were made below
    /// `top_level` and not linked; `entry` names the highest.
    #[cold]
    fn unmake(&self, page: Vpn, lowest: u32, top_level: u32, mut entry: u64) {
        for level in (lowest..top_level).rev() {
            let table = F::frame(entry, level + 1);
            let words = table_words::<F, P>(self.memory, table);
            entry = words[F::index(page, level)].swap(0, Ordering::Relaxed);
            // SAFETY: the table was made for this call and never linked, and its
            // only entry was cleared.
            unsafe { (self.source).give_back(self.memory, self.pin, table, level) };
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
        while table.is_unused() && table.level() < Self::KEPT_FROM {
            let parent = above.take().unwrap_or_else(|| self.lock_above(&table));
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
    fn lock_above(&self, table: &LockedTable<'a, F>) -> LockedTable<'a, F> {
        let above = table.level() + 1;
        loop {
            // The table is linked and locked, so its parents are linked too;
            // one that is just being marked dead would have to be empty.
            let (parent, level, _) = self.descend_to(table.base(), above);
            debug_assert!(level == above, "linked table without a parent");
            if let Some(locked) = LockedTable::<F>::lock(self.memory, self.pin, parent) {
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
        LockedTable::try_lock(self.memory, self.pin, F::frame(entry, level)).ok()?
    }

    /// Splits the leaf that covers `page` into leaves one level below, with
    /// the same rights and marks. Returns whether there was such a leaf.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the leaf is as it was.
    pub fn split(&self, page: Vpn) -> Result<bool, OutOfMemory> {
        let wanted = Wanted {
            site: Site::TablePage,
            level: 1,
            entry: 0,
        };
        let table = self.source.take(self.memory, self.pin, wanted)?;
        let done = self
            .lock(page)
            .filter(|locked| locked.level() > 1)
            .is_some_and(|locked| {
                let level = locked.level();
                let index = F::index(page, level);
                let below = level - 1;
                self.memory.frame(table).init_table(
                    self.owner,
                    below,
                    F::table_base(page, below),
                    F::ENTRIES as u32,
                );
                // Hardware may mark the large leaf until it is replaced, so its
                // replacement claims the marks of the entry it swaps out.
                locked.update(index, super::Users::Hardware, |entry| {
                    let frame = F::frame(entry, level);
                    let words = table_words::<F, P>(self.memory, table);
                    for (slot, word) in words.iter().enumerate() {
                        let part = frame.offset((slot as u64 * F::pages_at(below)) as u32);
                        let leaf = F::leaf(part, below, F::prot(entry, level), F::marks(entry));
                        word.store(leaf, Ordering::Relaxed);
                    }
                    F::table_entry(table, level)
                });
                true
            });
        if !done {
            // SAFETY: the table was made for this call and never linked.
            unsafe { self.source.give_back(self.memory, self.pin, table, 1) };
        }
        Ok(done)
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
pub struct Span<'a, F> {
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
/// steps of the largest empty extent.
pub struct Spans<'t, 'a, P: Platform, F> {
    tables: &'t Tables<'a, P, F>,
    next: Vpn,
    end: Vpn,
}

impl<'a, P: Platform, F: Format> Spans<'_, 'a, P, F> {
    /// Continues from `page`, which is in the range: for callers that had to
    /// let go of a table half done.
    pub fn rewind(&mut self, page: Vpn) {
        self.next = page;
    }

    /// Whether the range is done.
    pub fn is_done(&self) -> bool {
        self.next >= self.end
    }
}

impl<'a, P: Platform, F: Format> Iterator for Spans<'_, 'a, P, F> {
    type Item = Span<'a, F>;

    fn next(&mut self) -> Option<Span<'a, F>> {
        while self.next < self.end {
            let page = self.next;
            let (table, level, _) = self.tables.descend(page);
            let Some(locked) = LockedTable::<F>::lock(self.tables.memory, self.tables.pin, table)
            else {
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
            let entry = locked.load(first);
            if F::is_mapped(entry) && !F::is_leaf(entry, level) {
                continue;
            }
            self.next = Vpn((page.0 | (F::pages_at(level) - 1)) + 1);
            if F::is_mapped(entry) {
                return Some(Span {
                    table: locked,
                    first,
                    count: 1,
                });
            }
        }
        None
    }
}
