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

use super::hooks::Asked;
use crate::addr::{Access, Vpn};
use crate::design::{FaultLock, Superpages};
use crate::frame::{Request, Site};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::locks::lookup::Lookup;
use crate::space::state::error::FaultError;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::SpaceId;
use crate::space::steps::fault::{Fault, FaultStep, ReadAround, Resolved};
use crate::sync::Unpinned;
use crate::table::{Format, Marks, Users};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::fault`](crate::space::Space::fault).
    #[inline(always)]
    pub(crate) fn fault(
        &self,
        space: SpaceId,
        address: u64,
        access: Access,
    ) -> Result<Resolved, FaultError> {
        self.fault_in(Unpinned::at_door(), space, address, access)
    }

    /// [`Vm::fault`] in a call that goes on.
    pub(super) fn fault_in(
        &self,
        mut unpinned: Unpinned<'_>,
        space: SpaceId,
        address: u64,
        access: Access,
    ) -> Result<Resolved, FaultError> {
        // No region holds a page behind the user's.
        let page = Vpn::of::<F>(address);
        match self.attempt_by_design(unpinned.reborrow(), space, page, access) {
            Ok(FaultStep::Done(resolved)) => Ok(resolved),
            first => self.fault_further(unpinned, space, page, access, first),
        }
    }

    /// What follows a first attempt that did not resolve the fault.
    #[inline(never)]
    fn fault_further(
        &self,
        unpinned: Unpinned<'_>,
        space: SpaceId,
        page: Vpn,
        access: Access,
        first: Result<FaultStep, FaultError>,
    ) -> Result<Resolved, FaultError> {
        let attempt =
            |unpinned: Unpinned<'_>| self.attempt_by_design(unpinned, space, page, access);
        self.attempt_until_done(unpinned, space, page, Some(first), &attempt)
    }

    /// Makes attempts, and what each asks for, until one resolves the fault. (What they attempt is
    /// of no interest here, so that this is compiled once.)
    pub(in crate::space) fn attempt_until_done(
        &self,
        unpinned: Unpinned<'_>,
        space: SpaceId,
        page: Vpn,
        mut first: Option<Result<FaultStep, FaultError>>,
        attempt: &dyn Fn(Unpinned<'_>) -> Result<FaultStep, FaultError>,
    ) -> Result<Resolved, FaultError> {
        self.with_room(unpinned, |mut unpinned| {
            let mut step = match first.take() {
                Some(first) => first?,
                None => attempt(unpinned.reborrow())?,
            };
            let mut tries = 0;
            loop {
                match step {
                    FaultStep::Done(resolved) => return Ok(resolved),
                    FaultStep::Again => self.give_way(unpinned.reborrow(), space, &mut tries),
                    FaultStep::Wait(frame) => self.wait_for_page(unpinned.reborrow(), frame),
                    FaultStep::Fill(lock) => self.fill_page(unpinned.reborrow(), lock)?,
                    FaultStep::FillAhead(lock) => self.fill_ahead(unpinned.reborrow(), lock)?,
                    FaultStep::FillSuperpage(head) => self
                        .page_cache()
                        .read_superpage(unpinned.reborrow(), head)?,
                    FaultStep::SwapIn(lock) => {
                        self.read_swapped(unpinned.reborrow(), lock, ReadAround::Allowed)?;
                    }
                    FaultStep::SwapInAlone(lock) => {
                        self.read_swapped(unpinned.reborrow(), lock, ReadAround::Refused)?;
                    }
                    FaultStep::Shift(object) => self.wait_for_shift(unpinned.reborrow(), object),
                    FaultStep::Grow => self.grow_stack(unpinned.reborrow(), space, page)?,
                    FaultStep::Hooked(kind, access) => {
                        self.hand_over(unpinned.reborrow(), space, (page, access), kind)?;
                    }
                }
                step = attempt(unpinned.reborrow())?;
            }
        })
    }

    /// One attempt, beside others in the space or alone.
    #[inline]
    fn attempt_by_design(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        page: Vpn,
        access: Access,
    ) -> Result<FaultStep, FaultError> {
        self.by_design(unpinned, id, |unpinned| {
            self.attempt(unpinned, id, page, access)
        })
    }

    /// Makes an attempt beside others in the space or alone.
    #[inline]
    pub(in crate::space) fn by_design(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        attempt: impl FnOnce(Unpinned<'_>) -> Result<FaultStep, FaultError>,
    ) -> Result<FaultStep, FaultError> {
        match self.design.fault_lock {
            FaultLock::None => attempt(unpinned),
            FaultLock::Space => self.alone(unpinned, id, attempt),
        }
    }

    #[cold]
    fn alone(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        attempt: impl FnOnce(Unpinned<'_>) -> Result<FaultStep, FaultError>,
    ) -> Result<FaultStep, FaultError> {
        // A space that ends meanwhile leaves the lock where it is (invariant 7), and the
        // attempt finds out.
        let space = self.slot_of(id).ok_or(FaultError::NoSpace)?;
        // Its holder may be preempted before it is pinned.
        let (lock, platform) = (&space.fault_lock, self.memory.platform());
        lock.lock(unpinned.reborrow(), &self.waits, &self.memory);
        let step = attempt(unpinned.reborrow());
        lock.unlock(&self.waits, platform, || self.pin_by(&unpinned));
        step
    }

    /// One attempt, from pin to unpin.
    #[inline(never)]
    fn attempt(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        page: Vpn,
        access: Access,
    ) -> Result<FaultStep, FaultError> {
        self.attempt_to(unpinned, id, page, access, Asked::Fault, |fault, entry| {
            self.resolve(fault, entry)
        })
    }

    /// The same, with what is asked once the region is entered, and what to do if nothing stands
    /// against the access.
    #[inline(always)]
    pub(in crate::space) fn attempt_to(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        page: Vpn,
        access: Access,
        asked: Asked,
        resolve: impl FnOnce(&Fault<'_, P, F, R>, u64) -> Result<FaultStep, FaultError>,
    ) -> Result<FaultStep, FaultError> {
        let (pin, expected) = self.pin_for_fault(unpinned, id.handle);
        let pin = &pin;
        let cpu = self.cpus.get(pin);
        let space = self.load_named(pin, cpu, id).ok_or(FaultError::NoSpace)?;
        let inside = match self.enter_region(pin, cpu, expected, space, page) {
            Lookup::Found(inside) => inside,
            Lookup::Busy => {
                cpu.events.fault_retries.bump();
                return Ok(FaultStep::Again);
            }
            Lookup::Nothing if self.is_below_stack(pin, space, page) => return Ok(FaultStep::Grow),
            Lookup::Nothing => return Err(FaultError::NoRegion),
        };
        let entered = inside.entered();
        if !P::PARTS.hooks {
            if asked.for_rights() && !entered.region.prot().allows(access) {
                return Err(FaultError::Protection);
            }
        } else if (!asked.for_rights() || !entered.region.is_open_to(access))
            && let Some(step) = self.stop(pin, (cpu, space), entered, (page, access), asked)
        {
            return step;
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
        let frame = fault.alloc_page(request)?;
        let step = self.install_private(fault, frame, |table| table.load(fault.index()) == 0);
        self.finish_private(fault, frame, step, Resolved::Mapped)
            .inspect(|step| {
                if matches!(step, FaultStep::Done(_)) {
                    fault.cpu.events.zero_fills.bump();
                }
            })
    }

    /// [`Vm::resolve_present`], after which the table may be one to promote.
    #[inline(never)]
    pub(in crate::space) fn resolve_in_run(
        &self,
        fault: &Fault<'_, P, F, R>,
        entry: u64,
    ) -> Result<FaultStep, FaultError> {
        let step = self.resolve_present(fault, entry)?;
        if let FaultStep::Done(Resolved::Mapped | Resolved::Upgraded | Resolved::Copied) = step {
            self.promote_if_full(fault);
        }
        Ok(step)
    }
}
