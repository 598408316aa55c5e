//! A spin lock whose holders are not pinned and may do whatever a call of the manager does.
//!
//! It is for published designs that hold one lock around much. Whoever has it may take any
//! other lock, flush, and sleep, so it comes before all others.

use super::atomic::{AtomicU32, Ordering};
use super::report::{Kind, report_lock};
use crate::platform::Platform;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// The lock.
#[derive(Debug, Default)]
pub struct CoarseLock(AtomicU32);

/// Holds a [`CoarseLock`] until dropped.
pub struct CoarseGuard<'a>(&'a CoarseLock);

impl CoarseLock {
    /// Waits until the lock is ours. The caller holds no other lock.
    pub fn lock<P: Platform>(&self, platform: &P) -> CoarseGuard<'_> {
        let mut spins = 0;
        loop {
            let exchanged =
                (self.0).compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
            if exchanged.is_ok() {
                report_lock(Kind::LockTaken, &self.0);
                return CoarseGuard(self);
            }
            if spins == 0 {
                report_lock(Kind::LockAwaited, &self.0);
            }
            while self.0.load(Ordering::Relaxed) == HELD {
                platform.relax(spins);
                spins += 1;
            }
        }
    }
}

impl Drop for CoarseGuard<'_> {
    fn drop(&mut self) {
        report_lock(Kind::LockReleased, &self.0.0);
        self.0.0.store(FREE, Ordering::Release);
    }
}
