//! Making the tables that a page lacks.

use super::Contended;
use super::format::{Format, Marks};
use super::locked::{LINE_ENTRIES, LockedTable, Users};
use super::pages::{Chain, Wanted};
use super::reach::uses_windows;
use super::walk::Tables;
use crate::addr::{Pfn, Prot, Vpn};
use crate::frame::{MAX_ORDER, OutOfMemory, Request, Site, TableFlags};
use crate::platform::{GroupId, Machine, Zone};
use crate::sync::atomic::Ordering;
use crate::sync::{LockTurn, bytes};

/// Spare tables at hand, linked by their records.
#[derive(Default)]
pub(crate) struct Spares(Option<Pfn>);

impl<'a, P: Machine, F: Format> Tables<'a, P, F> {
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
            let (table, level, entry) = self.way_to(page, leaf_level);
            if level == leaf_level || F::is_mapped(entry) {
                if let Some(locked) = LockedTable::lock(self.memory, self.pin, table, self.whole) {
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
    pub(crate) fn link_leaf(
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
        if let Some(locked) = self.lock_to_link(top) {
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

    /// Locks a table below which another is to be linked, which the threads of a program that
    /// begins all want at once.
    #[inline]
    fn lock_to_link(&self, table: Pfn) -> Option<LockedTable<'a, F>> {
        if !self.is_by_turns {
            return LockedTable::lock(self.memory, self.pin, table, self.whole);
        }
        self.pin.assert_holds(0);
        match LockedTable::try_lock(self.memory, self.pin, table, self.whole) {
            Ok(locked) => locked,
            Err(Contended) => {
                let lock = || LockedTable::lock(self.memory, self.pin, table, self.whole);
                LockTurn::at(self.pin, table.0).lock(lock)
            }
        }
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
        let take = || self.take(level, index);
        let table = self.memory.charge_table(self.pin, self.root, take)?;
        let live = u32::from(entry != 0);
        let base = F::table_base(page, level);
        self.memory
            .frame(table)
            .init_table(self.owner, level, base, live);
        if entry != 0 {
            self.with_words((table, level), |words| {
                words[index].store(entry, Ordering::Relaxed);
            });
        }
        Ok(table)
    }

    /// A frame for a table at `level`, of which `entry` will be filled first.
    #[inline]
    fn take(&self, level: u32, entry: usize) -> Result<Pfn, OutOfMemory> {
        let mut wanted = Wanted {
            site: Site::TablePage,
            level,
            zone: Zone::Low,
            entry,
        };
        if !uses_windows::<F>() || level > 1 {
            return self.source.take(self.memory, self.pin, wanted);
        }
        wanted.zone = self.memory.table_zone(self.pin);
        let table = self.source.take(self.memory, self.pin, wanted);
        // Asked last, since asking forgets it: a failure that was planned is none of this.
        let falls_back = table.is_err() && wanted.zone == Zone::Low;
        if falls_back && self.memory.tables_make_room() && self.memory.take_low_missed() {
            wanted.zone = Zone::High;
            return self.source.take(self.memory, self.pin, wanted);
        }
        table
    }

    /// [`TablePages::give_back`](super::TablePages::give_back) of a table that was charged.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn give_back(&self, table: Pfn, level: u32) {
        let tables = Chain::of(self.memory, table.0);
        self.memory.uncharge_tables(self.pin, tables);
        // SAFETY: the caller's promise.
        unsafe { (self.source).give_back(self.memory, self.pin, table, level) };
    }

    /// Empties and gives back the tables for `page` that were made below
    /// `top_level` and not linked; `entry` names the highest.
    #[cold]
    fn unmake(&self, page: Vpn, lowest: u32, top_level: u32, mut entry: u64) {
        for level in (lowest..top_level).rev() {
            let table = F::frame(entry, level + 1);
            let index = F::index(page, level);
            entry = self.with_words((table, level), |words| {
                words[index].swap(0, Ordering::Relaxed)
            });
            // SAFETY: the table was made for this call and never linked, and its
            // only entry was cleared.
            unsafe { self.give_back(table, level) };
        }
    }

    /// Splits the leaf that covers `page` into leaves one level below, with
    /// the same rights and marks. Returns whether there was such a leaf.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the leaf is as it was.
    pub fn split(&self, page: Vpn) -> Result<bool, OutOfMemory> {
        // Low memory serves every level, and that of the leaf is known under its lock only.
        let wanted = Wanted {
            site: Site::TablePage,
            level: 1,
            zone: Zone::Low,
            entry: 0,
        };
        let table = self.source.take(self.memory, self.pin, wanted)?;
        self.memory.charge_table_anyway(self.pin, self.root, table);
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
                locked.update(index, Users::Hardware, |entry| {
                    self.fill_with_parts((table, below), entry, F::marks(entry));
                    F::table_entry(table, level)
                });
                true
            });
        if !done {
            // SAFETY: the table was made for this call and never linked.
            unsafe { self.give_back(table, 1) };
        }
        Ok(done)
    }

