//! Changes: insertion with division, removal with merging, ranges that change.

use super::node::{Kid, RangeNode, RangeSlot, SLOTS};
use super::walk::{Path, Step};
use super::{RangeTree, Room};
use crate::slab::{Handle, Item, Stay};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

/// Neighbours with no more slots in use than this between them become one. It
/// is well below what one holds, so that coming and going at one place does
/// not divide and merge time and again.
const MERGED: usize = SLOTS / 2;

impl<'a, T: Item, S: Stay> RangeTree<'a, T, S> {
    /// Inserts an item that covers `start..end`, which no item overlaps.
    pub fn insert(&self, pin: &Pin<'_>, room: Room<'_>, item: Handle<T>, start: u64, end: u64) {
        self.spot(start).insert(pin, room, item, end);
    }

    #[inline(never)]
    pub(super) fn insert_slot(&self, pin: &Pin<'_>, mut new: RangeSlot) {
        let (mut path, mut place) = self.path_to(new.start);
        if path.last().is_none() {
            let leaf = self.fresh(pin, 0);
            leaf.insert(0, new);
            self.set_root(Kid::node(self.address(leaf)));
            return;
        }
        while let Some(Step { node, .. }) = path.pop() {
            if !node.is_full() {
                node.insert(place, new);
                self.tell_above(&path, node);
                return;
            }
            new = self.divide(pin, &path, node, place, new);
            let Some(above) = path.last() else {
                let root = self.fresh(pin, node.level() + 1);
                root.insert(0, self.sum(node));
                root.insert(1, new);
                self.set_root(Kid::node(self.address(root)));
                return;
            };
            above.node.set(above.slot, self.sum(node));
            place = above.slot + 1;
        }
    }

    /// Gives a full node a value before slot `place`, and a part of its slots
    /// to a new node after it, whose slot is returned.
    fn divide(
        &self,
        pin: &Pin<'_>,
        above: &Path<'a>,
        node: &'a RangeNode,
        place: usize,
        new: RangeSlot,
    ) -> RangeSlot {
        // At either end of the tree nothing comes back to the part left alone.
        let is_last = place == SLOTS && above.upwards().all(|up| up.slot + 1 == up.node.count());
        let is_first = place == 0 && above.upwards().all(|up| up.slot == 0);
        let at = if is_last || is_first {
            place
        } else {
            node.division(place)
        };
        let behind = self.fresh(pin, node.level());
        node.move_to(at, behind);
        if place <= at && !is_last {
            node.insert(place, new);
        } else {
            behind.insert(place - at, new);
        }
        self.sum(behind)
    }

    /// Removes the item that begins at `start`.
    pub fn remove(&self, pin: &Pin<'_>, start: u64) {
        self.spot(start).remove(pin);
    }

    #[inline(never)]
    pub(super) fn remove_below(&self, pin: &Pin<'_>, start: u64) {
        let (mut path, _) = self.path_to(start);
        let Some(leaf) = path.last() else {
            return;
        };
        debug_assert!(leaf.node.start(leaf.slot) == start, "no such item");
        leaf.node.remove(leaf.slot);
        while let Some(Step { node, .. }) = path.pop() {
            let Some(above) = path.last() else {
                self.shorten(pin, node);
                return;
            };
            if node.count() == 0 {
                above.node.remove(above.slot);
                self.retire(pin, node);
            } else if let Some((left, right, slot)) = self.mergeable(above, node) {
                self.merge(pin, above.node, slot, left, right);
            } else {
                self.tell_above(&path, node);
                return;
            }
        }
    }

    /// The neighbours of which `node`, below `above`, is one and which are to
    /// become one node, with the slot of the left one.
    fn mergeable(
        &self,
        above: Step<'a>,
        node: &'a RangeNode,
    ) -> Option<(&'a RangeNode, &'a RangeNode, usize)> {
        let count = node.count();
        if count >= MERGED {
            return None;
        }
        let fits = |other: &&'a RangeNode| other.count() + count <= MERGED;
        let at = |slot: usize| self.node(above.node.kid(slot));
        if above.slot + 1 < above.node.count()
            && let Some(right) = at(above.slot + 1).filter(fits)
        {
            return Some((node, right, above.slot));
        }
        let before = above.slot.checked_sub(1)?;
        let left = at(before).filter(fits)?;
        Some((left, node, before))
    }

