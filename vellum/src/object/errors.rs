//! Errors of writing back, told once to each who has the file open.
//!
//! The word counts errors, and knows whether the last has been told to anybody. The
//! count moves only if it has: so many errors that nobody asks about are one, and the
//! count does not come round. Whoever opens the file keeps the count of that moment;
//! an error that nobody has been told of yet is told to a later opener, too. (Linux has
//! done this since 4.13, as `errseq_t`; before, the first to ask took the error from
//! the others.)

use crate::sync::atomic::{AtomicU32, Ordering};

/// Somebody was told of the last error.
const TOLD: u32 = 1;
/// One error.
const ONE: u32 = 2;

/// A file's errors. 0: none ever.
#[derive(Debug, Default)]
pub struct WriteErrors(AtomicU32);

/// What one who has the file open was told; at first of nothing.
#[derive(Debug, Default)]
pub struct Told(AtomicU32);

impl WriteErrors {
    /// The file is another now.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// A write failed.
    pub fn record(&self) {
        let mut word = self.0.load(Ordering::Acquire);
        // One that nobody was told of stands for this one as well.
        while word == 0 || word & TOLD != 0 {
            // The count comes round past 0, which is "never".
            let next = (word & !TOLD).wrapping_add(ONE).max(ONE);
            match self
                .0
                .compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// For somebody who opens the file now.
    pub fn begin(&self) -> Told {
        let word = self.0.load(Ordering::Acquire);
        Told(AtomicU32::new(if word & TOLD == 0 { 0 } else { word }))
    }

    /// Whether there is an error that `told` was not told of, once.
    pub fn tell(&self, told: &Told) -> bool {
        let mut known = told.0.load(Ordering::Acquire);
        loop {
            let now = self.0.load(Ordering::Acquire);
            if now == known {
                return false;
            }
            if now & TOLD == 0 {
                // From now on the next error is another.
                let marked = now | TOLD;
                let _ = self
                    .0
                    .compare_exchange(now, marked, Ordering::AcqRel, Ordering::Acquire);
                continue;
            }
            match told
                .0
                .compare_exchange(known, now, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(other) => known = other,
            }
        }
    }
}
