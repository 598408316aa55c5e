//! Ways from the root to a slot, and from slot to slot.

use super::node::RangeNode;
use super::{Found, MAX_LEVELS, RangeTree};
use crate::slab::{ForGood, Item, Stay};

/// A node on a way down, and the slot through which the way goes on.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) node: &'a RangeNode,
    pub(super) slot: usize,
}

/// The nodes from the root to a leaf.
pub(super) struct Path<'a> {
    steps: [Option<Step<'a>>; MAX_LEVELS],
    depth: usize,
}

impl<'a> Path<'a> {
    fn new() -> Self {
        Path {
            steps: [None; MAX_LEVELS],
            depth: 0,
        }
    }

    fn push(&mut self, step: Step<'a>) {
        if self.depth < MAX_LEVELS {
            self.steps[self.depth] = Some(step);
            self.depth += 1;
        }
    }

    /// The lowest step, if there is one, which the path then ends above.
    pub(super) fn pop(&mut self) -> Option<Step<'a>> {
        let step = self.last()?;
        self.depth -= 1;
        Some(step)
    }

    /// The lowest step, if there is one.
    pub(super) fn last(&self) -> Option<Step<'a>> {
        let last = self.depth.checked_sub(1)?;
        self.steps[last]
    }

    /// From the lowest to the highest.
    #[inline]
    pub(super) fn upwards(&self) -> impl Iterator<Item = Step<'a>> + '_ {
        self.steps[..self.depth].iter().rev().flatten().copied()
    }
}

impl<'a, T: Item, S: Stay> RangeTree<'a, T, S> {
    /// The way to the leaf in which an item that begins at `key` is, or
    /// belongs, with the slot of the last item that begins at or before `key`,
    /// or the first slot. Also returns how many items of the leaf begin there or before.
    #[inline]
    pub(super) fn path_to(&self, key: u64) -> (Path<'a>, usize) {
        let mut path = Path::new();
        let mut place = 0;
        let mut kid = self.root();
        while let Some(node) = self.node(kid) {
            place = node.at_most(key);
            let slot = place.saturating_sub(1);
            path.push(Step { node, slot });
            // Slots that are not in use may still hold what was there once.
            if node.level() == 0 || slot >= node.count() || path.depth == MAX_LEVELS {
                break;
            }
            kid = node.kid(slot);
        }
        (path, place)
    }

    /// The items from the first one that ends after `key` on, ascending, for
    /// the holder of the writers' lock. The tree must not change meanwhile.
    #[inline]
    pub fn walk(&self, key: u64) -> Walk<'a, T, S> {
        Walk {
            tree: *self,
            next: self.step_ending_after(key),
        }
    }
}

/// Items in order; see [`RangeTree::walk`].
pub struct Walk<'a, T: Item, S: Stay = ForGood> {
    tree: RangeTree<'a, T, S>,
    /// The leaf, and the slot in it, of the item to come.
    next: Option<Step<'a>>,
}

impl<'a, T: Item, S: Stay> Iterator for Walk<'a, T, S> {
    type Item = Found<'a, T>;

    #[inline]
    fn next(&mut self) -> Option<Found<'a, T>> {
        let Step { node, slot } = self.next?;
        let found = self.tree.found(node, slot)?;
        self.next = if slot + 1 < node.count() {
            Some(Step {
                node,
                slot: slot + 1,
            })
        } else {
            // Searching from the root again takes less than keeping the way
            // to each leaf: most walks see one.
            self.tree.step_ending_after(found.end)
        };
        Some(found)
    }
}
