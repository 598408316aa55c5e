//! Fault hooks (userfaultfd): faults that are handed to the embedder.
//!
//! A region has hooks by its traits. Then its `open` word allows nothing, and a fault, which asks
//! that word for the right to go on, comes here ([`Vm::stop`]); in regions without hooks the word says
//! what their rights say. So hooks cost nothing where there are none.
//!
//! Which page a hook catches, the entry tells: one that is empty, if the region catches what is
//! missing (of an object: if that has no page there, in memory or in swap), or catches pages that
//! are there (*minor*); and one with a mark ([`Format::is_watched`]), for stores. Marked are only
//! leaves of single pages and entries of pages in swap, and only in regions with
//! [`Traits::HOOK_STORES`] (invariant 18). Code that replaces such an entry carries the mark over, so
//! that it stays with the memory: into swap and back, and to another place of the space. A page of
//! an object that is watched is not unmapped by reclaim. What an unmapping, advice to drop or a cut
//! of the object takes away is gone with its mark, and a forked child has neither hooks nor marks.
//!
//! A task that waits is listed by its page ([`hook_key`]), and looks under the lock of the list
//! whether its page is still caught ([`Vm::is_still_caught`]). A call that supplies, unmaps,
//! moves or lets a page go wakes it afterwards.

use super::access::again;
use super::supply::Leaf;
use crate::addr::{Access, Vpn};
use crate::platform::{HookAnswer, HookKind, HookedFault, Platform};
use crate::rmap::ReverseMap;
use crate::space::locks::lookup::Entered;
use crate::space::state::error::FaultError;
use crate::space::state::hooks::hook_key;
use crate::space::state::manager::{Vm, VmCpu};
use crate::space::state::region::{Region, RegionView, Traits};
use crate::space::state::spaces::{Live, SpaceId};
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::sync::{Pin, Unpinned};
use crate::table::Format;

/// What an access has to ask for once its region is entered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::space) enum Asked {
    /// The region's rights, and its hooks: of a fault, which is over when it is resolved.
    Fault,
    /// The same of who does something with the page then.
    Access,
    /// Its hooks.
    Hooks,
    /// Nothing: what hooks catch is being supplied.
    Nothing,
}

impl Asked {
    /// Whether the region must have the right.
    #[inline]
    pub(super) fn for_rights(self) -> bool {
        matches!(self, Asked::Fault | Asked::Access)
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// What becomes of an access to whose region is not open: it has not the right, a hook catches
    /// it, or it was resolved here. Nothing if it goes on as any other. Stores where a hook watches
    /// for them are resolved here: an entry is either filled, or replaced by somebody who knows it to
    /// be as it was looked at, so that none gets past a mark.
    #[cold]
    #[inline(never)]
    pub(super) fn stop<'a>(
        &'a self,
        pin: &'a Pin<'a>,
        (cpu, space): (&'a VmCpu, Live<'a, R>),
        entered: Entered<'a, R>,
        (page, access): (Vpn, Access),
        asked: Asked,
    ) -> Option<Result<FaultStep, FaultError>> {
        let view = entered.region.view();
        if asked.for_rights() && !view.prot.allows(access) {
            return Some(Err(FaultError::Protection));
        }
        if !view.traits.has_any(Traits::HOOKS) || asked == Asked::Nothing {
            return None;
        }
        let (entry, lowest) = self.tables(pin, space).find_apart(page);
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
        match self.resolve_hooked(&fault, entry, &view) {
            Ok(None) => None,
            Ok(Some(step)) if asked == Asked::Fault => Some(Ok(step)),
            // The page is there, and what is to be done with it is still to be done.
            Ok(Some(FaultStep::Done(Resolved::Spurious))) => None,
            Ok(Some(step)) => Some(Ok(again(step))),
            Err(error) => Some(Err(error)),
        }
    }

