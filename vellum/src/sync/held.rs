//! Which CPU holds how many spin locks, counted in debug builds.
//!
//! Some things must not happen under a spin lock: above all waiting for other CPUs,
//! as a flush does, since they may wait for the lock.

use core::marker::PhantomData;

use super::Pin;
#[cfg(debug_assertions)]
use super::report::{Kind, report};

/// The number of spin locks that a CPU holds. Not an atomic of `sync`: model
/// checkers and counts of accesses need not see it.
#[cfg(debug_assertions)]
#[derive(Default, Debug)]
pub(super) struct HeldLocks(core::sync::atomic::AtomicU32);

#[cfg(debug_assertions)]
impl HeldLocks {
    pub(super) fn count(&self) -> u32 {
        self.0.load(core::sync::atomic::Ordering::Relaxed)
    }

    /// Only its CPU changes the count.
    fn set(&self, count: u32) {
        report(Kind::Bookkeeping, self.0.as_ptr().cast(), size_of::<u32>());
        self.0.store(count, core::sync::atomic::Ordering::Relaxed);
    }
}

/// That a CPU holds a spin lock: a part of the lock's guard, which it binds to the
/// pin and so to the pin's thread. Nothing in builds without debug assertions.
pub(crate) struct Held<'a> {
    #[cfg(debug_assertions)]
    locks: &'a HeldLocks,
    pinned: PhantomData<&'a Pin<'a>>,
}

impl<'a> Held<'a> {
    #[inline]
    pub(crate) fn by(pin: &'a Pin<'_>) -> Held<'a> {
        #[cfg(not(debug_assertions))]
        let _ = pin;
        #[cfg(debug_assertions)]
        pin.held().set(pin.held().count() + 1);
        Held {
            #[cfg(debug_assertions)]
            locks: pin.held(),
            pinned: PhantomData,
        }
    }

    /// A lock without a guard is taken; [`Held::end_at`] follows.
    #[cfg(feature = "published")]
    #[inline]
    pub(crate) fn begin(pin: &Pin<'_>) {
        #[cfg(debug_assertions)]
        pin.held().set(pin.held().count() + 1);
        #[cfg(not(debug_assertions))]
        let _ = pin;
    }

    /// A lock without a guard is released.
    #[cfg(feature = "published")]
    #[inline]
    pub(crate) fn end_at(pin: &Pin<'_>) {
        #[cfg(debug_assertions)]
        pin.held().set(pin.held().count() - 1);
        #[cfg(not(debug_assertions))]
        let _ = pin;
    }

    /// The lock is released by other means than dropping its guard.
    #[inline]
    pub(super) fn end(&self) {
        #[cfg(debug_assertions)]
        self.locks.set(self.locks.count() - 1);
    }
}

#[cfg(debug_assertions)]
impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
