//! A spin lock around a value.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use super::Pin;
use super::atomic::{AtomicU32, Ordering};

const LOCKED: u32 = 1;

/// A value that one pinned holder at a time can reach.
///
/// Taking it counts in nothing; whoever waits calls the platform's `relax`.
pub struct SpinLock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the holder of `state`, one at a time,
// and acquire/release on `state` orders holders; so it moves between threads
// but is never shared.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: Send> Send for SpinLock<T> {}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> SpinLock<T> {
    /// An unlocked value.
    pub fn new(value: T) -> Self {
        SpinLock {
            state: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the lock is ours.
    #[inline]
    pub fn lock<'a>(&'a self, pin: &Pin<'_>) -> SpinGuard<'a, T> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            while self.state.load(Ordering::Relaxed) == LOCKED {
                pin.relax(spins);
                spins += 1;
            }
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        self.state
            .compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            // Not `then_some`: a guard made in vain would unlock.
            .then(|| SpinGuard { lock: self })
    }

    /// The value, when nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Holds a [`SpinLock`] until dropped.
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard exists, so we are the one holder of the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard exists and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.store(0, Ordering::Release);
    }
}
