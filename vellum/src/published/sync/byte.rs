//! Locks that are taken and released by name, not by a guard: a lock that is held over
//! several calls, and a lock of one byte.
//!
//! Whoever holds one is pinned, so nobody sleeps for it. [`Waited`] says what a kernel
//! whose threads may sleep would have done: a waiter that has spun for a while counts
//! as asleep.

use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use crate::sync::report::{Kind, report_lock};
use crate::sync::{Held, Pin};

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
    pub(crate) fn acquire(&self, pin: &Pin<'_>) -> Waited {
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
    pub(crate) fn is_held(&self) -> bool {
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

impl Bucket {
    /// Wakes all who are parked.
    #[inline]
    fn wake(&self) {
        if self.parked.load(Ordering::Relaxed) != 0 {
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A lock of one byte, whose waiters share a [`Bucket`] with those of its neighbours: a
/// release wakes all of them.
///
/// A release is a plain store. It may not see a waiter that parks at the same moment;
/// so a parked waiter looks at the byte itself as well, and a missed wake costs nothing.
///
/// It has a shared mode, too: readers beside each other, counted in the byte, so that
/// giving it up is a read-modify-write. When there are as many as can be counted, the next
/// waits. Who waits for the lock alone says so in a bit, which keeps further readers out; a
/// release may lose it, and the waiter sets it again.
#[derive(Debug, Default)]
pub struct ByteLock(AtomicU8);

/// Somebody has the lock alone; less is the number of readers.
const ALONE: u8 = 0x7f;
/// The readers that are counted at the most: fewer for the model checker.
const MOST_READERS: u8 = if cfg!(vellum_loom) { 2 } else { ALONE - 1 };
/// Somebody waits to have the lock alone.
const WANTED: u8 = 0x80;

impl ByteLock {
    /// Waits until the lock is ours.
    #[inline]
    pub(crate) fn acquire(&self, bucket: &Bucket, pin: &Pin<'_>) -> Waited {
        let waited = if self.try_take() {
            Waited::default()
        } else {
            self.wait(bucket, pin, Self::try_again, |byte| byte & !WANTED == 0)
        };
        report_lock(Kind::LockTaken, &self.0);
        Held::begin(pin);
        waited
    }

    #[inline]
    fn try_take(&self) -> bool {
        self.exchange(0, ALONE)
    }

    #[inline]
    fn exchange(&self, old: u8, new: u8) -> bool {
        (self.0)
            .compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Who has the lock alone leaves it to so many readers.
    #[inline]
    fn give_up_to(&self, readers: u8) {
        #[cfg(not(vellum_loom))]
        self.0.store(readers, Ordering::Release);
        // The model checker lets a store slip in between the two halves of an update, which
        // would undo it (tokio-rs/loom#254); an exchange it does order.
        #[cfg(vellum_loom)]
        self.0.swap(readers, Ordering::Release);
    }

    /// One more try to have the lock alone, of somebody who waits.
    fn try_again(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            free @ (0 | WANTED) => self.exchange(free, ALONE),
            ALONE.. => false,
            _ => {
                self.0.fetch_or(WANTED, Ordering::Relaxed);
                false
            }
        }
    }

    /// One try to be a reader.
    #[inline]
    fn try_share(&self) -> bool {
        let readers = self.0.load(Ordering::Relaxed);
        readers < MOST_READERS && self.exchange(readers, readers + 1)
    }

    /// Waits until the caller is a reader: others may be, too, and nobody has the lock alone.
    #[inline]
    pub(crate) fn acquire_shared(&self, bucket: &Bucket, pin: &Pin<'_>) -> Waited {
        let waited = if self.try_share() {
            Waited::default()
        } else {
            self.wait(bucket, pin, Self::try_share, |byte| byte < MOST_READERS)
        };
        report_lock(Kind::LockTaken, &self.0);
        Held::begin(pin);
        waited
    }

    /// Ends what [`ByteLock::acquire_shared`] began.
    #[inline]
    pub(crate) fn release_shared(&self, bucket: &Bucket, pin: &Pin<'_>) {
        report_lock(Kind::LockReleased, &self.0);
        let before = self.0.fetch_sub(1, Ordering::Release);
        let readers = before & !WANTED;
        debug_assert!(0 < readers && readers < ALONE, "no reader is there");
        // The last, or the first whose place another reader can have.
        if readers == 1 || readers == MOST_READERS {
            bucket.wake();
        }
        Held::end_at(pin);
    }

    /// Makes the only reader the one who has the lock alone, which it stays until
    /// [`ByteLock::share`]. If there are others, nothing is changed.
    #[inline]
    pub(crate) fn try_upgrade(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            one if one & !WANTED == 1 => self.exchange(one, ALONE),
            _ => false,
        }
    }

    /// Makes who has the lock alone a reader.
    #[inline]
    pub fn share(&self, bucket: &Bucket) {
        self.give_up_to(1);
        bucket.wake();
    }

    /// Waits until `take` succeeds, which it may if the byte is so that `may` says so.
    #[cold]
    #[inline(never)]
    fn wait(
        &self,
        bucket: &Bucket,
        pin: &Pin<'_>,
        take: fn(&ByteLock) -> bool,
        may: fn(u8) -> bool,
    ) -> Waited {
        report_lock(Kind::LockAwaited, &self.0);
        let mut waited = Waited {
            contended: true,
            ..Waited::default()
        };
        let mut spins = 0;
        while spins < SPINS {
            if take(self) {
                return waited;
            }
            pin.relax(spins);
            spins += 1;
        }
        waited.parked = true;
        bucket.parked.fetch_add(1, Ordering::Relaxed);
        loop {
            let woken = bucket.woken.load(Ordering::Relaxed);
            let is_taken = || !may(self.0.load(Ordering::Relaxed));
            while is_taken() && bucket.woken.load(Ordering::Relaxed) == woken {
                pin.relax(spins);
                spins += 1;
            }
            let is_in_vain = is_taken();
            if take(self) {
                break;
            }
            waited.in_vain += u32::from(is_in_vain);
        }
        bucket.parked.fetch_sub(1, Ordering::Relaxed);
        waited
    }

    /// Releases the lock, which the CPU of `pin` holds.
    #[inline]
    pub fn release(&self, bucket: &Bucket, pin: &Pin<'_>) {
        debug_assert!(self.is_held(), "a lock is released that nobody holds");
        report_lock(Kind::LockReleased, &self.0);
        self.give_up_to(0);
        bucket.wake();
        Held::end_at(pin);
    }

    /// Whether somebody holds it.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}
