//! Private pages that get another frame: copies that are made ahead of a store, and pages that move.
//!
//! The region is closed, so that no fault is on its way to the page. The entry
//! loses the right to be stored to and is flushed before the bytes are copied, so that no store is
//! lost; until the copy is there, loads find the page as it was. All else that could take the page
//! away, pin it or fork it takes the lock of its table, under which this is done.

use crate::addr::{Pfn, Vpn};
use crate::frame::{Kind, OutOfMemory};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::state::account::Resident;
use crate::space::state::closed::Closed;
use crate::space::state::extras::LEVEL;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::steps::entry::Replaced;
use crate::sync::Pin;
use crate::table::{Format, LockedTable, Marks, Swapped, Users};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Puts the private page at `page` into the frame `new`, which the caller has, if `may_leave`
    /// says yes of the frame that holds it. Otherwise, and if there is no page any more,
    /// `new` is freed. Of several spaces that map the page, this one alone gets the copy. Returns
    /// whether it did.
    ///
    /// # Errors
    /// [`OutOfMemory`] of reverse mapping; the page is where it was.
    pub(in crate::space) fn replace_private(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        region: Closed<'_, R>,
        (page, new): (Vpn, Pfn),
        may_leave: impl FnOnce(Pfn) -> bool,
    ) -> Result<bool, OutOfMemory> {
        let (env, place) = (self.env(pin), region.place(*space));
        let mut ctx = R::Ctx::default();
        let prepared = self.rmap.prepare(&env, &mut ctx, place, 1);
        let table = self.tables(pin, *space).lock(page);
        let table = table.filter(|table| prepared.is_ok() && table.level() == 1);
        let found = table.and_then(|table| {
            let index = F::index(page, 1);
            let old = self
                .private_frame(&table, index)
                .filter(|&old| may_leave(old))?;
            self.end_runs(pin, *space, &table, index..index + 1);
            let entry = table.load(index);
            let marks = self.stop_stores(pin, space, (&table, index));
            self.memory.copy(pin, old, new);
            // Not that it may be dropped (`LAZY_FREE`): it stays until its owner says so again.
            let leaf = F::leaf(new, 1, F::prot(entry, 1), marks);
            let replaced = Replaced {
                index,
                old,
                new,
                leaf: F::with_watch(leaf, Self::is_watched(entry)),
            };
            self.replace_page(pin, place, &table, &replaced, &mut ctx);
            Some(old)
        });
        self.rmap.finish(&env, ctx);
        self.memory.put(pin, found.unwrap_or(new));
        if found.is_some() {
            self.note_inserted(pin, new, Inserted::Anonymous);
        }
        prepared.map(|()| found.is_some())
    }

    /// The same of the superpage that begins at `base`, and of the frames from `new` on, which are
    /// as many, if the frames that hold it have one record.
    ///
    /// # Errors
    /// As [`Vm::replace_private`].
    pub(in crate::space) fn replace_superpage(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        region: Closed<'_, R>,
        (base, new): (Vpn, Pfn),
        may_leave: impl FnOnce(Pfn) -> bool,
    ) -> Result<bool, OutOfMemory> {
        let (env, place) = (self.env(pin), region.place(*space));
        let mut ctx = R::Ctx::default();
        let prepared = self.rmap.prepare(&env, &mut ctx, place, 1);
        let table = self.tables(pin, *space).lock(base);
        let table = table.filter(|table| prepared.is_ok() && table.level() == LEVEL);
        let found = table.and_then(|table| {
            let index = F::index(base, LEVEL);
            let first = self.private_frame(&table, index)?;
            let is_whole = self.memory.lock_run(pin, first, Self::ORDER).is_whole();
            if !is_whole || !may_leave(first) {
                return None;
            }
            let prot = F::prot(table.load(index), LEVEL);
            let marks = self.stop_stores(pin, space, (&table, index));
            for step in 0..1 << Self::ORDER {
                self.memory.copy(pin, first.offset(step), new.offset(step));
            }
            table.clear(index, Users::Hardware);
            self.flush_locked_page(pin, *space, base);
            let gone = Self::large_run(&table, index, first);
            self.unmap_run(&env, &mut ctx, &region, *space, &gone);
            let run = Self::large_run(&table, index, new);
            self.own_run_privately(pin, &run, place, &mut ctx);
            table.fill(index, F::leaf(new, LEVEL, prot, marks));
            Some(first)
        });
        self.rmap.finish(&env, ctx);
        match found {
            Some(first) => {
                self.memory.put_run(pin, first, Self::ORDER);
                self.note_inserted(pin, new, Inserted::Anonymous);
            }
            None => self.memory.put_order(pin, new, Self::ORDER),
        }
        prepared.map(|()| found.is_some())
    }

    /// Has the private page at `page` be one that is lost, if `may_leave` says yes of the frame that
    /// holds it: every access faults from now on. Returns whether it did.
    pub(in crate::space) fn lose_private(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        region: Closed<'_, R>,
        page: Vpn,
        may_leave: impl FnOnce(Pfn) -> bool,
    ) -> bool {
        let (env, place) = (self.env(pin), region.place(*space));
        let mut ctx = R::Ctx::default();
        let table = self.tables(pin, *space).lock(page);
        let found = table.filter(|table| table.level() == 1).and_then(|table| {
            let index = F::index(page, 1);
            let old = self
                .private_frame(&table, index)
                .filter(|&old| may_leave(old))?;
            self.end_runs(pin, *space, &table, index..index + 1);
            table.clear(index, Users::Hardware);
            self.flush_locked_page(pin, *space, page);
            let gone = Run::single(old, table.pte(index), page);
            self.rmap.remove(&env, &mut ctx, &gone, place);
            if self.memory.frame(old).remove_mapping().maps() == 1 {
                self.rmap.unmapped(&env, old);
                self.note_removed(pin, old);
            }
            table.fill(index, F::swap(Swapped::LOST));
            Some(old)
        });
        self.rmap.finish(&env, ctx);
        if let Some(old) = found {
            region.note_guards();
            // Dirty tracking reports it, although nobody has written it.
            region.lose();
            self.count_resident(pin, *space, Resident::Anonymous, u64::MAX);
            self.memory.put(pin, old);
        }
        found.is_some()
    }

    /// The frame of a private page that the leaf at `index` of a table maps, or the first of a
    /// superpage.
    pub(in crate::space) fn private_frame(
        &self,
        table: &LockedTable<'_, F>,
        index: usize,
    ) -> Option<Pfn> {
        let (entry, level) = (table.load(index), table.level());
        let is_leaf = F::is_mapped(entry) && F::is_leaf(entry, level);
        let frame = is_leaf.then(|| F::frame(entry, level))?;
        let record = self.managed(frame)?;
        (record.kind() == Kind::Anonymous).then_some(frame)
    }

    /// Has all CPUs forget that a leaf could be stored through. Returns its marks, to which no store
    /// adds any more.
    fn stop_stores(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        (table, index): (&LockedTable<'_, F>, usize),
    ) -> Marks {
        if F::is_writable(table.load(index)) {
            table.update(index, Users::Hardware, F::write_protect);
            self.flush_locked_page(pin, *space, table.page(index));
        }
        F::marks(table.load(index))
    }
}
