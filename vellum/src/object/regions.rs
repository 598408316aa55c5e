//! Which regions map an object: an interval tree by page index.
//!
//! Truncation needs it for copies that private mappings made, and
//! object-based reverse mapping finds everything through it. A region's
//! interval is where its pages lie in the object; a stabbing query costs
//! O(log n + hits).

use core::ops::ControlFlow;

use crate::slab::{Arena, Handle, Item};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{BitLock, Pin};
use crate::tree::{Links, MAX_DEPTH, Threaded, Tree};

/// A region's part of the tree: links and the largest end below it.
#[derive(Debug, Default)]
pub struct Interval {
    links: Links,
    largest_end: AtomicU64,
}

/// An item that maps a range of an object's pages.
pub trait MappedBy: Item {
    /// Its part of the tree.
    fn interval(&self) -> &Interval;
    /// First page of the object that it maps.
    fn first_index(&self) -> u64;
    /// First page behind those it maps.
    fn end_index(&self) -> u64;
}

struct ByIndex<T>(core::marker::PhantomData<T>);

impl<T: MappedBy> Threaded for ByIndex<T> {
    type Item = T;

    fn links(item: &T) -> &Links {
        &item.interval().links
    }

    fn key(item: &T) -> u64 {
        item.first_index()
    }

    fn refresh(item: &T, left: Option<&T>, right: Option<&T>) {
        let below = [left, right].into_iter().flatten();
        let largest = below
            .map(|child| child.interval().largest_end.load(Ordering::Relaxed))
            .fold(item.end_index(), u64::max);
        item.interval()
            .largest_end
            .store(largest, Ordering::Relaxed);
    }
}

const LOCK_BIT: u32 = 0;

/// The regions of one object: the regions' arena, the object's lock and root.
pub struct ObjectRegions<'a, T: MappedBy> {
    arena: &'a Arena<T>,
    lock: &'a AtomicU32,
    root: &'a AtomicU32,
}

impl<'a, T: MappedBy> ObjectRegions<'a, T> {
    pub(super) fn new(arena: &'a Arena<T>, lock: &'a AtomicU32, root: &'a AtomicU32) -> Self {
        ObjectRegions { arena, lock, root }
    }

    fn tree(&self) -> Tree<'a, ByIndex<T>> {
        Tree::new(self.arena, self.root)
    }

    /// A region maps the object from now on.
    pub fn insert(&self, pin: &Pin<'_>, region: Handle<T>) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        self.tree().insert(region);
    }

    /// A region maps the object no more.
    pub fn remove(&self, pin: &Pin<'_>, region: Handle<T>) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        self.tree().remove(region);
    }

    /// Changes the part of the object that a region maps.
    pub fn change(&self, pin: &Pin<'_>, region: Handle<T>, change: impl FnOnce()) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        self.tree().remove(region);
        change();
        self.tree().insert(region);
    }

    /// Cuts a region: `change` leaves `head` its first part and makes `tail`
    /// the second. Whoever looks finds each page in one region.
    pub fn split(&self, pin: &Pin<'_>, head: Handle<T>, tail: Handle<T>, change: impl FnOnce()) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        self.tree().remove(head);
        change();
        self.tree().insert(head);
        self.tree().insert(tail);
    }

    /// The reverse of [`ObjectRegions::split`]: `change` makes `head` map what
    /// both mapped.
    pub fn join(&self, pin: &Pin<'_>, head: Handle<T>, tail: Handle<T>, change: impl FnOnce()) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        self.tree().remove(tail);
        self.tree().remove(head);
        change();
        self.tree().insert(head);
    }

    /// Calls `visit` for every region that maps a page in `first..end`, until
    /// it breaks. The lock is held: `visit` may try table locks, and wait for
    /// nothing.
    pub fn overlapping(
        &self,
        pin: &Pin<'_>,
        first: u64,
        end: u64,
        mut visit: impl FnMut(Handle<T>, &T) -> ControlFlow<()>,
    ) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        let tree = self.tree();
        let mut stack = [Handle::NONE; MAX_DEPTH];
        let mut depth = 0;
        let mut place = tree.root();
        loop {
            // Down the left side, as far as something there ends late enough.
            while !place.is_none()
                && tree
                    .item(place)
                    .interval()
                    .largest_end
                    .load(Ordering::Relaxed)
                    > first
                && depth < MAX_DEPTH
            {
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

    /// Checks the tree while nothing else runs; returns its size.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<u64, &'static str> {
        self.tree().check()
    }
}
