//! Those who are at the same work, none of whom has a lock that the others want.
//!
//! Whoever finds nothing left to do may have come while others have the last of it in hand. It
//! waits until one of them has ended, and looks once more.

use super::atomic::{AtomicU32, Ordering, fence};
use super::wait::{WaitTable, key_of};
use super::{CachePadded, Pin, SleepHost, Unpinned};
use crate::platform::Platform;

/// The counts.
#[derive(Debug, Default)]
pub struct Crew(CachePadded<Counts>);

#[derive(Debug, Default)]
struct Counts {
    busy: AtomicU32,
    /// How often somebody has ended.
    ended: AtomicU32,
    /// Those who wait for the next time. They are not among the busy.
    waiting: AtomicU32,
}

impl Crew {
    /// One more begins. From here to its end it must not wait for anybody who may wait for that.
    pub fn begin(&self) {
        self.0.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// One has ended, and others see what it has done. The caller sees what those have done who
    /// ended before. Returns what [`Crew::wait_for_another`] is to be told.
    pub fn end<P: Platform>(&self, table: &WaitTable, platform: &P, pin: &Pin<'_>) -> u32 {
        let counts = &*self.0;
        // In this order: nobody sees that none is busy and not that one has ended.
        let ended = counts.ended.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        counts.busy.fetch_sub(1, Ordering::Release);
        // Either whoever is about to wait sees that, or we see that it waits.
        fence(Ordering::SeqCst);
        if counts.waiting.load(Ordering::Relaxed) != 0 {
            table.wake(key_of(counts), platform, pin);
        }
        ended
    }

    /// Waits until another one has ended after the caller did; `ended` is what
    /// [`Crew::end`] has returned. False if none is busy.
    pub(crate) fn wait_for_another<H: SleepHost>(
        &self,
        unpinned: Unpinned<'_>,
        ended: u32,
        table: &WaitTable,
        host: &H,
    ) -> bool {
        let counts = &*self.0;
        counts.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut has_ended = false;
        table.wait_while(unpinned, key_of(counts), host, &mut || {
            let is_busy = counts.busy.load(Ordering::Acquire) != 0;
            has_ended = counts.ended.load(Ordering::Acquire) != ended;
            is_busy && !has_ended
        });
        counts.waiting.fetch_sub(1, Ordering::Relaxed);
        has_ended
    }
}
