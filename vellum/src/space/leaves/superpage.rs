//! Superpages: private memory mapped by leaves of level 2 (`superpage=`). Those of shared
//! memory are in [`super::huge`].
//!
//! The first fault in a range of that size which has no table yet and lies in one region
//! zeroes a run of frames and maps it whole. Calls treat a superpage whole where their range
//! has all of it; where it has a part, they **demote** the mapping first: its leaf is
//! replaced by a table of single pages. That needs no table, because each superpage mapping
//! keeps a spare one from when it was made, one made by fork too.
//!
//! Fork shares superpages without the right to store. A store to one that nobody shares any
//! more gets the right back for all of it; to one that is shared, it demotes the storing
//! space's mapping and copies one page: the others stay shared, and other spaces' mappings
//! of the run stay large. `mremap`, pins and `madvise(FREE)` demote too.
//!
//! What frames of such runs have for records, [`crate::rmap`] tells in "Large leaves".
//! Formats whose level-2 leaves are larger than the allocator's largest block have none.

use crate::addr::{Access, PageRange, Pfn, Vpn};
use crate::design::Superpages;
use crate::frame::{Kind, NoPage, OutOfMemory, Request, Site};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::{Env, Place, ReverseMap, Run, Verdict};
use crate::space::state::account::Resident;
use crate::space::state::error::FaultError;
use crate::space::state::extras::{LEVEL, could_have_superpages};
use crate::space::state::manager::Vm;
use crate::space::state::region::Region;
use crate::space::state::spaces::Live;
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::sync::{Pin, Unpinned};
use crate::table::{Format, LockedTable, Marks, Users};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Log2 of the pages of a superpage.
    pub(in crate::space) const ORDER: u32 = F::INDEX_BITS;
    /// Pages of a superpage.
    pub(super) const SUPERPAGE: u64 = 1 << Self::ORDER;

    /// Whether there may be superpages.
    #[inline]
    pub(in crate::space) fn has_superpages(&self) -> bool {
        self.superpages() != Superpages::Off && could_have_superpages::<F>()
    }

    /// Whether large leaves may be there, of private memory or of objects.
    #[inline]
    pub(super) fn has_large_leaves(&self) -> bool {
        self.has_superpages() || self.has_huge()
    }

    /// The leaf at `index` of a table at level 2, as reverse mapping is told of it.
    pub(in crate::space) fn large_run(table: &LockedTable<'_, F>, index: usize, first: Pfn) -> Run {
        Run::large(first, Self::ORDER, table.pte(index), table.page(index))
    }

    /// Maps the superpage around the fault's page, which no table covers yet, or the first page
    /// of a range that is to become one. `None` if
    /// there cannot be one: single pages do then.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn map_superpage(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Option<Result<FaultStep, FaultError>> {
        if !self.has_superpages() || !self.may_be_superpage(fault) {
            return None;
        }
        if self.superpages() == Superpages::Reserve {
            return self.map_first(fault);
        }
        let step = self.try_superpage(fault, Self::range_around(fault.page).start);
        if step.is_err() {
            fault.cpu.events.superpage_failures.bump();
        }
        step.ok().map(Ok)
    }

    fn try_superpage(&self, fault: &Fault<'_, P, F, R>, base: Vpn) -> Result<FaultStep, NoPage> {
        let pin = fault.pin;
        let tables = self.tables(pin, fault.space);
        let spare = tables.make_spare(base, LEVEL - 1)?;
        let request = Request::page(Site::Superpage).order(Self::ORDER).zeroed();
        let first = match fault.alloc_page(request) {
            Ok(first) => first,
            Err(error) => {
                tables.unmake_spare(spare);
                return Err(error);
            }
        };
        let env = self.env(pin);
        let mut ctx = R::Ctx::default();
        let mut made = 0;
        let prepared = self.prepare_private(fault, &mut ctx);
        let table = prepared.and_then(|()| tables.lock_or_make_at(base, LEVEL, &mut made));
        fault.count_tables(made);
        let index = F::index(base, LEVEL);
        let installed = match table {
            Ok(table) if table.level() == LEVEL && table.load(index) == 0 => {
                let run = Self::large_run(&table, index, first);
                self.own_run_privately(pin, &run, fault.place(), &mut ctx);
                let marks = match fault.access {
                    Access::Write => Marks::DIRTY,
                    _ => Marks::ACCESSED,
                };
                let prot = fault.entered.region.prot();
                tables.keep_spare(&table, spare);
                table.fill(index, F::leaf(first, LEVEL, prot, marks));
                table.count_made(1);
                Ok(true)
            }
            Ok(table) => {
                self.leave_table(pin, fault.space, table);
                Ok(false)
            }
            Err(error) => Err(error),
        };
        self.rmap.finish(&env, ctx);
        if let Ok(true) = installed {
            fault.entered.region.note_private();
            fault.count_resident(Resident::Anonymous, Self::SUPERPAGE);
            fault.count_tables(1);
            self.note_inserted(pin, first, Inserted::Anonymous);
            fault.cpu.events.superpage_maps.bump();
            return Ok(FaultStep::Done(Resolved::Mapped));
        }
        tables.unmake_spare(spare);
        self.memory.put_order(pin, first, Self::ORDER);
        installed?;
        Ok(FaultStep::Again)
    }

    /// Makes a run of frames that nobody else knows the pages of a superpage, which the leaf
    /// that is about to be filled maps alone. Reclaim can find it from here on.
    pub(super) fn own_run_privately(
        &self,
        pin: &Pin<'_>,
        run: &Run,
        place: Place<'_, R::Region, R::Space>,
        ctx: &mut R::Ctx,
    ) {
        let head = self.memory.frame(run.frame);
        head.set_kind(Kind::Anonymous);
        head.set_owner(place.space);
        head.set_index(run.page.0, 0);
        self.rmap.add(&self.env(pin), ctx, run, place, true);
        // What the design keeps in the word of the index stays.
        head.set_index(head.index(), run.order);
        head.init_whole();
    }

    /// A fault met a large leaf.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn resolve_large(
        &self,
        fault: &Fault<'_, P, F, R>,
        entry: u64,
    ) -> Result<FaultStep, FaultError> {
        if F::prot(entry, LEVEL).allows(fault.access) {
            fault.cpu.events.spurious_faults.bump();
            return Ok(FaultStep::Done(Resolved::Spurious));
        }
        if fault.entered.region.is_unmanaged() {
            return Ok(self.upgrade_unmanaged(fault));
        }
        if !P::PARTS.superpages {
            return Ok(FaultStep::Again);
        }
        let (found, _) = fault.lowest;
        let whole = self.tables_lock(fault.space);
        let Some(table) = LockedTable::<F>::lock(&self.memory, fault.pin, found, whole) else {
            return Ok(FaultStep::Again);
        };
        let index = F::index(fault.page, LEVEL);
        let now = table.load(index);
        if table.level() != LEVEL || !F::is_mapped(now) || !F::is_leaf(now, LEVEL) {
            // Split meanwhile, which takes all rights away for a moment.
            return Ok(FaultStep::Again);
        }
        let run = Self::large_run(&table, index, F::frame(now, LEVEL));
        let writes = fault.access == Access::Write;
        let object = fault.entered.region.object();
        let copies = writes && object == 0;
        let is_shared = || match object {
            0 => !F::is_writable(now) && !self.is_exclusive_run(fault.pin, &run),
            // Nobody stores to a file by a large leaf.
            _ => self.objects.get(object).is_file(),
        };
        if writes && is_shared() {
            drop(table);
            self.demote(fault.pin, fault.space, fault.entered.region, fault.page)?;
            return Ok(FaultStep::Again);
        }
        let view = fault.view();
        table.update(index, Users::Hardware, |entry| {
            let keeps = writes || F::is_writable(entry);
            let prot = if keeps {
                view.prot
            } else {
                view.prot.read_only()
            };
            let marks = Marks {
                accessed: true,
                dirty: F::marks(entry).dirty || writes,
            };
            F::with_marks(F::with_prot(entry, LEVEL, prot), marks)
        });
        let env = self.env(fault.pin);
        let mut ctx = R::Ctx::default();
        if copies {
            let locked = self.memory.lock_run(fault.pin, run.frame, run.order);
            for part in run.told(locked.is_whole() || R::LISTS_LEAVES) {
                self.rmap.turn(&env, &mut ctx, &part, fault.place());
            }
            fault.cpu.events.cow_reuses.bump();
        }
        drop(table);
        self.rmap.finish(&env, ctx);
        Ok(FaultStep::Done(Resolved::Upgraded))
    }

    /// Whether no other entry maps any of the run's frames, and nobody else refers to one.
    /// A yes stays true as that of [`Vm::is_exclusive`] does.
    fn is_exclusive_run(&self, pin: &Pin<'_>, run: &Run) -> bool {
        let locked = self.memory.lock_run(pin, run.frame, run.order);
        if locked.is_whole() {
            return self.is_exclusive(run.frame);
        }
        run.parts().all(|part| self.is_exclusive(part.frame))
    }

    /// Gives each frame of the run of a large leaf, whose table is locked, a record of its
    /// own, unless each has one. Returns whether it has done so. `parts` are the entries that take
    /// the leaf's place, if their table is locked already.
    ///
    /// # Errors
    /// [`OutOfMemory`] of reverse mapping.
    fn divide(
        &self,
        env: &Env<'_, P>,
        run: &Run,
        parts: Option<&Run>,
    ) -> Result<bool, OutOfMemory> {
        let locked = self.memory.lock_run(env.pin, run.frame, run.order);
        if !locked.is_whole() {
            return Ok(false);
        }
        self.rmap.prepare_divide(env, run)?;
        let counts = self.memory.divide_records(&locked, run.frame);
        self.rmap.divide(env, run, parts);
        self.memory.set_divided(&locked, run.frame, counts);
        drop(locked);
        for part in run.parts().skip(1) {
            self.note_inserted(env.pin, part.frame, Inserted::Anonymous);
        }
        Ok(true)
    }

    /// Replaces the large leaf that covers `page` by single pages, if there is one; one that
    /// maps pages of an object is cleared, and faults find them again. The
    /// caller keeps the region from changing and holds no table lock.
    ///
    /// # Errors
    /// [`OutOfMemory`] of reverse mapping; the leaf is as it was.
    pub(in crate::space) fn demote(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        region: &Region<R>,
        page: Vpn,
    ) -> Result<(), OutOfMemory> {
        if region.is_unmanaged() {
            return self.split_unmanaged(pin, space, page);
        }
        if !P::PARTS.superpages {
            return Ok(());
        }
        let tables = self.tables(pin, space);
        let Some(table) = tables.lock(page).filter(|table| table.level() == LEVEL) else {
            return Ok(());
        };
        let index = F::index(page, LEVEL);
        let run = Self::large_run(&table, index, F::frame(table.load(index), LEVEL));
        if self.memory.frame(run.frame).kind() == Kind::Object {
            self.clear_huge(pin, space, region, (table, index));
            return Ok(());
        }
        let env = self.env(pin);
        let mut ctx = R::Ctx::default();
        let place = region.place(space);
        if self.memory.frame(run.frame).counts().is_whole() {
            self.memory.prefetch_parts(run.frame, run.order);
        }
        let prepared = match R::DIVIDES_INTO_PARTS {
            true => Ok(false),
            false => self.divide(&env, &run, None),
        };
        let prepared = prepared.and_then(|_| self.rmap.prepare_demote(&env, &mut ctx, &run, place));
        if prepared.is_ok() {
            let flush = || self.flush_locked_page(pin, space, run.page);
            let had_spare = tables.demote(&table, index, flush, |made| {
                let parts = Run {
                    count: 1 << run.order,
                    order: 0,
                    pte: made.pte(0),
                    ..run
                };
                // Such a design needs no memory for it.
                let is_divided =
                    R::DIVIDES_INTO_PARTS && self.divide(&env, &run, Some(&parts)) == Ok(true);
                if !is_divided {
                    self.rmap.demote(&env, &mut ctx, &parts, run.pte, place);
                }
            });
            debug_assert!(had_spare, "a superpage mapping without a spare table");
            self.events(pin).superpage_demotions.bump();
        }
        drop(table);
        self.rmap.finish(&env, ctx);
        prepared
    }

    /// Demotes the superpage that lies on both sides of the boundary before `page`.
    ///
    /// # Errors
    /// As [`Vm::demote`].
    #[inline]
    pub(in crate::space) fn demote_across(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        region: &Region<R>,
        page: Vpn,
    ) -> Result<(), OutOfMemory> {
        if region.is_unmanaged() {
            return self.split_unmanaged(pin, space, page);
        }
        if !self.has_large_leaves() || page.0 & (Self::SUPERPAGE - 1) == 0 {
            return Ok(());
        }
        self.demote(pin, space, region, page)
    }

    /// Demotes every superpage that has a page in `range`, which lies in the region.
    ///
    /// # Errors
    /// As [`Vm::demote`]; some may have been demoted.
    pub(in crate::space) fn demote_range(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        region: &Region<R>,
        range: PageRange,
    ) -> Result<(), OutOfMemory> {
        if !self.has_large_leaves() && !region.is_unmanaged() {
            return Ok(());
        }
        let tables = self.tables(pin, space);
        for span in tables.spans(range) {
            if span.table.level() == LEVEL {
                let page = span.table.page(span.first);
                drop(span);
                self.demote(pin, space, region, page)?;
            }
        }
        Ok(())
    }

    /// Demotes every superpage mapping of a private page, to which the caller has a reference,
    /// and no pin and no lock. Waits for no lock of a space. Returns whether none is left.
    pub(in crate::space) fn demote_all_of(&self, mut unpinned: Unpinned<'_>, page: Pfn) -> bool {
        if !self.has_superpages() {
            return true;
        }
        // Forks beside this may make some more.
        for _ in 0..=self.memory.frame(page).counts().maps() {
            let found = self.find_superpage(&self.pin_by(&unpinned), page);
            let Some((space, at)) = found else {
                return true;
            };
            if !self.try_demote(unpinned.reborrow(), space, at) {
                return false;
            }
        }
        false
    }

    /// The space and the first page of a superpage that has the page.
    fn find_superpage(&self, pin: &Pin<'_>, page: Pfn) -> Option<(u32, Vpn)> {
        let mut found = None;
        let visit = (self.rmap).visit::<P, F>(&self.env(pin), self, page, &mut |slot| {
            if !slot.is_large() {
                return Verdict::Keep;
            }
            found = Some((slot.space(), slot.page()));
            Verdict::Stop
        });
        self.count_lookups(pin, 1, &visit);
        found
    }

    /// Demotes the superpage at a place of the space with this handle, if there is one. What space
    /// has the handle by now does not matter: its pages stay what they are. `false` if the
    /// space is being changed, or memory is short.
    fn try_demote(&self, unpinned: Unpinned<'_>, handle: u32, page: Vpn) -> bool {
        let space = self.live_at(handle);
        let demoted = self.try_with_page_locked(unpinned, space, page, |pin, space| {
            if self.tables_if_any(pin, *space).is_none() {
                return true;
            }
            let found = self.found_from(space, page);
            match found.filter(|found| found.start <= page.0) {
                Some(found) => self.demote(pin, *space, found.item, page).is_ok(),
                None => true,
            }
        });
        demoted.unwrap_or(false)
    }

    /// One more mapping of a run of which the caller has a mapping's table locked. `false`
    /// if the run is divided: its pages have to be copied one by one.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the run has as many mappings as can be counted.
    pub(in crate::space) fn share_run(
        &self,
        env: &Env<'_, P>,
        run: &Run,
        duplicate: impl FnOnce(),
    ) -> Result<bool, OutOfMemory> {
        let locked = self.memory.lock_run(env.pin, run.frame, run.order);
        if !locked.is_whole() {
            return Ok(false);
        }
        locked.head().add_mapping().ok_or(OutOfMemory)?;
        duplicate();
        Ok(true)
    }

    /// A large leaf was cleared, whose table is locked: takes its mapping off the run.
    /// Returns whether the run is whole: then the entry's reference is one to the run,
    /// otherwise one to each frame.
    pub(in crate::space) fn unmap_run(
        &self,
        env: &Env<'_, P>,
        ctx: &mut R::Ctx,
        region: &Region<R>,
        space: Live<'_, R>,
        run: &Run,
    ) -> bool {
        let place = region.place(space);
        let locked = self.memory.lock_run(env.pin, run.frame, run.order);
        let is_whole = locked.is_whole();
        let lost = |frame: Pfn| {
            if self.memory.frame(frame).remove_mapping().maps() == 1 {
                self.rmap.unmapped(env, frame);
                self.note_removed(env.pin, frame);
            }
        };
        for part in run.told(is_whole || R::LISTS_LEAVES) {
            self.rmap.remove(env, ctx, &part, place);
        }
        run.told(is_whole).for_each(|part| lost(part.frame));
        is_whole
    }

    /// The frame of a large leaf, whose table is locked, to look its entries up by: the
    /// run's first, if that is whole, with a reference to the run. Otherwise nothing.
    pub(in crate::space) fn hold_whole_run(&self, pin: &Pin<'_>, run: &Run) -> bool {
        if self.memory.frame(run.frame).kind() == Kind::Object {
            return false;
        }
        let locked = self.memory.lock_run(pin, run.frame, run.order);
        if locked.is_whole() {
            locked.head().get();
        }
        locked.is_whole()
    }
}
