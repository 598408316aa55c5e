//! The mapped regions of one space as the trace describes them.
//!
//! Regions are disjoint, not empty, and never merged: a boundary that a call
//! made stays, whatever policy the replayed memory manager has, so that any
//! range inside one region here lies inside one region there.

use std::collections::BTreeMap;

use vellum_engine::{Access, FileSlot, Prot};

/// What a region's pages come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Zeroes of its own.
    Anonymous,
    /// A shared-memory object made by a mapping, from the given page on.
    Object {
        /// Number of the object.
        object: u32,
        /// First page.
        page: u64,
    },
    /// A file from the given page on.
    File {
        /// Which file.
        file: FileSlot,
        /// First page.
        page: u64,
    },
}

impl Source {
    /// The same, from `pages` pages further on.
    pub fn skip(self, pages: u64) -> Self {
        match self {
            Source::Anonymous => Source::Anonymous,
            Source::Object { object, page } => Source::Object {
                object,
                page: page + pages,
            },
            Source::File { file, page } => Source::File {
                file,
                page: page + pages,
            },
        }
    }
}

/// One mapped region: pages `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// First page.
    pub start: u64,
    /// One past the last page.
    pub end: u64,
    /// Rights.
    pub prot: Prot,
    /// Writes go to the source instead of a copy.
    pub shared: bool,
    /// Touches below extend it.
    pub grows_down: bool,
    /// Where pages come from.
    pub source: Source,
}

impl Region {
    /// Memory of its space's own, which may be read and written: what a heap is.
    pub fn anonymous(start: u64, end: u64) -> Self {
        Region {
            start,
            end,
            prot: Prot {
                read: true,
                write: true,
                execute: false,
            },
            shared: false,
            grows_down: false,
            source: Source::Anonymous,
        }
    }

    /// The part of it in `start..end`, which must overlap it.
    fn part(&self, start: u64, end: u64) -> Self {
        let start = start.max(self.start);
        Region {
            start,
            end: end.min(self.end),
            source: self.source.skip(start - self.start),
            ..*self
        }
    }

    /// The file and the page in it behind `page`, if a file is.
    pub fn file_page(&self, page: u64) -> Option<(FileSlot, u64)> {
        match self.source {
            Source::File { file, page: first } => Some((file, first + (page - self.start))),
            _ => None,
        }
    }

    /// What is behind `page` of the region: its source, from that page on.
    pub fn behind(&self, page: u64) -> Source {
        self.source.skip(page - self.start)
    }

    /// Whether the region's rights allow `access`.
    pub fn allows(&self, access: Access) -> bool {
        match access {
            Access::Read => self.prot.read,
            Access::Write => self.prot.write,
            Access::Execute => self.prot.execute,
        }
    }

    /// The region at its new place after a move by `mremap`.
    pub fn moved_to(&self, start: u64) -> Self {
        Region {
            start,
            end: start + (self.end - self.start),
            ..*self
        }
    }
}

/// How far below a stack a touch may still extend it: 256 MiB of 4 KiB pages.
/// Beyond that it is a stray pointer.
pub const STACK_REACH_PAGES: u64 = 1 << 16;

/// The regions of a space, by first page.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    by_start: BTreeMap<u64, Region>,
}

impl Regions {
    /// The region that contains `page`.
    pub fn at(&self, page: u64) -> Option<&Region> {
        let (_, region) = self.by_start.range(..=page).next_back()?;
        (page < region.end).then_some(region)
    }

    /// All regions, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Region> {
        self.by_start.values()
    }

    /// The parts of regions in `start..end`, ascending.
    pub fn parts(&self, start: u64, end: u64) -> Vec<Region> {
        let first = self.at(start).map_or(start, |region| region.start);
        if first >= end {
            return Vec::new();
        }
        self.by_start
            .range(first..end)
            .map(|(_, region)| region.part(start, end))
            .collect()
    }

    /// Takes out everything in `start..end`; what sticks out stays.
    pub fn remove(&mut self, start: u64, end: u64) -> Vec<Region> {
        let removed = self.parts(start, end);
        for part in &removed {
            let Some(whole) = self.at(part.start).copied() else {
                continue;
            };
            self.by_start.remove(&whole.start);
            if whole.start < part.start {
                let below = whole.part(whole.start, part.start);
                self.by_start.insert(below.start, below);
            }
            if part.end < whole.end {
                let above = whole.part(part.end, whole.end);
                self.by_start.insert(above.start, above);
            }
        }
        removed
    }

    /// Puts `region` in, replacing what was there.
    pub fn insert(&mut self, region: Region) {
        self.remove(region.start, region.end);
        self.by_start.insert(region.start, region);
    }

    /// Gives everything in `start..end` other rights.
    pub fn protect(&mut self, start: u64, end: u64, prot: Prot) {
        for part in self.remove(start, end) {
            self.by_start.insert(part.start, Region { prot, ..part });
        }
    }

    /// The stack that a touch of the unmapped `page` extends, if there is one.
    pub fn stack_above(&self, page: u64) -> Option<&Region> {
        let (_, next) = self.by_start.range(page..).next()?;
        (next.grows_down && next.start - page <= STACK_REACH_PAGES).then_some(next)
    }

    /// Extends the stack above `page` down to it; says whether there is one.
    pub fn grow_stack(&mut self, page: u64) -> bool {
        let Some(stack) = self.stack_above(page).copied() else {
            return false;
        };
        self.by_start.remove(&stack.start);
        self.by_start.insert(
            page,
            Region {
                start: page,
                ..stack
            },
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64) -> Region {
        Region {
            start,
            end,
            prot: Prot::default(),
            shared: false,
            grows_down: false,
            source: Source::File {
                file: FileSlot(0),
                page: 100,
            },
        }
    }

    #[test]
    fn a_hole_leaves_both_ends_with_their_file_pages() {
        let mut regions = Regions::default();
        regions.insert(region(10, 20));
        let removed = regions.remove(13, 15);
        assert_eq!(removed.len(), 1);
        assert_eq!(removed[0].file_page(13), Some((FileSlot(0), 103)));
        let left: Vec<_> = regions.iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(left, [(10, 13), (15, 20)]);
        assert_eq!(
            regions.at(16).and_then(|r| r.file_page(16)),
            Some((FileSlot(0), 106))
        );
        assert!(regions.at(14).is_none());
    }

    #[test]
    fn a_mapping_replaces_what_it_covers() {
        let mut regions = Regions::default();
        regions.insert(region(0, 4));
        regions.insert(region(6, 9));
        regions.insert(region(2, 8));
        let left: Vec<_> = regions.iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(left, [(0, 2), (2, 8), (8, 9)]);
    }

    #[test]
    fn a_stack_grows_only_within_reach() {
        let mut regions = Regions::default();
        regions.insert(Region {
            grows_down: true,
            source: Source::Anonymous,
            ..region(1 << 20, (1 << 20) + 4)
        });
        assert!(!regions.grow_stack((1 << 20) - STACK_REACH_PAGES - 1));
        assert!(regions.grow_stack((1 << 20) - 7));
        assert!(regions.at((1 << 20) - 5).is_some());
    }

    #[test]
    fn a_stack_that_lost_its_bottom_can_grow_again() {
        let mut regions = Regions::default();
        regions.insert(Region {
            grows_down: true,
            source: Source::Anonymous,
            ..region(100, 104)
        });
        regions.remove(100, 102);
        assert!(regions.grow_stack(99));
        assert_eq!(regions.at(101).map(|r| r.start), Some(99));
    }
}
