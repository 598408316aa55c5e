//! Frames for pages of a space, by the policy of nodes that counts there: the region's, or that of
//! its object for the object's pages, or the space's.

use super::fault::Fault;
use crate::addr::{Pfn, Vpn};
use crate::frame::{NoPage, Payer, PolicyWord, Request};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::manager::Vm;
use crate::space::state::region::Region;
use crate::space::state::spaces::{Live, SpaceRecord};
use crate::sync::Pin;
use crate::table::Format;

/// The policy of a region's own pages.
fn policy_in<R: ReverseMap>(space: &SpaceRecord<R>, region: &Region<R>) -> PolicyWord {
    region.policy().or(space.policy())
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Who pays for a private page of a region, and by which policy it is placed.
    #[inline]
    pub(in crate::space) fn private_payer(
        &self,
        space: &SpaceRecord<R>,
        region: &Region<R>,
    ) -> Payer {
        let payer = space.payer();
        match P::PARTS.nodes && payer.is_unplaced() {
            true => payer.placed(policy_in(space, region)),
            false => payer,
        }
    }

    /// A frame for a private page of a region, whose gate the caller holds or has entered.
    ///
    /// # Errors
    /// [`NoPage`].
    #[inline]
    pub(in crate::space) fn alloc_private(
        &self,
        pin: &Pin<'_>,
        request: Request,
        (space, region, page): (Live<'_, R>, &Region<R>, Vpn),
    ) -> Result<Pfn, NoPage> {
        let payer = self.private_payer(space.get(), region);
        let index = || region.view().index_of(page);
        self.memory.alloc_page(pin, request, payer, index)
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Fault<'_, P, F, R> {
    /// A frame for the fault's page, which is private.
    ///
    /// # Errors
    /// [`NoPage`].
    #[inline(always)]
    pub(in crate::space) fn alloc_page(&self, request: Request) -> Result<Pfn, NoPage> {
        let payer = self.space.payer();
        if (P::PARTS.reclaim || P::PARTS.nodes) && payer != Payer::NONE {
            return self.alloc_for_payer(request);
        }
        Ok(self.vm.memory.alloc(self.pin, request)?)
    }

    #[inline(never)]
    fn alloc_for_payer(&self, request: Request) -> Result<Pfn, NoPage> {
        let (payer, index) = (self.private_payer(), self.index_of_page());
        (self.vm.memory).alloc_for_payer(self.pin, request, payer, index)
    }

    /// The number by which pages of several nodes take turns.
    pub(in crate::space) fn index_of_page(&self) -> u64 {
        self.view().index_of(self.page)
    }

    /// Does what allocates a private page, for who pays for it.
    #[inline]
    pub(in crate::space) fn for_private<T>(
        &self,
        alloc: impl FnMut(Payer) -> Result<T, NoPage>,
    ) -> Result<T, NoPage> {
        self.for_payer(alloc, Fault::private_payer)
    }

    /// Does what allocates a page of the region's object, for who pays for it.
    #[inline]
    pub(in crate::space) fn for_object<T, E: SaysUnplaced>(
        &self,
        alloc: impl FnMut(Payer) -> Result<T, E>,
    ) -> Result<T, E> {
        self.for_payer(alloc, Fault::object_payer)
    }

    #[inline]
    fn for_payer<T, E: SaysUnplaced>(
        &self,
        mut alloc: impl FnMut(Payer) -> Result<T, E>,
        look_up: impl Fn(&Self) -> Payer,
    ) -> Result<T, E> {
        let mut payer = self.space.payer();
        loop {
            match alloc(payer) {
                Err(error) if P::PARTS.nodes && error.is_unplaced() => payer = look_up(self),
                result => return result,
            }
        }
    }

    /// Who pays for the page, which is private, and by which policy it is placed.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn private_payer(&self) -> Payer {
        (self.vm).private_payer(self.space.get(), self.entered.region)
    }

    /// Whether a page of the region's object has another policy than the object's.
    pub(in crate::space) fn has_own_policy(&self) -> bool {
        if !P::PARTS.nodes || !self.space.payer().is_unplaced() {
            return false;
        }
        let object = self.vm.objects.get(self.entered.region.object());
        self.object_payer().policy() != object.policy()
    }

    /// The same of a page of the region's object.
    #[cold]
    #[inline(never)]
    fn object_payer(&self) -> Payer {
        let (payer, region) = (self.space.payer(), self.entered.region);
        let of_object = self.vm.objects.get(region.object()).policy();
        let policy = region.policy().or(of_object).or(self.space.policy());
        match payer.is_unplaced() {
            true => payer.placed(policy),
            false => payer,
        }
    }
}

/// An error that may say that a policy has to be looked up first.
pub(in crate::space) trait SaysUnplaced {
    fn is_unplaced(&self) -> bool;
}

impl SaysUnplaced for NoPage {
    #[inline]
    fn is_unplaced(&self) -> bool {
        *self == NoPage::Unplaced
    }
}

impl SaysUnplaced for crate::object::CacheError {
    #[inline]
    fn is_unplaced(&self) -> bool {
        *self == crate::object::CacheError::Unplaced
    }
}
