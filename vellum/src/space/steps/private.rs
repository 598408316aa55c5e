//! Private pages without a page of an object behind them, as they are mapped.

use super::fault::{Fault, FaultStep, Resolved};
use crate::addr::{Pfn, Prot, Vpn};
use crate::frame::{Frame, Kind, OutOfMemory};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::state::account::Resident;
use crate::space::state::error::FaultError;
use crate::space::state::manager::Vm;
use crate::table::{Format, LockedTable, Marks};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
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
    pub(in crate::space) fn prepare_privates(
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
