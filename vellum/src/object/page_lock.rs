//! The page lock: one bit in the frame record, tasks that sleep on it.
//!
//! Unlocking touches the wait table only if somebody set the waiters flag. A
//! waiter sets it under the table's bucket lock and then looks at the lock
//! once more, so it cannot miss the wake-up; a flag left behind costs one
//! needless look.
//!
//! Until 2016 Linux had no such flag. Whoever unlocked a page hashed its address and
//! looked into a table of queues, each time ([`PageLocks::hashed`]). The processor must
//! not look before it has unlocked, and a waiter must not look at the lock before it
//! stands in the queue.

use alloc::boxed::Box;

use crate::addr::Pfn;
use crate::frame::{PageFlags, PhysicalMemory};
use crate::platform::Platform;
use crate::sync::atomic::{AtomicU32, Ordering, fence, fence_after_exchange};
use crate::sync::report::{Kind, report_lock};
use crate::sync::{Pin, Unpinned, WaitTable};

/// Frames for each queue of the table.
const FRAMES_PER_QUEUE: usize = 256;
/// Fewest and most queues.
const QUEUES: (usize, usize) = (4, 4096);

/// The lock of a page, held: what needs it takes this value, and `PageLocks::unlock` takes it
/// back.
#[must_use = "the page stays locked"]
#[derive(PartialEq, Eq, Debug)]
pub struct PageLock(Pfn);

impl PageLock {
    /// The page's frame.
    #[inline]
    pub fn page(&self) -> Pfn {
        self.0
    }

    /// Of a page that the caller has locked otherwise: one that was made locked
    /// ([`PageFlags::LOCKED`]), or one of several whose locks are held together and kept as their frames.
    #[inline]
    pub(crate) fn held(page: Pfn) -> PageLock {
        PageLock(page)
    }
}

/// Page locks of one manager.
pub struct PageLocks {
    waits: WaitTable,
    /// An unlocked page with any of these flags may have waiters.
    look: PageFlags,
    /// Empty if the waiters flag tells all.
    queues: Box<[Queue]>,
}

/// Where those wait whose pages have one hash. As large as Linux's: a lock and a list.
#[derive(Default)]
#[repr(C)]
struct Queue {
    waiting: AtomicU32,
    _rest: [u32; 5],
}

impl Default for PageLocks {
    fn default() -> Self {
        PageLocks {
            waits: WaitTable::new(),
            look: PageFlags::WAITERS,
            queues: Box::default(),
        }
    }
}

impl PageLocks {
    /// Locks whose release looks into a table each time, for a memory of `frames`.
    pub fn hashed(frames: usize) -> Self {
        let queues = (frames / FRAMES_PER_QUEUE).next_power_of_two();
        let queues = queues.clamp(QUEUES.0, QUEUES.1);
        PageLocks {
            look: PageFlags::WAITERS.or(PageFlags::ANY_KIND),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            ..PageLocks::default()
        }
    }

    /// Takes the page lock if it is free. The caller holds a reference.
    #[inline]
    pub fn try_lock<P: Platform>(&self, memory: &PhysicalMemory<P>, page: Pfn) -> Option<PageLock> {
        let frame = memory.frame(page).page();
        frame.set(PageFlags::LOCKED).then(|| {
            report_lock(Kind::LockTaken, frame.lock_word());
            PageLock(page)
        })
    }

    /// Releases it.
    #[inline]
    pub fn unlock<P: Platform>(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, lock: PageLock) {
        let PageLock(page) = lock;
        let frame = memory.frame(page).page();
        report_lock(Kind::LockReleased, frame.lock_word());
        frame.clear(PageFlags::LOCKED);
        if frame.has_any(self.look) && self.may_be_awaited(page) {
            frame.clear(PageFlags::WAITERS);
            self.waits.wake(u64::from(page.0), memory.platform(), pin);
        }
    }

    /// Whether somebody stands in the page's queue, if there are queues.
    #[inline]
    fn may_be_awaited(&self, page: Pfn) -> bool {
        let Some(queue) = self.queue(page) else {
            return true;
        };
        fence_after_exchange();
        queue.waiting.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn queue(&self, page: Pfn) -> Option<&Queue> {
        let hash = page.0.wrapping_mul(0x9e37_0001);
        let last = self.queues.len().checked_sub(1)?;
        self.queues.get((hash >> 16) as usize & last)
    }

    /// Sleeps until the lock may be free, if it is not. The caller holds a reference. Returns
    /// whether it has slept.
    pub fn wait<P: Platform>(
        &self,
        unpinned: Unpinned<'_>,
        memory: &PhysicalMemory<P>,
        page: Pfn,
    ) -> bool {
        let frame = memory.frame(page).page();
        report_lock(Kind::LockAwaited, frame.lock_word());
        if let Some(queue) = self.queue(page) {
            queue.waiting.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        let key = u64::from(page.0);
        let has_slept = (self.waits).sleep_if(unpinned, key, memory, &mut |_| {
            frame.set(PageFlags::WAITERS);
            frame.has(PageFlags::LOCKED)
        });
        report_lock(Kind::LockWaitEnded, frame.lock_word());
        self.leave_queue(page);
        has_slept
    }

    fn leave_queue(&self, page: Pfn) {
        if let Some(queue) = self.queue(page) {
            queue.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
