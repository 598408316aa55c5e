//! Page faults.
//!
//! The path, in order: pin the CPU and load the space; find and enter the
//! region ([`crate::space::locks::lookup`]); check its rights; look at the entry. An empty
//! entry is filled with a new private page (here), the shared zero page (here)
//! or a page of the region's object ([`super::file`]); a present one gets
//! rights it may have, or its page is copied ([`super::cow`]); that of a page in swap gets
//! the page back ([`super::swap_in`]). Everything that
//! can fail (frames, nodes, tables) is had before the table is locked; under
//! its lock the entry is looked at again.
//!
//! What must wait, for a page lock or for the backing store, first lets go of
//! region and pin and then starts over.

use crate::addr::{Access, Pfn, Prot, Vpn};
use crate::design::{FaultLock, Superpages};
use crate::frame::{Frame, Kind, OutOfMemory, Request, Site};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::{Place, ReverseMap, Run};
use crate::space::locks::lookup::{Entered, Lookup};
use crate::space::state::account::Resident;
use crate::space::state::error::FaultError;
use crate::space::state::manager::{Vm, VmCpu};
use crate::space::state::region::RegionView;
use crate::space::state::spaces::{Live, SpaceId};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::table::{Format, LockedTable, Marks, Tables, Users};

/// What resolving a fault took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// The page was mapped.
    Mapped,
    /// The entry was there and got the right that was missing.
    Upgraded,
    /// The page was copied, and the copy mapped.
    Copied,
    /// The entry allowed the access already: another CPU was faster, or the
    /// hardware had an old translation.
    Spurious,
}

/// What to do next about a fault.
pub(in crate::space) enum FaultStep {
    /// It is resolved.
    Done(Resolved),
    /// Something changed meanwhile: start over.
    Again,
    /// Wait for the page lock; a reference to the page comes with it.
    Wait(Pfn),
    /// Fill the page from the backing store; it is locked for us, and a
    /// reference comes with it.
    Fill(Pfn),
    /// Fill the pages of a superpage, of which this is the first, from the backing store; all are
    /// locked for us, and a reference to each comes with it.
    FillSuperpage(Pfn),
    /// Read the page, which is in the swap cache and locked for us, from its swap area; a
    /// reference comes with it.
    SwapIn(Pfn),
    /// Extend the stack above the page.
    Grow,
}

/// A fault on its way.
pub(in crate::space) struct Fault<'a, P: Platform, F: Format, R: ReverseMap> {
    pub(in crate::space) vm: &'a Vm<P, F, R>,
    pub(in crate::space) pin: &'a Pin<'a>,
    pub(in crate::space) cpu: &'a VmCpu,
    pub(in crate::space) space: Live<'a, R>,
    pub(in crate::space) entered: Entered<'a, R>,
    pub(in crate::space) page: Vpn,
    pub(in crate::space) access: Access,
    /// The lowest table there was on the way to the page, and its level.
    pub(in crate::space) lowest: (Pfn, u32),
}

impl<'a, P: Platform, F: Format, R: ReverseMap> Fault<'a, P, F, R> {
    /// The region's properties.
    #[inline]
    pub(in crate::space) fn view(&self) -> RegionView {
        self.entered.region.view()
    }

