//! Pages of shared memory on their way to swap (`path/swap_shared.rs` has both ways).

use crate::addr::Pfn;
use crate::object::{PageLock, SLOTS_END};
use crate::platform::{Platform, SlotError};
use crate::reclaim::{Judgement, Rule, Taken, judge};
use crate::space::state::common::PageCache;
use crate::space::state::page::FoundPage;
use crate::swap::Swap;
use crate::sync::{HeldRange, Pin, Unpinned};

/// A page that is being written.
struct Leaving {
    lock: PageLock,
    slot: u64,
    held: HeldRange,
}

impl<P: Platform> PageCache<'_, P> {
    /// Has a page of shared memory go to swap, if nobody needs it. The caller has `others`
    /// references to it and no lock.
    pub(super) fn swap_out_shared(
        &self,
        mut unpinned: Unpinned<'_>,
        page: Pfn,
        others: u32,
        rule: Rule,
    ) -> Taken {
        let Some(swap) = self.swap() else {
            return Taken::Kept;
        };
        let (found, leaving) = {
            let pin = self.pin_by(&unpinned);
            let Some(found) = self.find_cached(&pin, page) else {
                return Taken::Gone;
            };
            match self.begin_shared_out(&pin, swap, &found, others, rule) {
                Ok(leaving) => (found, leaving),
                Err(taken) => {
                    self.memory.put(&pin, page);
                    return taken;
                }
            }
        };
        let written = self.write_to_swap(unpinned.reborrow(), swap, leaving.slot, page);
        self.end_shared_out(&self.pin_by(&unpinned), swap, &found, leaving, written)
    }

    /// Takes what the page needs that is to leave: its lock, its range, a slot; and unmaps it.
    fn begin_shared_out(
        &self,
        pin: &Pin<'_>,
        swap: &Swap,
        found: &FoundPage<'_>,
        others: u32,
        rule: Rule,
    ) -> Result<Leaving, Taken> {
        let lock = self.objects.locks.try_lock(&self.memory, found.page);
        let lock = lock.ok_or(Taken::Kept)?;
        match self.unmap_shared(pin, swap, found, &lock, others, rule) {
            Ok((slot, held)) => Ok(Leaving { lock, slot, held }),
            Err(taken) => {
                self.objects.locks.unlock(&self.memory, pin, lock);
                Err(taken)
            }
        }
    }

    /// [`Vm::begin_shared_out`] of a page that is locked.
    fn unmap_shared(
        &self,
        pin: &Pin<'_>,
        swap: &Swap,
        found: &FoundPage<'_>,
        lock: &PageLock,
        others: u32,
        rule: Rule,
    ) -> Result<(u64, HeldRange), Taken> {
        let &FoundPage {
            page,
            object,
            handle,
            index,
        } = found;
        let frame = self.memory.frame(page);
        if frame.owner() != handle {
            return Err(Taken::Gone);
        }
        if object.is_file() {
            return Err(Taken::Kept);
        }
        if frame.counts().pins() > 0 {
            return Err(Taken::Active);
        }
        if judge(self.mappings.take_marks(pin, page), false, rule) != Judgement::Leave {
            return Err(Taken::Active);
        }
        let range = index..index + 1;
        let Some(held) = object.writers.try_lock(&range, pin) else {
            return Err(Taken::Kept);
        };
        if let Some(slot) = swap.begin_store(&self.memory, pin, u64::from(SLOTS_END)) {
            self.mappings.unmap_page(pin, lock, true);
            // The cache's, ours, and those that the caller knows. Whoever else has one may
            // store to the page.
            if frame.counts().refs() == 2 + others {
                return Ok((slot, held));
            }
            swap.end_store(&self.memory, pin, slot, None);
        }
        let platform = self.memory.platform();
        object.writers.unlock(held, &self.waits, platform, pin);
        Err(Taken::Kept)
    }

    /// Ends what [`Vm::begin_shared_out`] began, and drops the reference that [`FoundPage`] has.
    fn end_shared_out(
        &self,
        pin: &Pin<'_>,
        swap: &Swap,
        found: &FoundPage<'_>,
        Leaving { lock, slot, held }: Leaving,
        written: Result<(), SlotError>,
    ) -> Taken {
        let &FoundPage {
            page,
            object,
            index,
            ..
        } = found;
        let short = swap.short(slot).unwrap_or(0) as u32;
        swap.end_store(&self.memory, pin, slot, Some(written));
        if written.is_ok() {
            // A read of several pages must not have this one as it was and another as it is
            // after somebody has brought this one back and written to both.
            object.cuts.count_one();
            let place = (object, index);
            if let Some(reclaim) = self.reclaim() {
                reclaim.swapped_out_of(found.handle, index, page);
            }
            (self.objects).move_to_slot(&self.memory, pin, place, page, short);
            self.note_removed(pin, page);
        }
        let platform = self.memory.platform();
        object.writers.unlock(held, &self.waits, platform, pin);
        self.objects.locks.unlock(&self.memory, pin, lock);
        self.memory.put(pin, page);
        let reclaim = self.reclaim();
        match written {
            Ok(()) => {
                // The cache's.
                self.memory.put(pin, page);
                if let Some(reclaim) = reclaim {
                    reclaim.counts.swapped.add(1);
                }
                Taken::Freed
            }
            Err(_) => {
                if let Some(reclaim) = reclaim {
                    reclaim.counts.refused.add(1);
                }
                Taken::Active
            }
        }
    }
}
