//! The highest gap that is wide enough.

use super::RangeTree;
use super::node::RangeNode;
use crate::slab::{Item, Stay};

/// What is looked for: the last place for `width` numbers in `from..to`.
struct GapSearch {
    width: u64,
    from: u64,
    to: u64,
}

impl GapSearch {
    /// The last place in the part of a gap that lies within the bounds.
    fn fit(&self, start: u64, end: u64) -> Option<u64> {
        let (start, end) = (start.max(self.from), end.min(self.to));
        (end > start && end - start >= self.width).then(|| end - self.width)
    }
}

impl<T: Item, S: Stay> RangeTree<'_, T, S> {
    /// Where the last `width` numbers within `from..to` begin that no item
    /// covers. Looks at two slots of a level, if not all gaps that are wide
    /// enough lie across a bound.
    pub fn highest_gap(&self, width: u64, from: u64, to: u64) -> Option<u64> {
        let search = GapSearch { width, from, to };
        let Some(root) = self.node(self.root()) else {
            return search.fit(from, to);
        };
        let last = root.count().checked_sub(1)?;
        search
            .fit(root.end(last), to)
            .or_else(|| self.gap_below(root, &search))
            .or_else(|| search.fit(0, root.start(0)))
    }

    /// The same between the items of a subtree. Depth is that of the tree.
    fn gap_below(&self, node: &RangeNode, search: &GapSearch) -> Option<u64> {
        #[cfg(test)]
        crate::testing::count_step();
        let mut next = None;
        for slot in (0..node.count()).rev() {
            let (start, end) = (node.start(slot), node.end(slot));
            if let Some(found) = next.and_then(|next| search.fit(end, next)) {
                return Some(found);
            }
            let may_lie_inside =
                node.gap(slot) >= search.width && end > search.from && start < search.to;
            if may_lie_inside
                && let Some(below) = self.node(node.kid(slot))
                && let Some(found) = self.gap_below(below, search)
            {
                return Some(found);
            }
            if end <= search.from {
                break;
            }
            next = Some(start);
        }
        None
    }
}