    #[inline]
    pub(in crate::space) fn place(&self) -> Place<'a, R::Region, R::Space> {
        self.entered.region.place(self.space)
    }

    /// Counts entries made (or, wrapping, unmade). The CPU has the space
    /// loaded since the fault began.
    #[inline]
    pub(in crate::space) fn count_resident(&self, kind: Resident, count: u64) {
        debug_assert!(self.cpu.delta.space.load(Ordering::Relaxed) == self.space.key());
        self.cpu.count_loaded(kind, count);
    }

    /// Counts tables made.
    #[inline]
    pub(in crate::space) fn count_tables(&self, made: u32) {
        self.cpu.events.tables_made.add(u64::from(made));
        self.count_resident(Resident::Table, u64::from(made));
    }

    /// Index of the page's entry in a level-1 table.
    #[inline]
    pub(in crate::space) fn index(&self) -> usize {
        F::index(self.page, 1)
    }

    /// The tables of the space.
    #[inline]
    fn tables(&self) -> Tables<'a, P, F> {
        self.vm.tables(self.pin, self.space)
    }

    /// The table found on the way to the page, locked, if it is of level 1 and
    /// still linked.
    #[inline(always)]
    pub(in crate::space) fn lock_found(&self) -> Option<LockedTable<'a, F>> {
        let (table, level) = self.lowest;
        if level > 1 {
            return None;
        }
        let whole = self.vm.tables_lock(self.space);
        LockedTable::lock(&self.vm.memory, self.pin, table, whole)
    }

    /// The table for the page, locked. A leaf that covers more than the page
    /// may stand in it; its level tells.
    #[inline]
    pub(super) fn lock_table(&self) -> Result<LockedTable<'a, F>, OutOfMemory> {
        if let Some(locked) = self.lock_found() {
            locked.fetch_behind(self.index());
            return Ok(locked);
        }
        let mut made = 0;
        let table = self.tables().by_turns().lock_or_make(self.page, &mut made);
        self.count_tables(made);
        table
    }

    /// The table for the page, locked, if its entry is still empty.
    pub(super) fn lock_empty(&self) -> Result<Option<LockedTable<'a, F>>, OutOfMemory> {
        let table = self.lock_table()?;
        let empty = table.level() == 1 && table.load(self.index()) == 0;
        // Not `then_some`, which would move the table twice.
        Ok(if empty { Some(table) } else { None })
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::fault`](crate::space::Space::fault).
    pub(crate) fn fault(
        &self,
        space: SpaceId,
        address: u64,
        access: Access,
    ) -> Result<Resolved, FaultError> {
        // No region holds a page behind the user's.
        let page = Vpn::of::<F>(address);
        match self.attempt_by_design(space, page, access) {
            Ok(FaultStep::Done(resolved)) => Ok(resolved),
            first => self.fault_further(space, page, access, first),
        }
    }

    /// What follows a first attempt that did not resolve the fault.
    #[inline(never)]
    fn fault_further(
        &self,
        space: SpaceId,
        page: Vpn,
        access: Access,
        first: Result<FaultStep, FaultError>,
    ) -> Result<Resolved, FaultError> {
        let attempt = || self.attempt_by_design(space, page, access);
        self.attempt_until_done(space, page, Some(first), &attempt)
    }

    /// Makes attempts, and what each asks for, until one resolves the fault. (What they attempt is
    /// of no interest here, so that this is compiled once.)
    pub(in crate::space) fn attempt_until_done(
        &self,
        space: SpaceId,
        page: Vpn,
        mut first: Option<Result<FaultStep, FaultError>>,
        attempt: &dyn Fn() -> Result<FaultStep, FaultError>,
    ) -> Result<Resolved, FaultError> {
        self.with_room(|| {
            let mut step = first.take().unwrap_or_else(attempt)?;
            let mut tries = 0;
            loop {
                match step {
                    FaultStep::Done(resolved) => return Ok(resolved),
                    FaultStep::Again => self.give_way(space, &mut tries),
                    FaultStep::Wait(frame) => self.wait_for_page(frame),
                    FaultStep::Fill(frame) => self.fill_page(frame)?,
                    FaultStep::FillSuperpage(head) => self.read_superpage(head)?,
                    FaultStep::SwapIn(frame) => self.read_swapped(frame)?,
                    FaultStep::Grow => self.grow_stack(space, page)?,
                }
                step = attempt()?;
            }
        })
    }

    /// One attempt, beside others in the space or alone.
    #[inline]
    fn attempt_by_design(
        &self,
        id: SpaceId,
        page: Vpn,
        access: Access,
    ) -> Result<FaultStep, FaultError> {
        self.by_design(id, || self.attempt(id, page, access))
    }

    /// Makes an attempt beside others in the space or alone.
    #[inline]
    pub(in crate::space) fn by_design(
        &self,
        id: SpaceId,
        attempt: impl FnOnce() -> Result<FaultStep, FaultError>,
    ) -> Result<FaultStep, FaultError> {
        match self.design.fault_lock {
            FaultLock::None => attempt(),
            FaultLock::Space => self.alone(id, attempt),
        }
    }

    #[cold]
    fn alone(
        &self,
        id: SpaceId,
        attempt: impl FnOnce() -> Result<FaultStep, FaultError>,
    ) -> Result<FaultStep, FaultError> {
        // A space that ends meanwhile leaves the lock where it is (invariant 7), and the
        // attempt finds out.
        let space = self.slot_of(id).ok_or(FaultError::NoSpace)?;
        // Its holder may be preempted before it is pinned.
        let (lock, platform) = (&space.fault_lock, self.memory.platform());
        lock.lock(&self.waits, platform, || self.pin());
        let step = attempt();
        lock.unlock(&self.waits, platform, || self.pin());
        step
    }

    /// One attempt, from pin to unpin.
    #[inline(never)]
    fn attempt(&self, id: SpaceId, page: Vpn, access: Access) -> Result<FaultStep, FaultError> {
        self.attempt_to(id, page, access, |fault, entry| self.resolve(fault, entry))
    }

    /// The same, with what to do once the region is entered and allows the access.
    #[inline(always)]
    pub(in crate::space) fn attempt_to(
        &self,
        id: SpaceId,
        page: Vpn,
        access: Access,
        resolve: impl FnOnce(&Fault<'_, P, F, R>, u64) -> Result<FaultStep, FaultError>,
    ) -> Result<FaultStep, FaultError> {
        let (pin, expected) = self.pin_for_fault(id.handle);
        let pin = &pin;
        let cpu = self.cpus.get(pin);
        let space = self.load_named(pin, cpu, id).ok_or(FaultError::NoSpace)?;
        let entered = match self.enter_region(pin, cpu, expected, space, page) {
            Lookup::Found(entered) => entered,
            Lookup::Busy => {
                cpu.events.fault_retries.bump();
                return Ok(FaultStep::Again);
            }
            Lookup::Nothing if self.is_below_stack(pin, space, page) => return Ok(FaultStep::Grow),
            Lookup::Nothing => return Err(FaultError::NoRegion),
        };
        if !entered.region.prot().allows(access) {
            return Err(FaultError::Protection);
        }
        let (entry, lowest) = self.tables(pin, space).find(page);
        let fault = Fault {
            vm: self,
            pin,
            cpu,
            space,
            entered,
            page,
            access,
            lowest,
        };
        resolve(&fault, entry)
    }

    #[inline]
    pub(in crate::space) fn resolve(
        &self,
        fault: &Fault<'_, P, F, R>,
        entry: u64,
    ) -> Result<FaultStep, FaultError> {
        fault.cpu.events.faults.bump();
        let extras = self.extras();
        let region = fault.entered.region;
        if F::is_mapped(entry) {
            if fault.lowest.1 > 1 {
                return self.resolve_large(fault, entry);
            }
            return match extras.runs() {
                true => self.resolve_in_run(fault, entry),
                false => self.resolve_present(fault, entry),
            };
        }
        if entry != 0 {
            return self.swap_in(fault, entry);
        }
        if fault.lowest.1 > 1
            && self.superpages() != Superpages::Off
            && region.object() == 0
            && let Some(step) = self.map_superpage(fault)
        {
            return step;
        }
        match (region.object(), fault.access) {
            (0, Access::Write) if extras.any() => self.map_with_extras(fault),
            (0, Access::Write) => self.map_new_page(fault),
            (0, _) => self.map_zero_page(fault),
            (_, Access::Write) if !region.is_shared() => self.map_private_copy(fault),
            _ => self.map_object_page(fault),
        }
    }

    /// The entry exists: it lacks a right, or nothing.
    pub(in crate::space) fn resolve_present(
        &self,
        fault: &Fault<'_, P, F, R>,
        entry: u64,
    ) -> Result<FaultStep, FaultError> {
        let prot = F::prot(entry, 1);
        if prot.allows(fault.access) {
            fault.cpu.events.spurious_faults.bump();
            return Ok(FaultStep::Done(Resolved::Spurious));
        }
        let view = fault.view();
        if fault.access == Access::Write && !view.is_shared() {
            return self.break_cow(fault, entry);
        }
        // The region allows what the entry does not: a store to a shared page
        // that was only read so far, or rights gained since.
        let Some(table) = fault.lock_found() else {
            return Ok(FaultStep::Again);
        };
        let index = fault.index();
        let now = table.load(index);
        // A run has the rights that its region gives.
        let is_other = F::frame(now, 1) != F::frame(entry, 1) || F::is_contiguous(now);
        if table.level() != 1 || !F::is_mapped(now) || is_other {
            return Ok(FaultStep::Again);
        }
        let writes = fault.access == Access::Write;
        table.update(index, Users::Hardware, |entry| {
            let keeps = writes || F::is_writable(entry);
            let prot = if keeps {
                view.prot
            } else {
                view.prot.read_only()
            };
            let marks = F::marks(entry);
            F::with_marks(
                F::with_prot(entry, 1, prot),
                Marks {
                    accessed: true,
                    dirty: marks.dirty || writes,
                },
            )
        });
        Ok(FaultStep::Done(Resolved::Upgraded))
    }

    /// First store to a private page without object: a zeroed frame.
    pub(in crate::space) fn map_new_page(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Result<FaultStep, FaultError> {
        let request = Request::page(Site::AnonymousPage).zeroed();
        let frame = (self.memory).alloc_page(fault.pin, request, fault.space.group())?;
        let step = self.install_private(fault, frame, |table| table.load(fault.index()) == 0);
        self.finish_private(fault, frame, step, Resolved::Mapped)
            .inspect(|step| {
                if matches!(step, FaultStep::Done(_)) {
                    fault.cpu.events.zero_fills.bump();
                }
            })
    }

    /// Maps a private page that nobody else knows, if the entry is as
    /// `expected` under the table's lock. `Ok(false)` if it is not.
    pub(in crate::space) fn install_private(
        &self,
        fault: &Fault<'_, P, F, R>,
        frame: Pfn,
        expected: impl FnOnce(&LockedTable<'_, F>) -> bool,
    ) -> Result<bool, OutOfMemory> {
        let env = self.env(fault.pin);
        let mut ctx = R::Ctx::default();
        let prepared = self.prepare_private(fault, &mut ctx);
        let table = match prepared.and_then(|()| fault.lock_table()) {
            Ok(found) => found,
            Err(error) => {
                self.rmap.finish(&env, ctx);
                return Err(error);
            }
        };
        let installs = table.level() == 1 && expected(&table);
        if installs {
            let index = fault.index();
            self.own_privately(self.memory.frame(frame), fault.space.handle(), fault.page);
            let run = Run::single(frame, table.pte(index), fault.page);
            self.rmap.add(&env, &mut ctx, &run, fault.place(), true);
            table.fill(
                index,
                F::leaf(frame, 1, fault.entered.region.prot(), Marks::DIRTY),
            );
            table.count_made(1);
            drop(table);
        } else {
            self.leave_table(fault.pin, fault.space, table);
        }
        self.rmap.finish(&env, ctx);
        Ok(installs)
    }

    /// Makes sure that reverse mapping can add a private page to the region.
    #[inline]
    pub(in crate::space) fn prepare_private(
        &self,
        fault: &Fault<'_, P, F, R>,
        ctx: &mut R::Ctx,
    ) -> Result<(), OutOfMemory> {
        self.prepare_privates(fault, ctx, 1)
    }

    /// The same for some of them.
    #[inline]
    pub(super) fn prepare_privates(
        &self,
        fault: &Fault<'_, P, F, R>,
        ctx: &mut R::Ctx,
        count: usize,
    ) -> Result<(), OutOfMemory> {
        let env = self.env(fault.pin);
        let region = fault.entered.region.region_ref();
        self.rmap.prepare(&env, ctx, fault.place(), count)?;
        self.rmap.prepare_private(&env, self, region)
    }

    /// What follows [`Vm::install_private`], whatever it said.
    pub(in crate::space) fn finish_private(
        &self,
        fault: &Fault<'_, P, F, R>,
        frame: Pfn,
        installed: Result<bool, OutOfMemory>,
        resolved: Resolved,
    ) -> Result<FaultStep, FaultError> {
        if let Ok(true) = installed {
            fault.entered.region.note_private();
            fault.count_resident(Resident::Anonymous, 1);
            self.note_inserted(fault.pin, frame, Inserted::Anonymous);
            return Ok(FaultStep::Done(resolved));
        }
        self.memory.put(fault.pin, frame);
        installed?;
        Ok(FaultStep::Again)
    }

    /// Makes a frame that nobody else knows a private page of `space`, mapped once.
    #[inline]
    pub(in crate::space) fn own_privately(&self, frame: &Frame, space: u32, page: Vpn) {
        frame.set_kind(Kind::Anonymous);
        frame.set_owner(space);
        frame.set_index(page.0, 0);
        frame.init_counts(1, 1);
    }

    /// First load from a private page without object: the shared zero page.
    pub(in crate::space) fn map_zero_page(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Result<FaultStep, FaultError> {
        let prot: Prot = fault.entered.region.prot().read_only();
        let leaf = F::leaf(self.zero_page, 1, prot, Marks::ACCESSED);
        let made = match fault.lowest.1 {
            1 => 0,
            _ => {
                let tables = fault.tables().by_turns();
                tables.link_leaf(fault.page, fault.lowest, leaf)?
            }
        };
        if made > 0 {
            fault.count_tables(made);
        } else {
            let Some(table) = fault.lock_empty()? else {
                return Ok(FaultStep::Again);
            };
            table.fill(fault.index(), leaf);
            table.count_made(1);
        }
        fault.count_resident(Resident::Zero, 1);
        fault.cpu.events.zero_maps.bump();
        Ok(FaultStep::Done(Resolved::Mapped))
    }
}
