//! A lock between host threads that does not block tasks of another scheduler.
//!
//! Where the machine's tasks are host threads, a waiter spins briefly and then
//! sleeps. Where a [`Scheduler`] runs them, a waiter gives way to other tasks,
//! because the holder may be one that only this thread can run.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::task::Scheduler;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody sleeps.
const AWAITED: u32 = 2;

const SPINS: u32 = 100;

/// The lock without a value.
#[derive(Default, Debug)]
pub(crate) struct RawLock {
    state: AtomicU32,
    sleepers: Mutex<()>,
    freed: Condvar,
}

impl RawLock {
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    pub(crate) fn lock(&self, scheduler: Option<&Scheduler>) {
        if !self.try_lock() {
            self.wait(scheduler);
        }
    }

    #[cold]
    fn wait(&self, scheduler: Option<&Scheduler>) {
        if let Some(scheduler) = scheduler {
            while !self.try_lock() {
                (scheduler.yield_now)();
            }
            return;
        }
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.state.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return;
            }
        }
        let mut guard = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever frees an awaited lock takes `sleepers`, which we hold from
        // marking the lock until we sleep: the wake cannot be missed.
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            guard = self
                .freed
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    #[inline]
    pub(crate) fn unlock(&self) {
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            drop(self.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
            self.freed.notify_all();
        }
    }
}

/// The lock around a value.
#[derive(Default)]
pub(crate) struct HostLock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the holder of `raw`, one at a time, and
// acquire/release on its state orders holders.
unsafe impl<T: Send> Sync for HostLock<T> {}

impl<T> HostLock<T> {
    pub(crate) fn lock(&self, scheduler: Option<&Scheduler>) -> HostGuard<'_, T> {
        self.raw.lock(scheduler);
        HostGuard {
            lock: self,
            value: PhantomData,
        }
    }
}

/// Holds a [`HostLock`] until dropped.
pub(crate) struct HostGuard<'a, T> {
    lock: &'a HostLock<T>,
    /// Shared between threads only if the value may be.
    value: PhantomData<&'a mut T>,
}

impl<T> Deref for HostGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard exists, so we are the one holder of the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for HostGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard exists and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for HostGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.raw.unlock();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::HostGuard;

    /// Implemented once for every type, and twice for those that are `Sync`.
    trait OnceUnlessSync<Which> {
        fn is_implemented_once() {}
    }
    impl<T: ?Sized> OnceUnlessSync<()> for T {}
    impl<T: ?Sized + Sync> OnceUnlessSync<u8> for T {}

    fn is_sync<T: Sync>() {}

    #[test]
    fn a_guard_is_sync_only_if_its_value_is() {
        is_sync::<HostGuard<'_, u32>>();
        // Does not compile if the guard is `Sync`: which implementation is open.
        <HostGuard<'_, Cell<u32>> as OnceUnlessSync<_>>::is_implemented_once();
    }
}
