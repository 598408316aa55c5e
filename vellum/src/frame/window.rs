//! Windows to high memory, which belong to a CPU and are open for short.
//!
//! Windows for tables and for pages are apart ([`WindowSlot`]): whoever holds two locked
//! tables can still copy a page. They need not close in the order in which they opened.

use core::ptr::NonNull;

use super::memory::PhysicalMemory;
use crate::addr::Pfn;
use crate::platform::{CpuId, Machine, WindowSlot};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

/// An open window; dropping it closes it.
pub struct Window<'a> {
    pin: &'a Pin<'a>,
    slot: WindowSlot,
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.pin.close_window(self.slot);
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Opens one of `slots` on `pfn`; returns it and the address of the frame.
    pub(super) fn open_window<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        slots: [WindowSlot; 2],
        pfn: Pfn,
    ) -> (Window<'a>, NonNull<u8>) {
        let (slot, bytes) = self.begin_window(pin, slots, pfn);
        (Window { pin, slot }, bytes)
    }

    /// Opens one of `slots` on `pfn`, which the caller closes; returns it and the address
    /// of the frame.
    #[inline(never)]
    fn begin_window(
        &self,
        pin: &Pin<'_>,
        slots: [WindowSlot; 2],
        pfn: Pfn,
    ) -> (WindowSlot, NonNull<u8>) {
        let cpu = pin.cpu();
        let open = &self.cpus.get(pin).windows;
        let before = open.load(Ordering::Relaxed);
        let is_closed = |slot: &WindowSlot| before & 1 << slot.index() == 0;
        let Some(slot) = slots.into_iter().find(is_closed) else {
            panic!(
                "a CPU has {} windows of a kind, and all are open",
                slots.len()
            );
        };
        open.store(before | 1 << slot.index(), Ordering::Relaxed);
        (slot, self.platform.window(cpu, slot, pfn))
    }

    /// Closes one. What the pin calls under which it was opened.
    pub(super) fn end_window(&self, cpu: CpuId, slot: WindowSlot) {
        self.platform.close_window(cpu, slot);
        let open = &self.cpus.of(cpu).windows;
        let others = open.load(Ordering::Relaxed) & !(1 << slot.index());
        open.store(others, Ordering::Relaxed);
    }

    /// The address of a page table, and the window that it is reached through, if it
    /// lies in high memory. The caller closes that under the same pin.
    #[inline]
    pub(crate) fn reach_table(
        &self,
        pin: &Pin<'_>,
        table: Pfn,
    ) -> (NonNull<u8>, Option<WindowSlot>) {
        if self.is_before_high(table) {
            return (self.direct(table), None);
        }
        self.reach_table_beyond(pin, table)
    }

    /// The same of a table that lies among the frames of high memory, or after them. A
    /// call of its own, so that the test above is all that tables of low memory pay.
    #[inline(never)]
    fn reach_table_beyond(&self, pin: &Pin<'_>, table: Pfn) -> (NonNull<u8>, Option<WindowSlot>) {
        if self.is_direct(table) {
            return (self.direct(table), None);
        }
        let (slot, bytes) = self.begin_window(pin, WindowSlot::TABLES, table);
        (bytes, Some(slot))
    }
}
