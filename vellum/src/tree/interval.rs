//! Interval trees: which items cover a number?
//!
//! Ordered by where intervals begin, then by where they end; each item knows the
//! largest end below it. A stabbing query costs O(log n + hits), n being the number
//! of different intervals.
//!
//! Only the first item of each interval is in the tree. The others, its twins,
//! stand in a ring with it, by age: every process that runs a program maps the same
//! parts of the same libraries, and a family of processes has the same heap. So the
//! items that an insertion or removal reads are few and in the caches.

use core::ops::ControlFlow;

use super::{Links, MAX_DEPTH, Threaded, Tree};
use crate::slab::{Arena, Handle, Item};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An item's part of an interval tree: links, the largest end below it, and the
/// items with the same interval.
#[derive(Debug, Default)]
pub struct Interval {
    links: Links,
    largest_end: AtomicU64,
    /// The next of the ring of items with this interval, itself if it is alone.
    /// The one after the youngest is the oldest, which is in the tree.
    pub(super) next: AtomicU32,
    pub(super) previous: AtomicU32,
}

/// An item that covers a range of numbers.
pub trait IntervalItem: Item {
    /// Its part of the tree.
    fn interval(&self) -> &Interval;
    /// The first number covered.
    fn first_index(&self) -> u64;
    /// The number after the last one covered.
    fn end_index(&self) -> u64;
}

struct ByIndex<T>(core::marker::PhantomData<T>);

impl<T: IntervalItem> Threaded for ByIndex<T> {
    type Item = T;
    type Key = (u64, u64);

    fn links(item: &T) -> &Links {
        &item.interval().links
    }

    fn key(item: &T) -> (u64, u64) {
        (item.first_index(), item.end_index())
    }

    fn refresh(item: &T, left: Option<&T>, right: Option<&T>) -> bool {
        let below = [left, right].into_iter().flatten();
        let largest = below.map(largest_end).fold(item.end_index(), u64::max);
        let known = largest_end(item);
        item.interval()
            .largest_end
            .store(largest, Ordering::Relaxed);
        known != largest
    }
}

fn largest_end<T: IntervalItem>(item: &T) -> u64 {
    item.interval().largest_end.load(Ordering::Relaxed)
}

/// An interval tree: the arena of its items and the word that names its root.
/// Its owner's lock is held over every call.
pub struct IntervalTree<'a, T: IntervalItem> {
    tree: Tree<'a, ByIndex<T>>,
}

impl<'a, T: IntervalItem> IntervalTree<'a, T> {
    /// The tree whose root handle stands in `root`.
    #[inline]
    pub fn new(arena: &'a Arena<T>, root: &'a AtomicU32) -> Self {
        IntervalTree {
            tree: Tree::new(arena, root),
        }
    }

