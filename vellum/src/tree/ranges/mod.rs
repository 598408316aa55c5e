//! Ranges by address: a B+tree whose items are named by its leaves.
//!
//! Items cover ranges of numbers that do not overlap. A node has many slots in
//! few cache lines, so that a search among a thousand items passes two nodes.
//! Each slot knows where what it holds begins and ends, and above leaves the
//! widest gap inside, so that a place for a new item is found by going down.
//!
//! One writer at a time, under a lock of its owner, beside readers: all words are atomics, and
//! slots lead to addresses of nodes and items in arenas, which keep their type, nodes as long as the
//! reader is pinned; addresses are published, all else is relaxed. A reader may therefore follow
//! whatever it finds; it never follows more than [`MAX_LEVELS`] nodes, and validates the result by
//! other means.
//!
//! Inserting may need nodes, and gets them from a [`Room`] that was made when
//! failing was still possible. Removing never needs any.
//!
//! **Shape.** No node is empty, the root has two slots or is a leaf, and any
//! two nodes next to each other below one node have more than `SLOTS / 4`
//! slots in use between them: whatever order things come and go in, a level
//! has at most a third as many nodes as the one below it.

mod check;
mod edit;
mod gap;
mod node;
mod spot;
mod walk;

use core::marker::PhantomData;

pub use check::Shape;
pub use node::RangeNode;
pub use spot::Spot;
pub use walk::Walk;

use crate::frame::OutOfMemory;
use crate::frame::PhysicalMemory;
use crate::platform::Machine;
use crate::slab::{Arena, ForGood, Item, Stay};
use crate::sync::Pin;
use crate::sync::atomic::{AtomicU64, Ordering};
use node::{Kid, SLOTS};
use walk::Step;

/// Levels of nodes that 2^31 items never exceed.
pub const MAX_LEVELS: usize = 20;

/// Insertions that may be prepared and not made yet at one time.
const MOST_INSERTIONS: usize = 3;

/// The right to one insertion under the pin it was made under. What an
/// insertion does not need stays with the CPU.
#[must_use]
#[derive(Debug)]
pub struct Room<'p>(PhantomData<&'p ()>);

/// An item found, with the range that the tree has for it.
#[derive(Debug)]
pub struct Found<'a, T> {
    /// Its first number.
    pub start: u64,
    /// The number after its last.
    pub end: u64,
    /// The item.
    pub item: &'a T,
}

/// A tree: the arenas of its nodes and items, and the word that names its root.
pub struct RangeTree<'a, T: Item, S: Stay = ForGood> {
    nodes: &'a Arena<RangeNode, S>,
    items: &'a Arena<T>,
    root: &'a AtomicU64,
}

impl<T: Item, S: Stay> Clone for RangeTree<'_, T, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Item, S: Stay> Copy for RangeTree<'_, T, S> {}

impl<'a, T: Item, S: Stay> RangeTree<'a, T, S> {
    /// The tree whose root stands in `root`; 0 is the empty tree.
    ///
    /// # Safety
    /// `root` is 0 or was last changed by a tree of the same two arenas. No
    /// node of `nodes` is used by trees with another arena of items.
    ///
    /// If frames of nodes are given back, whoever has the tree, or what was made of it, uses it
    /// under one pin, or holds the writers' lock: then a walk or a spot is used without a pin
    /// only as long as the tree does not change.
    #[inline]
    pub unsafe fn new(
        nodes: &'a Arena<RangeNode, S>,
        items: &'a Arena<T>,
        root: &'a AtomicU64,
    ) -> Self {
        const { assert!(align_of::<T>() > 1, "the lowest bit tells items from nodes") };
        RangeTree { nodes, items, root }
    }

    /// Asks for the lines of the root, for who is about to search it and finds them on
    /// another CPU.
    #[cold]
    pub(crate) fn fetch_root(&self) {
        if let Some(root) = self.node(self.root()) {
            root.fetch(0..root.count());
        }
    }

