//! Swap slots against the entries that name them, and the swap cache against its frames
//! (invariant 14).

use super::{AuditFailure, same, wrong};
use crate::addr::Vpn;
use crate::frame::PrivateFlags;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::{Traits, Vm};
use crate::swap::Tally;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Checks the entry of a page in swap.
    pub(super) fn audit_swapped(
        &self,
        entry: u64,
        (space, page): (u32, Vpn),
    ) -> Result<(), AuditFailure> {
        let Some(swap) = self.swap() else {
            return wrong(
                "an entry names a swap slot, and there are none, at page",
                page.0,
            );
        };
        match self.region_view_at(space, page) {
            None => return wrong("a page in swap is outside of any region", page.0),
            Some(view) if view.is_shared() => {
                return wrong("a page of a shared mapping is in swap, at page", page.0);
            }
            Some(_) => {}
        }
        let swapped = F::swapped(entry);
        let entries = swap.entries_of(&self.pin(), swapped.slot);
        if entries == 0 || swapped.exclusive && entries > 1 {
            return wrong("a swap slot does not count an entry, at page", page.0);
        }
        Ok(())
    }

    /// Checks that a guard, or a page that is lost, lies in a region that says that there may be some.
    pub(super) fn audit_guard(&self, (space, page): (u32, Vpn)) -> Result<(), AuditFailure> {
        match self.region_view_at(space, page) {
            Some(view) if view.traits.has(Traits::GUARDED) => Ok(()),
            _ => wrong("a guard is where no region has any, at page", page.0),
        }
    }

    /// Checks that each slot counts the entries that name it, which are in `found`, and that the
    /// swap cache has the frames that say so.
    pub(super) fn audit_swap(&self, found: Tally) -> Result<(), AuditFailure> {
        let mut cached = 0;
        let is_cached = |pfn| {
            let frame = self.memory.frame(pfn);
            frame
                .as_private()
                .is_some_and(|page| page.has(PrivateFlags::SWAP_CACHED))
        };
        self.for_each_frame(|pfn| cached += u64::from(is_cached(pfn)));
        let Some(swap) = self.swap() else {
            return same("frames in the swap cache", 0, 0, cached);
        };
        let census = swap.audit(&self.pin(), is_cached);
        let census = census.or_else(|(what, slot)| wrong(what, slot))?;
        same("frames in the swap cache", 0, census.cached, cached)?;
        same(
            "entries that swap slots count",
            0,
            census.tally.entries,
            found.entries,
        )?;
        match census.tally == found {
            true => Ok(()),
            false => wrong(
                "a swap slot counts another number of entries than name it",
                0,
            ),
        }
    }
}
