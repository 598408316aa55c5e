//! Flush requests: recording them for tests, and losing them on purpose.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use vellum::platform::{CpuId, Flush};

/// One flush request as the machine saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlushRecord {
    /// Who asked.
    pub from: CpuId,
    /// Who had to forget.
    pub cpus: Vec<CpuId>,
    /// What.
    pub request: Flush,
    /// Whether a seeded defect ignored it.
    pub dropped: bool,
}

/// The recorded requests, oldest first, while recording is on.
#[derive(Default)]
pub(crate) struct FlushLog {
    recording: AtomicBool,
    records: Mutex<Vec<FlushRecord>>,
}

impl FlushLog {
    pub(crate) fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn push(&self, record: impl FnOnce() -> FlushRecord) {
        if self.recording.load(Ordering::Relaxed) {
            let record = record();
            let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
            records.push(record);
        }
    }

    pub(crate) fn take(&self) -> Vec<FlushRecord> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut records)
    }
}

/// Faults of the machine itself, all off at first, to show that tests notice.
#[derive(Default, Debug)]
pub struct Defects {
    drop_flush_every: AtomicU64,
    flushes: AtomicU64,
    keep_upper: AtomicBool,
}

impl Defects {
    /// Ignores every `n`th flush request from now on; 0 ignores none.
    pub fn drop_flush_every(&self, n: u64) {
        self.flushes.store(0, Ordering::Relaxed);
        self.drop_flush_every.store(n, Ordering::Relaxed);
    }

    /// Keeps cached upper-level entries even if a request covers them.
    pub fn keep_upper_entries(&self, keep: bool) {
        self.keep_upper.store(keep, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn drops_this_flush(&self) -> bool {
        let every = self.drop_flush_every.load(Ordering::Relaxed);
        every != 0 && (self.flushes.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every)
    }

    #[inline]
    pub(crate) fn apply(&self, request: &Flush) -> Flush {
        Flush {
            tables: request.tables && !self.keep_upper.load(Ordering::Relaxed),
            ..*request
        }
    }
}