    #[inline]
    fn root(&self) -> Kid {
        Kid(self.root.load(Ordering::Acquire))
    }

    /// The node that a slot leads to, if it does lead to one.
    #[inline]
    fn node(&self, kid: Kid) -> Option<&'a RangeNode> {
        // SAFETY: words of this tree without the item's mark are 0 or what
        // `address` returned for a node of `nodes`, says `new`; they are stored
        // and loaded with release and acquire. The node is in the tree, or was since the caller was
        // pinned, so it stays one (invariant 7).
        kid.as_node()
            .map(|address| unsafe { self.nodes.at(address) })
    }

    /// The item that a slot leads to, if it does lead to one.
    #[inline]
    fn item(&self, kid: Kid) -> Option<&'a T> {
        // SAFETY: words of this tree with the item's mark are what `address`
        // returned for an item of `items`, says `new`; they are stored and loaded
        // with release and acquire. An item stays one (invariant 7).
        kid.as_item()
            .map(|address| unsafe { self.items.at(address) })
    }

    /// The last item that begins at or before `key`. Beside a writer the answer
    /// may be any item or none: validate it.
    #[inline]
    pub(crate) fn last_at_most(&self, key: u64) -> Option<&'a T> {
        let mut kid = self.root();
        for _ in 0..MAX_LEVELS {
            let node = self.node(kid)?;
            let slot = node.at_most(key).checked_sub(1)?;
            kid = node.kid(slot);
            if let Some(item) = self.item(kid) {
                return Some(item);
            }
        }
        None
    }

    /// The first item that ends after `key`. Beside a writer the answer may be
    /// any item or none: validate it.
    #[inline]
    pub fn first_ending_after(&self, key: u64) -> Option<Found<'a, T>> {
        let Step { node, slot } = self.step_ending_after(key)?;
        self.found(node, slot)
    }

    /// The leaf and the slot of the first item that ends after `key`.
    #[inline]
    fn step_ending_after(&self, key: u64) -> Option<Step<'a>> {
        let mut node = self.node(self.root())?;
        for _ in 0..MAX_LEVELS {
            let slot = slot_ending_after(node, key);
            if slot >= node.count().min(SLOTS) {
                return None;
            }
            let Some(below) = self.node(node.kid(slot)) else {
                return Some(Step { node, slot });
            };
            node = below;
        }
        None
    }

    /// The item in a slot of a leaf.
    #[inline]
    fn found(&self, leaf: &RangeNode, slot: usize) -> Option<Found<'a, T>> {
        let item = self.item(leaf.kid(slot))?;
        Some(Found {
            start: leaf.start(slot),
            end: leaf.end(slot),
            item,
        })
    }

    /// Makes sure that an insertion under this pin succeeds, whatever is
    /// removed before it. At most `MOST_INSERTIONS` may be prepared at a time.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no node and no frame for more, or the
    /// failure was planned.
    #[inline]
    pub fn make_room<'p, P: Machine>(
        &self,
        pin: &'p Pin<'_>,
        memory: &PhysicalMemory<P>,
    ) -> Result<Room<'p>, OutOfMemory> {
        let needed = match self.node(self.root()) {
            // A leaf, a new one if the tree becomes empty, or one for each
            // level and a root, while each insertion may add a level.
            Some(root) if root.level() > 0 || root.count() + MOST_INSERTIONS > SLOTS => {
                MOST_INSERTIONS * (root.level() as usize + 3)
            }
            _ => 1,
        };
        self.nodes.reserve(pin, memory, needed)?;
        Ok(Room(PhantomData))
    }
}

/// The slot that holds the first item of a node to end after `key`, which may
/// be the one after the last.
#[inline]
fn slot_ending_after(node: &RangeNode, key: u64) -> usize {
    let behind = node.at_most(key);
    if behind > 0 && node.end(behind - 1) > key {
        behind - 1
    } else {
        behind
    }
}

#[cfg(test)]
mod tests;
