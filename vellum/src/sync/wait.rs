//! Sleeping until somebody wakes: waiters hashed by what they wait for.
//!
//! A waiter lists itself under the bucket's lock and then looks once more at
//! what it waits for; a waker changes it first and then takes the bucket's
//! lock. So a wake is never missed. A wake for one key may wake waiters of
//! another with the same hash; they look again.

use alloc::boxed::Box;

use super::atomic::{AtomicU32, Ordering, spin_hint};
use super::queue::{Queues, SPINS, Tail};
use super::report::{Kind, name, report_lock};
use super::{CachePadded, Pin, SpinLock};
use crate::platform::{Platform, TaskToken};

const BUCKETS: usize = 64;
const SLOTS: usize = 6;

#[derive(Default)]
struct Bucket {
    /// Keys and tasks that wait. A task that finds no slot polls instead of sleeping.
    waiting: [Option<(u64, TaskToken)>; SLOTS],
}

/// Waiters of one manager.
pub struct WaitTable {
    buckets: Box<[CachePadded<SpinLock<Bucket>>]>,
    /// Where tasks wait that need not be in a bucket yet.
    queues: Queues,
}

impl Default for WaitTable {
    fn default() -> Self {
        Self::new()
    }
}

/// A waiter that is listed and has to sleep.
#[must_use = "a listed waiter must sleep or be taken off the list"]
pub struct Waiter {
    listed: bool,
}

impl WaitTable {
    /// An empty table, in which everybody who waits for a [`SleepLock`] looks at it.
    pub fn new() -> Self {
        Self::with_queues(0)
    }

    /// An empty table for `cpus` CPUs, with queues in which those stand who wait for a
    /// [`SleepLock`].
    pub fn with_queues(cpus: usize) -> Self {
        let buckets = (0..BUCKETS).map(|_| CachePadded::default());
        let buckets: Box<[CachePadded<SpinLock<Bucket>>]> = buckets.collect();
        name("WaitTable", &[], buckets.as_ptr(), BUCKETS);
        WaitTable {
            buckets,
            queues: Queues::new("nodes of sleepers", cpus),
        }
    }

    fn bucket(&self, key: u64) -> &SpinLock<Bucket> {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.buckets[hash as usize % BUCKETS].0
    }

    /// Queues of those who need not be listed yet.
    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Lists `task` as a waiter for `key`, unless `must_wait`, called under
    /// the bucket's lock, says that there is nothing left to wait for.
    /// `must_wait` is where a "waiters" flag is set.
    pub fn prepare(
        &self,
        key: u64,
        task: TaskToken,
        pin: &Pin<'_>,
        must_wait: &mut dyn FnMut() -> bool,
    ) -> Option<Waiter> {
        let mut bucket = self.bucket(key).lock(pin);
        if !must_wait() {
            return None;
        }
        // A task whose sleep ended early is still listed.
        let mine = bucket
            .waiting
            .iter()
            .position(|slot| *slot == Some((key, task)));
        let free = || bucket.waiting.iter().position(|slot| slot.is_none());
        let slot = mine.or_else(free).map(|index| &mut bucket.waiting[index]);
        let listed = slot.is_some();
        if let Some(slot) = slot {
            *slot = Some((key, task));
        }
        Some(Waiter { listed })
    }

    /// Sleeps. Not pinned. May return early; the caller looks again.
    pub fn sleep<P: Platform>(&self, waiter: Waiter, platform: &P) {
        if waiter.listed {
            platform.park();
        } else {
            platform.relax(u32::MAX);
        }
    }

    /// Waits until `must_wait` says no: looks for a while, and then sleeps until it is woken.
    /// Whoever changes what `must_wait` looks at wakes those with `key` afterwards.
    pub fn wait_while<'p, P: Platform>(
        &self,
        key: u64,
        platform: &P,
        pin: &dyn Fn() -> Pin<'p>,
        must_wait: &mut dyn FnMut() -> bool,
    ) {
        for spins in 0..SPINS {
            if !must_wait() {
                return;
            }
            spin_hint();
            platform.relax(spins);
        }
        loop {
            let waiter = self.prepare(key, platform.current_task(), &pin(), must_wait);
            match waiter {
                Some(waiter) => self.sleep(waiter, platform),
                None => return,
            }
        }
    }

    /// Wakes everybody who waits for `key`, after what they wait for has come.
    pub fn wake<P: Platform>(&self, key: u64, platform: &P, pin: &Pin<'_>) {
        let mut bucket = self.bucket(key).lock(pin);
        for slot in &mut bucket.waiting {
            if let Some((waits_for, task)) = *slot
                && waits_for == key
            {
                *slot = None;
                platform.unpark(task);
            }
        }
    }
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const HELD_WAITERS: u32 = 2;

