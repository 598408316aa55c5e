//! Interval trees: which items cover a number?
//!
//! Ordered by where intervals begin; each item knows the largest end below it.
//! A stabbing query costs O(log n + hits).

use core::ops::ControlFlow;

use super::{Links, MAX_DEPTH, Threaded, Tree};
use crate::slab::{Arena, Handle, Item};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An item's part of an interval tree: links and the largest end below it.
#[derive(Debug, Default)]
pub struct Interval {
    links: Links,
    largest_end: AtomicU64,
}

/// An item that covers a range of numbers.
pub trait Spans: Item {
    /// Its part of the tree.
    fn interval(&self) -> &Interval;
    /// The first number covered.
    fn first_index(&self) -> u64;
    /// The number behind the last one covered.
    fn end_index(&self) -> u64;
}

struct ByIndex<T>(core::marker::PhantomData<T>);

impl<T: Spans> Threaded for ByIndex<T> {
    type Item = T;

    fn links(item: &T) -> &Links {
        &item.interval().links
    }

    fn key(item: &T) -> u64 {
        item.first_index()
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

fn largest_end<T: Spans>(item: &T) -> u64 {
    item.interval().largest_end.load(Ordering::Relaxed)
}

/// An interval tree: the arena of its items and the word that names its root.
/// Its owner's lock is held over every call.
pub struct IntervalTree<'a, T: Spans> {
    tree: Tree<'a, ByIndex<T>>,
}

impl<'a, T: Spans> IntervalTree<'a, T> {
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

    /// Inserts an item that is in no interval tree, behind those that begin
    /// where it does.
    pub fn insert(&self, handle: Handle<T>) {
        self.tree.insert(handle);
    }

    /// Removes an item of the tree.
    pub fn remove(&self, handle: Handle<T>) {
        self.tree.remove(handle);
    }

    /// Brings the tree up to date after an item's end changed.
    pub fn end_changed(&self, handle: Handle<T>) {
        self.tree.changed(handle);
    }

    /// Calls `visit` for every item that covers a number in `first..end`, by
    /// where they begin, until it breaks.
    #[inline]
    pub fn overlapping(
        &self,
        first: u64,
        end: u64,
        mut visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) {
        let tree = &self.tree;
        let mut stack = [Handle::NONE; MAX_DEPTH];
        let mut depth = 0;
        let mut place = tree.root();
        loop {
            // Down the left side, as far as something there ends late enough.
            while !place.is_none() && largest_end(tree.item(place)) > first && depth < MAX_DEPTH {
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
            if item.end_index() > first && visit(handle, item).is_break() {
                return;
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
        let count = tree.check()?;
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
            place = tree.next(place);
        }
        Ok(count)
    }
}
