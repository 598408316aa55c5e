//! Failing and being slow on request, repeatably.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use vellum::platform::IoError;

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// From the store.
    Read,
    /// To the store.
    Write,
}

/// What is to go wrong. Everything is off at first.
///
/// Time is only counted, never spent, so that tests stay fast and repeatable.
#[derive(Default, Debug)]
pub struct FaultPlan {
    every: AtomicU64,
    transfers: AtomicU64,
    failures: AtomicU64,
    nanoseconds_each: AtomicU64,
    nanoseconds: AtomicU64,
    has_ranges: AtomicBool,
    ranges: Mutex<Vec<(Transfer, Range<u64>)>>,
}

impl FaultPlan {
    /// Fails every `n`th transfer from now on, reads and writes counted
    /// together; 0 fails none.
    pub fn fail_every(&self, n: u64) {
        self.transfers.store(0, Ordering::Relaxed);
        self.every.store(n, Ordering::Relaxed);
    }

    /// Fails transfers of this direction for these pages (blocks, for a
    /// device) until [`FaultPlan::heal`].
    pub fn fail_range(&self, transfer: Transfer, pages: Range<u64>) {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.push((transfer, pages));
        self.has_ranges.store(true, Ordering::Release);
    }

    /// Ends all failures. The delay stays.
    pub fn heal(&self) {
        self.every.store(0, Ordering::Relaxed);
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.clear();
        self.has_ranges.store(false, Ordering::Release);
    }

    /// Has each transfer cost this many nanoseconds of simulated time.
    pub fn set_delay(&self, nanoseconds: u64) {
        self.nanoseconds_each.store(nanoseconds, Ordering::Relaxed);
    }

    /// Simulated nanoseconds spent in transfers so far.
    pub fn delay_spent(&self) -> u64 {
        self.nanoseconds.load(Ordering::Relaxed)
    }

    /// Transfers failed so far.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Accounts for a transfer of page `index`.
    pub(super) fn transfer(&self, transfer: Transfer, index: u64) -> Result<(), IoError> {
        let delay = self.nanoseconds_each.load(Ordering::Relaxed);
        if delay != 0 {
            self.nanoseconds.fetch_add(delay, Ordering::Relaxed);
        }
        let every = self.every.load(Ordering::Relaxed);
        let mut fails = every != 0
            && (self.transfers.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every);
        if self.has_ranges.load(Ordering::Acquire) {
            let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
            fails |= ranges
                .iter()
                .any(|(direction, pages)| *direction == transfer && pages.contains(&index));
        }
        if fails {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(IoError);
        }
        Ok(())
    }
}
