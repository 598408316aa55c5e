//! A spin lock in one bit of a 32- or 64-bit word whose other bits are data.
//!
//! While the lock is held only its holder changes the word: others do no more
//! than set the bit that is set already. So unlocking is a plain store.

use super::Pin;
use super::atomic::{AtomicU32, AtomicU64, Ordering};
use super::held::Held;
use super::report::{Kind, report_lock};

/// A word that has a lock bit.
pub trait BitLock {
    /// The plain integer.
    type Word: Copy;

    /// Takes the lock; returns a guard that knows the word at that moment.
    fn lock_bit<'a>(&'a self, bit: u32, pin: &'a Pin<'_>) -> BitGuard<'a, Self>;

    /// Takes the lock if it is free.
    fn try_lock_bit<'a>(&'a self, bit: u32, pin: &'a Pin<'_>) -> Option<BitGuard<'a, Self>>;

    /// Clears the bit, publishing what was done under the lock. Whoever
    /// changes other bits of the word holds the lock.
    fn unlock_bit(&self, bit: u32);
}

/// Holds a bit lock until dropped, which happens before the pin ends under which
/// the lock was taken:
///
/// ```
/// # use vellum::platform::Platform;
/// use vellum::frame::PhysicalMemory;
/// use vellum::sync::{BitLock, atomic::AtomicU32};
/// fn hold(word: &AtomicU32, memory: &PhysicalMemory<impl Platform>) {
///     let pin = memory.pin();
///     let guard = word.lock_bit(31, &pin);
///     drop(guard);
///     drop(pin);
/// }
/// ```
/// ```compile_fail,E0505
/// # use vellum::platform::Platform;
/// use vellum::frame::PhysicalMemory;
/// use vellum::sync::{BitLock, atomic::AtomicU32};
/// fn hold(word: &AtomicU32, memory: &PhysicalMemory<impl Platform>) {
///     let pin = memory.pin();
///     let guard = word.lock_bit(31, &pin);
///     drop(pin);
///     drop(guard);
/// }
/// ```
pub struct BitGuard<'a, W: BitLock + ?Sized> {
    word: &'a W,
    bit: u32,
    value: W::Word,
    /// Binds the guard to its pin, and to the pin's thread.
    held: Held<'a>,
}

impl<W: BitLock + ?Sized> BitGuard<'_, W> {
    /// The word as it was when the lock was taken, without the lock bit.
    #[inline]
    pub fn value(&self) -> W::Word {
        self.value
    }

    /// Ends the guard and leaves the lock taken, for a guard that knows word and bit
    /// otherwise: it makes a [`Held`] of the same pin, and unlocks by
    /// [`BitLock::unlock_bit`].
    #[inline]
    pub(crate) fn hand_over(self) {
        self.held.end();
        core::mem::forget(self);
    }
}

impl<W: BitLock + ?Sized> Drop for BitGuard<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.word.unlock_bit(self.bit);
    }
}

macro_rules! bit_lock {
    ($atomic:ty, $plain:ty) => {
        impl BitLock for $atomic {
            type Word = $plain;

            #[inline]
            fn lock_bit<'a>(&'a self, bit: u32, pin: &'a Pin<'_>) -> BitGuard<'a, Self> {
                let mut spins = 0;
                loop {
                    if let Some(guard) = self.try_lock_bit(bit, pin) {
                        return guard;
                    }
                    if spins == 0 {
                        report_lock(Kind::LockAwaited, self);
                    }
                    while self.load(Ordering::Relaxed) & (1 << bit) != 0 {
                        pin.relax(spins);
                        spins += 1;
                    }
                }
            }

            #[inline]
            fn try_lock_bit<'a>(
                &'a self,
                bit: u32,
                pin: &'a Pin<'_>,
            ) -> Option<BitGuard<'a, Self>> {
                let old = self.fetch_or(1 << bit, Ordering::Acquire);
                // Not `then_some`: a guard made in vain would unlock.
                (old & (1 << bit) == 0).then(|| {
                    report_lock(Kind::LockTaken, self);
                    BitGuard {
                        word: self,
                        bit,
                        value: old,
                        held: Held::by(pin),
                    }
                })
            }

            #[inline]
            fn unlock_bit(&self, bit: u32) {
                report_lock(Kind::LockReleased, self);
                let value = self.load(Ordering::Relaxed) & !(1 << bit);
                #[cfg(not(vellum_loom))]
                self.store(value, Ordering::Release);
                // The model checker lets a store slip in between the two halves
                // of another thread's failing `try_lock_bit` (tokio-rs/loom#254),
                // which would undo the unlocking; an exchange it does order.
                #[cfg(vellum_loom)]
                self.swap(value, Ordering::Release);
            }
        }
    };
}

bit_lock!(AtomicU32, u32);
bit_lock!(AtomicU64, u64);

/// Sets more bits of a word whose lock bit the caller holds, so that nobody else changes it.
#[inline]
pub(crate) fn set_beside(word: &AtomicU32, bits: u32) {
    let value = word.load(Ordering::Relaxed) | bits;
    #[cfg(not(vellum_loom))]
    word.store(value, Ordering::Relaxed);
    // As in `unlock_bit`.
    #[cfg(vellum_loom)]
    word.swap(value, Ordering::Relaxed);
}

impl BitGuard<'_, AtomicU64> {
    /// Unlocks and sets the rest of the word with one store. Every other
    /// writer of the word must hold the lock.
    #[cfg(any(test, feature = "published"))]
    #[inline]
    pub(crate) fn unlock_with(self, value: u64) {
        let value = value & !(1 << self.bit);
        report_lock(Kind::LockReleased, self.word);
        #[cfg(not(vellum_loom))]
        self.word.store(value, Ordering::Release);
        // As in `unlock_bit`.
        #[cfg(vellum_loom)]
        self.word.swap(value, Ordering::Release);
        self.held.end();
        core::mem::forget(self);
    }
}
