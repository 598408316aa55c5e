//! Windows to high memory, which belong to a CPU and are open for short.
//!
//! Windows for tables and for pages are apart ([`WindowSlot`]): whoever holds two locked
//! tables can still copy a page. They need not close in the order in which they opened.

use core::ptr::NonNull;

use super::memory::PhysicalMemory;
use crate::addr::Pfn;
use crate::platform::{CpuId, Platform, WindowSlot};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

/// What closes windows, for guards that do not know the platform's type.
trait CloseWindow {
    fn close(&self, cpu: CpuId, slot: WindowSlot);
}

impl<P: Platform> CloseWindow for PhysicalMemory<P> {
    fn close(&self, cpu: CpuId, slot: WindowSlot) {
        self.platform.close_window(cpu, slot);
        let open = &self.cpus.of(cpu).windows;
        let others = open.load(Ordering::Relaxed) & !(1 << slot.index());
        open.store(others, Ordering::Relaxed);
    }
}

/// An open window; dropping it closes it.
pub struct Window<'a> {
    memory: &'a dyn CloseWindow,
    cpu: CpuId,
    slot: WindowSlot,
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.memory.close(self.cpu, self.slot);
    }
}

impl<P: Platform> PhysicalMemory<P> {
    /// Opens one of `slots` on `pfn`; returns it and the address of the frame.
    #[inline(never)]
    pub(super) fn open_window<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        slots: [WindowSlot; 2],
        pfn: Pfn,
    ) -> (Window<'a>, NonNull<u8>) {
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
        let bytes = self.platform.window(cpu, slot, pfn);
        let window = Window {
            memory: self,
            cpu,
            slot,
        };
        (window, bytes)
    }

    /// The address of a page table, and the window that it is reached through, if it
    /// lies in high memory.
    #[inline]
    pub(crate) fn reach_table<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        table: Pfn,
    ) -> (NonNull<u8>, Option<Window<'a>>) {
        if self.is_direct(table) {
            return (self.direct(table), None);
        }
        let (window, bytes) = self.open_window(pin, WindowSlot::TABLES, table);
        (bytes, Some(window))
    }
}
