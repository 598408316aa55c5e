//! How much memory a replay will need, counted while the trace is prepared.
//!
//! Private pages are counted for the space that wrote them. Copies that fork
//! made are told only so far: a page that a space has written anew, or
//! unmapped, counts for it until all descendants that it forked have gone, since
//! they may still have it. So the count is rather too high than too low.
//! Cached pages of files stay until the file is cut, as they do in the replay.

use std::collections::BTreeMap;

/// Pages in a window of a file: one bit each.
const WINDOW: u64 = 64;

/// Pages that every space has: its tables near text, heap, libraries and stack.
const TABLES: u64 = 8;

/// A space and what it holds.
#[derive(Clone, Copy, Default, Debug)]
struct Node {
    /// The node of the space it was forked from.
    parent: Option<u32>,
    /// Nodes forked from it that are there.
    children: u32,
    /// Pages it was said to hold.
    pages: u64,
    /// Its space has ended.
    ended: bool,
}

/// What a space holds at a moment.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Holding {
    /// Pages of its own.
    pub(super) own: u64,
    /// Pages that were its own, and that descendants may still have.
    pub(super) left: u64,
    /// Windows of 64 pages in which it has any.
    pub(super) windows: u64,
}

/// The memory in use, and the most that was.
#[derive(Default, Debug)]
pub(super) struct Memory {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// By file and window.
    cached: BTreeMap<(u32, u64), u64>,
    now: u64,
    peak: u64,
}

impl Memory {
    /// A node for a space, forked from that of `parent` or new.
    pub(super) fn begin(&mut self, parent: Option<u32>) -> u32 {
        if let Some(parent) = parent {
            self.nodes[parent as usize].children += 1;
        }
        let node = Node {
            parent,
            ..Node::default()
        };
        match self.free.pop() {
            Some(number) => {
                self.nodes[number as usize] = node;
                number
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    /// Whether descendants of a space may have pages that it no longer has.
    pub(super) fn is_shared(&self, node: u32) -> bool {
        self.nodes[node as usize].children > 0
    }

    /// Takes note of what a space holds.
    pub(super) fn note(&mut self, node: u32, holding: Holding) {
        let node = &mut self.nodes[node as usize];
        // Entries that fork copied cost tables, and some designs nodes.
        let pages = holding.own + holding.left + TABLES + holding.windows / 2;
        self.now = self.now - node.pages + pages;
        node.pages = pages;
        self.peak = self.peak.max(self.now);
    }

    /// A space has ended. Its pages go with the last of its descendants.
    pub(super) fn end(&mut self, node: u32) {
        if std::mem::replace(&mut self.nodes[node as usize].ended, true) {
            return;
        }
        let mut next = Some(node);
        while let Some(number) = next {
            let node = self.nodes[number as usize];
            if !node.ended || node.children > 0 {
                break;
            }
            self.now -= node.pages;
            self.nodes[number as usize].pages = 0;
            self.free.push(number);
            if let Some(parent) = node.parent {
                self.nodes[parent as usize].children -= 1;
            }
            next = node.parent;
        }
    }

    /// Pages `first..end` of a file come into memory.
    pub(super) fn cache(&mut self, file: u32, first: u64, end: u64) {
        let mut at = first;
        while at < end {
            let base = at - at % WINDOW;
            let count = (end - at).min(base + WINDOW - at);
            let mask = (u64::MAX >> (WINDOW - count)) << (at - base);
            let window = self.cached.entry((file, at / WINDOW)).or_default();
            self.now += u64::from((mask & !*window).count_ones());
            *window |= mask;
            at = base + WINDOW;
        }
        self.peak = self.peak.max(self.now);
    }

    /// A file has `pages` pages and no more.
    pub(super) fn uncache(&mut self, file: u32, pages: u64) {
        let first = pages / WINDOW;
        let windows = self.cached.range_mut((file, first)..=(file, u64::MAX));
        for ((_, number), window) in windows {
            let mask = match *number == first {
                true => u64::MAX << (pages % WINDOW),
                false => u64::MAX,
            };
            self.now -= u64::from((*window & mask).count_ones());
            *window &= !mask;
        }
    }

    /// The most pages at any moment.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(pages: u64) -> Holding {
        Holding {
            own: pages,
            ..Holding::default()
        }
    }

    #[test]
    fn pages_go_with_the_last_space_that_can_have_them() {
        let mut memory = Memory::default();
        let parent = memory.begin(None);
        memory.note(parent, own(1000));
        let child = memory.begin(Some(parent));
        memory.note(child, own(10));
        memory.end(parent);
        assert_eq!(memory.now, 1010 + 2 * TABLES, "the child may have them");
        memory.end(child);
        assert_eq!(memory.now, 0);
        let next = memory.begin(None);
        memory.note(next, own(5));
        assert_eq!(memory.peak(), 1010 + 2 * TABLES);
    }

    #[test]
    fn a_page_of_a_file_counts_once() {
        let mut memory = Memory::default();
        memory.cache(3, 10, 200);
        memory.cache(3, 64, 128);
        memory.cache(3, 199, 201);
        memory.cache(4, 0, 1);
        assert_eq!(memory.peak(), 190 + 1 + 1);
        memory.uncache(3, 70);
        assert_eq!(memory.now, 60 + 1);
        memory.cache(3, 69, 72);
        assert_eq!(memory.now, 60 + 1 + 2);
    }
}
