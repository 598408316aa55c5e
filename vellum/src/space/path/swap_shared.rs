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
use crate::frame::{NoPage, Payer};
use crate::object::{Inserted, LOST_SLOT, PageLock};
use crate::platform::Platform;
use crate::space::state::common::Common;
use crate::swap::{FromSwap, InSwap, Swap};
use crate::sync::Pin;

/// How far a page is that has to come back.
pub(in crate::space) enum Loading {
    /// In its object, with a reference.
    Here(Pfn),
    /// Somebody else transfers it; a reference comes with it.
    Wait(Pfn),
    /// To be read by the caller ([`Vm::read_swapped`]); a reference comes with it.
    Read(PageLock),
    /// Somebody else was faster: look again.
    Again,
    /// The memory that held it has failed.
    Lost,
}

impl<P: Platform> Common<P> {
    /// The next step of bringing back the page at `index` of an object, which was in a slot.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn load_shared(
        &self,
        pin: &Pin<'_>,
        (handle, index): (u32, u64),
        short: u32,
        payer: Payer,
    ) -> Result<Loading, NoPage> {
        if short == LOST_SLOT {
            return Ok(Loading::Lost);
        }
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
            InSwap::Stored => {
                let payer = self.objects.get(handle).payer_for(payer);
                let begun = self.begin_swap_in(pin, swap, (slot, true), payer, || index)?;
                begun.map_or(Loading::Again, Loading::Read)
            }
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

    /// Gives up the slots of the pages of `range` of an object that are in swap.
    pub(in crate::space) fn drop_slots(&self, handle: u32, range: core::ops::Range<u64>) {
        let object = self.objects.get(handle);
        let mut slots = [0; crate::object::RUN_PAGES];
        loop {
            let pin = self.pin();
            let count =
                (self.objects).take_slots(&self.memory, &pin, object, range.clone(), &mut slots);
            if count == 0 {
                return;
            }
            let Some(swap) = self.swap() else {
                // They were lost.
                continue;
            };
            for &short in slots[..count].iter().filter(|&&short| short != LOST_SLOT) {
                swap.drop_entry(&self.memory, &pin, swap.long(u64::from(short)));
            }
        }
    }
}
