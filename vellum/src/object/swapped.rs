//! Pages of shared memory that are in swap. The place of such a page in its object's tree
//! names its slot, and counts against the object's mount as one in memory does.

use core::ops::Range;

use super::radix::{Cell, leaf_end};
use super::{Object, Objects, RUN_PAGES};
use crate::addr::Pfn;
use crate::frame::{Kind, ObjectFlags, PageFlags, PhysicalMemory};
use crate::platform::Platform;
use crate::sync::Pin;

impl<S: Default + Send + Sync + 'static> Objects<S> {
    /// The swap slot of the page at `index`, if it is in one.
    #[inline]
    pub(crate) fn slot_at(&self, pin: &Pin<'_>, object: &Object<S>, index: u64) -> Option<u32> {
        self.radix(pin, object).cell(index).slot()
    }

    /// The first index at or after `from` whose page is in swap.
    pub(crate) fn next_slot(&self, pin: &Pin<'_>, object: &Object<S>, from: u64) -> Option<u64> {
        if object.swapped() == 0 {
            return None;
        }
        Some(self.radix(pin, object).next_slot(from)?.0)
    }

    /// Whether the page at `index` has to be brought into memory before it is used: it is in
    /// swap.
    #[inline]
    pub(crate) fn is_swapped(&self, pin: &Pin<'_>, object: &Object<S>, index: u64) -> bool {
        !object.is_file() && self.slot_at(pin, object, index).is_some()
    }

    /// Waits for who is changing what the object's tree has, if somebody is.
    pub(crate) fn wait_for_change(&self, pin: &Pin<'_>, object: &Object<S>) {
        drop(object.cache_lock.lock(pin));
    }

    /// The page at `index`, which is in a frame and a slot, leaves the frame. The caller has
    /// the page lock and the range, and the page is mapped nowhere. The cache's reference
    /// passes to the caller.
    pub(crate) fn move_to_slot<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (object, index): (&Object<S>, u64),
        page: Pfn,
        slot: u32,
    ) {
        {
            let _guard = object.cache_lock.lock(pin);
            object.count_cached(-1);
            object.count_swapped(1);
            let (old, new) = (Cell::of_frame(page), Cell::of_slot(slot));
            let moved = self.radix(pin, object).replace(index, old, new);
            debug_assert!(moved, "a page with a held range has left its place");
        }
        memory.frame(page).set_owner(0);
    }

    /// The page at `index`, which is in a slot, is in a frame from now on, if it is still in
    /// that slot and `takes` then says yes. The frame is up to date and has a reference for
    /// the cache.
    pub(crate) fn move_to_frame(
        &self,
        pin: &Pin<'_>,
        (object, index): (&Object<S>, u64),
        slot: u32,
        page: Pfn,
        takes: impl FnOnce() -> bool,
    ) -> bool {
        let _guard = object.cache_lock.lock(pin);
        if self.slot_at(pin, object, index) != Some(slot) || !takes() {
            return false;
        }
        object.count_cached(1);
        object.count_swapped(-1);
        let (old, new) = (Cell::of_slot(slot), Cell::of_frame(page));
        self.radix(pin, object).replace(index, old, new)
    }

    /// The page at `index`, which is locked, mapped nowhere and in a range that the caller holds, is
    /// in another frame from now on, which has its bytes. The cache's reference passes to the
    /// caller.
    pub(crate) fn move_to_other<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (handle, index): (u32, u64),
        page: Pfn,
        new: Pfn,
    ) {
        let frame = memory.frame(new);
        frame.set_kind_with(Kind::Object, PageFlags::UPTODATE);
        if memory.frame(page).object().has(ObjectFlags::SWAP_BACKED) {
            frame.object().set_unshared(ObjectFlags::SWAP_BACKED);
        }
        frame.set_owner(handle);
        frame.set_index(index, 0);
        let object = self.get(handle);
        {
            let _guard = object.cache_lock.lock(pin);
            let (old, new) = (Cell::of_frame(page), Cell::of_frame(new));
            let moved = self.radix(pin, object).replace(index, old, new);
            debug_assert!(moved, "a page with a held range has left its place");
        }
        memory.frame(page).set_owner(0);
    }

    /// Takes pages of `range` out that are in swap, those of one node of the tree at most:
    /// their slots. Returns how many there were; 0 if there is none left.
    pub(crate) fn take_slots<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        range: Range<u64>,
        slots: &mut [u32; RUN_PAGES],
    ) -> usize {
        let mut count = 0;
        let mut from = range.start;
        while count == 0 && object.swapped() > 0 {
            let Some((first, _)) = self.radix(pin, object).next_slot(from) else {
                break;
            };
            let end = range.end.min(leaf_end(first));
            if first >= end {
                break;
            }
            let _guard = object.cache_lock.lock(pin);
            self.radix(pin, object).remove_slots(first..end, |slot| {
                slots[count] = slot;
                count += 1;
            });
            object.count_swapped(-(count as i64));
            from = end;
        }
        self.uncharge(memory, pin, object, count as u64);
        count
    }
}
