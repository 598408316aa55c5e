//! The proof that a tree is what it says.

use super::node::{Kid, RangeNode, SLOTS};
use super::{MAX_LEVELS, RangeTree};
use crate::slab::{Item, Stay};

/// What a check counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Items.
    pub items: u64,
    /// Nodes.
    pub nodes: u64,
    /// Levels of nodes.
    pub levels: u64,
}

impl<T: Item, S: Stay> RangeTree<'_, T, S> {
    /// Checks order, counts, sums and shape, and with `range_of` that each item
    /// covers the range its leaf has for it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, range_of: impl Fn(&T) -> (u64, u64)) -> Result<Shape, &'static str> {
        let mut shape = Shape::default();
        if self.root() == Kid::NONE {
            return Ok(shape);
        }
        let root = self
            .node(self.root())
            .ok_or("the root of a tree of ranges is no node")?;
        if root.level() > 0 && root.count() < 2 {
            return Err("the root of a tree of ranges has one node below it");
        }
        if root.level() as usize >= MAX_LEVELS {
            return Err("a tree of ranges has too many levels");
        }
        shape.levels = u64::from(root.level()) + 1;
        self.check_node(root, &range_of, &mut shape)?;
        Ok(shape)
    }

    fn check_node(
        &self,
        node: &RangeNode,
        range_of: &impl Fn(&T) -> (u64, u64),
        shape: &mut Shape,
    ) -> Result<(), &'static str> {
        shape.nodes += 1;
        if !node.keys_match_count() || node.count() == 0 {
            return Err("a node of a tree of ranges is empty or miscounts its slots");
        }
        let mut end = 0;
        let mut previous = None;
        for slot in 0..node.count() {
            let value = node.slot(slot);
            if value.start < end || value.end <= value.start {
                return Err("a tree of ranges is out of order");
            }
            end = value.end;
            if node.level() == 0 {
                let item = self
                    .item(value.kid)
                    .ok_or("a leaf of a tree of ranges leads to no item")?;
                if range_of(item) != (value.start, value.end) {
                    return Err("an item does not cover what its leaf says");
                }
                shape.items += 1;
                continue;
            }
            let below = self
                .node(value.kid)
                .filter(|below| below.level() + 1 == node.level())
                .ok_or("a slot of a tree of ranges leads to no node of the level below")?;
            self.check_node(below, range_of, shape)?;
            if self.sum(below) != value {
                return Err("a slot of a tree of ranges is out of date");
            }
            let count = below.count();
            if previous.is_some_and(|previous| previous + count <= SLOTS / 4) {
                return Err("two neighbours in a tree of ranges should be one");
            }
            previous = Some(count);
        }
        Ok(())
    }
}
