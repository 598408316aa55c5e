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

    /// The store is as it was at first.
    pub fn forget(&mut self, store: u64) {
        self.0.remove(&store);
    }
}
