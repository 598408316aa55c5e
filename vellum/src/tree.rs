//! Trees over arena items: interval trees, which need no memory of their own,
//! and trees of ranges, whose searches are short.
//!
//! An interval tree is an AVL tree whose links lie in the items, so that
//! inserting and removing never allocate. Items carry sums over their subtrees
//! that `Threaded::refresh` recomputes bottom-up. Its owner's lock is held
//! over every use. Trees of ranges ([`RangeTree`]) are B+trees with nodes of
//! their own, and can be searched beside a writer.

mod interval;
mod list;
mod ranges;

use core::cmp::Ordering as Side;
use core::marker::PhantomData;

pub use interval::{Interval, IntervalItem, IntervalTree};
pub use list::IntervalList;
pub use ranges::{Found, RangeNode, RangeTree, Room, Shape, Spot, Walk};

use crate::slab::{Arena, Handle, Item};
use crate::sync::atomic::{AtomicU32, Ordering};

/// Deeper than any AVL tree of 2^32 items.
const MAX_DEPTH: usize = 48;

/// The links of one item in one tree.
#[derive(Debug, Default)]
struct Links {
    left: AtomicU32,
    right: AtomicU32,
    parent: AtomicU32,
    height: AtomicU32,
}

/// How a kind of tree uses its items.
trait Threaded {
    /// The items.
    type Item: Item;

    /// The links of this tree in an item.
    fn links(item: &Self::Item) -> &Links;

    /// What orders the items. No two in a tree have the same.
    type Key: Ord;

    /// The key of an item.
    fn key(item: &Self::Item) -> Self::Key;

    /// Recomputes what an item knows about its subtree, from itself and from
    /// what its children know. Returns whether any of it changed.
    fn refresh(item: &Self::Item, left: Option<&Self::Item>, right: Option<&Self::Item>) -> bool;
}

/// A tree: the arena of its items and the word that names its root.
struct Tree<'a, K: Threaded> {
    arena: &'a Arena<K::Item>,
    root: &'a AtomicU32,
    kind: PhantomData<K>,
}

type Link<K> = Handle<<K as Threaded>::Item>;

impl<'a, K: Threaded> Tree<'a, K> {
    /// The tree whose root handle stands in `root`.
    #[inline]
    pub fn new(arena: &'a Arena<K::Item>, root: &'a AtomicU32) -> Self {
        Tree {
            arena,
            root,
            kind: PhantomData,
        }
    }

    /// The root, or none.
    #[inline]
    pub fn root(&self) -> Link<K> {
        Handle::from_raw(self.root.load(Ordering::Relaxed))
    }

