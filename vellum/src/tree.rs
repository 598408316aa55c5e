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

/// An item by name and by place: following a handle takes longer than what is done
/// with most items of a path, so that it is done once for each.
struct Node<'a, K: Threaded> {
    handle: Link<K>,
    item: &'a K::Item,
}

impl<K: Threaded> Clone for Node<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Threaded> Copy for Node<'_, K> {}

impl<'a, K: Threaded> Node<'a, K> {
    #[inline]
    fn links(self) -> &'a Links {
        K::links(self.item)
    }

    #[inline]
    fn key(self) -> K::Key {
        K::key(self.item)
    }
}

/// The handle of a node, or none.
#[inline]
fn name<K: Threaded>(node: Option<Node<'_, K>>) -> u32 {
    node.map_or(0, |node| node.handle.raw())
}

/// Levels of a subtree.
#[inline]
fn height<K: Threaded>(node: Option<Node<'_, K>>) -> u32 {
    node.map_or(0, |node| node.links().height.load(Ordering::Relaxed))
}

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

    /// An item of the arena.
    #[inline]
    pub fn node(&self, handle: Link<K>) -> Node<'a, K> {
        Node {
            handle,
            item: self.arena.get(handle),
        }
    }

    #[inline]
    fn follow(&self, word: &AtomicU32) -> Option<Node<'a, K>> {
        let handle = Handle::from_raw(word.load(Ordering::Relaxed));
        (!handle.is_none()).then(|| self.node(handle))
    }

    /// The root.
    #[inline]
    pub fn root(&self) -> Option<Node<'a, K>> {
        self.follow(self.root)
    }

    /// The left child.
    #[inline]
    pub fn left(&self, node: Node<'a, K>) -> Option<Node<'a, K>> {
        self.follow(&node.links().left)
    }

    /// The right child.
    #[inline]
    pub fn right(&self, node: Node<'a, K>) -> Option<Node<'a, K>> {
        self.follow(&node.links().right)
    }

    #[inline]
    fn parent(&self, node: Node<'a, K>) -> Option<Node<'a, K>> {
        self.follow(&node.links().parent)
    }

    fn set_left(&self, node: Node<'a, K>, child: Option<Node<'a, K>>) {
        node.links().left.store(name(child), Ordering::Relaxed);
        self.set_parent(child, Some(node));
    }

    fn set_right(&self, node: Node<'a, K>, child: Option<Node<'a, K>>) {
        node.links().right.store(name(child), Ordering::Relaxed);
        self.set_parent(child, Some(node));
    }

    fn set_parent(&self, child: Option<Node<'a, K>>, parent: Option<Node<'a, K>>) {
        if let Some(child) = child {
            child.links().parent.store(name(parent), Ordering::Relaxed);
        }
    }

    /// Puts `new` in the place of `old` below `parent` (or as the root).
    fn relink(&self, parent: Option<Node<'a, K>>, old: Node<'a, K>, new: Option<Node<'a, K>>) {
        let place = match parent {
            None => self.root,
            Some(parent) => {
                let links = parent.links();
                let is_left = links.left.load(Ordering::Relaxed) == old.handle.raw();
                if is_left { &links.left } else { &links.right }
            }
        };
        place.store(name(new), Ordering::Relaxed);
        self.set_parent(new, parent);
    }

    /// Recomputes height and sums of one item from its children. Returns
    /// whether any of them changed.
    #[inline]
    fn fix(
        &self,
        node: Node<'a, K>,
        left: Option<Node<'a, K>>,
        right: Option<Node<'a, K>>,
    ) -> bool {
        let levels = height(left).max(height(right)) + 1;
        let word = &node.links().height;
        let changed = word.load(Ordering::Relaxed) != levels;
        if changed {
            word.store(levels, Ordering::Relaxed);
        }
        let below = (left.map(|left| left.item), right.map(|right| right.item));
        K::refresh(node.item, below.0, below.1) || changed
    }

    /// Makes `pivot`, the right child of `top`, its parent.
    fn rotate_left(&self, top: Node<'a, K>, pivot: Node<'a, K>) {
        let between = self.left(pivot);
        self.relink(self.parent(top), top, Some(pivot));
        self.set_right(top, between);
        self.set_left(pivot, Some(top));
        self.fix(top, self.left(top), between);
        self.fix(pivot, Some(top), self.right(pivot));
    }

    /// Makes `pivot`, the left child of `top`, its parent.
    fn rotate_right(&self, top: Node<'a, K>, pivot: Node<'a, K>) {
        let between = self.right(pivot);
        self.relink(self.parent(top), top, Some(pivot));
        self.set_left(top, between);
        self.set_right(pivot, Some(top));
        self.fix(top, between, self.right(top));
        self.fix(pivot, self.left(pivot), Some(top));
    }

    /// Restores balance and sums from `start`, whose child changed, upwards as far
    /// as they change: an item depends on what its children know, and on nothing
    /// else below it.
    fn rebalance(&self, start: Option<Node<'a, K>>) {
        let mut place = start;
        while let Some(mut node) = place {
            let (left, right) = (self.left(node), self.right(node));
            let mut changed = self.fix(node, left, right);
            if let Some(left) = left
                && height(Some(left)) > height(right) + 1
            {
                node = self.lift_left(node, left);
                changed = true;
            } else if let Some(right) = right
                && height(Some(right)) > height(left) + 1
            {
                node = self.lift_right(node, right);
                changed = true;
            }
            if !changed {
                break;
            }
            place = self.parent(node);
        }
    }

    /// The left side of `node` is too high. Returns what takes its place.
    fn lift_left(&self, node: Node<'a, K>, left: Node<'a, K>) -> Node<'a, K> {
        let mut pivot = left;
        if let Some(inner) = self.right(left)
            && height(self.left(left)) < height(Some(inner))
        {
            self.rotate_left(left, inner);
            pivot = inner;
        }
        self.rotate_right(node, pivot);
        pivot
    }

    /// The right side of `node` is too high. Returns what takes its place.
    fn lift_right(&self, node: Node<'a, K>, right: Node<'a, K>) -> Node<'a, K> {
        let mut pivot = right;
        if let Some(inner) = self.left(right)
            && height(self.right(right)) < height(Some(inner))
        {
            self.rotate_right(right, inner);
            pivot = inner;
        }
        self.rotate_left(node, pivot);
        pivot
    }

    /// Inserts an item that is in no tree of this kind. If one with the same key
    /// is in it, the tree stays as it is, and that one is the answer.
    pub fn insert(&self, node: Node<'a, K>) -> Option<Node<'a, K>> {
        let key = node.key();
        let mut parent = None;
        let mut word = self.root;
        while let Some(place) = self.follow(word) {
            let links = place.links();
            word = match key.cmp(&place.key()) {
                Side::Less => &links.left,
                Side::Equal => {
                    node.links().height.store(0, Ordering::Relaxed);
                    return Some(place);
                }
                Side::Greater => &links.right,
            };
            parent = Some(place);
        }
        let links = node.links();
        links.left.store(0, Ordering::Relaxed);
        links.right.store(0, Ordering::Relaxed);
        self.set_parent(Some(node), parent);
        self.fix(node, None, None);
        word.store(node.handle.raw(), Ordering::Relaxed);
        self.rebalance(parent);
        None
    }

    /// Whether the tree took an item at its insertion, and not one with its key.
    /// An item that [`Tree::replace`] puts in is in it too.
    pub fn is_in(&self, node: Node<'a, K>) -> bool {
        height(Some(node)) != 0
    }

    /// Puts an item that is in no tree of this kind in the place of one with the
    /// same key.
    pub fn replace(&self, old: Node<'a, K>, new: Node<'a, K>) {
        let (left, right) = (self.left(old), self.right(old));
        self.set_left(new, left);
        self.set_right(new, right);
        self.fix(new, left, right);
        self.relink(self.parent(old), old, Some(new));
    }

    /// Removes an item of the tree.
    pub fn remove(&self, node: Node<'a, K>) {
        let (left, right) = (self.left(node), self.right(node));
        let parent = self.parent(node);
        let (Some(left), Some(right)) = (left, right) else {
            self.relink(parent, node, left.or(right));
            self.rebalance(parent);
            return;
        };
        let heir = self.leftmost(right);
        let above = self.parent(heir).filter(|_| heir.handle != right.handle);
        if let Some(above) = above {
            self.set_left(above, self.right(heir));
            self.set_right(heir, Some(right));
        }
        self.set_left(heir, Some(left));
        self.relink(parent, node, Some(heir));
        // What the heir knew was of its old place: it changes in any case, and what is
        // above it must be looked at.
        heir.links().height.store(0, Ordering::Relaxed);
        self.rebalance(above);
        self.rebalance(Some(heir));
    }

    fn leftmost(&self, mut node: Node<'a, K>) -> Node<'a, K> {
        while let Some(left) = self.left(node) {
            node = left;
        }
        node
    }

    /// The first item.
    pub fn first(&self) -> Option<Node<'a, K>> {
        self.root().map(|root| self.leftmost(root))
    }

    /// The item after `node`.
    pub fn next(&self, node: Node<'a, K>) -> Option<Node<'a, K>> {
        if let Some(right) = self.right(node) {
            return Some(self.leftmost(right));
        }
        // The first ancestor that we are not on the right of.
        let mut child = node;
        let mut parent = self.parent(child);
        while let Some(above) = parent
            && above.links().right.load(Ordering::Relaxed) == child.handle.raw()
        {
            child = above;
            parent = self.parent(child);
        }
        parent
    }

    /// Checks order, balance and links below the root.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<u64, &'static str> {
        if self.root().and_then(|root| self.parent(root)).is_some() {
            return Err("the root of a tree has a parent");
        }
        let mut count = 0;
        let mut last = None;
        let mut place = self.first();
        while let Some(node) = place {
            let key = node.key();
            if last.is_some_and(|last| key <= last) {
                return Err("a tree is out of order");
            }
            last = Some(key);
            let (left, right) = (self.left(node), self.right(node));
            for child in [left, right].into_iter().flatten() {
                if name(self.parent(child)) != node.handle.raw() {
                    return Err("a tree's child does not know its parent");
                }
            }
            let (left, right) = (height(left), height(right));
            if left.abs_diff(right) > 1 || height(Some(node)) != left.max(right) + 1 {
                return Err("a tree is out of balance");
            }
            count += 1;
            place = self.next(node);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
