//! Work that goes on after its lock was let go of.
//!
//! Somebody who holds a [`SleepLock`](super::SleepLock) may mark a part of what it guards
//! as taken, count that here, and do the rest without the lock. Others who hold the lock
//! meanwhile leave such parts alone. Whoever cannot do that waits until none is left.

use super::atomic::{AtomicU32, Ordering};
use super::wait::{WaitTable, key_of};
use super::{Pin, SleepHost, Unpinned};
use crate::platform::Platform;

/// The count. All but waiting is done by the holder of the lock.
#[derive(Debug, Default)]
pub struct Underway {
    count: AtomicU32,
    /// Those who wait for the end of all of it. Nothing begins until they have had
    /// their turn.
    awaited: AtomicU32,
}

impl Underway {
    /// Whether there is none.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Whether somebody waits for the end of all of it.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) != 0
    }

    /// One more begins.
    pub fn begin(&self) {
        change(&self.count, 1);
    }

    /// One has ended.
    pub fn end<P: Platform>(&self, table: &WaitTable, platform: &P, pin: &Pin<'_>) {
        let left = change(&self.count, u32::MAX);
        if left == 0 && self.is_awaited() {
            table.wake(key_of(self), platform, pin);
        }
    }

    /// The holder of the lock waits from now on. To be called again with `false`, under
    /// the lock, when it no longer does.
    pub fn await_end(&self, waits: bool) {
        change(&self.awaited, if waits { 1 } else { u32::MAX });
    }

    /// Waits until all of it has ended, which it does under the lock: the caller has let
    /// go of that, and said that it waits.
    pub fn wait<H: SleepHost>(&self, unpinned: Unpinned<'_>, table: &WaitTable, host: &H) {
        let mut goes_on = || self.count.load(Ordering::Acquire) != 0;
        table.wait_while(unpinned, key_of(self), host, &mut goes_on);
    }
}

/// Adds to a word that only the holder of a lock changes.
fn change(word: &AtomicU32, change: u32) -> u32 {
    let changed = word.load(Ordering::Relaxed).wrapping_add(change);
    word.store(changed, Ordering::Release);
    changed
}
