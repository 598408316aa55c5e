//! Stores to private pages that others may see: reuse or copy.

use crate::addr::Pfn;
use crate::design::Superpages;
use crate::frame::{Kind, Request, Site};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::state::account::Resident;
use crate::space::state::error::FaultError;
use crate::space::state::extras::TakenFrame;
use crate::space::state::manager::Vm;
use crate::space::steps::entry::Replaced;
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::table::{Format, LockedTable, Marks, Users};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// A store hit a write-protected `entry` of a private mapping.
    pub(in crate::space) fn break_cow(
        &self,
        fault: &Fault<'_, P, F, R>,
        entry: u64,
    ) -> Result<FaultStep, FaultError> {
        let old = F::frame(entry, 1);
        if self.is_exclusive(old) {
            return Ok(self.reuse_page(fault, old));
        }
        let from_zero = old == self.zero_page;
        let request = Request::page(Site::CopyOnWrite);
        let request = if from_zero { request.zeroed() } else { request };
        let taken = match from_zero && self.superpages() == Superpages::Reserve {
            true => self.take_zeroed(fault)?,
            false => TakenFrame::alone(fault.alloc_page(request)?),
        };
        let new = taken.frame;
        let env = self.env(fault.pin);
        let mut ctx = R::Ctx::default();
        if let Err(error) = self.prepare_private(fault, &mut ctx) {
            self.rmap.finish(&env, ctx);
            self.give_back(fault.pin, taken);
            return Err(error.into());
        }
        let table = self.lock_protected(fault, old);
        let copied = table.is_some();
        let was_cached = self.memory.frame(old).kind() == Kind::Object;
        if let Some(table) = table {
            if !from_zero {
                self.memory.copy(fault.pin, old, new);
            }
            let leaf = F::leaf(new, 1, fault.entered.region.prot(), Marks::DIRTY);
            let index = fault.index();
            let replaced = Replaced {
                index,
                old,
                new,
                leaf,
            };
            self.replace_page(fault.pin, fault.place(), &table, &replaced, &mut ctx);
        }
        self.rmap.finish(&env, ctx);
        if !copied {
            self.give_back(fault.pin, taken);
            return Ok(FaultStep::Again);
        }
        if !from_zero {
            self.memory.put(fault.pin, old);
        }
        let replaced = match (from_zero, was_cached) {
            (true, _) => Some(Resident::Zero),
            (_, true) => Some(self.cache_kind(fault.entered.region.object())),
            _ => None,
        };
        if let Some(kind) = replaced {
            fault.count_resident(kind, u64::MAX);
            fault.count_resident(Resident::Anonymous, 1);
        }
        fault.entered.region.note_private();
        let kind = match from_zero || was_cached {
            true => Inserted::Anonymous,
            false => Inserted::Copy { of: old },
        };
        self.note_inserted(fault.pin, new, kind);
        let events = &fault.cpu.events;
        if from_zero {
            events.zero_fills.bump();
            return Ok(FaultStep::Done(Resolved::Mapped));
        }
        events.cow_copies.bump();
        Ok(FaultStep::Done(Resolved::Copied))
    }

    /// The table of the page, locked, if its entry still maps `old`
    /// without the right to store.
    fn lock_protected<'a>(
        &self,
        fault: &Fault<'a, P, F, R>,
        old: Pfn,
    ) -> Option<LockedTable<'a, F>> {
        let table = fault.lock_found()?;
        let now = table.load(fault.index());
        let same = table.level() == 1
            && F::is_mapped(now)
            && F::frame(now, 1) == old
            && !F::is_writable(now);
        // Not `then_some`, which would move the table twice.
        if same { Some(table) } else { None }
    }

    /// The only mapping of a private page keeps it and may store.
    fn reuse_page(&self, fault: &Fault<'_, P, F, R>, page: Pfn) -> FaultStep {
        let Some(table) = self.lock_protected(fault, page) else {
            return FaultStep::Again;
        };
        debug_assert!(self.memory.frame(page).counts().maps() == 1);
        let index = fault.index();
        let prot = fault.entered.region.prot();
        table.update(index, Users::Hardware, |entry| {
            F::with_marks(F::with_prot(entry, 1, prot), Marks::DIRTY)
        });
        let env = self.env(fault.pin);
        let run = Run::single(page, table.pte(index), fault.page);
        let mut ctx = R::Ctx::default();
        self.rmap.turn(&env, &mut ctx, &run, fault.place());
        drop(table);
        self.rmap.finish(&env, ctx);
        fault.cpu.events.cow_reuses.bump();
        FaultStep::Done(Resolved::Upgraded)
    }
}
