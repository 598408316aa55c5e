//! The mappings of a process, as far as the kernel's reports show them.
//!
//! The kernel reports a whole mapping whenever one is made, grows, joins its neighbour or gets other
//! rights, and nothing when pages are unmapped or moved. So a report is compared with what is known:
//! what is new is mapped; what has the same content and other rights is protected; the rest stays. A
//! report that changes nothing can only be of pages that were unmapped and are mapped anew.

use crate::tree::Tree;

/// Pages by which a stack grows at most before the kernel says so: 8 MiB.
const STACK_GROWTH: u64 = 2048;
pub const WRITE: u8 = 2;

/// What the pages of a mapping hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Backing {
    Anonymous,
    Stack,
    File {
        device: u32,
        inode: u64,
        shared: bool,
        /// Pages from the address to the place in the file, wrapped.
        shift: u64,
    },
    /// Nothing is known of it but that pages were used.
    Inferred,
}

/// Neighbouring pages of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    /// The page after the last.
    end: u64,
    prot: u8,
    backing: Backing,
}

/// What a report says that was not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    Map,
    Protect,
}

/// What is known of a page that is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Use {
    /// Its mapping's rights, and whether it was used before.
    Mapped { prot: u8, before: bool },
    /// The stack grows to it.
    Stack,
    /// No mapping shows.
    Outside,
}

/// An address space; ranges are a first page and a page after the last. A copy shares what both have
/// in common.
#[derive(Clone, Default)]
pub struct Layout {
    /// By first page. They do not overlap.
    pieces: Tree<Piece>,
    /// Runs of pages that were used since they were mapped: the page after the last.
    touched: Tree<u64>,
    /// Where the stack begins.
    stack: Option<u64>,
}

impl Layout {
    /// Takes a report; returns what it changes, in order.
    pub fn report(
        &mut self,
        (first, end): (u64, u64),
        prot: u8,
        backing: Backing,
    ) -> Vec<(u64, u64, Change)> {
        let known = self.take(first, end);
        let piece = Piece { end, prot, backing };
        self.pieces.insert(first, piece);
        if backing == Backing::Stack {
            self.stack = Some(first);
            if !known.is_empty() {
                // It grew, which faults tell.
                return Vec::new();
            }
        }
        let mut changes = Vec::new();
        let mut at = first;
        for (begin, old) in known {
            if at < begin {
                changes.push((at, begin, Change::Map));
            }
            if old.backing != backing {
                changes.push((begin, old.end, Change::Map));
            } else if old.prot != prot {
                changes.push((begin, old.end, Change::Protect));
            }
            at = old.end;
        }
        if at < end {
            changes.push((at, end, Change::Map));
        }
        if changes.is_empty() {
            changes.push((first, end, Change::Map));
        }
        for &(from, to, change) in &changes {
            if change == Change::Map {
                self.forget_uses(from, to);
            }
        }
        joined(changes)
    }

    /// A page is used.
    pub fn touch(&mut self, page: u64) -> Use {
        let before = self.use_page(page);
        let found = self.pieces.floor(page).map(|(_, piece)| *piece);
        if let Some(piece) = found.filter(|piece| page < piece.end) {
            let prot = piece.prot;
            return Use::Mapped { prot, before };
        }
        let grows = |stack: &u64| (stack.saturating_sub(STACK_GROWTH)..*stack).contains(&page);
        let is_stack = self.stack.as_ref().is_some_and(grows);
        let (backing, used) = match is_stack {
            true => (Backing::Stack, Use::Stack),
            false => (Backing::Inferred, Use::Outside),
        };
        let piece = Piece {
            end: page + 1,
            prot: 3,
            backing,
        };
        self.pieces.insert(page, piece);
        used
    }

    /// Notes that a page is used; whether it was before.
    fn use_page(&mut self, page: u64) -> bool {
        match self.touched.floor(page).map(|(at, end)| (at, *end)) {
            Some((_, end)) if page < end => return true,
            Some((at, end)) if page == end => self.touched.insert(at, page + 1),
            _ => self.touched.insert(page, page + 1),
        }
        false
    }

    /// The pages are others from now on.
    fn forget_uses(&mut self, first: u64, end: u64) {
        for page in [first, end] {
            if let Some((at, last)) = self.touched.floor(page).map(|(at, last)| (at, *last))
                && at < page
                && page < last
            {
                self.touched.insert(at, page);
                self.touched.insert(page, last);
            }
        }
        self.touched.cut(first, end);
    }

