//! Counts that many CPUs change and few read.

use alloc::boxed::Box;

use super::atomic::{AtomicU32, AtomicU64, Ordering};
use super::{CachePadded, PerCpu, Pin};

/// A row of counts. A CPU keeps what it has changed to itself until that is much, and then adds it
/// to what all see, so that it seldom writes a line that others write, too (Linux's
/// `percpu_counter`).
pub(crate) struct BatchedCounts {
    /// What CPUs have told of each count. What they have not told yet may make it negative.
    told: Box<[CachePadded<AtomicU64>]>,
    /// Of each count what this CPU has not told yet, as a difference. Only this CPU changes it.
    kept: PerCpu<Box<[AtomicU32]>>,
    /// A CPU that has changed a count by so much tells.
    batch: u32,
}

impl BatchedCounts {
    /// So many counts, all 0.
    pub(crate) fn new(counts: usize, cpus: usize, batch: u32) -> BatchedCounts {
        BatchedCounts {
            told: (0..counts).map(|_| CachePadded::default()).collect(),
            kept: PerCpu::new(cpus, |_| (0..counts).map(|_| AtomicU32::new(0)).collect()),
            batch,
        }
    }

    /// How many there are.
    #[cfg(feature = "published")]
    pub(crate) fn len(&self) -> usize {
        self.told.len()
    }

    /// Adds `change` to a count.
    pub(crate) fn add(&self, pin: &Pin<'_>, which: usize, change: i32) {
        let own = &self.kept.get(pin)[which];
        let sum = (own.load(Ordering::Relaxed) as i32).wrapping_add(change);
        let kept = if sum.unsigned_abs() < self.batch {
            sum
        } else {
            self.told[which].fetch_add(i64::from(sum) as u64, Ordering::Relaxed);
            0
        };
        own.store(kept as u32, Ordering::Relaxed);
    }

    /// What CPUs have told of a count.
    pub(crate) fn told(&self, which: usize) -> u64 {
        (self.told[which].load(Ordering::Relaxed) as i64).max(0) as u64
    }

    /// A count may be so much more than what CPUs have told.
    pub(crate) fn untold(&self) -> u64 {
        u64::from(self.batch.saturating_sub(1)) * self.kept.iter().count() as u64
    }

    /// A count, which looks at a line of each CPU; approximate while they change it, and below 0,
    /// as two's complement, if decreases were seen before the increases that they belong to.
    pub(crate) fn sum(&self, which: usize) -> u64 {
        let kept = self.kept.iter().map(|kept| &kept[which]);
        let kept = kept.map(|kept| i64::from(kept.load(Ordering::Relaxed) as i32) as u64);
        let told = self.told[which].load(Ordering::Relaxed);
        kept.fold(told, u64::wrapping_add)
    }
}