/// A lock whose waiters sleep, for operations that may take long. Taken
/// unpinned, and before any spin lock.
///
/// Those who wait stand in a queue. The first of it looks at the lock for a while and
/// then sleeps; the others do the same with their turn. Whoever lets go of the lock wakes
/// at most the first, and somebody who comes at that moment may be faster: a lock that is
/// handed over would stay idle until the task that it was given to runs.
#[derive(Debug, Default)]
pub struct SleepLock {
    state: AtomicU32,
    queue: Tail,
}

impl SleepLock {
    /// Takes the lock if it is free: one atomic exchange, which may be refused.
    #[inline]
    pub fn try_lock(&self) -> bool {
        let taken = self.exchange();
        if taken {
            report_lock(Kind::LockTaken, &self.state);
        }
        taken
    }

    #[inline]
    fn exchange(&self) -> bool {
        (self.state)
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock. `pin` pins the caller's CPU for as long as its result
    /// lives; it is used to list the caller as a waiter.
    #[inline]
    pub fn lock<'p, P: Platform>(
        &self,
        table: &WaitTable,
        platform: &P,
        pin: impl Fn() -> Pin<'p>,
    ) {
        if !self.try_lock() {
            self.wait_and_lock(table, platform, &pin);
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_and_lock<'p, P: Platform>(
        &self,
        table: &WaitTable,
        platform: &P,
        pin: &dyn Fn() -> Pin<'p>,
    ) {
        report_lock(Kind::LockAwaited, &self.state);
        let place = table.queues.enter(&self.queue, platform, pin);
        if !self.watch(platform) {
            self.sleep_and_lock(table, platform, pin);
        }
        report_lock(Kind::LockTaken, &self.state);
        if let Some(place) = place {
            table.queues.leave(&self.queue, place, platform);
        }
    }

    /// Looks for a while whether the lock becomes free; returns whether it was taken.
    fn watch<P: Platform>(&self, platform: &P) -> bool {
        for spins in 0..SPINS {
            if spins > 0 {
                spin_hint();
                platform.relax(spins - 1);
            }
            if self.state.load(Ordering::Relaxed) == FREE && self.exchange() {
                return true;
            }
        }
        false
    }

    fn sleep_and_lock<'p, P: Platform>(
        &self,
        table: &WaitTable,
        platform: &P,
        pin: &dyn Fn() -> Pin<'p>,
    ) {
        // A task that has waited cannot know whether others still do, and keeps
        // the mark.
        while self.state.swap(HELD_WAITERS, Ordering::Acquire) != FREE {
            let waiting = {
                let pin = pin();
                let task = platform.current_task();
                table.prepare(self.key(), task, &pin, &mut || {
                    self.state.swap(HELD_WAITERS, Ordering::Acquire) != FREE
                })
            };
            match waiting {
                Some(waiting) => table.sleep(waiting, platform),
                None => break,
            }
        }
    }

    /// Releases the lock. `pin` is called if there is somebody to wake.
    #[inline]
    pub fn unlock<'p, P: Platform>(
        &self,
        table: &WaitTable,
        platform: &P,
        pin: impl FnOnce() -> Pin<'p>,
    ) {
        report_lock(Kind::LockReleased, &self.state);
        if self.state.swap(FREE, Ordering::Release) == HELD_WAITERS {
            self.wake(table, platform, &pin());
        }
    }

    #[cold]
    #[inline(never)]
    fn wake<P: Platform>(&self, table: &WaitTable, platform: &P, pin: &Pin<'_>) {
        table.wake(self.key(), platform, pin);
    }

    /// Whether somebody holds it.
    pub fn is_held(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }

    fn key(&self) -> u64 {
        key_of(self)
    }
}

/// The key of those who wait for something that lies there.
pub(super) fn key_of<T>(what: &T) -> u64 {
    let address = core::ptr::from_ref(what).addr() as u64;
    // Which bucket it has must not depend on where the host has put memory, which
    // is aligned to this, when accesses are priced. Equal keys wake more than they need.
    if cfg!(vellum_instrumented) {
        address % (2 << 20)
    } else {
        address
    }
}
