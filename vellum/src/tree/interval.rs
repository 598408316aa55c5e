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

use super::{Links, MAX_DEPTH, Node, Threaded, Tree};
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
        let below = left
            .map_or(0, largest_end)
            .max(right.map_or(0, largest_end));
        let largest = below.max(item.end_index());
        let changed = largest_end(item) != largest;
        if changed {
            let word = &item.interval().largest_end;
            word.store(largest, Ordering::Relaxed);
        }
        changed
    }
}

/// An item of the tree or of a ring.
type Twin<'a, T> = Node<'a, ByIndex<T>>;

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
        self.tree.node(handle).item
    }

    fn next(&self, node: Twin<'a, T>) -> Twin<'a, T> {
        let next = &node.item.interval().next;
        self.tree
            .node(Handle::from_raw(next.load(Ordering::Relaxed)))
    }

    fn previous(&self, node: Twin<'a, T>) -> Twin<'a, T> {
        let previous = &node.item.interval().previous;
        self.tree
            .node(Handle::from_raw(previous.load(Ordering::Relaxed)))
    }

    /// Makes `second` the one after `first` in a ring.
    fn join(&self, first: Twin<'a, T>, second: Twin<'a, T>) {
        let next = &first.item.interval().next;
        next.store(second.handle.raw(), Ordering::Relaxed);
        let previous = &second.item.interval().previous;
        previous.store(first.handle.raw(), Ordering::Relaxed);
    }

    /// Inserts an item that is in no interval tree, after those with the same
    /// interval.
    pub fn insert(&self, handle: Handle<T>) {
        let node = self.tree.node(handle);
        match self.tree.insert(node) {
            Some(oldest) => {
                self.join(self.previous(oldest), node);
                self.join(node, oldest);
            }
            None => self.join(node, node),
        }
    }

    /// Removes an item of the tree, whose interval has not changed since it was
    /// inserted.
    pub fn remove(&self, handle: Handle<T>) {
        let node = self.tree.node(handle);
        let next = self.next(node);
        if next.handle == handle {
            self.tree.remove(node);
            return;
        }
        self.join(self.previous(node), next);
        if self.tree.is_in(node) {
            self.tree.replace(node, next);
        }
    }

    /// Whether there is no item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tree.root().is_none()
    }

    /// Calls `visit` for every item that covers a number in `first..end`, by
    /// where they begin and end and then by age, until it breaks.
    #[inline]
    pub fn overlapping(
        &self,
        first: u64,
        end: u64,
        visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.walk(first, end, None, visit)
    }

    /// The same for the items that come after `last`, which is in the tree, in
    /// that order.
    pub(crate) fn overlapping_after(
        &self,
        last: Handle<T>,
        first: u64,
        end: u64,
        mut visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let last = self.tree.node(last);
        let mut twin = self.next(last);
        while !self.tree.is_in(twin) {
            visit(twin.handle, twin.item)?;
            twin = self.next(twin);
        }
        let key = last.key();
        self.walk(first, end, Some(key), visit)
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
    ) -> ControlFlow<()> {
        let tree = &self.tree;
        let mut stack = [None; MAX_DEPTH];
        let mut depth = 0;
        let mut place = tree.root();
        loop {
            // Down the left side, as far as something there ends late enough.
            while let Some(node) = place
                && largest_end(node.item) > first
                && depth < MAX_DEPTH
            {
                if after.is_some_and(|after| node.key() <= after) {
                    // So is everything further left.
                    place = tree.right(node);
                    continue;
                }
                stack[depth] = place;
                depth += 1;
                place = tree.left(node);
            }
            if depth == 0 {
                return ControlFlow::Continue(());
            }
            depth -= 1;
            let Some(node) = stack[depth] else {
                return ControlFlow::Continue(());
            };
            if node.item.first_index() >= end {
                // Everything further right begins later still.
                place = None;
                continue;
            }
            if node.item.end_index() > first {
                let mut twin = node;
                loop {
                    visit(twin.handle, twin.item)?;
                    twin = self.next(twin);
                    if twin.handle == node.handle {
                        break;
                    }
                }
            }
            place = tree.right(node);
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
        while let Some(node) = place {
            let item = node.item;
            let ends = [tree.left(node), tree.right(node)]
                .into_iter()
                .flatten()
                .map(|child| largest_end(child.item));
            if ends.fold(item.end_index(), u64::max) != largest_end(item) {
                return Err("an interval tree has a wrong largest end");
            }
            check(item)?;
            let mut twin = node;
            loop {
                let next = self.next(twin);
                if self.previous(next).handle != twin.handle {
                    return Err("an item does not know the one before it in its ring");
                }
                if next.handle == node.handle {
                    break;
                }
                if next.key() != node.key() {
                    return Err("items of one ring have different intervals");
                }
                if tree.is_in(next) {
                    return Err("two items of one ring are in the tree");
                }
                check(next.item)?;
                count += 1;
                twin = next;
            }
            place = tree.next(node);
        }
        Ok(count)
    }
}
