//! The page lock: one bit in the frame record, tasks that sleep on it.
//!
//! Unlocking touches the wait table only if somebody set the waiters flag. A
//! waiter sets it under the table's bucket lock and then looks at the lock
//! once more, so it cannot miss the wake-up; a flag left behind costs one
//! needless look.

use crate::addr::Pfn;
use crate::frame::{Flags, PhysicalMemory};
use crate::platform::Platform;
use crate::sync::{Pin, WaitTable, Waiter};

/// Page locks of one manager.
#[derive(Default)]
pub struct PageLocks {
    waits: WaitTable,
}

impl PageLocks {
    /// Takes the page lock if it is free. The caller holds a reference.
    #[inline]
    pub fn try_lock<P: Platform>(&self, memory: &PhysicalMemory<P>, page: Pfn) -> bool {
        memory.frame(page).set(Flags::LOCKED)
    }

    /// Releases it.
    #[inline]
    pub fn unlock<P: Platform>(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, page: Pfn) {
        let frame = memory.frame(page);
        frame.clear(Flags::LOCKED);
        if frame.has(Flags::WAITERS) {
            frame.clear(Flags::WAITERS);
            self.waits.wake(u64::from(page.0), memory.platform(), pin);
        }
    }

    /// Lists the calling task as a waiter; `None` if the lock became free.
    pub fn wait<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        page: Pfn,
    ) -> Option<Waiter> {
        let frame = memory.frame(page);
        let task = memory.platform().current_task();
        self.waits.prepare(u64::from(page.0), task, pin, || {
            frame.set(Flags::WAITERS);
            frame.has(Flags::LOCKED)
        })
    }

    /// Sleeps until woken. Not pinned.
    pub fn sleep<P: Platform>(&self, memory: &PhysicalMemory<P>, waiter: Waiter) {
        self.waits.sleep(waiter, memory.platform());
    }
}
