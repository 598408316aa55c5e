//! Pinning: pages that must stay where they are mapped (direct I/O, DMA).

use core::fmt;

use super::error::{FaultError, MapError};
use super::manager::Vm;
use super::spaces::SpaceId;
use crate::addr::{Access, PageRange, Pfn, Vpn};
use crate::frame::{Flags, Kind};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
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
    /// Faults in the pages from `start` on, as many as `frames` has room for,
    /// and pins their frames, which are written to `frames`. With
    /// [`Access::Write`] the space has them to itself or shares them on
    /// purpose. A pinned frame stays allocated until [`Vm::unpin`], whatever
    /// happens to its mapping; fork gives the child a copy of a pinned page.
    ///
    /// # Errors
    /// [`PinError`]; nothing stays pinned. Pages that were faulted in before the
    /// failing one stay mapped. [`FaultError::NoRegion`] if a page is none that a
    /// user space can map.
    pub fn pin_pages(
        &self,
        id: SpaceId,
        start: Vpn,
        access: Access,
        frames: &mut [Pfn],
    ) -> Result<(), PinError> {
        // Asked first: an address has no room for the high bits of a page number.
        let pages = frames.len() as u64;
        if pages > 0 && Self::checked_range(start, pages).is_err() {
            return Err(PinError::Fault(FaultError::NoRegion));
        }
        for step in 0..frames.len() {
            match self.pin_page(id, start.offset(step as u64), access) {
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

    fn pin_page(&self, id: SpaceId, page: Vpn, access: Access) -> Result<Pfn, PinError> {
        let mut spins = 0;
        loop {
            // The shared zero page belongs to nobody; a private one is pinned
            // in its place.
            let wanted = if access == Access::Write || spins > 0 {
                Access::Write
            } else {
                access
            };
            match self.fault(id, page.address::<F>(), wanted) {
                Err(FaultError::Protection) if wanted != access => {
                    self.fault(id, page.address::<F>(), access)
                }
                other => other,
            }
            .map_err(PinError::Fault)?;
            let pin = self.pin();
            let space = self
                .find_space(id)
                .ok_or(PinError::Fault(FaultError::NoSpace))?;
            let Some(table) = self.tables(&pin, space).lock(page) else {
                continue;
            };
            let level = table.level();
            let entry = table.load(F::index(page, level));
            let is_private = || self.memory.frame(F::frame(entry, level)).kind() != Kind::Object;
            if level > 1 && is_private() {
                // Pins are of single pages, which have records of their own if they are an
                // object's.
                drop(table);
                drop(pin);
                self.demote_page(id, page).map_err(PinError::Fault)?;
                continue;
            }
            if F::is_mapped(entry) && F::prot(entry, level).allows(access) {
                let within = page.0 & (F::pages_at(level) - 1);
                let pfn = F::frame(entry, level).offset(within as u32);
                let read_only_zero = pfn == self.zero_page && spins > 1;
                if pfn != self.zero_page || read_only_zero {
                    let frame = self.memory.frame(pfn);
                    if !frame.pin() {
                        return Err(PinError::TooManyPins);
                    }
                    if access == Access::Write {
                        // Stores by a device set no mark in any entry.
                        if frame.kind() == Kind::Object {
                            frame.set_if_clear(Flags::DIRTY);
                        } else if frame.has(Flags::LAZY_FREE) {
                            frame.clear(Flags::LAZY_FREE);
                        }
                    }
                    return Ok(pfn);
                }
            }
            drop(table);
            pin.relax(spins);
            spins += 1;
        }
    }

    /// Demotes the superpage that shows `page`.
    #[cold]
    fn demote_page(&self, id: SpaceId, page: Vpn) -> Result<(), FaultError> {
        let demoted = self.with_locked(id, |pin, space| {
            let region = self.region_from(space, page);
            match region.is_none() {
                true => Ok(()),
                false => Ok(self.demote(pin, space, self.region(region), page)?),
            }
        });
        demoted.map_err(|error| match error {
            MapError::OutOfMemory => FaultError::OutOfMemory,
            MapError::GroupLimit(group) => FaultError::GroupLimit(group),
            _ => FaultError::NoSpace,
        })
    }

    /// Ends pins that [`Vm::pin_pages`] made.
    ///
    /// # Safety
    /// [`Vm::pin_pages`] of this manager pinned each of the frames, and the pin has not
    /// ended since. Nobody uses the frames by virtue of it any more.
    pub unsafe fn unpin(&self, frames: &[Pfn]) {
        let pin = self.pin();
        for &pfn in frames {
            if self.memory.frame(pfn).unpin() {
                self.memory.free_unreferenced(&pin, pfn, 0);
            }
        }
    }

    /// Whether every page of `range` is mapped with the right to `access`:
    /// what a prober of user memory asks before it copies. No page is missing in
    /// an empty range; none beyond what a user space can map is accessible.
    pub fn is_accessible(&self, id: SpaceId, range: PageRange, access: Access) -> bool {
        let pin = self.pin();
        let Some(space) = self.find_space(id) else {
            return false;
        };
        if !range.is_empty() && range.end > F::USER_END {
            return false;
        }
        let tables = self.tables(&pin, space);
        (range.start.0..range.end.0).all(|page| {
            let (entry, level) = tables.peek_settled(Vpn(page));
            F::is_mapped(entry) && F::prot(entry, level).allows(access)
        })
    }
}