    /// Makes `left`, which is in `slot` of `above`, and `right` after it one
    /// node, and those below it that came to be neighbours by that and are too
    /// small for it.
    fn merge(
        &self,
        pin: &Pin<'_>,
        mut above: &'a RangeNode,
        mut slot: usize,
        mut left: &'a RangeNode,
        mut right: &'a RangeNode,
    ) {
        loop {
            let seam = left.count();
            right.move_to(0, left);
            above.remove(slot + 1);
            above.set(slot, self.sum(left));
            self.retire(pin, right);
            let at = |slot: usize| self.node(left.kid(slot));
            let (Some(before), Some(behind)) = (at(seam - 1), at(seam)) else {
                return;
            };
            if before.count() + behind.count() > MERGED {
                return;
            }
            (above, slot, left, right) = (left, seam - 1, before, behind);
        }
    }

    /// Takes roots away that have nothing, or one node, below them.
    fn shorten(&self, pin: &Pin<'_>, mut root: &'a RangeNode) {
        while root.count() == 1 && root.level() > 0 {
            let Some(below) = self.node(root.kid(0)) else {
                return;
            };
            self.set_root(root.kid(0));
            self.retire(pin, root);
            root = below;
        }
        if root.count() == 0 {
            self.set_root(Kid::NONE);
            self.retire(pin, root);
        }
    }

    /// The item that began at `old` covers `start..end` from now on. It keeps
    /// its place among the others.
    pub fn resize(&self, old: u64, start: u64, end: u64) {
        let (mut path, _) = self.path_to(old);
        let Some(Step { node, slot }) = path.pop() else {
            return;
        };
        debug_assert!(node.start(slot) == old, "no such item");
        node.set(
            slot,
            RangeSlot {
                start,
                end,
                ..node.slot(slot)
            },
        );
        self.tell_above(&path, node);
    }

    /// Forgets all items.
    pub fn clear(&self, pin: &Pin<'_>) {
        let root = self.node(self.root());
        self.set_root(Kid::NONE);
        if let Some(root) = root {
            self.retire_below(pin, root);
        }
    }

    /// Depth is that of the tree.
    fn retire_below(&self, pin: &Pin<'_>, node: &RangeNode) {
        if node.level() > 0 {
            for slot in 0..node.count() {
                if let Some(below) = self.node(node.kid(slot)) {
                    self.retire_below(pin, below);
                }
            }
        }
        self.retire(pin, node);
    }

    /// What the slot above a node has to say.
    pub(super) fn sum(&self, node: &RangeNode) -> RangeSlot {
        RangeSlot {
            start: node.start(0),
            end: node.end(node.count() - 1),
            gap: node.widest(),
            kid: Kid::node(self.address(node)),
        }
    }

    /// Brings the slots above a node up to date, as far as they change: a slot
    /// depends on what the node below it says, and on nothing else.
    fn tell_above(&self, path: &Path<'a>, node: &'a RangeNode) {
        let mut below = node;
        for Step { node, slot } in path.upwards() {
            let sum = self.sum(below);
            if node.slot(slot) == sum {
                break;
            }
            node.set(slot, sum);
            below = node;
        }
    }

    fn set_root(&self, kid: Kid) {
        self.root.store(kid.0, Ordering::Release);
    }

    fn address(&self, node: &RangeNode) -> u64 {
        self.nodes.address(Handle::from_raw(node.handle()))
    }

    /// An empty node, from what [`RangeTree::make_room`] reserved.
    fn fresh(&self, pin: &Pin<'_>, level: u32) -> &'a RangeNode {
        let handle = self.nodes.take_reserved(pin);
        // SAFETY: it is ours, and in use.
        let node = unsafe { self.nodes.at(self.nodes.address(handle)) };
        node.reset(handle.raw(), level);
        node
    }

    fn retire(&self, pin: &Pin<'_>, node: &RangeNode) {
        self.nodes.retire(pin, Handle::from_raw(node.handle()));
    }
}