    /// The item.
    #[inline]
    pub fn item(&self, handle: Link<K>) -> &'a K::Item {
        self.arena.get(handle)
    }

    #[inline]
    fn links(&self, handle: Link<K>) -> &'a Links {
        K::links(self.arena.get(handle))
    }

    /// The left child, or none.
    #[inline]
    pub fn left(&self, handle: Link<K>) -> Link<K> {
        Handle::from_raw(self.links(handle).left.load(Ordering::Relaxed))
    }

    /// The right child, or none.
    #[inline]
    pub fn right(&self, handle: Link<K>) -> Link<K> {
        Handle::from_raw(self.links(handle).right.load(Ordering::Relaxed))
    }

    fn parent(&self, handle: Link<K>) -> Link<K> {
        Handle::from_raw(self.links(handle).parent.load(Ordering::Relaxed))
    }

    fn height(&self, handle: Link<K>) -> u32 {
        if handle.is_none() {
            0
        } else {
            self.links(handle).height.load(Ordering::Relaxed)
        }
    }

    fn set_left(&self, handle: Link<K>, child: Link<K>) {
        self.links(handle)
            .left
            .store(child.raw(), Ordering::Relaxed);
        self.set_parent(child, handle);
    }

    fn set_right(&self, handle: Link<K>, child: Link<K>) {
        self.links(handle)
            .right
            .store(child.raw(), Ordering::Relaxed);
        self.set_parent(child, handle);
    }

    fn set_parent(&self, child: Link<K>, parent: Link<K>) {
        if !child.is_none() {
            self.links(child)
                .parent
                .store(parent.raw(), Ordering::Relaxed);
        }
    }

    /// Puts `new` in the place of `old` below `parent` (or as the root).
    fn relink(&self, parent: Link<K>, old: Link<K>, new: Link<K>) {
        if parent.is_none() {
            self.root.store(new.raw(), Ordering::Relaxed);
            self.set_parent(new, parent);
        } else if self.left(parent) == old {
            self.set_left(parent, new);
        } else {
            self.set_right(parent, new);
        }
    }

    /// Recomputes height and sums of one item from its children. Returns
    /// whether any of them changed.
    fn fix(&self, handle: Link<K>) -> bool {
        let (left, right) = (self.left(handle), self.right(handle));
        let height = self.height(left).max(self.height(right)) + 1;
        let old = self.links(handle).height.load(Ordering::Relaxed);
        self.links(handle).height.store(height, Ordering::Relaxed);
        let child = |link: Link<K>| (!link.is_none()).then(|| self.item(link));
        K::refresh(self.item(handle), child(left), child(right)) || height != old
    }

    fn rotate_left(&self, top: Link<K>) -> Link<K> {
        let pivot = self.right(top);
        let parent = self.parent(top);
        self.set_right(top, self.left(pivot));
        self.relink(parent, top, pivot);
        self.set_left(pivot, top);
        self.fix(top);
        self.fix(pivot);
        pivot
    }

    fn rotate_right(&self, top: Link<K>) -> Link<K> {
        let pivot = self.left(top);
        let parent = self.parent(top);
        self.set_left(top, self.right(pivot));
        self.relink(parent, top, pivot);
        self.set_right(pivot, top);
        self.fix(top);
        self.fix(pivot);
        pivot
    }

    /// Restores balance and sums from `handle`, which changed or whose child
    /// did, upwards as far as they change: an item depends on what its children
    /// know, and on nothing else below it.
    fn rebalance(&self, mut handle: Link<K>) {
        let start = handle;
        while !handle.is_none() {
            let mut changed = self.fix(handle) || handle == start;
            let (left, right) = (self.left(handle), self.right(handle));
            let (left_height, right_height) = (self.height(left), self.height(right));
            if left_height > right_height + 1 {
                if self.height(self.left(left)) < self.height(self.right(left)) {
                    self.rotate_left(left);
                }
                handle = self.rotate_right(handle);
                changed = true;
            } else if right_height > left_height + 1 {
                if self.height(self.right(right)) < self.height(self.left(right)) {
                    self.rotate_right(right);
                }
                handle = self.rotate_left(handle);
                changed = true;
            }
            if !changed {
                break;
            }
            handle = self.parent(handle);
        }
    }

    /// Inserts an item that is in no tree of this kind. If one with the same key
    /// is in it, the tree stays as it is, and that one is the answer.
    pub fn insert(&self, handle: Link<K>) -> Option<Link<K>> {
        let key = K::key(self.item(handle));
        let mut parent = Handle::NONE;
        let mut place = self.root();
        let mut side = Side::Less;
        while !place.is_none() {
            parent = place;
            side = key.cmp(&K::key(self.item(place)));
            place = match side {
                Side::Less => self.left(place),
                Side::Equal => {
                    self.links(handle).height.store(0, Ordering::Relaxed);
                    return Some(place);
                }
                Side::Greater => self.right(place),
            };
        }
        let links = self.links(handle);
        links.left.store(0, Ordering::Relaxed);
        links.right.store(0, Ordering::Relaxed);
        links.parent.store(parent.raw(), Ordering::Relaxed);
        self.fix(handle);
        let word = match side {
            _ if parent.is_none() => self.root,
            Side::Less => &self.links(parent).left,
            _ => &self.links(parent).right,
        };
        word.store(handle.raw(), Ordering::Release);
        self.rebalance(parent);
        None
    }

    /// Whether the tree took an item at its insertion, and not one with its key.
    /// An item that [`Tree::replace`] puts in is in it too.
    pub fn is_in(&self, handle: Link<K>) -> bool {
        self.height(handle) != 0
    }

    /// Puts an item that is in no tree of this kind in the place of one with the
    /// same key.
    pub fn replace(&self, old: Link<K>, new: Link<K>) {
        self.set_left(new, self.left(old));
        self.set_right(new, self.right(old));
        let parent = self.parent(old);
        self.links(new)
            .parent
            .store(parent.raw(), Ordering::Relaxed);
        self.fix(new);
        self.relink(parent, old, new);
    }

    /// Removes an item of the tree.
    pub fn remove(&self, handle: Link<K>) {
        let (left, right) = (self.left(handle), self.right(handle));
        let parent = self.parent(handle);
        if left.is_none() || right.is_none() {
            let child = if left.is_none() { right } else { left };
            self.relink(parent, handle, child);
            self.rebalance(parent);
            return;
        }
        let heir = self.leftmost(right);
        let start = if heir == right {
            heir
        } else {
            let above = self.parent(heir);
            self.set_left(above, self.right(heir));
            self.set_right(heir, right);
            above
        };
        self.set_left(heir, left);
        self.relink(parent, handle, heir);
        self.rebalance(start);
        // What the heir knew was of its old place, so that stopping before it,
        // or at it, would mean nothing.
        if start != heir {
            self.rebalance(heir);
        }
    }

    fn leftmost(&self, mut handle: Link<K>) -> Link<K> {
        while !self.left(handle).is_none() {
            handle = self.left(handle);
        }
        handle
    }

    /// The first item, or none.
    pub fn first(&self) -> Link<K> {
        let root = self.root();
        if root.is_none() {
            root
        } else {
            self.leftmost(root)
        }
    }

    /// The item after `handle`, or none.
    pub fn next(&self, handle: Link<K>) -> Link<K> {
        let right = self.right(handle);
        if !right.is_none() {
            return self.leftmost(right);
        }
        // The first ancestor that we are not on the right of.
        let mut child = handle;
        let mut parent = self.parent(child);
        while !parent.is_none() && self.right(parent) == child {
            child = parent;
            parent = self.parent(child);
        }
        parent
    }

    /// Checks order, balance and links below the root.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<u64, &'static str> {
        let root = self.root();
        if root.is_none() {
            return Ok(0);
        }
        if !self.parent(root).is_none() {
            return Err("the root of a tree has a parent");
        }
        let mut count = 0;
        let mut last = None;
        let mut place = self.first();
        while !place.is_none() {
            let key = K::key(self.item(place));
            if last.is_some_and(|last| key <= last) {
                return Err("a tree is out of order");
            }
            last = Some(key);
            let (left, right) = (self.left(place), self.right(place));
            for child in [left, right] {
                if !child.is_none() && self.parent(child) != place {
                    return Err("a tree's child does not know its parent");
                }
            }
            let (left, right) = (self.height(left), self.height(right));
            if left.abs_diff(right) > 1 || self.height(place) != left.max(right) + 1 {
                return Err("a tree is out of balance");
            }
            count += 1;
            place = self.next(place);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
