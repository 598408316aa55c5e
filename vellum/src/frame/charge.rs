//! Frames that groups are charged for ([`Groups`]).

use alloc::sync::Arc;
use core::fmt;

use super::group::Groups;
use super::memory::PhysicalMemory;
use super::request::{OutOfMemory, Request};
use crate::addr::Pfn;
use crate::platform::{GroupId, Machine};
use crate::sync::{Pin, Unpinned};

/// Why there is no frame for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPage {
    /// No frame could be had.
    OutOfMemory,
    /// The group that would be charged has as many pages as it may.
    GroupLimit(GroupId),
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
    /// Keeps account of groups from now on, of which there is only the root.
    pub(crate) fn keep_groups(&mut self) {
        let span = self.view().span();
        self.groups = Some(Arc::new(Groups::new(span, self.platform.cpus())));
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
    #[inline(always)]
    pub(crate) fn alloc_page(
        &self,
        pin: &Pin<'_>,
        request: Request,
        payer: GroupId,
    ) -> Result<Pfn, NoPage> {
        if P::PARTS.reclaim && payer != GroupId::ROOT {
            return self.alloc_charged(pin, request, payer);
        }
        Ok(self.alloc(pin, request)?)
    }

    #[inline(never)]
    fn alloc_charged(
        &self,
        pin: &Pin<'_>,
        request: Request,
        payer: GroupId,
    ) -> Result<Pfn, NoPage> {
        self.charged(pin, request.order, payer, || self.alloc(pin, request).ok())?
            .ok_or(NoPage::OutOfMemory)
    }

    /// The frame that `take` returns, which was set aside before, charged to `payer`.
    ///
    /// # Errors
    /// [`NoPage::GroupLimit`].
    #[inline]
    pub(crate) fn charge_page(
        &self,
        pin: &Pin<'_>,
        payer: GroupId,
        take: impl FnOnce() -> Option<Pfn>,
    ) -> Result<Option<Pfn>, NoPage> {
        match payer {
            GroupId::ROOT => Ok(take()),
            _ => self.charged(pin, 0, payer, take),
        }
    }

    /// [`PhysicalMemory::alloc_to_spare`], likewise.
    pub(crate) fn alloc_pages_to_spare(
        &self,
        pin: &Pin<'_>,
        request: Request,
        payer: GroupId,
    ) -> Option<Pfn> {
        let alloc = || self.alloc_to_spare(pin, request);
        match payer {
            GroupId::ROOT => alloc(),
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
        payer: GroupId,
        alloc: impl FnOnce() -> Option<Pfn>,
    ) -> Result<Option<Pfn>, NoPage> {
        let Some(groups) = self.groups() else {
            return Ok(alloc());
        };
        let pages = 1 << order;
        groups
            .charge(pin, payer, u64::from(pages))
            .map_err(NoPage::GroupLimit)?;
        let frame = alloc();
        match frame {
            Some(frame) => groups.set_group(frame, pages, payer),
            None => groups.refund(pin, payer, u64::from(pages)),
        }
        Ok(frame)
    }

    /// Nobody uses `1 << order` frames any more.
    #[inline]
    pub(super) fn uncharge(&self, pin: &Pin<'_>, frame: Pfn, order: u32) {
        if let Some(groups) = self.groups() {
            groups.uncharge(pin, frame, 1 << order);
        }
    }

    /// A new group; `None` if there are as many as can be.
    pub(crate) fn begin_group(&self, limit: u64) -> Option<GroupId> {
        self.groups()?
            .begin(limit, &|spins| self.platform.relax(spins))
    }

    /// Takes back what CPUs have in stock of a group.
    pub(crate) fn take_stocks(&self, unpinned: Unpinned<'_>, id: GroupId) -> bool {
        self.groups().is_some_and(|groups| {
            let relax = |spins| self.platform.relax(spins);
            let wait = |unpinned: Unpinned<'_>| self.wait_for_pins(unpinned);
            groups.take_stocks(unpinned, id, &relax, &wait)
        })
    }

    /// Gives a group another limit; false if there is no such group.
    pub(crate) fn set_group_limit(&self, unpinned: Unpinned<'_>, id: GroupId, limit: u64) -> bool {
        self.groups().is_some_and(|groups| {
            let relax = |spins| self.platform.relax(spins);
            let wait = |unpinned: Unpinned<'_>| self.wait_for_pins(unpinned);
            groups.set_limit(unpinned, (id, limit), &relax, &wait)
        })
    }

    /// Ends a group ([`Groups::end`]).
    pub(crate) fn end_group(
        &self,
        unpinned: Unpinned<'_>,
        id: GroupId,
        move_pages: impl FnOnce(Unpinned<'_>),
    ) -> Option<bool> {
        let relax = |spins| self.platform.relax(spins);
        let wait = |unpinned: Unpinned<'_>| self.wait_for_pins(unpinned);
        let move_all = |unpinned: Unpinned<'_>| {
            self.end_dirty_pages(id.place());
            move_pages(unpinned);
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
