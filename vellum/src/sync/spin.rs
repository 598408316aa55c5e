//! A spin lock around a value.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};

use super::Pin;
use super::atomic::{AtomicU32, Ordering};
use super::held::Held;
use super::queue::Tail;
use super::report::{Kind, report, report_lock};

const LOCKED: u32 = 1;

/// A value that one pinned holder at a time can reach.
///
/// Taking it counts in nothing; whoever waits calls the platform's `relax`. Those who
/// wait stand in a queue, and only the first of them looks at the lock, so that they do
/// not keep its line from whoever holds it.
pub struct SpinLock<T> {
    state: AtomicU32,
    queue: Tail,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the holder of `state`, one at a time,
// and acquire/release on `state` orders holders; so it moves between threads
// but is never shared.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: Send> Send for SpinLock<T> {}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpinLock")
    }
}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> SpinLock<T> {
    /// An unlocked value.
    pub fn new(value: T) -> Self {
        SpinLock {
            state: AtomicU32::new(0),
            queue: Tail::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the lock is ours.
    #[inline]
    pub fn lock<'a>(&'a self, pin: &'a Pin<'_>) -> SpinGuard<'a, T> {
        match self.try_lock(pin) {
            Some(guard) => guard,
            None => self.wait_and_lock(pin),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_and_lock<'a>(&'a self, pin: &'a Pin<'_>) -> SpinGuard<'a, T> {
        report_lock(Kind::LockAwaited, &self.state);
        let place = pin.queues().enter_pinned(&self.queue, pin);
        let mut spins = 0;
        let guard = loop {
            while self.state.load(Ordering::Relaxed) == LOCKED {
                pin.relax(spins);
                spins += 1;
            }
            if let Some(guard) = self.try_lock(pin) {
                break guard;
            }
        };
        if let Some(place) = place {
            pin.queues().leave_pinned(&self.queue, place, pin);
        }
        guard
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock<'a>(&'a self, pin: &'a Pin<'_>) -> Option<SpinGuard<'a, T>> {
        self.state
            .compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            // Not `then_some`: a guard made in vain would unlock.
            .then(|| {
                report_lock(Kind::LockTaken, &self.state);
                SpinGuard {
                    lock: self,
                    _held: Held::by(pin),
                }
            })
    }

    /// The value, when nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Holds a [`SpinLock`] until dropped, which happens before the pin ends under
/// which the lock was taken.
///
/// It stays on its CPU:
///
/// ```
/// use vellum::sync::{Pin, SpinLock};
/// fn hold(lock: &SpinLock<u32>, pin: &Pin<'_>) {
///     let guard = lock.lock(pin);
///     std::thread::scope(|scope| { scope.spawn(|| println!("{}", *guard)); });
/// }
/// ```
/// ```compile_fail,E0277
/// use vellum::sync::{Pin, SpinLock};
/// fn hold(lock: &SpinLock<u32>, pin: &Pin<'_>) {
///     let guard = lock.lock(pin);
///     std::thread::scope(|scope| { scope.spawn(move || println!("{}", *guard)); });
/// }
/// ```
///
/// What it gives access to is shared between threads only if it may be. With
/// the `u32` above replaced by a `Cell`, which may not:
///
/// ```compile_fail,E0277
/// use std::cell::Cell;
/// use vellum::sync::{Pin, SpinLock};
/// fn hold(lock: &SpinLock<Cell<u32>>, pin: &Pin<'_>) {
///     let guard = lock.lock(pin);
///     std::thread::scope(|scope| { scope.spawn(|| println!("{}", guard.get())); });
/// }
/// ```
/// ```
/// use std::cell::Cell;
/// use vellum::sync::{Pin, SpinLock};
/// fn hold(lock: &SpinLock<Cell<u32>>, pin: &Pin<'_>) {
///     let guard = lock.lock(pin);
///     println!("{}", guard.get());
/// }
/// ```
///
/// It does not outlive its pin:
///
/// ```
/// # use vellum::platform::Platform;
/// use vellum::frame::PhysicalMemory;
/// use vellum::sync::SpinLock;
/// fn count(lock: &SpinLock<u32>, memory: &PhysicalMemory<impl Platform>) {
///     let pin = memory.pin();
///     let mut guard = lock.lock(&pin);
///     *guard += 1;
///     drop(guard);
///     drop(pin);
/// }
/// ```
/// ```compile_fail,E0505
/// # use vellum::platform::Platform;
/// use vellum::frame::PhysicalMemory;
/// use vellum::sync::SpinLock;
/// fn count(lock: &SpinLock<u32>, memory: &PhysicalMemory<impl Platform>) {
///     let pin = memory.pin();
///     let mut guard = lock.lock(&pin);
///     *guard += 1;
///     drop(pin);
///     drop(guard);
/// }
/// ```
/// ```compile_fail,E0505
/// # use vellum::platform::Platform;
/// use vellum::frame::PhysicalMemory;
/// use vellum::sync::SpinLock;
/// fn count(lock: &SpinLock<u32>, memory: &PhysicalMemory<impl Platform>) {
///     let pin = memory.pin();
///     let mut guard = lock.try_lock(&pin).expect("nobody else has it");
///     *guard += 1;
///     drop(pin);
///     drop(guard);
/// }
/// ```
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// Binds the guard to its pin, and to the pin's thread.
    _held: Held<'a>,
}

// SAFETY: a shared guard gives out shared references to the value and nothing
// else. `Held`, which has a `PhantomData` of a pin, keeps the guard itself where it is.
unsafe impl<T: Sync> Sync for SpinGuard<'_, T> {}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        report(
            Kind::GuardedRead,
            self.lock.value.get().cast(),
            size_of::<T>(),
        );
        // SAFETY: this guard exists, so we are the one holder of the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        report(
            Kind::GuardedWrite,
            self.lock.value.get().cast(),
            size_of::<T>(),
        );
        // SAFETY: this guard exists and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        report_lock(Kind::LockReleased, &self.lock.state);
        self.lock.state.store(0, Ordering::Release);
    }
}
