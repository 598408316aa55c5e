//! Two sides that must not miss each other.
//!
//! Each side stores a word of its own and then loads the other's. The processor
//! may let the load pass the store, and then neither sees the other. With a full
//! fence between the two on both sides at least one does. These types hold
//! store, fence and load of one side together, so that none of the three can be
//! left out where they are used; `verify/loom` checks them.

use super::atomic::{AtomicU64, Ordering, fence};
use crate::platform::CpuSet;

/// The CPUs that may hold translations of a space, or be inside its regions
/// ([`CpuSet`] bits).
///
/// A CPU enters and then reads the space's tables and gates. Whoever changes
/// those asks afterwards who has entered: a CPU that is not in the answer sees
/// the change.
#[derive(Debug, Default)]
pub struct ActiveCpus(AtomicU64);

impl ActiveCpus {
    /// Nobody: the space begins.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The CPU of `bit` will use the space.
    #[inline]
    pub fn enter(&self, bit: u64) {
        // What it reads of the space comes after this: an exchange is a full
        // fence on x86-64 and aarch64, and the fence makes it one everywhere.
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// Who has entered, asked after everything that the caller has changed. What
    /// the caller reads next is read after the change, too.
    #[inline]
    pub fn after_change(&self, shift: u32) -> CpuSet {
        fence(Ordering::SeqCst);
        CpuSet::from_bits(self.0.load(Ordering::Acquire), shift)
    }
}

/// A bit for each of 64 things that are newer than their copies.
///
/// Whoever changes a thing marks it after that; whoever copies it takes the mark away
/// before that. So the copy has the change, or the mark is there again.
#[derive(Debug, Default)]
pub struct DirtyMarks(AtomicU64);

impl DirtyMarks {
    /// The marks of `bits`.
    #[inline]
    pub fn get(&self, bits: u64) -> u64 {
        self.0.load(Ordering::Acquire) & bits
    }

    /// Nothing is marked: nobody else knows the things.
    pub fn begin(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Marks `bits`, after everything that the caller has changed there. Returns those
    /// that were not marked; writes nothing if all were.
    #[inline]
    pub fn mark_after_change(&self, bits: u64) -> u64 {
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) & bits == bits {
            return 0;
        }
        bits & !self.0.fetch_or(bits, Ordering::AcqRel)
    }

    /// Takes the marks of `bits` away, before the caller copies what is there. Returns those
    /// there were.
    #[inline]
    pub fn take_before_copy(&self, bits: u64) -> u64 {
        if self.0.load(Ordering::Relaxed) & bits == 0 {
            return 0;
        }
        let taken = bits & self.0.fetch_and(!bits, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        taken
    }
}

/// A length that is shortened while others add below it.
///
/// Whoever adds something below the length stores it, passes a full fence, and
/// then asks for the length; whoever shortens it does so and then looks for what
/// has been added. So what is beyond the new end is found by the one, or not
/// used by the other.
#[derive(Debug, Default)]
pub struct Length(AtomicU64);

impl Length {
    /// The length now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Sets the length of something that nobody else knows.
    pub fn begin(&self, length: u64) {
        self.0.store(length, Ordering::Relaxed);
    }

    /// Makes it at least `length`.
    pub fn extend_to(&self, length: u64) {
        self.0.fetch_max(length, Ordering::AcqRel);
    }

    /// Sets the length, and then does `look`.
    pub fn set_then<T>(&self, length: u64, look: impl FnOnce() -> T) -> T {
        self.0.store(length, Ordering::Release);
        fence(Ordering::SeqCst);
        look()
    }
}
