//! What is known of an address space: which pages are mapped, with which
//! rights, and which of them have been accessible.

use crate::tree::Tree;
use vellum_trace::Prot;

/// Neighbouring pages of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    /// The page after the last.
    end: u64,
    prot: Prot,
    /// The pages have been accessible since they were mapped.
    seen: bool,
}

/// Pages that became accessible: the first one, the one after the last, rights.
pub type Fresh = (u64, u64, Prot);

/// An address space; ranges are a first page and a page after the last. A copy
/// shares what both have in common.
#[derive(Clone, Default)]
pub struct Space {
    /// By first page. They do not overlap.
    pieces: Tree<Piece>,
    heap: Option<u64>,
}

impl Space {
    /// Maps pages in place of whatever is there.
    pub fn map(&mut self, (first, end): (u64, u64), prot: Prot) -> Vec<Fresh> {
        self.clear(first, end);
        self.put(first, end, prot)
    }

    /// Unmaps pages.
    pub fn unmap(&mut self, (first, end): (u64, u64)) {
        self.clear(first, end);
    }

    /// Gives the mapped pages of the range other rights.
    pub fn protect(&mut self, (first, end): (u64, u64), prot: Prot) -> Vec<Fresh> {
        let accessible = prot.0 != 0;
        let mut fresh = Vec::new();
        for (at, piece) in self.take(first, end) {
            if accessible && !piece.seen {
                fresh.push((at, piece.end, prot));
            }
            let seen = piece.seen || accessible;
            self.pieces.insert(
                at,
                Piece {
                    prot,
                    seen,
                    ..piece
                },
            );
        }
        fresh
    }

    /// Moves the first range to the second, which can be longer or shorter.
    pub fn remap(&mut self, from: (u64, u64), to: (u64, u64)) -> Vec<Fresh> {
        let taken = self.take(from.0, from.1);
        self.clear(to.0, to.1);
        let Some((_, last)) = taken.last().copied() else {
            return Vec::new();
        };
        for (at, piece) in taken {
            let first = to.0 + (at - from.0);
            let end = (to.0 + (piece.end - from.0)).min(to.1);
            if first < end {
                self.pieces.insert(first, Piece { end, ..piece });
            }
        }
        self.put(to.0 + (from.1 - from.0), to.1, last.prot)
    }

    /// Moves the heap's end; where it begins is where the first such call left it.
    pub fn set_heap_end(&mut self, end: u64) -> Vec<Fresh> {
        let old = self.heap.replace(end).unwrap_or(end);
        self.clear(end.min(old), end.max(old));
        self.put(old, end, Prot(3))
    }

    /// Adds pages where none are.
    fn put(&mut self, first: u64, end: u64, prot: Prot) -> Vec<Fresh> {
        if first >= end {
            return Vec::new();
        }
        let seen = prot.0 != 0;
        self.pieces.insert(first, Piece { end, prot, seen });
        if seen {
            vec![(first, end, prot)]
        } else {
            Vec::new()
        }
    }

    fn clear(&mut self, first: u64, end: u64) {
        if first < end {
            self.part(first);
            self.part(end);
            self.pieces.cut(first, end);
        }
    }

    fn take(&mut self, first: u64, end: u64) -> Vec<(u64, Piece)> {
        if first >= end {
            return Vec::new();
        }
        self.part(first);
        self.part(end);
        self.pieces.cut(first, end).into_vec()
    }

    /// Makes a piece begin at the page if one lies across it.
    fn part(&mut self, page: u64) {
        if let Some((at, piece)) = self.pieces.floor(page)
            && at < page
            && page < piece.end
        {
            let tail = *piece;
            self.pieces.insert(at, Piece { end: page, ..tail });
            self.pieces.insert(page, tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::MADE;

    const NONE: Prot = Prot(0);
    const READ: Prot = Prot(1);
    const BOTH: Prot = Prot(3);

    #[test]
    fn pages_are_fresh_once_in_each_mapping() {
        let mut space = Space::default();
        assert_eq!(space.map((10, 20), NONE), []);
        assert_eq!(space.protect((12, 14), BOTH), [(12, 14, BOTH)]);
        assert_eq!(
            space.protect((0, 16), READ),
            [(10, 12, READ), (14, 16, READ)]
        );
        assert_eq!(space.protect((10, 20), NONE), []);
        assert_eq!(space.protect((10, 20), BOTH), [(16, 20, BOTH)]);
        space.unmap((11, 13));
        assert_eq!(space.protect((10, 20), BOTH), []);
        assert_eq!(space.map((11, 13), READ), [(11, 13, READ)]);
    }

    #[test]
    fn moved_pages_are_as_fresh_as_they_were_and_added_ones_are() {
        let mut space = Space::default();
        space.map((10, 12), BOTH);
        space.map((12, 14), NONE);
        assert_eq!(space.remap((10, 14), (50, 54)), []);
        assert_eq!(space.protect((50, 54), READ), [(52, 54, READ)]);
        assert_eq!(space.remap((50, 54), (50, 60)), [(54, 60, READ)]);
        assert_eq!(space.remap((50, 60), (80, 82)), []);
        assert_eq!(space.protect((0, 100), BOTH), []);
        assert_eq!(space.remap((200, 210), (300, 320)), []);
    }

    #[test]
    fn the_heap_grows_and_shrinks_from_where_it_was_first() {
        let mut space = Space::default();
        assert_eq!(space.set_heap_end(100), []);
        assert_eq!(space.set_heap_end(110), [(100, 110, BOTH)]);
        assert_eq!(space.set_heap_end(105), []);
        assert_eq!(space.set_heap_end(110), [(105, 110, BOTH)]);
    }

    /// A shell with many mappings that forks: each child closes some of them
    /// and maps some. What a child costs must not grow with what it inherits.
    #[test]
    fn a_fork_costs_what_the_child_changes_not_what_it_inherits() {
        let work = |mappings: u64, children: u64| {
            let mut parent = Space::default();
            for index in 0..mappings {
                parent.map((index * 4, index * 4 + 2), BOTH);
            }
            let before = MADE.get();
            for child in 0..children {
                let mut space = parent.clone();
                space.map((mappings * 4 + child, mappings * 4 + child + 1), BOTH);
                space.protect((0, 2), READ);
                space.unmap((0, mappings * 2));
                parent.protect((4, 6), READ);
            }
            MADE.get() - before
        };
        assert!(work(4000, 100) < 2 * work(100, 100));
        assert!(work(4000, 1000) < 11 * work(4000, 100));
    }
}