    /// Fills a table at level `below` that is not linked with leaves for the parts of the
    /// large leaf `entry`.
    fn fill_with_parts(&self, (table, below): (Pfn, u32), entry: u64, marks: Marks) {
        let (first, prot) = (F::frame(entry, below + 1), F::prot(entry, below + 1));
        self.with_words((table, below), |words| {
            for (slot, word) in words.iter().enumerate() {
                let part = first.offset((slot as u64 * F::pages_at(below)) as u32);
                word.store(F::leaf(part, below, prot, marks), Ordering::Relaxed);
            }
        });
    }

    /// Makes the table that a large leaf at level `below` + 1 for `page` keeps to be split
    /// into. It is linked nowhere and has no entries.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn make_spare(&self, page: Vpn, below: u32) -> Result<Pfn, OutOfMemory> {
        let wanted = Wanted {
            site: Site::TablePage,
            level: below,
            zone: Zone::Low,
            entry: 0,
        };
        let take = || self.source.take(self.memory, self.pin, wanted);
        let table = self.memory.charge_table(self.pin, self.root, take)?;
        let base = F::table_base(page, below);
        self.memory
            .frame(table)
            .init_table(self.owner, below, base, 0);
        Ok(table)
    }

    /// [`Tables::make_spare`] for the first of `leaves` that are about to be made beside each
    /// other. Tables for most of them come as one block, if there is one to spare, of which the
    /// others stay in `spares`: a block costs less than as many frames.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn make_spare_of(
        &self,
        spares: &mut Spares,
        (page, below): (Vpn, u32),
        leaves: usize,
    ) -> Result<Pfn, OutOfMemory> {
        const FEWEST: usize = 16;
        // (A group that is charged for tables is charged for each.)
        let is_free = self.memory.payer_of(self.root) == GroupId::ROOT;
        if spares.0.is_none() && leaves >= FEWEST && is_free {
            self.make_spares(spares, (page, below), leaves.ilog2().min(MAX_ORDER));
        }
        match spares.0 {
            Some(table) => {
                spares.0 = self.memory.frame(table).table().spare();
                Ok(table)
            }
            None => self.make_spare(page, below),
        }
    }

    #[inline(never)]
    fn make_spares(&self, spares: &mut Spares, (page, below): (Vpn, u32), order: u32) {
        let request = Request::page(Site::TablePage).low().order(order);
        let Some(first) = self.memory.alloc_to_spare(self.pin, request) else {
            return;
        };
        self.memory.split(first, order);
        for table in (0..1 << order).rev().map(|step| first.offset(step)) {
            let frame = self.memory.frame(table);
            let frame = frame.init_table(self.owner, below, F::table_base(page, below), 0);
            frame.set_unshared(TableFlags::UNZEROED);
            frame.set_spare(spares.0);
            spares.0 = Some(table);
        }
    }

    /// Gives back those that were not needed.
    pub(crate) fn unmake_spares(&self, spares: Spares) {
        let mut next = spares.0;
        while let Some(table) = next {
            next = self.memory.frame(table).table().spare();
            self.unmake_spare(table);
        }
    }

    /// Gives back a spare table.
    pub(crate) fn unmake_spare(&self, table: Pfn) {
        let frame = self.memory.frame(table).table();
        let level = frame.level();
        debug_assert!(frame.live() == 0);
        if frame.has(TableFlags::UNZEROED) {
            return self.memory.put(self.pin, table);
        }
        // SAFETY: the table was never linked, and none of its entries was filled.
        unsafe { self.give_back(table, level) };
    }

    /// Keeps a spare table for a large leaf of `table`.
    pub(crate) fn keep_spare(&self, table: &LockedTable<'_, F>, spare: Pfn) {
        let parent = self.memory.frame(table.table()).table();
        self.memory.frame(spare).table().set_spare(parent.spare());
        parent.set_spare(Some(spare));
    }

    /// Takes back a spare table of `table`, one of whose large leaves goes.
    pub(crate) fn take_spare(&self, table: &LockedTable<'_, F>) -> Option<Pfn> {
        let parent = self.memory.frame(table.table()).table();
        let spare = parent.spare()?;
        let next = self.memory.frame(spare).table().spare();
        if let Some(next) = next {
            // Mostly the neighbours go, too.
            bytes::prefetch(self.memory.frame(next));
        }
        parent.set_spare(next);
        self.memory.frame(spare).table().set_spare(None);
        Some(spare)
    }

    /// Replaces the entry of `parent` that leads to `table` by the large leaf `leaf`. In
    /// between, the leaf forbids everything, and `flush` makes all CPUs forget the table and
    /// what it maps. `empty` clears all entries of the table, counts them, and tells reverse
    /// mapping of them and of the leaf. The caller gives the table to a gather.
    pub(crate) fn promote(
        table: &LockedTable<'a, F>,
        parent: &LockedTable<'a, F>,
        leaf: u64,
        flush: impl FnOnce(),
        empty: impl FnOnce(),
    ) -> Pfn {
        let level = parent.level();
        let index = F::index(table.base(), level);
        parent.update(index, Users::Hardware, |_| {
            F::with_prot(leaf, level, Prot::NONE)
        });
        flush();
        empty();
        debug_assert!(table.live() == 0);
        parent.update(index, Users::Hardware, |_| leaf);
        table.mark_dead();
        table.table()
    }

    /// Splits the large leaf at `index` of `table` into leaves one level below, with the
    /// same rights and marks, in the spare table that it kept. In between, the leaf forbids
    /// everything, and `flush` makes all CPUs forget it: Arm allows no other way. `tell` is
    /// given the new table, locked, before it is linked. Returns whether there was a
    /// spare table.
    pub(crate) fn demote(
        &self,
        table: &LockedTable<'a, F>,
        index: usize,
        flush: impl FnOnce(),
        tell: impl FnOnce(&LockedTable<'a, F>),
    ) -> bool {
        let level = table.level();
        let below = level - 1;
        let Some(spare) = self.take_spare(table) else {
            return false;
        };
        if !uses_windows::<F>() {
            // It comes while the leaf goes.
            self.with_words((spare, below), |words| {
                let lines = words.chunks(LINE_ENTRIES);
                lines.for_each(|line| bytes::prefetch(&line[0]));
            });
        }
        let (old, _) = table.update(index, Users::Hardware, |entry| {
            F::with_prot(entry, level, Prot::NONE)
        });
        flush();
        let base = table.page(index);
        let entries = F::ENTRIES as u32;
        self.memory
            .frame(spare)
            .init_table(self.owner, below, base, entries);
        self.fill_with_parts((spare, below), old, F::marks(old));
        // Nobody else knows the table.
        if let Some(made) = LockedTable::lock(self.memory, self.pin, spare, self.whole) {
            tell(&made);
        }
        table.update(index, Users::Hardware, |_| F::table_entry(spare, level));
        true
    }
}
