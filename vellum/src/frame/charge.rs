//! Frames that groups are charged for ([`Groups`]).

use alloc::sync::Arc;
use core::fmt;

use super::group::{GroupLimits, Groups};
use super::memory::PhysicalMemory;
use super::policy::Payer;
use super::request::{OutOfMemory, Request};
use crate::addr::Pfn;
use crate::platform::{GroupId, Machine};
use crate::sync::atomic::Ordering;
use crate::sync::limbo::{Chain, ChainLinks};
use crate::sync::{Pin, Unpinned};

/// Why there is no frame for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPage {
    /// No frame could be had.
    OutOfMemory,
    /// The group that would be charged has as many pages as it may.
    GroupLimit(GroupId),
    /// There are policies of nodes, and which of them it is for has to be looked up first. No call
    /// ends with this.
    Unplaced,
}

impl fmt::Display for NoPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPage::OutOfMemory => fmt::Display::fmt(&OutOfMemory, f),
            NoPage::GroupLimit(group) => {
                write!(
                    f,
                    "group {:#x} has as many pages as it may",
                    group.to_bits()
                )
            }
            NoPage::Unplaced => f.write_str("no policy of nodes was looked up"),
        }
    }
}

impl core::error::Error for NoPage {}

impl From<OutOfMemory> for NoPage {
    fn from(_: OutOfMemory) -> Self {
        NoPage::OutOfMemory
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Keeps account of groups from now on, of which there is only the root, and if it is said,
    /// charges them for page tables and records.
    pub(crate) fn keep_groups(&mut self, with_kernel: bool) {
        let span = self.view().span();
        let groups = Groups::new(span, self.platform.cpus(), with_kernel);
        self.groups = Some(Arc::new(groups));
    }

    /// The groups, if there can be any.
    #[inline]
    pub(crate) fn groups(&self) -> Option<&Arc<Groups>> {
        match P::PARTS.reclaim {
            true => self.groups.as_ref(),
            false => None,
        }
    }

    /// [`PhysicalMemory::alloc`] of frames for pages, which `payer` is charged for until they are
    /// freed.
    ///
    /// # Errors
    /// [`NoPage`].
    // The number of the page is looked up only if it matters.
    #[inline(always)]
    pub(crate) fn alloc_page(
        &self,
        pin: &Pin<'_>,
        request: Request,
        payer: Payer,
        index: impl FnOnce() -> u64,
    ) -> Result<Pfn, NoPage> {
        if (P::PARTS.reclaim || P::PARTS.nodes) && payer != Payer::NONE {
            return self.alloc_for_payer(pin, request, payer, index());
        }
        Ok(self.alloc(pin, request)?)
    }

    #[inline(never)]
    pub(crate) fn alloc_for_payer(
        &self,
        pin: &Pin<'_>,
        request: Request,
        payer: Payer,
        index: u64,
    ) -> Result<Pfn, NoPage> {
        if P::PARTS.nodes && payer.is_unplaced() {
            return Err(NoPage::Unplaced);
        }
        self.charged(pin, request.order, payer, || {
            let policy = payer.policy();
            let frame = match P::PARTS.nodes && !policy.is_none() {
                true => self.alloc_placed(pin, request, policy, index),
                false => self.alloc(pin, request),
            };
            frame.ok()
        })?
        .ok_or(NoPage::OutOfMemory)
    }

    /// The frame that `take` returns, which was set aside before, charged to `payer`: none if there
    /// is a policy, which nobody asked when it was.
    ///
    /// # Errors
    /// [`NoPage`].
    #[inline]
    pub(crate) fn charge_page(
        &self,
        pin: &Pin<'_>,
        payer: Payer,
        take: impl FnOnce() -> Option<Pfn>,
    ) -> Result<Option<Pfn>, NoPage> {
        match payer {
            Payer::NONE => Ok(take()),
            _ if P::PARTS.nodes && payer.is_unplaced() => Err(NoPage::Unplaced),
            _ if P::PARTS.nodes && !payer.policy().is_none() => Ok(None),
            _ => self.charged(pin, 0, payer, take),
        }
    }

    /// [`PhysicalMemory::alloc_to_spare`], likewise.
    pub(crate) fn alloc_pages_to_spare(
        &self,
        pin: &Pin<'_>,
        request: Request,
        payer: Payer,
    ) -> Option<Pfn> {
        let policy = payer.policy();
        let alloc = || match P::PARTS.nodes && !policy.is_none() {
            true => self.alloc_placed_to_spare(pin, request, policy),
            false => self.alloc_to_spare(pin, request),
        };
        match payer {
            Payer::NONE => self.alloc_to_spare(pin, request),
            _ if P::PARTS.nodes && payer.is_unplaced() => None,
            _ => self
                .charged(pin, request.order, payer, alloc)
                .ok()
                .flatten(),
        }
    }

    /// What `alloc` returns, charged to `payer`.
    #[inline]
    fn charged(
        &self,
        pin: &Pin<'_>,
        order: u32,
        payer: Payer,
        alloc: impl FnOnce() -> Option<Pfn>,
    ) -> Result<Option<Pfn>, NoPage> {
        let Some(groups) = self.groups().filter(|_| payer.place() != 0) else {
            return Ok(alloc());
        };
        let (group, pages) = (payer.group(), 1 << order);
        groups
            .charge(pin, group, u64::from(pages))
            .map_err(NoPage::GroupLimit)?;
        let frame = alloc();
        match frame {
            Some(frame) => groups.set_group(frame, pages, group),
            None => groups.refund(pin, group, u64::from(pages)),
        }
        Ok(frame)
    }

    /// The table that `take` returns, charged to the group that is charged for `root`, the root of
    /// the tables that it is for. If the group has as many pages as it may, the CPU keeps its name
    /// ([`PhysicalMemory::take_group_refusal`]).
    ///
    /// # Errors
    /// [`OutOfMemory`].
    #[inline]
    pub(crate) fn charge_table(
        &self,
        pin: &Pin<'_>,
        root: Pfn,
        take: impl FnOnce() -> Result<Pfn, OutOfMemory>,
    ) -> Result<Pfn, OutOfMemory> {
        match self.payer_of(root) {
            GroupId::ROOT => take(),
            payer => self.take_table_for(pin, payer, take),
        }
    }

    #[inline(never)]
    fn take_table_for(
        &self,
        pin: &Pin<'_>,
        payer: GroupId,
        take: impl FnOnce() -> Result<Pfn, OutOfMemory>,
    ) -> Result<Pfn, OutOfMemory> {
        let charged = self.charged(pin, 0, payer.into(), || take().ok());
        if let Err(NoPage::GroupLimit(group)) = charged {
            let refused_by = &self.cpus.get(pin).refused_by;
            refused_by.store(group.to_bits(), Ordering::Relaxed);
        }
        let table = charged.ok().flatten().ok_or(OutOfMemory)?;
        if let Some(groups) = self.groups() {
            groups.count_table(pin, payer.place(), 1);
        }
        Ok(table)
    }

    /// Charges the same group for a table that is needed to give memory back, whatever it may have.
    #[inline]
    pub(crate) fn charge_table_anyway(&self, pin: &Pin<'_>, root: Pfn, table: Pfn) {
        let payer = self.payer_of(root);
        if payer != GroupId::ROOT {
            self.charge_root(pin, table, payer);
        }
    }

    /// Nobody is charged any more for tables that are about to be given back.
    #[inline]
    pub(crate) fn uncharge_tables(&self, pin: &Pin<'_>, tables: Chain) {
        if let Some(groups) = self.groups()
            && groups.charge_kernel()
        {
            let mut next = tables.head;
            for _ in 0..tables.count() {
                groups.uncharge_table(pin, Pfn(next));
                next = ChainLinks::next(self, next);
            }
        }
    }

    /// The group that refused a call on this CPU a page table, if nobody has asked since and it
    /// would again.
    pub(crate) fn take_group_refusal(&self, pin: &Pin<'_>) -> Option<GroupId> {
        let groups = self.groups().filter(|groups| groups.charge_kernel())?;
        let refused_by = &self.cpus.get(pin).refused_by;
        let id = GroupId::from_bits(refused_by.swap(0, Ordering::Relaxed));
        groups.has_no_room(id).then_some(id)
    }

    /// The group that is charged for the root of a space's tables, and so for its other tables.
    #[inline]
    pub(crate) fn payer_of(&self, root: Pfn) -> GroupId {
        match self.groups() {
            Some(groups) if groups.charge_kernel() => groups.group_of(root),
            _ => GroupId::ROOT,
        }
    }

    /// Charges a group for the root of a space's tables instead of who was charged. The space
    /// belongs to both.
    pub(crate) fn charge_root(&self, pin: &Pin<'_>, root: Pfn, payer: GroupId) {
        if let Some(groups) = self.groups()
            && groups.charge_kernel()
        {
            groups.recharge(pin, root, payer);
        }
    }

    /// Nobody uses `1 << order` frames any more.
    #[inline]
    pub(super) fn uncharge(&self, pin: &Pin<'_>, frame: Pfn, order: u32) {
        if let Some(groups) = self.groups() {
            groups.uncharge(pin, frame, 1 << order);
        }
    }

    /// A new group within another; `None` if there are as many as can be, or no such other.
    pub(crate) fn begin_group(&self, within: GroupId, limit: u64) -> Option<GroupId> {
        self.groups()?
            .begin(within, limit, &|spins| self.platform.relax(spins))
    }

    /// Takes back what CPUs have in stock of a group and those within it.
    pub(crate) fn take_stocks(&self, unpinned: Unpinned<'_>, id: GroupId) -> bool {
        self.change_group_limits(unpinned, id, &|_| {})
    }

    /// Changes what a group may have; false if there is no such group.
    pub(crate) fn change_group_limits(
        &self,
        unpinned: Unpinned<'_>,
        id: GroupId,
        change: &dyn Fn(&mut GroupLimits),
    ) -> bool {
        self.groups().is_some_and(|groups| {
            let relax = |spins| self.platform.relax(spins);
            let wait = |unpinned: Unpinned<'_>| self.wait_for_pins(unpinned);
            groups.change(unpinned, id, &relax, &wait, change)
        })
    }

    /// Ends a group ([`Groups::end`]).
    pub(crate) fn end_group(
        &self,
        unpinned: Unpinned<'_>,
        id: GroupId,
        move_pages: impl FnOnce(Unpinned<'_>, usize),
    ) -> Option<bool> {
        let relax = |spins| self.platform.relax(spins);
        let wait = |unpinned: Unpinned<'_>| self.wait_for_pins(unpinned);
        let move_all = |unpinned: Unpinned<'_>, around: usize| {
            let pin = self.pin_by(&unpinned);
            self.end_dirty_pages(&pin, id.place(), around);
            if let Some(groups) = self.groups() {
                groups.end_tables(&pin, id.place(), around);
            }
            drop(pin);
            move_pages(unpinned, around);
        };
        self.groups()?.end(unpinned, id, &relax, &wait, move_all)
    }

    /// Checks the groups' charges while nothing else runs.
    ///
    /// # Errors
    /// The place of a group that is not charged for what there is of it.
    pub(crate) fn audit_groups(&self) -> Result<(), usize> {
        self.groups().map_or(Ok(()), |groups| groups.audit())
    }
}
