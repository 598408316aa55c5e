//! How many pages of each zone are newer than their files, and the limit on them.
//!
//! Since Linux 3.3 a page that a write to a file makes is taken of a zone only while few
//! of the zone's pages are dirty, so that no zone fills with pages that cannot be freed
//! before they are written. Linux allowed a fifth of the zone's free and file pages; here
//! it is a fifth of the zone. Pages of shared memory are not counted: nothing writes
//! them anywhere.

use alloc::boxed::Box;

use super::super::memory::PhysicalMemory;
use crate::addr::Pfn;
use crate::platform::Platform;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{CachePadded, PerCpu, Pin};

/// The part of a zone that may be dirty: one in so many.
pub(super) const LIMIT: u64 = 5;
/// What a CPU keeps to itself before it tells the zone (the greatest threshold of Linux's
/// counters of zones is 125).
const KEPT: i32 = 32;

/// The dirty pages of all zones.
pub(super) struct DirtyPages {
    zones: Box<[CachePadded<AtomicU64>]>,
    /// For each zone what this CPU has not added to it yet, as a difference. Only this
    /// CPU changes it.
    cpus: PerCpu<Box<[AtomicU32]>>,
}

impl DirtyPages {
    pub(super) fn new(zones: usize, cpus: usize) -> DirtyPages {
        DirtyPages {
            zones: (0..zones).map(|_| CachePadded::default()).collect(),
            cpus: PerCpu::new(cpus, |_| (0..zones).map(|_| AtomicU32::new(0)).collect()),
        }
    }

    /// Adds `change` pages to a zone.
    fn add(&self, pin: &Pin<'_>, zone: usize, change: i32) {
        let own = &self.cpus.get(pin)[zone];
        let sum = own.load(Ordering::Relaxed) as i32 + change;
        let kept = if sum.abs() < KEPT {
            sum
        } else {
            self.zones[zone].fetch_add(i64::from(sum) as u64, Ordering::Relaxed);
            0
        };
        own.store(kept as u32, Ordering::Relaxed);
    }

    /// Whether so much of a zone of `total` frames is dirty that no more should be.
    pub(super) fn is_at_limit(&self, zone: usize, total: u64) -> bool {
        // What CPUs have not told yet may make the sum negative.
        let dirty = self.zones[zone].load(Ordering::Relaxed) as i64;
        dirty.max(0) as u64 >= (total / LIMIT).max(1)
    }

    /// The dirty pages of all zones.
    fn total(&self) -> u64 {
        let told = self.zones.iter().map(|zone| zone.load(Ordering::Relaxed));
        let kept = self.cpus.iter().flatten();
        let kept = kept.map(|kept| i64::from(kept.load(Ordering::Relaxed) as i32) as u64);
        told.chain(kept).fold(0, u64::wrapping_add)
    }
}

impl<P: Platform> PhysicalMemory<P> {
    /// Whether zones have a limit of dirty pages, so that they are to be counted.
    #[inline]
    pub(crate) fn counts_dirty_pages(&self) -> bool {
        self.linked().is_some()
    }

    /// Counts pages of files that became newer than their store, or that are not any more.
    #[cold]
    pub(crate) fn count_dirty_pages(
        &self,
        pin: &Pin<'_>,
        pages: impl Iterator<Item = Pfn>,
        are_dirty: bool,
    ) {
        if let Some(linked) = self.linked() {
            let change = if are_dirty { 1 } else { -1 };
            for pfn in pages {
                linked.dirty.add(pin, self.frame(pfn).zone(), change);
            }
        }
    }

    /// The dirty pages of all zones, if zones count them.
    pub(crate) fn dirty_pages(&self) -> Option<u64> {
        self.linked().map(|linked| linked.dirty.total())
    }
}
