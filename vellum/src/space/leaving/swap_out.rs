//! Pages that go to swap.
//!
//! Reverse mapping finds the entries of the page, and each is replaced by one that names the
//! slot, under the lock of its table. There it shows, too, whether somebody has pinned the
//! page, since pinning takes that lock. When the CPUs have been flushed nobody can store to
//! the page any more, and it is written, by a caller without a pin. Until then, faults on
//! the new entries wait for the page lock.

use alloc::vec::Vec;

use crate::addr::{PageRange, Pfn};
use crate::frame::{Kind, PrivateFlags};
use crate::object::PageLock;
use crate::platform::{Platform, SlotError};
use crate::reclaim::Rule;
use crate::rmap::ReverseMap;
use crate::space::state::common::PageCache;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::SpaceId;
use crate::swap::{Swap, SwapArea, SwapAreaStats, SwapOnError, SwapOutError, SwapStats};
use crate::sync::Unpinned;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Lets private pages be written to an area from now on. What the area holds is
    /// overwritten. Beside [`Vm::new`], the only call that uses the global allocator: for
    /// 8 bytes and some bits a slot.
    ///
    /// # Errors
    /// [`SwapOnError`]; nothing changed.
    pub fn swap_on(&self, area: SwapArea) -> Result<(), SwapOnError> {
        let swap = self.swap.as_deref().ok_or(SwapOnError::LeftOut)?;
        swap.add_area(area)?;
        self.recount_swap(swap);
        Ok(())
    }

    /// What may be promised follows what there is of swap.
    pub(super) fn recount_swap(&self, swap: &Swap) {
        if let Some(commit) = self.memory.commit() {
            commit.set_swap(swap.slots_in_use());
        }
    }

    /// Counts of pages written and read, and sizes. All 0 without areas.
    pub fn swap_stats(&self) -> SwapStats {
        self.swap()
            .map_or_else(SwapStats::default, |swap| swap.stats())
    }

    /// The swap areas, in the order in which they are filled. Uses the global allocator.
    pub fn swap_areas(&self) -> Vec<SwapAreaStats> {
        self.swap().map_or_else(Vec::new, |swap| swap.area_stats())
    }

    /// Writes the pages of a range to swap that are private or of shared memory, as far as that
    /// goes: pages that are in use stay, and so do all when there is no slot, and pages of
    /// superpages.
    pub(super) fn page_out(&self, unpinned: Unpinned<'_>, id: SpaceId, range: PageRange) {
        self.each_mapped(unpinned, id, range, |unpinned, page| {
            match self.memory.frame(page).kind() {
                Kind::Object => {
                    let _ = self
                        .page_cache()
                        .swap_out_shared(unpinned, page, 1, Rule::Forced);
                }
                _ => {
                    let _ = self.page_cache().swap_out_page(unpinned, page);
                }
            }
        });
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// Unmaps a private page everywhere and writes it to swap. The caller has one reference to
    /// the frame and no lock. After `Ok`, that reference is the last, and the slot with
    /// this number has the page.
    ///
    /// # Errors
    /// [`SwapOutError`].
    pub(crate) fn swap_out_page(
        &self,
        mut unpinned: Unpinned<'_>,
        page: Pfn,
    ) -> Result<u64, SwapOutError> {
        let swap = self.swap().ok_or(SwapOutError::NoSlot)?;
        let (slot, lock) = self.unmap_to_swap(swap, page)?;
        let written = self.write_to_swap(unpinned.reborrow(), swap, slot, page);
        let pin = self.pin_by(&unpinned);
        swap.end_out(&self.memory, &pin, slot, Some(written));
        let is_mapped = self.memory.frame(page).counts().maps() > 0;
        self.objects.locks.unlock(&self.memory, &pin, lock);
        match written {
            Err(_) => Err(SwapOutError::Io),
            Ok(()) if is_mapped => Err(SwapOutError::InUse),
            Ok(()) => Ok(slot),
        }
    }

    /// Writes a page to a slot.
    pub(super) fn write_to_swap(
        &self,
        unpinned: Unpinned<'_>,
        swap: &Swap,
        slot: u64,
        page: Pfn,
    ) -> Result<(), SlotError> {
        swap.write(self.memory.unpinned_platform(unpinned)?, slot, page)
    }

    /// Locks a page and replaces its entries. Returns the slot that they name, which is busy.
    fn unmap_to_swap(&self, swap: &Swap, page: Pfn) -> Result<(u64, PageLock), SwapOutError> {
        let pin = self.pin();
        let frame = self.memory.frame(page);
        let is_single = frame.kind() == Kind::Anonymous && frame.order() == 0;
        if !is_single {
            return Err(SwapOutError::InUse);
        }
        let lock = self.objects.locks.try_lock(&self.memory, page);
        let lock = lock.ok_or(SwapOutError::InUse)?;
        let counts = frame.counts();
        let is_free = counts.maps() > 0 && counts.pins() == 0 && counts.refs() == counts.maps() + 1;
        let slot = match is_free {
            true => swap
                .begin_out(&self.memory, &pin, page)
                .ok_or(SwapOutError::NoSlot),
            false => Err(SwapOutError::InUse),
        };
        // It comes back by an entry that has nothing to do with this one.
        frame.private().clear(PrivateFlags::LAZY_FREE);
        let replaced = slot.and_then(|slot| match self.mappings.swap_entries(&pin, page, slot) {
            0 => {
                swap.end_out(&self.memory, &pin, slot, None);
                Err(SwapOutError::InUse)
            }
            _ => Ok(slot),
        });
        match replaced {
            Ok(slot) => {
                if frame.counts().maps() == 0 {
                    self.note_removed(&pin, page);
                }
                Ok((slot, lock))
            }
            Err(error) => {
                self.objects.locks.unlock(&self.memory, &pin, lock);
                Err(error)
            }
        }
    }
}
