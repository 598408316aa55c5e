//! A lock for the kernel's own data, and values that are set once.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch::flush;

/// A spin lock. Interrupts are off in the kernel, so no handler can want it as well; a CPU
/// that waits for it answers requests to forget translations.
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder reaches the value.
unsafe impl<T: Send> Sync for SpinLock<T> {}

pub struct Guard<'a, T>(&'a SpinLock<T>);

impl<T> SpinLock<T> {
    pub const fn new(value: T) -> SpinLock<T> {
        SpinLock {
            held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        while self.held.swap(true, Ordering::Acquire) {
            while self.held.load(Ordering::Relaxed) {
                flush::answer();
                core::hint::spin_loop();
            }
        }
        Guard(self)
    }

    /// Gives up the lock for a holder whose guard was forgotten.
    ///
    /// # Safety
    /// There is such a holder, and it is the caller's part to end it.
    pub unsafe fn unlock(&self) {
        self.held.store(false, Ordering::Release);
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

/// A value that is set while there is one CPU, and read afterwards.
pub struct Once<T>(UnsafeCell<Option<T>>);

// SAFETY: shared only after it was set.
unsafe impl<T: Sync> Sync for Once<T> {}

impl<T> Once<T> {
    pub const fn new() -> Once<T> {
        Once(UnsafeCell::new(None))
    }

    /// Sets it.
    ///
    /// # Safety
    /// Nobody has called [`Once::get`], and no other CPU runs.
    pub unsafe fn set(&self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { *self.0.get() = Some(value) }
    }

    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: not changed since it was set.
        match unsafe { &*self.0.get() } {
            Some(value) => value,
            None => panic!("used before it was set"),
        }
    }
}
