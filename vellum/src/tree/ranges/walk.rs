//! Ways from the root to a slot, and from slot to slot.

use super::node::RangeNode;
use super::{Found, MAX_LEVELS, RangeTree, slot_ending_after};
use crate::slab::Item;

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
    pub(super) fn upwards(&self) -> impl Iterator<Item = Step<'a>> + '_ {
        self.steps[..self.depth].iter().rev().flatten().copied()
    }
}

impl<'a, T: Item> RangeTree<'a, T> {
    /// The way to the leaf in which an item that begins at `key` is, or
    /// belongs, with the slot of the last one that does not begin behind `key`,
    /// or the first.
    pub(super) fn path_to(&self, key: u64) -> Path<'a> {
        self.way(|node| node.at_most(key).saturating_sub(1))
    }

    fn way(&self, choose: impl Fn(&RangeNode) -> usize) -> Path<'a> {
        let mut path = Path::new();
        let mut kid = self.root();
        while let Some(node) = self.node(kid) {
            let slot = choose(node);
            path.push(Step { node, slot });
            // Behind the last slot in use may lie what was there once.
            if slot >= node.count() || path.depth == MAX_LEVELS {
                break;
            }
            kid = node.kid(slot);
        }
        path
    }

    /// The items from the first one that ends behind `key` on, ascending, for
    /// the holder of the writers' lock. The tree must not change meanwhile.
    pub fn walk(&self, key: u64) -> Walk<'a, T> {
        let path = self.way(|node| slot_ending_after(node, key));
        Walk {
            tree: RangeTree {
                nodes: self.nodes,
                items: self.items,
                root: self.root,
            },
            path,
        }
    }
}

/// Items in order; see [`RangeTree::walk`].
pub struct Walk<'a, T: Item> {
    tree: RangeTree<'a, T>,
    path: Path<'a>,
}

impl<'a, T: Item> Iterator for Walk<'a, T> {
    type Item = Found<'a, T>;

    fn next(&mut self) -> Option<Found<'a, T>> {
        loop {
            let Step { node, slot } = self.path.pop()?;
            if slot >= node.count() {
                // On with what comes behind this node.
                let above = self.path.pop()?;
                self.path.push(Step {
                    slot: above.slot + 1,
                    ..above
                });
                continue;
            }
            let kid = node.kid(slot);
            if let Some(item) = self.tree.item(kid) {
                self.path.push(Step {
                    node,
                    slot: slot + 1,
                });
                return Some(Found {
                    start: node.start(slot),
                    end: node.end(slot),
                    item,
                });
            }
            let below = self.tree.node(kid)?;
            self.path.push(Step { node, slot });
            self.path.push(Step {
                node: below,
                slot: 0,
            });
        }
    }
}
