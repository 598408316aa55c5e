//! The mappings of one address space, as a trace tells them.

use std::collections::BTreeMap;

use crate::event::{FileId, MapOrigin, Prot};

/// One mapping, without its place. Units are 4 KiB pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Rights.
    pub prot: Prot,
    /// Writes go to the file or the shared memory.
    pub shared: bool,
    /// A touch below extends it.
    pub grows_down: bool,
    /// `None`: anonymous.
    pub file: Option<FileId>,
    /// Page of the file that the first page shows.
    pub file_page: u64,
    /// What made it.
    pub origin: MapOrigin,
    /// It is the heap that `brk` moves.
    pub heap: bool,
}

impl Region {
    /// The same mapping, beginning `pages` later.
    fn skip(self, pages: u64) -> Region {
        Region {
            file_page: self.file_page + if self.file.is_some() { pages } else { 0 },
            ..self
        }
    }
}

/// Mappings by first page. They do not overlap.
#[derive(Clone, Default, Debug)]
pub struct Regions {
    map: BTreeMap<u64, (u64, Region)>,
}

impl Regions {
    /// Mappings in ascending order: first page, page after the last, mapping.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &Region)> {
        self.map
            .iter()
            .map(|(first, (end, region))| (*first, *end, region))
    }

    /// The mapping that holds `page`.
    pub fn find(&self, page: u64) -> Option<(u64, u64, &Region)> {
        let (first, (end, region)) = self.map.range(..=page).next_back()?;
        (page < *end).then_some((*first, *end, region))
    }

    /// First page and page after the last of the mapping that holds `page`, or
    /// of the first one behind it.
    pub fn next_from(&self, page: u64) -> Option<(u64, u64)> {
        if let Some((first, end, _)) = self.find(page) {
            return Some((first, end));
        }
        let (first, (end, _)) = self.map.range(page..).next()?;
        Some((*first, *end))
    }

    /// The mapping that holds `page`, extended downwards to it if it is a stack
    /// that begins above with nothing in between.
    pub fn find_or_grow(&mut self, page: u64) -> Option<Region> {
        if let Some((_, _, region)) = self.find(page) {
            return Some(*region);
        }
        let (&first, &(end, region)) = self.map.range(page..).next()?;
        if !region.grows_down {
            return None;
        }
        self.map.remove(&first);
        self.map.insert(page, (end, region));
        Some(region)
    }

    /// Puts a mapping in place of whatever is there.
    pub fn insert(&mut self, first: u64, end: u64, region: Region) {
        if first < end {
            self.remove(first, end);
            self.map.insert(first, (end, region));
        }
    }

    /// Takes everything in the range away and returns it.
    pub fn remove(&mut self, first: u64, end: u64) -> Vec<(u64, u64, Region)> {
        self.split(first);
        self.split(end);
        let starts: Vec<u64> = self
            .map
            .range(first..end.max(first))
            .map(|(at, _)| *at)
            .collect();
        let mut taken = Vec::new();
        for start in starts {
            if let Some((end, region)) = self.map.remove(&start) {
                taken.push((start, end, region));
            }
        }
        taken
    }

    /// Gives everything in the range other rights.
    pub fn protect(&mut self, first: u64, end: u64, prot: Prot) {
        for (start, end, region) in self.remove(first, end) {
            self.map.insert(start, (end, Region { prot, ..region }));
        }
    }

    /// Moves the first range to the second, shrinking or growing its end.
    pub fn relocate(&mut self, from: (u64, u64), to: (u64, u64)) {
        let taken = self.remove(from.0, from.1);
        self.remove(to.0, to.1);
        let count = taken.len();
        for (index, (start, end, region)) in taken.into_iter().enumerate() {
            let first = to.0 + (start - from.0);
            let last = index + 1 == count;
            let end = if last {
                to.1
            } else {
                (to.0 + (end - from.0)).min(to.1)
            };
            if first < end {
                self.map.insert(first, (end, region));
            }
        }
    }

    fn split(&mut self, page: u64) {
        let found = self.map.range_mut(..page).next_back();
        let Some((&first, (end, region))) = found else {
            return;
        };
        if page < *end {
            let tail = (*end, region.skip(page - first));
            *end = page;
            self.map.insert(page, tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(file_page: u64) -> Region {
        Region {
            prot: Prot(3),
            shared: false,
            grows_down: false,
            file: Some(FileId(0)),
            file_page,
            origin: MapOrigin::Mmap,
            heap: false,
        }
    }

    fn places(regions: &Regions) -> Vec<(u64, u64, u64)> {
        regions
            .iter()
            .map(|(first, end, region)| (first, end, region.file_page))
            .collect()
    }

    #[test]
    fn a_hole_splits_a_mapping_and_keeps_file_offsets() {
        let mut regions = Regions::default();
        regions.insert(10, 20, region(100));
        regions.remove(13, 15);
        assert_eq!(places(&regions), [(10, 13, 100), (15, 20, 105)]);
        regions.insert(12, 16, region(0));
        assert_eq!(
            places(&regions),
            [(10, 12, 100), (12, 16, 0), (16, 20, 106)]
        );
        assert!(regions.find(20).is_none() && regions.find(19).is_some());
    }

    #[test]
    fn moving_keeps_the_order_and_sets_the_end() {
        let mut regions = Regions::default();
        regions.insert(10, 20, region(0));
        regions.relocate((10, 20), (50, 65));
        assert_eq!(places(&regions), [(50, 65, 0)]);
        regions.relocate((50, 65), (50, 55));
        assert_eq!(places(&regions), [(50, 55, 0)]);
    }

    #[test]
    fn only_stacks_grow_down() {
        let mut regions = Regions::default();
        regions.insert(100, 110, region(0));
        assert!(regions.find_or_grow(99).is_none());
        let stack = Region {
            grows_down: true,
            file: None,
            ..region(0)
        };
        regions.insert(200, 210, stack);
        assert_eq!(regions.find_or_grow(190), Some(stack));
        assert_eq!(places(&regions), [(100, 110, 0), (190, 210, 0)]);
    }
}