    /// The item.
    #[inline]
    pub fn item(&self, handle: Handle<T>) -> &'a T {
        self.tree.item(handle)
    }

    fn next(&self, handle: Handle<T>) -> Handle<T> {
        Handle::from_raw(self.item(handle).interval().next.load(Ordering::Relaxed))
    }

    fn previous(&self, handle: Handle<T>) -> Handle<T> {
        let previous = &self.item(handle).interval().previous;
        Handle::from_raw(previous.load(Ordering::Relaxed))
    }

    /// Makes `second` the one after `first` in a ring.
    fn join(&self, first: Handle<T>, second: Handle<T>) {
        let next = &self.item(first).interval().next;
        next.store(second.raw(), Ordering::Relaxed);
        let previous = &self.item(second).interval().previous;
        previous.store(first.raw(), Ordering::Relaxed);
    }

    /// Inserts an item that is in no interval tree, after those with the same
    /// interval.
    pub fn insert(&self, handle: Handle<T>) {
        match self.tree.insert(handle) {
            Some(oldest) => {
                self.join(self.previous(oldest), handle);
                self.join(handle, oldest);
            }
            None => self.join(handle, handle),
        }
    }

    /// Removes an item of the tree, whose interval has not changed since it was
    /// inserted.
    pub fn remove(&self, handle: Handle<T>) {
        let next = self.next(handle);
        self.join(self.previous(handle), next);
        if !self.tree.is_in(handle) {
            return;
        }
        if next == handle {
            self.tree.remove(handle);
        } else {
            self.tree.replace(handle, next);
        }
    }

    /// Calls `visit` for every item that covers a number in `first..end`, by
    /// where they begin and end and then by age, until it breaks.
    #[inline]
    pub fn overlapping(
        &self,
        first: u64,
        end: u64,
        visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) {
        self.walk(first, end, None, visit);
    }

    /// The same for the items that come after `last`, which is in the tree, in
    /// that order.
    pub fn overlapping_after(
        &self,
        last: Handle<T>,
        first: u64,
        end: u64,
        mut visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) {
        let mut twin = self.next(last);
        while !self.tree.is_in(twin) {
            if visit(twin, self.item(twin)).is_break() {
                return;
            }
            twin = self.next(twin);
        }
        let key = ByIndex::<T>::key(self.item(last));
        self.walk(first, end, Some(key), visit);
    }

    /// The items that cover a number in `first..end`, without those whose
    /// intervals come no later than `after`.
    #[inline]
    fn walk(
        &self,
        first: u64,
        end: u64,
        after: Option<(u64, u64)>,
        mut visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) {
        let tree = &self.tree;
        let mut stack = [Handle::NONE; MAX_DEPTH];
        let mut depth = 0;
        let mut place = tree.root();
        loop {
            // Down the left side, as far as something there ends late enough.
            while !place.is_none() && largest_end(tree.item(place)) > first && depth < MAX_DEPTH {
                if after.is_some_and(|after| ByIndex::<T>::key(tree.item(place)) <= after) {
                    // So is everything further left.
                    place = tree.right(place);
                    continue;
                }
                stack[depth] = place;
                depth += 1;
                place = tree.left(place);
            }
            if depth == 0 {
                return;
            }
            depth -= 1;
            let handle = stack[depth];
            let item = tree.item(handle);
            if item.first_index() >= end {
                // Everything further right begins later still.
                place = Handle::NONE;
                continue;
            }
            if item.end_index() > first {
                let mut twin = handle;
                loop {
                    if visit(twin, tree.item(twin)).is_break() {
                        return;
                    }
                    twin = self.next(twin);
                    if twin == handle {
                        break;
                    }
                }
            }
            place = tree.right(handle);
        }
    }

    /// Checks order, balance, links and sums, and each item by `check`;
    /// returns how many there are.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(
        &self,
        mut check: impl FnMut(&T) -> Result<(), &'static str>,
    ) -> Result<u64, &'static str> {
        let tree = &self.tree;
        let mut count = tree.check()?;
        let mut place = tree.first();
        while !place.is_none() {
            let item = tree.item(place);
            let below = [tree.left(place), tree.right(place)];
            let largest = below
                .into_iter()
                .filter(|child| !child.is_none())
                .map(|child| largest_end(tree.item(child)))
                .fold(item.end_index(), u64::max);
            if largest != largest_end(item) {
                return Err("an interval tree has a wrong largest end");
            }
            check(item)?;
            let mut twin = place;
            loop {
                let next = self.next(twin);
                if self.previous(next) != twin {
                    return Err("an item does not know the one before it in its ring");
                }
                if next == place {
                    break;
                }
                let other = tree.item(next);
                if (other.first_index(), other.end_index())
                    != (item.first_index(), item.end_index())
                {
                    return Err("items of one ring have different intervals");
                }
                if tree.is_in(next) {
                    return Err("two items of one ring are in the tree");
                }
                check(other)?;
                count += 1;
                twin = next;
            }
            place = tree.next(place);
        }
        Ok(count)
    }
}
