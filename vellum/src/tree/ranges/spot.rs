//! A place in a tree: found once, for all that is asked and done there.

use super::node::{Kid, RangeNode, RangeSlot};
use super::{Found, RangeTree, Room};
use crate::slab::{ForGood, Handle, Item, Stay};
use crate::sync::Pin;

/// Where an item that begins at a number is or belongs, for the holder of the
/// writers' lock. A spot is good until the tree changes.
pub struct Spot<'a, T: Item, S: Stay = ForGood> {
    tree: RangeTree<'a, T, S>,
    key: u64,
    leaf: Option<&'a RangeNode>,
    /// How many items of the leaf begin at or before the key.
    place: usize,
}

impl<'a, T: Item, S: Stay> RangeTree<'a, T, S> {
    /// The place of `key`.
    #[inline]
    pub fn spot(&self, key: u64) -> Spot<'a, T, S> {
        let mut spot = Spot {
            tree: *self,
            key,
            leaf: None,
            place: 0,
        };
        let mut kid = self.root();
        while let Some(node) = self.node(kid) {
            (spot.leaf, spot.place) = (Some(node), node.at_most(key));
            if node.level() == 0 {
                break;
            }
            kid = node.kid(spot.place.saturating_sub(1));
        }
        spot
    }
}

impl<'a, T: Item, S: Stay> Spot<'a, T, S> {
    /// The last item that begins at or before the key. It is in the leaf: each node
    /// on the way begins at or before the key too, or is the first of its level.
    #[inline]
    pub fn before(&self) -> Option<Found<'a, T>> {
        self.tree.found(self.leaf?, self.place.checked_sub(1)?)
    }

    /// The first item that begins after the key.
    #[inline]
    pub fn after(&self) -> Option<Found<'a, T>> {
        let leaf = self.leaf?;
        if self.place < leaf.count() {
            return self.tree.found(leaf, self.place);
        }
        if self.is_root(leaf) {
            return None;
        }
        self.after_leaf()
    }

    /// The first item of the next leaf.
    #[cold]
    fn after_leaf(&self) -> Option<Found<'a, T>> {
        let (path, _) = self.tree.path_to(self.key);
        let mut above = path.upwards().skip(1);
        let step = above.find(|step| step.slot + 1 < step.node.count())?;
        let mut node = self.tree.node(step.node.kid(step.slot + 1))?;
        while let Some(below) = self.tree.node(node.kid(0)) {
            node = below;
        }
        self.tree.found(node, 0)
    }

    /// Whether no item covers a number from the key up to `end`.
    #[inline]
    pub(crate) fn is_free_to(&self, end: u64) -> bool {
        self.before().is_none_or(|before| before.end <= self.key)
            && self.after().is_none_or(|after| after.start >= end)
    }

    /// The item that covers the numbers from the key up to `end` and no others.
    #[inline]
    pub(crate) fn exactly_to(&self, end: u64) -> Option<&'a T> {
        let found = self.before()?;
        ((found.start, found.end) == (self.key, end)).then_some(found.item)
    }

    /// Inserts an item that covers the numbers from the key up to `end`, which are
    /// free.
    #[inline]
    pub fn insert(self, pin: &Pin<'_>, _room: Room<'_>, item: Handle<T>, end: u64) {
        let slot = RangeSlot {
            start: self.key,
            end,
            gap: 0,
            kid: Kid::item(self.tree.items.address(item)),
        };
        match self.leaf {
            // Most trees are one leaf, above which there is nobody to tell.
            Some(leaf) if self.is_root(leaf) && !leaf.is_full() => leaf.insert(self.place, slot),
            _ => self.tree.insert_slot(pin, slot),
        }
    }

    /// Removes the item that begins at the key.
    #[inline]
    pub fn remove(self, pin: &Pin<'_>) {
        match self.leaf {
            Some(leaf) if self.is_root(leaf) && leaf.count() > 1 => {
                debug_assert!(leaf.start(self.place - 1) == self.key, "no such item");
                leaf.remove(self.place - 1);
            }
            _ => self.tree.remove_below(pin, self.key),
        }
    }

    #[inline]
    fn is_root(&self, leaf: &RangeNode) -> bool {
        self.tree
            .node(self.tree.root())
            .is_some_and(|root| core::ptr::eq(root, leaf))
    }
}
