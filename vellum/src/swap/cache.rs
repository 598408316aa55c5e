//! The swap cache: every way in and out of a slot. The head of the module says how they
//! follow one another.

use super::cluster::SwapSlot;
use super::{Swap, bump};
use crate::addr::Pfn;
use crate::frame::{PhysicalMemory, PrivateFlags};
use crate::platform::{Platform, SlotError};
use crate::sync::Pin;

/// Most slots whose pages are read together.
pub(crate) const GROUP: usize = 8;

/// Where a slot's page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InSwap {
    /// No entry names the slot any more.
    Nothing,
    /// In the cache, with a reference for the caller. If the slot is busy, the page lock is
    /// held until it is not.
    Cached { page: Pfn, is_busy: bool },
    /// In the area only.
    Stored,
}

/// What an entry gets of a page in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FromSwap {
    /// The frame, which has left the cache, and its reference to it.
    Frame,
    /// What the frame holds; the frame stays with others.
    Copy,
    /// Nothing yet: somebody else was faster.
    Nothing,
    /// Nothing yet: a copy is needed, for which the caller has no frame.
    NeedsCopy,
}

impl Swap {
    /// Takes a slot for a private page whose page lock and a reference to which the caller
    /// has, and puts the page into the cache, busy. `None` if there is no free slot.
    pub(crate) fn begin_out<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        page: Pfn,
    ) -> Option<u64> {
        let (area, offset) = self.take_slot(memory, pin)?;
        Self::enter(memory, page);
        Some(self.begin(pin, (area, offset), SwapSlot::taken_for(page)))
    }

    /// Takes a slot for a page that stays in its object until it is written. `None` if there
    /// is none whose number counted on over all areas ([`Swap::short`]) is below `end`.
    pub(crate) fn begin_store<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        end: u64,
    ) -> Option<u64> {
        let (area, offset) = self.take_slot(memory, pin)?;
        if self.area(area).base() + offset >= end {
            self.area(area).give(pin, offset, false);
            return None;
        }
        Some(self.begin(pin, (area, offset), SwapSlot::taken()))
    }

    /// Ends what [`Swap::begin_store`] began: the page was stored, and one name for the slot
    /// is counted; or it could not be, or was not (`None`).
    pub(crate) fn end_store<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        slot: u64,
        stored: Option<Result<(), SlotError>>,
    ) {
        self.count_out(stored);
        self.with_slot(memory, pin, slot, |state| {
            state.end();
            match stored {
                Some(Ok(())) => {
                    state.set_stored();
                    state.add();
                }
                Some(Err(SlotError::Io)) => state.set_bad(),
                Some(Err(SlotError::NoRoom)) | None => {}
            }
            None
        });
    }

    /// A free slot of the first area that has one, and room for a page.
    fn take_slot<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
    ) -> Option<(usize, u64)> {
        self.by_priority().find_map(|(number, area)| {
            let has_room = memory.platform().has_swap_room(area.store());
            let slot = if has_room { area.take(pin) } else { None };
            Some((number, slot?))
        })
    }

    /// Begins the life of a slot that was free. Returns its number.
    fn begin(&self, pin: &Pin<'_>, (area, offset): (usize, u64), slot: SwapSlot) -> u64 {
        let (cluster, index) = self.area(area).cluster(offset);
        let mut slots = cluster.lock(pin);
        debug_assert!(slots[index].is_unused(), "a slot taken twice");
        slots[index] = slot;
        Self::number(area, offset)
    }

    fn count_out(&self, stored: Option<Result<(), SlotError>>) {
        match stored {
            Some(Ok(())) => bump(&self.events.outs),
            Some(Err(SlotError::Io)) => bump(&self.events.write_errors),
            Some(Err(SlotError::NoRoom)) => bump(&self.events.no_room),
            None => {}
        }
    }

    /// Ends what [`Swap::begin_out`] began: the page was stored, or was not, or no entry was
    /// made (`None`). Called before the page lock is released.
    pub(crate) fn end_out<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        slot: u64,
        stored: Option<Result<(), SlotError>>,
    ) {
        self.count_out(stored);
        self.with_slot(memory, pin, slot, |state| {
            state.end();
            match stored {
                Some(Ok(())) => state.set_stored(),
                Some(Err(SlotError::Io)) => state.set_bad(),
                // The entries that name it keep it until they want the page.
                Some(Err(SlotError::NoRoom)) => {}
                None => debug_assert!(state.count() == 0),
            }
            (stored == Some(Ok(())))
                .then(|| state.take_frame())
                .flatten()
        });
    }

    /// Counts one more entry that names a slot. The caller has the slot busy, or the lock of
    /// a table with an entry that names it. `false` if there are too many.
    pub(crate) fn add_entry(&self, pin: &Pin<'_>, slot: u64) -> bool {
        let Some((area, offset)) = self.area_of(slot) else {
            return false;
        };
        let (cluster, index) = area.cluster(offset);
        cluster.lock(pin)[index].add()
    }

    /// An entry that named a slot was cleared, under the lock of its table.
    pub(crate) fn drop_entry<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        slot: u64,
    ) {
        self.with_slot(memory, pin, slot, |state| {
            state.sub();
            None
        });
    }

    /// Looks for the page of a slot that an entry names or named.
    pub(crate) fn find<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        slot: u64,
    ) -> InSwap {
        let Some((area, offset)) = self.area_of(slot) else {
            return InSwap::Nothing;
        };
        let (cluster, index) = area.cluster(offset);
        let slots = cluster.lock(pin);
        let state = &slots[index];
        match state.frame() {
            Some(page) => {
                // The cache has a reference while the cluster is locked.
                memory.frame(page).get();
                InSwap::Cached {
                    page,
                    is_busy: state.is_busy(),
                }
            }
            None if state.count() > 0 => InSwap::Stored,
            None => InSwap::Nothing,
        }
    }

    /// Puts `page`, a locked private page that nobody knows, into the cache to be filled by
    /// the caller, who wants it, or only a neighbour. `false` if the slot's page is not in the
    /// area only, any more.
    pub(crate) fn begin_in<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (slot, page): (u64, Pfn),
        is_wanted: bool,
    ) -> bool {
        let Some((area, offset)) = self.area_of(slot) else {
            return false;
        };
        let (cluster, index) = area.cluster(offset);
        let mut slots = cluster.lock(pin);
        let state = &mut slots[index];
        if !state.is_stored() || state.frame().is_some() {
            return false;
        }
        debug_assert!(state.count() > 0, "a stored page that nobody names");
        Self::enter(memory, page);
        state.begin_in(page, is_wanted);
        if !is_wanted {
            bump(&self.events.ahead);
        }
        true
    }

    /// Ends what [`Swap::begin_in`] began: the page is there, or could not be read. Called
    /// before the page lock is released.
    pub(crate) fn end_in<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        slot: u64,
        is_read: bool,
    ) {
        bump(match is_read {
            true => &self.events.ins,
            false => &self.events.read_errors,
        });
        self.with_slot(memory, pin, slot, |state| {
            state.end();
            (!is_read).then(|| state.take_frame()).flatten()
        });
    }

    /// Whether an entry that wants the page of this slot, to which the caller has a reference,
    /// has to copy it, if it is still cached when [`Swap::take`] is called.
    pub(crate) fn must_copy<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (slot, page): (u64, Pfn),
    ) -> bool {
        self.area_of(slot).is_some_and(|(area, offset)| {
            let (cluster, index) = area.cluster(offset);
            !Self::gives_frame(memory, &cluster.lock(pin)[index], page)
        })
    }

    /// Whether the next entry that wants the page of a slot gets its frame, since nobody else
    /// needs that: the others have the area's. Where the area has none, as the page could not be
    /// written, there must be no other entry, nobody who kept the page mapped, and nobody who
    /// still copies what the frame holds. (No mapping comes to a page that has none but here.)
    fn gives_frame<P: Platform>(memory: &PhysicalMemory<P>, slot: &SwapSlot, page: Pfn) -> bool {
        let is_alone = || {
            let counts = memory.frame(page).counts();
            // The cache's reference, and the caller's.
            counts.maps() == 0 && counts.refs() == 2
        };
        slot.is_stored() || slot.count() == 1 && is_alone()
    }

    /// Gives the page that the slot has in the cache to one entry that names the slot, and
    /// that the caller replaces: its table is locked. The caller has a reference to the
    /// frame, which keeps its contents for a copy. `copies` says whether there is a frame
    /// for one.
    pub(crate) fn take<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (slot, page): (u64, Pfn),
        copies: bool,
    ) -> FromSwap {
        let mut taken = FromSwap::Nothing;
        self.with_slot(memory, pin, slot, |state| {
            if state.frame() != Some(page) {
                return None;
            }
            // It was there when it was found, and with the caller's reference it cannot
            // begin to leave.
            debug_assert!(!state.is_busy());
            if Self::gives_frame(memory, state, page) {
                if state.take_ahead() {
                    bump(&self.events.ahead_used);
                }
                // The reference passes to the entry.
                state.take_frame();
                memory
                    .frame(page)
                    .private()
                    .clear(PrivateFlags::SWAP_CACHED);
                taken = FromSwap::Frame;
            } else if copies {
                bump(&self.events.copies);
                taken = FromSwap::Copy;
            } else {
                taken = FromSwap::NeedsCopy;
                return None;
            }
            state.sub();
            None
        });
        taken
    }

    /// Takes a page out of the cache that the area has, too, and to which nobody else has a
    /// reference: its frame is free. Whether it was there; what its frame says of its slot may
    /// be of an earlier life.
    pub(crate) fn discard<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        slot: u64,
        page: Pfn,
    ) -> bool {
        let Some((area, offset)) = self.area_of(slot) else {
            return false;
        };
        let (cluster, index) = area.cluster(offset);
        {
            let mut slots = cluster.lock(pin);
            let state = &mut slots[index];
            let is_idle = state.frame() == Some(page)
                && !state.is_busy()
                && state.is_stored()
                && memory.frame(page).counts().refs() == 1;
            if !is_idle {
                return false;
            }
            state.take_frame();
        }
        memory
            .frame(page)
            .private()
            .clear(PrivateFlags::SWAP_CACHED);
        memory.put(pin, page);
        true
    }

    /// The slots around one that are read together with it: those of an aligned group of
    /// [`GROUP`], and which of them it is.
    pub(crate) fn group(&self, slot: u64) -> (core::ops::Range<u64>, usize) {
        let Some((area, offset)) = self.area_of(slot) else {
            return (slot..slot + 1, 0);
        };
        let first = offset & !(GROUP as u64 - 1);
        let end = area.slots().min(first + GROUP as u64);
        let start = slot - (offset - first);
        (start..start + (end - first), (offset - first) as usize)
    }

    /// The page gets into the cache, which has a reference to it.
    fn enter<P: Platform>(memory: &PhysicalMemory<P>, page: Pfn) {
        let frame = memory.frame(page);
        frame.get();
        frame.private().set(PrivateFlags::SWAP_CACHED);
    }

    /// Changes a slot under its lock, and gives it up if nothing needs it any more. What
    /// `change` took out of the cache, or the slot still had, loses the cache's reference.
    fn with_slot<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        slot: u64,
        change: impl FnOnce(&mut SwapSlot) -> Option<Pfn>,
    ) {
        let Some((area, offset)) = self.area_of(slot) else {
            debug_assert!(false, "an entry names no slot");
            return;
        };
        let (cluster, index) = area.cluster(offset);
        let mut slots = cluster.lock(pin);
        let state = &mut slots[index];
        debug_assert!(!state.is_unused(), "a slot that is not in use was named");
        let out = change(state);
        let unused = state.give_up();
        if let Some(slot) = &unused {
            if slot.is_stored() {
                // Whoever takes the slot next needs the lock of the cluster before a page is
                // written there, which must not be lost.
                memory.platform().slot_freed(area.store(), offset);
            }
            area.give(pin, offset, slot.is_bad());
        }
        drop(slots);
        let left = unused.and_then(|slot| slot.frame());
        for page in [out, left].into_iter().flatten() {
            memory
                .frame(page)
                .private()
                .clear(PrivateFlags::SWAP_CACHED);
            memory.put(pin, page);
        }
    }
}
