//! Locks that are taken and released by name, not by a guard: a lock that is held over
//! several calls, and a lock of one byte.
//!
//! Whoever holds one is pinned, so nobody sleeps for it. [`Waited`] says what a kernel
//! whose threads may sleep would have done: a waiter that has spun for a while counts
//! as asleep.

use super::Pin;
use super::atomic::{AtomicU8, AtomicU32, Ordering};
use super::held::Held;
use super::report::{Kind, report_lock};

/// Turns of spinning after which a thread that may sleep would do so.
const SPINS: u32 = if cfg!(vellum_loom) { 1 } else { 32 };

/// What taking a lock took beside the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waited {
    /// The lock was not free.
    pub contended: bool,
    /// It was waited for so long that a thread would have gone to sleep.
    pub parked: bool,
    /// Times that a sleeper would have been woken although the lock was not free.
    pub in_vain: u32,
}

/// A spin lock in a word, without a guard.
#[derive(Debug, Default)]
pub struct RawLock(AtomicU32);

impl RawLock {
    /// Waits until the lock is ours.
    #[inline]
    pub fn acquire(&self, pin: &Pin<'_>) -> Waited {
        let free = (self.0).compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        let waited = if free.is_ok() {
            Waited::default()
        } else {
            self.wait(pin)
        };
        report_lock(Kind::LockTaken, &self.0);
        Held::begin(pin);
        waited
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, pin: &Pin<'_>) -> Waited {
        report_lock(Kind::LockAwaited, &self.0);
        let mut spins = 0;
        loop {
            while self.0.load(Ordering::Relaxed) != 0 {
                pin.relax(spins);
                spins += 1;
            }
            let free = (self.0).compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
            if free.is_ok() {
                return Waited {
                    contended: true,
                    parked: spins > SPINS,
                    in_vain: 0,
                };
            }
        }
    }

    /// Releases the lock, which the CPU of `pin` holds.
    #[inline]
    pub fn release(&self, pin: &Pin<'_>) {
        debug_assert!(self.is_held(), "a lock is released that nobody holds");
        report_lock(Kind::LockReleased, &self.0);
        self.0.store(0, Ordering::Release);
        Held::end_at(pin);
    }

    /// Whether somebody holds it.
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// Where those park who wait for one of several neighbouring [`ByteLock`]s.
#[derive(Debug, Default)]
pub struct Bucket {
    parked: AtomicU32,
    /// Advances with each release that finds somebody parked.
    woken: AtomicU32,
}

/// A lock of one byte, whose waiters share a [`Bucket`] with those of its neighbours: a
/// release wakes all of them.
///
/// A release is a plain store. It may not see a waiter that parks at the same moment;
/// so a parked waiter looks at the byte itself as well, and a missed wake costs nothing.
#[derive(Debug, Default)]
pub struct ByteLock(AtomicU8);

impl ByteLock {
    /// Waits until the lock is ours.
    #[inline]
    pub fn acquire(&self, bucket: &Bucket, pin: &Pin<'_>) -> Waited {
        let waited = if self.try_take() {
            Waited::default()
        } else {
            self.wait(bucket, pin)
        };
        report_lock(Kind::LockTaken, &self.0);
        Held::begin(pin);
        waited
    }

    #[inline]
    fn try_take(&self) -> bool {
        (self.0)
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, bucket: &Bucket, pin: &Pin<'_>) -> Waited {
        report_lock(Kind::LockAwaited, &self.0);
        let mut waited = Waited {
            contended: true,
            ..Waited::default()
        };
        let mut spins = 0;
        while spins < SPINS {
            if !self.is_held() && self.try_take() {
                return waited;
            }
            pin.relax(spins);
            spins += 1;
        }
        waited.parked = true;
        bucket.parked.fetch_add(1, Ordering::Relaxed);
        loop {
            let woken = bucket.woken.load(Ordering::Relaxed);
            while self.is_held() && bucket.woken.load(Ordering::Relaxed) == woken {
                pin.relax(spins);
                spins += 1;
            }
            if !self.is_held() {
                if self.try_take() {
                    break;
                }
            } else {
                waited.in_vain += 1;
            }
        }
        bucket.parked.fetch_sub(1, Ordering::Relaxed);
        waited
    }

    /// Releases the lock, which the CPU of `pin` holds.
    #[inline]
    pub fn release(&self, bucket: &Bucket, pin: &Pin<'_>) {
        debug_assert!(self.is_held(), "a lock is released that nobody holds");
        report_lock(Kind::LockReleased, &self.0);
        self.0.store(0, Ordering::Release);
        if bucket.parked.load(Ordering::Relaxed) != 0 {
            bucket.woken.fetch_add(1, Ordering::Relaxed);
        }
        Held::end_at(pin);
    }

    /// Whether somebody holds it.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}
