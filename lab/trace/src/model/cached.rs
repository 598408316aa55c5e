//! Which pages of a file are in the cache.

use std::collections::BTreeMap;

/// Pages as ranges that neither overlap nor touch: an event that names a
/// million pages takes no more memory than one that names a page.
#[derive(Default, Debug)]
pub struct Cached {
    /// The page after the last by the first.
    ranges: BTreeMap<u64, u64>,
}

impl Cached {
    /// Adds `first..end`. Returns how many pages are new.
    pub fn insert(&mut self, first: u64, end: u64) -> u64 {
        if first >= end {
            return 0;
        }
        let (mut from, mut to, mut known) = (first, end, 0);
        // Ranges that begin at or before `end`, from the last one on, as long as
        // they reach `first`.
        while let Some((begin, stop)) = self.ranges.range(..=end).next_back()
            && *stop >= first
        {
            let (begin, stop) = (*begin, *stop);
            known += stop.min(end).saturating_sub(begin.max(first));
            (from, to) = (from.min(begin), to.max(stop));
            self.ranges.remove(&begin);
        }
        self.ranges.insert(from, to);
        end - first - known
    }

    /// Takes out all pages from `first` on. Returns how many there were.
    pub fn truncate(&mut self, first: u64) -> u64 {
        let mut gone: u64 = self
            .ranges
            .split_off(&first)
            .iter()
            .map(|(a, b)| b - a)
            .sum();
        if let Some((_, end)) = self.ranges.iter_mut().next_back()
            && *end > first
        {
            gone += *end - first;
            *end = first;
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn it_counts_as_a_set_of_pages_does() {
        let mut seed = 1u64;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % limit
        };
        let (mut ranges, mut pages) = (Cached::default(), BTreeSet::new());
        for _ in 0..4000 {
            let first = below(200);
            let before = pages.len() as u64;
            if below(8) == 0 {
                pages.retain(|page| *page < first);
                assert_eq!(ranges.truncate(first), before - pages.len() as u64);
            } else {
                let end = first + below(12);
                pages.extend(first..end);
                assert_eq!(ranges.insert(first, end), pages.len() as u64 - before);
            }
        }
    }

    #[test]
    fn a_range_takes_the_memory_of_one_range_however_long_it_is() {
        let mut cached = Cached::default();
        for file_part in 0..1000 {
            assert_eq!(
                cached.insert(file_part << 40, (file_part << 40) + (1 << 39)),
                1 << 39
            );
        }
        assert_eq!(cached.ranges.len(), 1000);
    }
}