    /// The step that leads to a hook, or that was taken. Nothing if the fault goes on as any other.
    fn resolve_hooked(
        &self,
        fault: &Fault<'_, P, F, R>,
        entry: u64,
        view: &RegionView,
    ) -> Result<Option<FaultStep>, FaultError> {
        let is_watched_for = fault.access == Access::Write && view.traits.has(Traits::HOOK_STORES);
        if entry == 0 {
            if let Some(kind) = self.caught_missing(fault.pin, view, fault.page) {
                return Ok(Some(FaultStep::Hooked(kind, fault.access)));
            }
            return match view.object {
                0 if is_watched_for => self.supply_zero(fault).map(again).map(Some),
                // Alone: pages around it may be caught.
                object
                    if object != 0 && (is_watched_for || view.traits.has(Traits::HOOK_MINOR)) =>
                {
                    self.map_single(fault, Leaf::ByAccess).map(Some)
                }
                _ => Ok(None),
            };
        }
        if !is_watched_for {
            return Ok(None);
        }
        Ok(Some(if !F::is_mapped(entry) {
            // It comes back first, watched or not.
            again(self.swap_in(fault, entry)?)
        } else if fault.lowest.1 > 1 {
            self.resolve_large(fault, entry)?
        } else if F::is_watched(entry) {
            FaultStep::Hooked(HookKind::Store, fault.access)
        } else {
            self.resolve_present(fault, entry)?
        }))
    }

    /// Which hook of the region catches an access to a page without an entry.
    pub(super) fn caught_missing(
        &self,
        pin: &Pin<'_>,
        view: &RegionView,
        page: Vpn,
    ) -> Option<HookKind> {
        let (hook, kind) = match self.has_page(pin, view, page)? {
            true => (Traits::HOOK_MINOR, HookKind::Minor),
            false => (Traits::HOOK_MISSING, HookKind::Missing),
        };
        view.traits.has(hook).then_some(kind)
    }

    /// Whether the region's object has the page, in memory or in swap. `None` if it ends before.
    pub(super) fn has_page(&self, pin: &Pin<'_>, view: &RegionView, page: Vpn) -> Option<bool> {
        if view.object == 0 {
            return Some(false);
        }
        let (object, index) = (self.objects.get(view.object), view.index_of(page));
        let is_within = index < object.pages();
        is_within.then(|| !self.objects.radix(pin, object).cell(index).is_empty())
    }

    /// Tells the platform of a fault that a hook has caught, and does as it says.
    ///
    /// # Errors
    /// [`FaultError::Hooked`] if the call fails.
    #[cold]
    pub(super) fn hand_over(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        (page, access): (Vpn, Access),
        kind: HookKind,
    ) -> Result<(), FaultError> {
        let failed = Err(FaultError::Hooked(kind));
        if !P::PARTS.hooks || self.pin_by(&unpinned).is_nested() {
            return failed;
        }
        let fault = HookedFault {
            space: id.to_bits(),
            address: page.address::<F>(),
            access,
            kind,
        };
        match self.memory.platform().fault_hook(&fault) {
            HookAnswer::Fail => failed,
            HookAnswer::Wait => {
                let key = hook_key(id.handle, page);
                let must_wait = &mut |pin: &Pin<'_>| self.is_still_caught(pin, id, page, kind);
                (self.waits).sleep_if(unpinned.reborrow(), key, &self.memory, must_wait);
                Ok(())
            }
        }
    }

    /// Whether a hook would catch such an access now. A no may be one because something is being
    /// changed.
    fn is_still_caught(&self, pin: &Pin<'_>, id: SpaceId, page: Vpn, kind: HookKind) -> bool {
        let Some(space) = self.find_space(id) else {
            return false;
        };
        let view = self.look(pin, space, page, |tree| {
            let view = tree.last_at_most(page.0).map(Region::view);
            view.filter(|view| view.range.contains(page))
        });
        let (Some(Some(view)), Some(tables)) = (view, self.tables_if_any(pin, space)) else {
            return false;
        };
        let (entry, (_, level)) = tables.find(page);
        match kind {
            HookKind::Store => {
                let is_watched = level == 1 && F::is_mapped(entry) && F::is_watched(entry);
                view.traits.has(Traits::HOOK_STORES) && is_watched
            }
            _ => entry == 0 && self.caught_missing(pin, &view, page) == Some(kind),
        }
    }
}
