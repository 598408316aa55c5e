//! Sleeping until somebody wakes: waiters hashed by what they wait for.
//!
//! A waiter lists itself under the bucket's lock and then looks once more at
//! what it waits for; a waker changes it first and then takes the bucket's
//! lock. So a wake is never missed. A wake wakes those who wait for its key; they look
//! again.
//!
//! What is listed lies on the waiter's stack, so that there is a place for everybody: a task
//! that found none would have to look again and again, and on a processor without preemption
//! whoever it waits for would never run. The waiter stays in here until nobody will touch its
//! place, or its token, any more.

use alloc::boxed::Box;
use core::cell::Cell;
use core::ptr;
// Where accesses are priced this one is not: it is to a stack, wherever the host has put that.
#[cfg(not(vellum_loom))]
use core::sync::atomic::AtomicU32 as StackWord;

#[cfg(vellum_loom)]
use super::atomic::AtomicU32 as StackWord;
use super::atomic::{AtomicU32, Ordering, spin_hint};
use super::queue::{Queues, SPINS, Tail};
use super::report::{Kind, name, report_lock};
use super::{CachePadded, Pin, SleepHost, SpinLock, Unpinned};
use crate::platform::{Machine, Platform, Sleep, TaskToken};

const BUCKETS: usize = 64;

/// In no list, and nobody else will touch it.
const OFF: u32 = 0;
/// In a list.
const LISTED: u32 = 1;

/// A task that waits, on its own stack.
struct Waiter {
    key: u64,
    task: TaskToken,
    state: StackWord,
    /// Its neighbours in the list, or null. These two are touched under the bucket's lock.
    before: Cell<*const Waiter>,
    behind: Cell<*const Waiter>,
}

/// Those who wait, who came first in front. All of it stays what it is while they are listed,
/// and is reached under the bucket's lock only.
struct Bucket {
    first: *const Waiter,
    last: *const Waiter,
}

// SAFETY: a waiter may be listed by one thread and found by another: all of it but its state,
// an atomic, is touched under the bucket's lock while it is listed.
unsafe impl Send for Bucket {}

impl Default for Bucket {
    fn default() -> Self {
        Bucket {
            first: ptr::null(),
            last: ptr::null(),
        }
    }
}

impl Bucket {
    /// Lists a waiter behind all others.
    ///
    /// # Safety
    /// It is in no list, and stays where it is until it has been taken off this one.
    unsafe fn push(&mut self, waiter: &Waiter) {
        let place = ptr::from_ref(waiter);
        waiter.state.store(LISTED, Ordering::Relaxed);
        waiter.before.set(self.last);
        waiter.behind.set(ptr::null());
        // SAFETY: whoever is in the list is where it was when it was listed.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.behind.set(place),
            None => self.first = place,
        }
        self.last = place;
    }

    /// Takes a waiter off the list, in which it is.
    fn remove(&mut self, waiter: &Waiter) {
        let (before, behind) = (waiter.before.get(), waiter.behind.get());
        // SAFETY: whoever is in the list is where it was when it was listed.
        match unsafe { before.as_ref() } {
            Some(before) => before.behind.set(behind),
            None => self.first = behind,
        }
        // SAFETY: likewise.
        match unsafe { behind.as_ref() } {
            Some(behind) => behind.before.set(before),
            None => self.last = before,
        }
    }

    /// Takes those off the list whose key is one of these and has each of them woken by `unpark`.
    fn wake(&mut self, is_one: impl Fn(u64) -> bool, unpark: impl Fn(TaskToken)) {
        let mut next = self.first;
        // SAFETY: whoever is in the list is where it was when it was listed.
        while let Some(waiter) = unsafe { next.as_ref() } {
            next = waiter.behind.get();
            if is_one(waiter.key) {
                self.remove(waiter);
                unpark(waiter.task);
                // At last: the waiter may be gone as soon as it sees this.
                waiter.state.store(OFF, Ordering::Release);
            }
        }
    }
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

/// A stay in a list, which ends when this is dropped.
struct Stay<'a, H: SleepHost> {
    bucket: &'a SpinLock<Bucket>,
    waiter: &'a Waiter,
    host: &'a H,
}

impl<H: SleepHost> Drop for Stay<'_, H> {
    fn drop(&mut self) {
        // Acquire: whoever has woken us is done with the waiter.
        if self.waiter.state.load(Ordering::Acquire) != OFF {
            let pin = self.host.pin();
            let mut bucket = self.bucket.lock(&pin);
            // It may be taking us off.
            if self.waiter.state.load(Ordering::Relaxed) != OFF {
                bucket.remove(self.waiter);
            }
        }
    }
}

impl WaitTable {
    /// An empty table, in which everybody who waits for a [`SleepLock`] looks at it.
    pub fn new() -> Self {
        Self::with_queues(0)
    }

