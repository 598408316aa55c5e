//! How many pages of each zone are newer than their files, and the limit on them.
//!
//! Since Linux 3.3 a page that a write to a file makes is taken of a zone only while few
//! of the zone's pages are dirty, so that no zone fills with pages that cannot be freed
//! before they are written. Linux allowed a fifth of the zone's free and file pages; here
//! it is a fifth of the zone. Pages of shared memory are not counted: nothing writes
//! them anywhere.

use crate::sync::{BatchedCounts, Pin};

/// The part of a zone that may be dirty: one in so many.
const LIMIT: u64 = 5;
/// What a CPU keeps to itself before it tells the zone (the greatest threshold of Linux's
/// counters of zones is 125).
const BATCH: u32 = 32;

/// The dirty pages of all zones.
pub(super) struct ZonesDirty {
    zones: BatchedCounts,
}

impl ZonesDirty {
    pub(super) fn new(zones: usize, cpus: usize) -> ZonesDirty {
        ZonesDirty {
            zones: BatchedCounts::new(zones, cpus, BATCH),
        }
    }

    /// Adds `change` pages to a zone.
    pub(super) fn add(&self, pin: &Pin<'_>, zone: usize, change: i32) {
        self.zones.add(pin, zone, change);
    }

    /// Whether so much of a zone of `total` frames is dirty that no more should be.
    pub(super) fn is_at_limit(&self, zone: usize, total: u64) -> bool {
        self.zones.told(zone) >= (total / LIMIT).max(1)
    }

    /// The dirty pages of all zones.
    pub(super) fn total(&self) -> u64 {
        let zones = 0..self.zones.len();
        (zones.map(|zone| self.zones.sum(zone))).fold(0, u64::wrapping_add)
    }
}
