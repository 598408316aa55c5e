//! Lists of intervals: what stood in the place of interval trees before 2004.
//!
//! Items stand in a ring by age. A search looks at every one, whatever it looks
//! for, so it costs O(n).

use core::ops::ControlFlow;

use super::{Interval, IntervalItem};
use crate::slab::{Arena, Handle};
use crate::sync::atomic::{AtomicU32, Ordering};

/// A list of intervals: the arena of its items and the word that names the
/// oldest. Its owner's lock is held over every call. An item is in one list or
/// in one interval tree.
pub struct IntervalList<'a, T: IntervalItem> {
    arena: &'a Arena<T>,
    oldest: &'a AtomicU32,
}

impl<'a, T: IntervalItem> IntervalList<'a, T> {
    /// The list whose oldest item stands in `oldest`.
    #[inline]
    pub(crate) fn new(arena: &'a Arena<T>, oldest: &'a AtomicU32) -> Self {
        IntervalList { arena, oldest }
    }

    fn interval(&self, handle: Handle<T>) -> &'a Interval {
        self.arena.get(handle).interval()
    }

    /// Whether there is no item.
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest().is_none()
    }

    fn oldest(&self) -> Handle<T> {
        Handle::from_raw(self.oldest.load(Ordering::Relaxed))
    }

    fn next(&self, handle: Handle<T>) -> Handle<T> {
        Handle::from_raw(self.interval(handle).next.load(Ordering::Relaxed))
    }

    fn previous(&self, handle: Handle<T>) -> Handle<T> {
        Handle::from_raw(self.interval(handle).previous.load(Ordering::Relaxed))
    }

    /// Makes `second` the one that follows `first`.
    fn join(&self, first: Handle<T>, second: Handle<T>) {
        self.interval(first)
            .next
            .store(second.raw(), Ordering::Relaxed);
        self.interval(second)
            .previous
            .store(first.raw(), Ordering::Relaxed);
    }

    /// Adds an item that is in no list, as the youngest.
    pub(crate) fn insert(&self, handle: Handle<T>) {
        let oldest = self.oldest();
        if oldest.is_none() {
            self.oldest.store(handle.raw(), Ordering::Relaxed);
            self.join(handle, handle);
        } else {
            self.join(self.previous(oldest), handle);
            self.join(handle, oldest);
        }
    }

    /// Removes an item of the list.
    pub(crate) fn remove(&self, handle: Handle<T>) {
        let next = self.next(handle);
        self.join(self.previous(handle), next);
        if self.oldest() == handle {
            let oldest = if next == handle { Handle::NONE } else { next };
            self.oldest.store(oldest.raw(), Ordering::Relaxed);
        }
    }

    /// Looks at every item, oldest first, and calls `visit` for those that cover
    /// a number in `first..end`, until it breaks.
    pub(crate) fn overlapping(
        &self,
        first: u64,
        end: u64,
        visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.from(self.oldest(), first, end, visit)
    }

    /// The same for the items that are younger than `last`, which is in the list.
    pub(crate) fn overlapping_after(
        &self,
        last: Handle<T>,
        first: u64,
        end: u64,
        visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.from(self.younger(last), first, end, visit)
    }

    /// The next younger item, or none.
    fn younger(&self, handle: Handle<T>) -> Handle<T> {
        let next = self.next(handle);
        if next == self.oldest() {
            return Handle::NONE;
        }
        next
    }

    fn from(
        &self,
        start: Handle<T>,
        first: u64,
        end: u64,
        mut visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut handle = start;
        while !handle.is_none() {
            let item = self.arena.get(handle);
            if item.first_index() < end && item.end_index() > first {
                visit(handle, item)?;
            }
            handle = self.younger(handle);
        }
        ControlFlow::Continue(())
    }

    /// Checks the links, and each item by `check`; returns how many there are.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn check(
        &self,
        mut check: impl FnMut(&T) -> Result<(), &'static str>,
    ) -> Result<u64, &'static str> {
        let mut count = 0;
        let oldest = self.oldest();
        let mut handle = oldest;
        while !handle.is_none() {
            check(self.arena.get(handle))?;
            count += 1;
            let next = self.next(handle);
            if self.previous(next) != handle {
                return Err("an item does not know the one before it in its list");
            }
            handle = if next == oldest { Handle::NONE } else { next };
        }
        Ok(count)
    }
}