    /// An empty table for `cpus` CPUs, with queues in which those stand who wait for a
    /// [`SleepLock`].
    pub(crate) fn with_queues(cpus: usize) -> Self {
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

    /// Sleeps until somebody wakes those with `key`, unless `must_wait`, called under the
    /// bucket's lock, says that there is nothing left to wait for. `must_wait` is where a
    /// "waiters" flag is set. Returns whether it has slept, which may have ended early: the
    /// caller looks again.
    ///
    /// # Panics
    /// If it has to sleep and whoever calls the manager is pinned.
    pub(crate) fn sleep_if<H: SleepHost>(
        &self,
        unpinned: Unpinned<'_>,
        key: u64,
        host: &H,
        must_wait: &mut dyn FnMut(&Pin<'_>) -> bool,
    ) -> bool {
        let waiter = Waiter {
            key,
            task: host.platform().current_task(),
            state: StackWord::new(OFF),
            before: Cell::new(ptr::null()),
            behind: Cell::new(ptr::null()),
        };
        let bucket = self.bucket(key);
        let stay = Stay {
            bucket,
            waiter: &waiter,
            host,
        };
        {
            let pin = host.pin_by(&unpinned);
            let mut bucket = bucket.lock(&pin);
            if !must_wait(&pin) {
                return false;
            }
            pin.assert_ends();
            // SAFETY: it is new, and `stay`, which borrows it, takes it off the list.
            unsafe { bucket.push(&waiter) };
        }
        unpinned.park(host.platform());
        drop(stay);
        true
    }

    /// Waits until `must_wait` says no: looks for a while, and then sleeps until it is woken.
    /// Whoever changes what `must_wait` looks at wakes those with `key` afterwards.
    pub fn wait_while<H: SleepHost>(
        &self,
        mut unpinned: Unpinned<'_>,
        key: u64,
        host: &H,
        must_wait: &mut dyn FnMut() -> bool,
    ) {
        for spins in 0..SPINS {
            if !must_wait() {
                return;
            }
            spin_hint();
            host.platform().relax(spins);
        }
        while self.sleep_if(unpinned.reborrow(), key, host, &mut |_| must_wait()) {}
    }

    /// Wakes everybody who waits for `key`, after what they wait for has come.
    pub fn wake<P: Platform>(&self, key: u64, platform: &P, pin: &Pin<'_>) {
        let mut bucket = self.bucket(key).lock(pin);
        bucket.wake(|other| other == key, |task| platform.unpark(task));
    }

    /// Wakes everybody who waits for one of `count` keys from `first` on.
    pub(crate) fn wake_row<P: Platform>(
        &self,
        (first, count): (u64, u64),
        platform: &P,
        pin: &Pin<'_>,
    ) {
        if count < BUCKETS as u64 {
            for step in 0..count {
                self.wake(first.wrapping_add(step), platform, pin);
            }
            return;
        }
        for bucket in &self.buckets {
            let is_one = |key: u64| key.wrapping_sub(first) < count;
            (bucket.0.lock(pin)).wake(is_one, |task| platform.unpark(task));
        }
    }
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const HELD_WAITERS: u32 = 2;

/// A lock whose waiters sleep, for operations that may take long. Taken
/// before any spin lock.
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

    /// Takes the lock.
    #[inline]
    pub fn lock<H: SleepHost>(&self, unpinned: Unpinned<'_>, table: &WaitTable, host: &H) {
        if !self.try_lock() {
            self.wait_and_lock(unpinned, table, host);
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_and_lock<H: SleepHost>(&self, mut unpinned: Unpinned<'_>, table: &WaitTable, host: &H) {
        report_lock(Kind::LockAwaited, &self.state);
        let place = table.queues.enter(unpinned.reborrow(), &self.queue, host);
        if !self.watch(host.platform()) {
            self.sleep_and_lock(unpinned.reborrow(), table, host);
        }
        report_lock(Kind::LockTaken, &self.state);
        if let Some(place) = place {
            let (queue, pin) = (&self.queue, host.pin_by(&unpinned));
            table.queues.leave(queue, place, host.platform(), &pin);
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

    fn sleep_and_lock<H: SleepHost>(
        &self,
        mut unpinned: Unpinned<'_>,
        table: &WaitTable,
        host: &H,
    ) {
        // A task that has waited cannot know whether others still do, and keeps
        // the mark.
        while self.state.swap(HELD_WAITERS, Ordering::Acquire) != FREE {
            let has_slept = table.sleep_if(unpinned.reborrow(), self.key(), host, &mut |_| {
                self.state.swap(HELD_WAITERS, Ordering::Acquire) != FREE
            });
            if !has_slept {
                break;
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
    pub(crate) fn is_held(&self) -> bool {
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

#[cfg(all(test, not(vellum_loom)))]
#[path = "wait_tests.rs"]
mod tests;
