//! A spin lock that its holder may take again.
//!
//! It is for published designs that hold one lock around what this core locks piece by
//! piece: whoever has several pieces has the lock several times.

use super::Pin;
use super::atomic::{AtomicU32, Ordering};
use super::queue::Tail;
use super::report::{Kind, report_lock};

/// No CPU.
const FREE: u32 = 0;

/// The lock. Those who wait stand in a queue, as for a [`SpinLock`](super::SpinLock).
#[derive(Debug, Default)]
pub struct NestedLock {
    /// The CPU that has it, plus 1, or [`FREE`].
    holder: AtomicU32,
    /// How often it has it. The holder's.
    depth: AtomicU32,
    queue: Tail,
}

impl NestedLock {
    /// Waits until the lock is that of the pin's CPU, once more if it is already.
    #[inline]
    pub(crate) fn acquire(&self, pin: &Pin<'_>) {
        if !self.try_acquire(pin) {
            self.wait(pin);
        }
    }

    /// Takes the lock if it is free, or that of the pin's CPU already.
    #[inline]
    pub(crate) fn try_acquire(&self, pin: &Pin<'_>) -> bool {
        let own = u32::from(pin.cpu().0) + 1;
        match (self.holder).compare_exchange(FREE, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => report_lock(Kind::LockTaken, &self.holder),
            Err(holder) if holder == own => {}
            Err(_) => return false,
        }
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth + 1, Ordering::Relaxed);
        true
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, pin: &Pin<'_>) {
        report_lock(Kind::LockAwaited, &self.holder);
        let place = pin.queues().enter_pinned(&self.queue, pin);
        let mut spins = 0;
        loop {
            while self.holder.load(Ordering::Relaxed) != FREE {
                pin.relax(spins);
                spins += 1;
            }
            if self.try_acquire(pin) {
                break;
            }
        }
        if let Some(place) = place {
            pin.queues().leave_pinned(&self.queue, place, pin);
        }
    }

    /// Gives the lock up as often as it was taken: at last it is free.
    #[inline]
    pub fn release(&self) {
        let depth = self.depth.load(Ordering::Relaxed);
        debug_assert!(self.is_held() && depth > 0, "a lock is released too often");
        self.depth.store(depth - 1, Ordering::Relaxed);
        if depth == 1 {
            report_lock(Kind::LockReleased, &self.holder);
            self.holder.store(FREE, Ordering::Release);
        }
    }

    /// Whether somebody holds it.
    pub(crate) fn is_held(&self) -> bool {
        self.holder.load(Ordering::Relaxed) != FREE
    }
}
