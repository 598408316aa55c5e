//! Pages of stores that were discarded.

use std::collections::HashMap;
use std::ops::Range;

/// Ranges of pages that read as zeroes unless they were written since, by store.
#[derive(Default)]
pub(super) struct Holes(HashMap<u64, Vec<Range<u64>>>);

impl Holes {
    /// Pages of a store are discarded.
    pub fn add(&mut self, store: u64, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        let ranges = self.0.entry(store).or_default();
        // Those that touch it become one with it.
        let apart = |range: &Range<u64>| range.end < pages.start || pages.end < range.start;
        let mut whole = pages.clone();
        for range in ranges.iter().filter(|range| !apart(range)) {
            whole.start = whole.start.min(range.start);
            whole.end = whole.end.max(range.end);
        }
        ranges.retain(apart);
        ranges.push(whole);
    }

    /// Whether the page was discarded.
    pub fn has(&self, store: u64, index: u64) -> bool {
        let ranges = self.0.get(&store);
        ranges.is_some_and(|ranges| ranges.iter().any(|range| range.contains(&index)))
    }

    /// The first page at or after `index` that was not discarded or was written since, if
    /// `stored`; else the first of which neither is so. `written` tells the first page of
    /// a range that was written.
    pub fn find(
        &self,
        store: u64,
        mut index: u64,
        stored: bool,
        written: impl Fn(Range<u64>) -> Option<u64>,
    ) -> Option<u64> {
        let ranges = self.0.get(&store).map_or(&[][..], Vec::as_slice);
        loop {
            let hole = ranges.iter().find(|range| range.contains(&index));
            match (hole, stored) {
                (None, true) => return Some(index),
                (None, false) => {
                    let starts = ranges.iter().map(|range| range.start);
                    index = starts.filter(|start| *start > index).min()?;
                }
                (Some(hole), true) => {
                    let found = written(index..hole.end);
                    if found.is_some() || hole.end == u64::MAX {
                        return found;
                    }
                    index = hole.end;
                }
                (Some(_), false) => match written(index..index + 1) {
                    Some(_) => index += 1,
                    None => return Some(index),
                },
            }
        }
    }

    /// The store is as it was at first.
    pub fn forget(&mut self, store: u64) {
        self.0.remove(&store);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_in_holes_and_between_them() {
        let mut holes = Holes::default();
        holes.add(7, 3..6);
        holes.add(7, 9..u64::MAX);
        let written = |range: Range<u64>| [4, 12].into_iter().find(|page| range.contains(page));
        let find = |index, stored| holes.find(7, index, stored, written);
        let stored: Vec<_> = [0, 3, 5, 9, 13].map(|index| find(index, true)).into();
        assert_eq!(stored, [Some(0), Some(4), Some(6), Some(12), None]);
        let not: Vec<_> = [0, 4, 6, 12].map(|index| find(index, false)).into();
        assert_eq!(not, [Some(3), Some(5), Some(9), Some(13)]);
        assert_eq!(holes.find(8, 2, true, written), Some(2));
        assert_eq!(holes.find(8, 2, false, written), None);
    }
}
