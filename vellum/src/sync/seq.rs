//! A sequence count: readers write nothing and learn whether to try again.

use core::marker::PhantomData;

use super::Pin;
use super::atomic::{AtomicU32, Ordering, fence};

/// Counts changes of the data beside it. Odd while a writer is at work.
///
/// The data is read and written through relaxed atomics. Writers exclude each
/// other by a lock of their own.
#[derive(Debug)]
pub struct SeqCount(AtomicU32);

impl Default for SeqCount {
    fn default() -> Self {
        SeqCount(AtomicU32::new(0))
    }
}

impl SeqCount {
    /// Starts a read; `None` while a writer is at work.
    #[inline]
    pub fn begin(&self) -> Option<u32> {
        let value = self.0.load(Ordering::Acquire);
        (value & 1 == 0).then_some(value)
    }

    /// Whether everything read since [`SeqCount::begin`] belongs together.
    #[inline]
    pub fn valid(&self, begun: u32) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == begun
    }

    /// Comes before the first store to an item that readers of a count may still be looking
    /// at, although it is gone from what they read: whoever calls this knows, through what
    /// handed the item on, that the count has changed since. A reader that then sees one of
    /// the stores sees the change, too, and [`SeqCount::valid`] tells it to read again.
    #[inline]
    pub(crate) fn before_reuse() {
        fence(Ordering::Release);
    }

    /// Starts a change. The caller holds the writers' lock, and stays on its CPU
    /// until the change is complete, since readers wait for it.
    #[inline]
    pub fn write<'a>(&'a self, _pin: &'a Pin<'_>) -> SeqWrite<'a> {
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        SeqWrite {
            count: self,
            begun: value,
            pinned: PhantomData,
        }
    }
}

/// A change in progress; dropping it lets readers in again. It does not outlive its pin:
///
/// ```
/// # use vellum::{frame::PhysicalMemory, platform::Platform, sync::SeqCount};
/// fn change(count: &SeqCount, memory: &PhysicalMemory<impl Platform>) {
///     let pin = memory.pin();
///     let change = count.write(&pin);
///     drop(change);
///     drop(pin);
/// }
/// ```
/// ```compile_fail,E0505
/// # use vellum::{frame::PhysicalMemory, platform::Platform, sync::SeqCount};
/// fn change(count: &SeqCount, memory: &PhysicalMemory<impl Platform>) {
///     let pin = memory.pin();
///     let change = count.write(&pin);
///     drop(pin);
///     drop(change);
/// }
/// ```
pub struct SeqWrite<'a> {
    count: &'a SeqCount,
    begun: u32,
    /// Binds the change to its pin, and to the pin's thread.
    pinned: PhantomData<&'a Pin<'a>>,
}

impl Drop for SeqWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        let complete = self.begun.wrapping_add(2);
        self.count.0.store(complete, Ordering::Release);
    }
}
