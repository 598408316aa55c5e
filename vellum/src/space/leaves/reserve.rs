//! Reservations (`superpage=reserve`): runs of frames for ranges that are filled page by
//! page, as FreeBSD has them since 7.2 (after Navarro 2002).
//!
//! The first fault in a range of a superpage's size that lies in one private region and has
//! no table yet sets a run aside for the table that it makes. Later faults take the frames at
//! their places in the run. Each page is zeroed when it is taken. When the table is full, the
//! fault that filled it tries to put one large leaf in its place ([`super::promote`]).
//!
//! A table names its run in its record, and the run names the table
//! ([`crate::frame::reservation`](crate::frame)). Whoever clears entries of the table, or
//! unlinks it, ends the reservation; an allocation that would fail breaks it without asking,
//! and then the table's name for the run leads nowhere.

use crate::addr::{Access, PageRange, Pfn, Vpn};
use crate::design::Superpages;
use crate::frame::{MOST_RESERVED, NoPage, Owner, Request, Site};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::FaultError;
use crate::space::state::extras::LEVEL;
use crate::space::state::extras::TakenFrame;
use crate::space::state::manager::Vm;
use crate::space::state::region::Traits;
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::sync::Pin;
use crate::table::{Format, LockedTable};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Whether runs of frames may be set aside.
    #[inline]
    pub(in crate::space) fn has_reservations(&self) -> bool {
        self.superpages() == Superpages::Reserve
            && self.has_superpages()
            && Self::ORDER <= MOST_RESERVED
    }

    /// The range of a superpage's size around `page`.
    pub(super) fn range_around(page: Vpn) -> PageRange {
        let base = Vpn(page.0 & !(Self::SUPERPAGE - 1));
        PageRange::new(base, Self::SUPERPAGE)
    }

    /// Whether all of the range around the fault's page lies in its region, which is private
    /// and has no object.
    pub(super) fn may_be_superpage(&self, fault: &Fault<'_, P, F, R>) -> bool {
        let view = fault.view();
        let range = Self::range_around(fault.page);
        let is_wanted = match self.superpages() {
            Superpages::Advise => view.traits.has(Traits::HUGE),
            _ => !view.traits.has(Traits::NOT_HUGE),
        };
        is_wanted
            && view.object == 0
            && !view.is_shared()
            && view.range.start <= range.start
            && range.end <= view.range.end
    }

    /// Whether a run is or was set aside for the range around the fault's page. With frames
    /// from elsewhere its table will not be one to promote.
    #[inline]
    pub(in crate::space) fn has_run(&self, fault: &Fault<'_, P, F, R>) -> bool {
        let (table, level) = fault.lowest;
        level == 1 && self.memory.frame(table).table().reserved().is_some()
    }

    /// [`Vm::map_new_page`] with the frame that is set aside for the page, if it still is.
    #[inline(never)]
    pub(in crate::space) fn map_of_run(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Result<FaultStep, FaultError> {
        let taken = self.take_zeroed(fault)?;
        let step = self.map_taken(fault, taken)?;
        if let FaultStep::Done(_) = step {
            self.promote_if_full(fault);
        }
        Ok(step)
    }

    /// Maps the first page of a range that has no table and may be a superpage, and sets a run
    /// aside for the range. `None` if there is no memory for that.
    pub(super) fn map_first(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Option<Result<FaultStep, FaultError>> {
        if !self.has_reservations() {
            return None;
        }
        let Some(first) = self.memory.reserve_run(fault.pin) else {
            fault.cpu.events.superpage_failures.bump();
            return None;
        };
        let step = match fault.access {
            Access::Write => {
                let run = Some((first, Owner::Maker));
                let taken = self.take_zeroed_of(fault, run).map_err(FaultError::from);
                taken.and_then(|taken| self.map_taken(fault, taken))
            }
            _ => self.map_zero_page(fault),
        };
        let is_done = matches!(step, Ok(FaultStep::Done(_)));
        if is_done && self.name_run(fault, first) {
            fault.cpu.events.reservations.bump();
            return Some(step);
        }
        self.memory.end_run(fault.pin, first, Owner::Maker);
        match step {
            // What was lacking may have been in the run.
            Err(FaultError::OutOfMemory) => None,
            step => Some(step),
        }
    }

    /// Gives the run to the table of the fault's page, unless others have made entries of it
    /// meanwhile, whose frames are not of the run.
    fn name_run(&self, fault: &Fault<'_, P, F, R>, first: Pfn) -> bool {
        let tables = self.tables(fault.pin, fault.space);
        let Some(table) = tables.lock(fault.page) else {
            return false;
        };
        let record = self.memory.frame(table.table()).table();
        let is_new = table.level() == 1 && table.live() == 1 && record.reserved().is_none();
        if is_new {
            record.set_reserved(Some(first));
            let owner = Owner::Table(table.table());
            self.memory.grant_run(fault.pin, first, owner);
        }
        is_new
    }

    /// A zero frame for the fault's page: that of its run, or any.
    pub(in crate::space) fn take_zeroed(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Result<TakenFrame, NoPage> {
        let (table, level) = fault.lowest;
        let first = (level == 1)
            .then(|| self.memory.frame(table).table().reserved())
            .flatten();
        self.take_zeroed_of(fault, first.map(|first| (first, Owner::Table(table))))
    }

    fn take_zeroed_of(
        &self,
        fault: &Fault<'_, P, F, R>,
        run: Option<(Pfn, Owner)>,
    ) -> Result<TakenFrame, NoPage> {
        if let Some((first, owner)) = run {
            let index = (fault.page.0 & (Self::SUPERPAGE - 1)) as u32;
            let take = || self.memory.take_reserved(fault.pin, first, owner, index);
            let taken = fault.for_private(|payer| self.memory.charge_page(fault.pin, payer, take));
            if let Some(frame) = taken? {
                self.memory.zero(fault.pin, frame);
                return Ok(TakenFrame { frame, run });
            }
        }
        let request = Request::page(Site::AnonymousPage).zeroed();
        let frame = fault.alloc_page(request)?;
        Ok(TakenFrame::alone(frame))
    }

    /// Gives back a frame that was not used after all.
    pub(in crate::space) fn give_back(&self, pin: &Pin<'_>, taken: TakenFrame) {
        match taken.run {
            Some((first, owner)) => {
                (self.memory).give_back_reserved(pin, first, owner, taken.frame);
            }
            None => self.memory.put(pin, taken.frame),
        }
    }

    fn map_taken(
        &self,
        fault: &Fault<'_, P, F, R>,
        taken: TakenFrame,
    ) -> Result<FaultStep, FaultError> {
        let is_empty = |table: &LockedTable<'_, F>| table.load(fault.index()) == 0;
        match self.install_private(fault, taken.frame, is_empty) {
            Ok(true) => {
                fault.cpu.events.zero_fills.bump();
                self.finish_private(fault, taken.frame, Ok(true), Resolved::Mapped)
            }
            installed => {
                self.give_back(fault.pin, taken);
                installed?;
                Ok(FaultStep::Again)
            }
        }
    }

    /// Entries of a table, which is locked, were or will be cleared under this lock: its
    /// reservation ends.
    #[inline]
    pub(in crate::space) fn end_reservation(&self, pin: &Pin<'_>, table: &LockedTable<'_, F>) {
        if self.superpages() == Superpages::Reserve {
            self.end_reservation_of(pin, table);
        }
    }

    #[cold]
    fn end_reservation_of(&self, pin: &Pin<'_>, table: &LockedTable<'_, F>) {
        if table.level() < LEVEL {
            table.end_reservation(&self.memory, pin);
        }
    }
}
