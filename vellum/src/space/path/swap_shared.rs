//! Pages of shared memory that go to swap and come back.
//!
//! The place of such a page in its object names its slot, and nothing else does: entries of
//! page tables are cleared, and a fault finds the page by its object. So a slot has one name
//! however many map the page, and fork, `munmap` and `mremap` have nothing to do.
//!
//! **Out**, a page is unmapped and flushed first, as one of a file that reclaim takes, and
//! written while it is still in its object: its page lock keeps mappings from it, its range
//! calls that write, and a reference that is not known keeps it in memory. Only what was
//! written leaves. **In**, it is read in the swap cache, as a private page is, and takes the
//! place of its slot in the object.

use crate::addr::Pfn;
use crate::frame::NoPage;
use crate::object::{Inserted, SLOTS_END};
use crate::platform::{GroupId, Platform, SlotError};
use crate::reclaim::{Judgement, Rule, Taken, judge};
use crate::rmap::ReverseMap;
use crate::space::state::manager::Vm;
use crate::space::state::page::FoundPage;
use crate::swap::{FromSwap, InSwap, Swap};
use crate::sync::{HeldRange, Pin};
use crate::table::Format;

/// How far a page is that has to come back.
pub(in crate::space) enum Loading {
    /// In its object, with a reference.
    Here(Pfn),
    /// Somebody else transfers it; a reference comes with it.
    Wait(Pfn),
    /// To be read by the caller ([`Vm::read_swapped`]); it is locked, and a reference comes
    /// with it.
    Read(Pfn),
    /// Somebody else was faster: look again.
    Again,
}

