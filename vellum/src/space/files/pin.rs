//! Pinning: pages that must stay where they are mapped (direct I/O, DMA).

use core::cell::Cell;
use core::fmt;

use crate::addr::{Access, PageRange, Pfn, Vpn};
use crate::frame::{Kind, PageFlags, PrivateFlags};
use crate::platform::{HookKind, Platform};
use crate::rmap::ReverseMap;
use crate::space::path::access::again;
use crate::space::path::hooks::Asked;
use crate::space::state::error::{FaultError, MapError};
use crate::space::state::manager::Vm;
use crate::space::state::spaces::SpaceId;
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::sync::Unpinned;
use crate::table::Format;

/// Why a range could not be pinned. Nothing stays pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinError {
    /// The page could not be faulted in.
    Fault(FaultError),
    /// The page has as many pins as a frame can count.
    TooManyPins,
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PinError::Fault(error) => error.fmt(f),
            PinError::TooManyPins => f.write_str("the page is pinned too often"),
        }
    }
}

impl core::error::Error for PinError {}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::pin_pages`](crate::space::Space::pin_pages).
    pub(crate) fn pin_pages(
        &self,
        id: SpaceId,
        start: Vpn,
        access: Access,
        frames: &mut [Pfn],
    ) -> Result<(), PinError> {
        let mut unpinned = Unpinned::at_door();
        // Asked first: an address has no room for the high bits of a page number.
        let pages = frames.len() as u64;
        if pages > 0 && Self::checked_range(start, pages).is_err() {
            return Err(PinError::Fault(FaultError::NoRegion));
        }
        for step in 0..frames.len() {
            match self.pin_page(unpinned.reborrow(), id, start.offset(step as u64), access) {
                Ok(frame) => frames[step] = frame,
                Err(error) => {
                    // SAFETY: pinned by the steps before.
                    unsafe { self.unpin(&frames[..step]) };
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn pin_page(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        page: Vpn,
        access: Access,
    ) -> Result<Pfn, PinError> {
        let pinned = Cell::new(Err(PinError::TooManyPins));
        let attempt = |unpinned: Unpinned<'_>| {
            self.attempt_to(unpinned, id, page, access, Asked::Access, |fault, entry| {
                self.pin_found(fault, entry, &pinned)
            })
        };
        self.attempt_until_done(unpinned, id, page, None, &|unpinned| {
            self.by_design(unpinned, id, attempt)
        })
        .map_err(PinError::Fault)?;
        pinned.get()
    }

    /// Pins the page that `entry` maps, if the entry allows the access and, in a private mapping,
    /// nobody else can see the page (invariant 8). Otherwise takes the step that leads there.
    fn pin_found(
        &self,
        fault: &Fault<'_, P, F, R>,
        entry: u64,
        pinned: &Cell<Result<Pfn, PinError>>,
    ) -> Result<FaultStep, FaultError> {
        if fault.view().is_unmanaged() {
            return Err(FaultError::Unmanaged);
        }
        let level = fault.lowest.1;
        let is_private = !fault.view().is_shared();
        if entry == 0 && is_private && fault.view().object != 0 {
            return Ok(again(self.map_private_copy(fault)?));
        }
        if !F::is_mapped(entry) || !F::prot(entry, level).allows(fault.access) {
            if fault.is_watched_since(entry) {
                return Ok(FaultStep::Again);
            }
            return Ok(again(self.resolve(fault, entry)?));
        }
        if level > 1 && is_private {
            // Pins are of single pages, which have records of their own if they are an
            // object's.
            self.demote(fault.pin, fault.space, fault.entered.region, fault.page)?;
            return Ok(FaultStep::Again);
        }
        let Some((table, now, pfn)) = fault.lock_leaf() else {
            return Ok(FaultStep::Again);
        };
        if !F::prot(now, level).allows(fault.access) {
            return Ok(FaultStep::Again);
        }
        if is_private && !self.is_exclusive(pfn) {
            drop(table);
            if Self::is_watched(now) {
                // The copy would be one that a store makes.
                return Ok(FaultStep::Hooked(HookKind::Store, fault.access));
            }
            return Ok(again(self.break_cow(fault, now)?));
        }
        if fault.access == Access::Write && fault.space.is_tracked() {
            // Stores by a device set no mark, and the last may come shortly before the pin ends.
            table.mark_used(F::index(fault.page, level), true);
        }
        pinned.set(self.pin_frame(pfn, fault.access));
        Ok(FaultStep::Done(Resolved::Spurious))
    }

    /// Pins a frame whose entry's table is locked.
    fn pin_frame(&self, pfn: Pfn, access: Access) -> Result<Pfn, PinError> {
        let frame = self.memory.frame(pfn);
        if !frame.pin() {
            return Err(PinError::TooManyPins);
        }
        if access == Access::Write {
            // Stores by a device set no mark in any entry.
            if frame.kind() == Kind::Object {
                // Whether or not it is set: who clears it next sees the pin.
                frame.page().set(PageFlags::DIRTY);
            } else {
                frame.private().clear_if_set(PrivateFlags::LAZY_FREE);
            }
        }
        Ok(pfn)
    }

    /// Ends pins that [`Space::pin_pages`](crate::space::Space::pin_pages) made.
    ///
    /// # Safety
    /// `pin_pages` of this manager pinned each of the frames, and the pin has not ended
    /// since. Nobody uses the frames by virtue of it any more.
    pub(crate) unsafe fn unpin(&self, frames: &[Pfn]) {
        let pin = self.pin();
        for &pfn in frames {
            if self.memory.frame(pfn).unpin() {
                self.memory.free_unreferenced(&pin, pfn, 0);
            }
        }
    }

    /// [`Space::is_accessible`](crate::space::Space::is_accessible).
    pub(crate) fn is_accessible(
        &self,
        id: SpaceId,
        range: PageRange,
        access: Access,
    ) -> Result<bool, MapError> {
        let pin = self.pin();
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        if !range.is_empty() && range.end > F::USER_END {
            return Ok(false);
        }
        let tables = self.tables(&pin, space);
        Ok((range.start.0..range.end.0).all(|page| {
            let (entry, level) = tables.peek_settled(Vpn(page));
            F::is_mapped(entry) && F::prot(entry, level).allows(access)
        }))
    }
}
