//! Counters that cost a load and a store.

use super::atomic::{AtomicU64, Ordering};

/// A count that one caller at a time changes and any may read.
///
/// Kept in per-CPU data, it counts events: the CPU's own increments are plain, so no
/// cache line is taken from anybody; sums over CPUs are approximate while they run.
/// Kept beside a lock, it is changed by the lock's holder only.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one event.
    #[inline]
    pub fn bump(&self) {
        self.add(1);
    }

    /// Counts `count` events.
    #[inline]
    pub fn add(&self, count: u64) {
        let value = self.0.load(Ordering::Relaxed).wrapping_add(count);
        self.0.store(value, Ordering::Relaxed);
    }

    /// Counts `count` events back. The value may wrap below zero on one CPU
    /// while the sum over CPUs is right.
    #[inline]
    pub fn sub(&self, count: u64) {
        self.add(count.wrapping_neg());
    }

    /// The count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The count, which becomes 0.
    #[inline]
    pub fn take(&self) -> u64 {
        let value = self.get();
        self.0.store(0, Ordering::Relaxed);
        value
    }
}