/// A page that is being written.
struct Leaving {
    slot: u64,
    held: HeldRange,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// The next step of bringing back the page at `index` of an object, which was in a slot.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn load_shared(
        &self,
        pin: &Pin<'_>,
        (handle, index): (u32, u64),
        short: u32,
        payer: GroupId,
    ) -> Result<Loading, NoPage> {
        let Some(swap) = self.swap() else {
            debug_assert!(false, "an object names a slot, and there are none");
            return Err(NoPage::OutOfMemory);
        };
        let slot = swap.long(u64::from(short));
        Ok(match swap.find(&self.memory, pin, slot) {
            InSwap::Nothing => {
                // Its page is on its way to where the slot was named.
                self.objects.wait_for_change(pin, self.objects.get(handle));
                Loading::Again
            }
            InSwap::Cached {
                page,
                is_busy: true,
            } => Loading::Wait(page),
            InSwap::Cached { page, .. } => {
                if self.take_shared(pin, swap, (handle, index), short, page) {
                    Loading::Here(page)
                } else {
                    self.memory.put(pin, page);
                    Loading::Again
                }
            }
            InSwap::Stored => match self.begin_swap_in(pin, swap, (slot, true), payer)? {
                Some(page) => Loading::Read(page),
                None => Loading::Again,
            },
        })
    }

    /// Puts a page of the swap cache into its object, if it still is the one there.
    fn take_shared(
        &self,
        pin: &Pin<'_>,
        swap: &Swap,
        (handle, index): (u32, u64),
        short: u32,
        page: Pfn,
    ) -> bool {
        let named = (swap.long(u64::from(short)), page);
        let place = (self.objects.get(handle), index);
        let moved = self.objects.move_to_frame(pin, place, short, page, || {
            // The slot may have been given up and taken by others before; but under the lock of
            // the tree that names it, it is this page's.
            if swap.take(&self.memory, pin, named, false) != FromSwap::Frame {
                return false;
            }
            let frame = self.memory.frame(page);
            frame.become_object();
            frame.set_index(index, 0);
            frame.set_owner(handle);
            true
        });
        if moved {
            self.note_inserted(pin, page, Inserted::Cache);
            self.events(pin).swap_ins.bump();
        }
        moved
    }

    /// Has a page of shared memory go to swap, if nobody needs it. The caller has `others`
    /// references to it, no pin, and no lock.
    pub(in crate::space) fn swap_out_shared(&self, page: Pfn, others: u32, rule: Rule) -> Taken {
        let Some(swap) = self.swap() else {
            return Taken::Kept;
        };
        let (found, leaving) = {
            let pin = self.pin();
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
        let written = match swap.place(leaving.slot) {
            Some((store, index)) => self.memory.platform().write_slot(store, index, page),
            None => Err(SlotError::Io),
        };
        self.end_shared_out(swap, &found, leaving, written)
    }

    /// Takes what the page needs that is to leave: its lock, its range, a slot; and unmaps it.
    fn begin_shared_out(
        &self,
        pin: &Pin<'_>,
        swap: &Swap,
        found: &FoundPage<'_, R::Object>,
        others: u32,
        rule: Rule,
    ) -> Result<Leaving, Taken> {
        if !self.objects.locks.try_lock(&self.memory, found.page) {
            return Err(Taken::Kept);
        }
        self.unmap_shared(pin, swap, found, others, rule)
            .inspect_err(|_| self.objects.locks.unlock(&self.memory, pin, found.page))
    }

    /// [`Vm::begin_shared_out`] of a page whose lock is ours.
    fn unmap_shared(
        &self,
        pin: &Pin<'_>,
        swap: &Swap,
        found: &FoundPage<'_, R::Object>,
        others: u32,
        rule: Rule,
    ) -> Result<Leaving, Taken> {
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
        if judge(self.take_marks(pin, page), false, rule) != Judgement::Leave {
            return Err(Taken::Active);
        }
        let range = index..index + 1;
        let Some(held) = object.writers.try_lock(&range, pin) else {
            return Err(Taken::Kept);
        };
        if let Some(slot) = swap.begin_store(&self.memory, pin, u64::from(SLOTS_END)) {
            self.unmap_page(pin, page, true);
            // The cache's, ours, and those that the caller knows. Whoever else has one may
            // store to the page.
            if frame.counts().refs() == 2 + others {
                return Ok(Leaving { slot, held });
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
        swap: &Swap,
        found: &FoundPage<'_, R::Object>,
        Leaving { slot, held }: Leaving,
        written: Result<(), SlotError>,
    ) -> Taken {
        let &FoundPage {
            page,
            object,
            index,
            ..
        } = found;
        let pin = self.pin();
        let short = swap.short(slot).unwrap_or(0) as u32;
        swap.end_store(&self.memory, &pin, slot, Some(written));
        if written.is_ok() {
            // A read of several pages must not have this one as it was and another as it is
            // after somebody has brought this one back and written to both.
            object.cuts.count_one();
            let place = (object, index);
            if let Some(reclaim) = self.reclaim() {
                reclaim.swapped_out_of(found.handle, index, page);
            }
            (self.objects).move_to_slot(&self.memory, &pin, place, page, short);
            self.note_removed(&pin, page);
        }
        let platform = self.memory.platform();
        object.writers.unlock(held, &self.waits, platform, &pin);
        self.objects.locks.unlock(&self.memory, &pin, page);
        self.memory.put(&pin, page);
        let reclaim = self.reclaim();
        match written {
            Ok(()) => {
                // The cache's.
                self.memory.put(&pin, page);
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

    /// Gives up the slots of the pages of `range` of an object that are in swap.
    pub(in crate::space) fn drop_slots(&self, handle: u32, range: core::ops::Range<u64>) {
        let Some(swap) = self.swap() else {
            return;
        };
        let object = self.objects.get(handle);
        let mut slots = [0; crate::object::RUN_PAGES];
        loop {
            let pin = self.pin();
            let count = (self.objects).take_slots(&pin, object, range.clone(), &mut slots);
            if count == 0 {
                return;
            }
            for &short in &slots[..count] {
                swap.drop_entry(&self.memory, &pin, swap.long(u64::from(short)));
            }
        }
    }
}