    /// Takes out what is known of a range.
    fn take(&mut self, first: u64, end: u64) -> Vec<(u64, Piece)> {
        for page in [first, end] {
            if let Some((at, piece)) = self.pieces.floor(page).map(|(at, piece)| (at, *piece))
                && at < page
                && page < piece.end
            {
                self.pieces.insert(at, Piece { end: page, ..piece });
                self.pieces.insert(page, piece);
            }
        }
        self.pieces.cut(first, end).into_vec()
    }
}

/// Neighbouring changes of one kind are one.
fn joined(changes: Vec<(u64, u64, Change)>) -> Vec<(u64, u64, Change)> {
    let mut all: Vec<(u64, u64, Change)> = Vec::new();
    for (first, end, change) in changes {
        match all.last_mut() {
            Some((_, before, kind)) if *before == first && *kind == change => *before = end,
            _ => all.push((first, end, change)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use Backing::{Anonymous, Stack};

    const BOTH: u8 = 3;

    #[test]
    fn what_grows_is_mapped_where_it_is_new_and_keeps_its_pages() {
        let mut layout = Layout::default();
        let map = |first, end| vec![(first, end, Change::Map)];
        assert_eq!(layout.report((10, 12), BOTH, Anonymous), map(10, 12));
        assert_eq!(
            layout.touch(10),
            Use::Mapped {
                prot: BOTH,
                before: false
            }
        );
        assert_eq!(
            layout.report((8, 14), BOTH, Anonymous),
            [(8, 10, Change::Map), (12, 14, Change::Map)]
        );
        assert_eq!(
            layout.touch(10),
            Use::Mapped {
                prot: BOTH,
                before: true
            }
        );
        assert_eq!(
            layout.touch(9),
            Use::Mapped {
                prot: BOTH,
                before: false
            }
        );
    }

    #[test]
    fn other_rights_are_a_change_of_rights() {
        let mut layout = Layout::default();
        layout.report((10, 20), 0, Anonymous);
        layout.touch(15);
        let protect = [(14, 16, Change::Protect)];
        assert_eq!(layout.report((14, 16), BOTH, Anonymous), protect);
        assert_eq!(
            layout.touch(15),
            Use::Mapped {
                prot: BOTH,
                before: true
            }
        );
        assert_eq!(
            layout.touch(13),
            Use::Mapped {
                prot: 0,
                before: false
            }
        );
        // All of it gets what a part had.
        let all = [(10, 14, Change::Protect), (16, 20, Change::Protect)];
        assert_eq!(layout.report((10, 20), BOTH, Anonymous), all);
    }

    #[test]
    fn what_changes_nothing_was_unmapped_and_mapped_anew() {
        let mut layout = Layout::default();
        layout.report((10, 20), BOTH, Anonymous);
        layout.touch(12);
        assert_eq!(
            layout.report((12, 14), BOTH, Anonymous),
            [(12, 14, Change::Map)]
        );
        assert_eq!(
            layout.touch(12),
            Use::Mapped {
                prot: BOTH,
                before: false
            }
        );
    }

    #[test]
    fn another_file_or_place_in_it_takes_the_place() {
        let file = |shift| Backing::File {
            device: 1,
            inode: 2,
            shared: false,
            shift,
        };
        let mut layout = Layout::default();
        layout.report((10, 20), 1, file(0));
        assert_eq!(
            layout.report((12, 14), 5, file(0)),
            [(12, 14, Change::Protect)]
        );
        assert_eq!(
            layout.report((16, 18), BOTH, file(1)),
            [(16, 18, Change::Map)]
        );
        assert_eq!(
            layout.report((17, 21), BOTH, Anonymous),
            [(17, 21, Change::Map)]
        );
    }

    #[test]
    fn a_stack_grows_by_faults_and_reports_of_it_map_nothing() {
        let mut layout = Layout::default();
        assert_eq!(
            layout.report((5000, 5010), BOTH, Stack),
            [(5000, 5010, Change::Map)]
        );
        assert_eq!(layout.report((4990, 5010), BOTH, Stack), []);
        assert_eq!(layout.touch(4989), Use::Stack);
        assert_eq!(layout.touch(2000), Use::Outside);
        assert_eq!(
            layout.touch(2000),
            Use::Mapped {
                prot: BOTH,
                before: true
            }
        );
    }

    #[test]
    fn a_copy_goes_its_own_way() {
        let mut parent = Layout::default();
        parent.report((10, 20), BOTH, Anonymous);
        parent.touch(10);
        let mut child = parent.clone();
        assert_eq!(
            child.touch(10),
            Use::Mapped {
                prot: BOTH,
                before: true
            }
        );
        child.touch(11);
        assert_eq!(
            parent.touch(11),
            Use::Mapped {
                prot: BOTH,
                before: false
            }
        );
    }
}
