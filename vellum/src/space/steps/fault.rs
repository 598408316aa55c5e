//! A fault on its way, and what it may have to do next.

use crate::addr::{Access, Pfn, Vpn};
use crate::frame::OutOfMemory;
use crate::object::PageLock;
use crate::platform::{HookKind, Platform};
use crate::rmap::{Place, ReverseMap};
use crate::space::locks::lookup::Entered;
use crate::space::state::account::Resident;
use crate::space::state::manager::{Vm, VmCpu};
use crate::space::state::region::RegionView;
use crate::space::state::spaces::Live;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::table::{Format, LockedTable, Tables};

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

/// Whether pages around one that is read from swap may be read with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::space) enum ReadAround {
    Allowed,
    Refused,
}

/// What to do next about a fault.
pub(in crate::space) enum FaultStep {
    /// It is resolved.
    Done(Resolved),
    /// Something changed meanwhile: start over.
    Again,
    /// Wait for the page lock; a reference to the page comes with it.
    Wait(Pfn),
    /// Fill the page from the backing store; a reference comes with it.
    Fill(PageLock),
    /// The same, and have pages after it read, too.
    FillAhead(PageLock),
    /// Fill the pages of a superpage, of which this is the first, from the backing store; all are
    /// locked for us, and a reference to each comes with it.
    FillSuperpage(Pfn),
    /// Read the page, which is in the swap cache, from its swap area, and perhaps pages around it;
    /// a reference comes with it.
    SwapIn(PageLock),
    /// The same, and no pages around it.
    SwapInAlone(PageLock),
    /// Extend the stack above the page.
    Grow,
    /// Wait until the pages of this object have changed places.
    Shift(u32),
    /// A hook catches it.
    Hooked(HookKind, Access),
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

    /// Whether a store has met an entry that a hook watches, and did not when hooks were asked.
    pub(in crate::space) fn is_watched_since(&self, entry: u64) -> bool {
        Vm::<P, F, R>::is_watched(entry) && self.access == Access::Write && self.lowest.1 == 1
    }

    /// Index of the page's entry in a level-1 table.
    #[inline]
    pub(in crate::space) fn index(&self) -> usize {
        F::index(self.page, 1)
    }

    /// The tables of the space.
    #[inline]
    pub(super) fn tables(&self) -> Tables<'a, P, F> {
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

    /// The table found on the way to the page, of whatever level, locked, if it is still linked
    /// and a leaf stands there for the page; with the leaf and the page's frame.
    pub(in crate::space) fn lock_leaf(&self) -> Option<(LockedTable<'a, F>, u64, Pfn)> {
        let (table, level) = self.lowest;
        let whole = self.vm.tables_lock(self.space);
        let table = LockedTable::<F>::lock(&self.vm.memory, self.pin, table, whole)?;
        let entry = table.load(F::index(self.page, level));
        let is_leaf = F::is_mapped(entry) && F::is_leaf(entry, level);
        is_leaf.then(|| (table, entry, self.frame_in(entry)))
    }

    /// The page's frame by an entry of the table found, which is a leaf.
    pub(in crate::space) fn frame_in(&self, entry: u64) -> Pfn {
        let level = self.lowest.1;
        let within = self.page.0 & (F::pages_at(level) - 1);
        F::frame(entry, level).offset(within as u32)
    }

    /// The table for the page, locked. A leaf that covers more than the page
    /// may stand in it; its level tells.
    #[inline]
    pub(in crate::space) fn lock_table(&self) -> Result<LockedTable<'a, F>, OutOfMemory> {
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
    pub(in crate::space) fn lock_empty(&self) -> Result<Option<LockedTable<'a, F>>, OutOfMemory> {
        let table = self.lock_table()?;
        let empty = table.level() == 1 && table.load(self.index()) == 0;
        // Not `then_some`, which would move the table twice.
        Ok(if empty { Some(table) } else { None })
    }
}
