//! The translation caches of one CPU: a set-associative TLB for leaves and a
//! direct-mapped cache of upper-level entries.
//!
//! Entries leave only when another takes their place, when a flush names them,
//! or, for leaves, when an access they forbid has faulted (as on real
//! processors). Nothing is compared with memory. Absent entries are never
//! cached.

use vellum::addr::{PageRange, Pfn};
use vellum::platform::{Flush, SpaceTag};

use super::walker::{Rights, Walker};
use crate::config::MachineError;
use crate::stats::CpuStats;

/// Size of the translation caches of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbGeometry {
    /// Sets of the TLB; a power of two.
    pub sets: usize,
    /// Entries in a set, 1 to 64.
    pub ways: usize,
    /// Cached upper-level entries for each level; a power of two.
    pub upper_entries: usize,
}

impl Default for TlbGeometry {
    fn default() -> Self {
        TlbGeometry {
            sets: 64,
            ways: 4,
            upper_entries: 16,
        }
    }
}

impl TlbGeometry {
    pub(crate) fn check(self) -> Result<(), MachineError> {
        let valid = self.sets.is_power_of_two()
            && self.upper_entries.is_power_of_two()
            && (1..=64).contains(&self.ways);
        if valid {
            return Ok(());
        }
        Err(MachineError::Tlb {
            sets: self.sets,
            ways: self.ways,
            upper: self.upper_entries,
        })
    }
}

/// A cached translation of one page, or of a run of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub space: SpaceTag,
    /// Address divided by the size of what is translated.
    pub page: u64,
    /// First frame of it.
    pub frame: Pfn,
    /// Log2 of its bytes.
    pub shift: u8,
    pub rights: Rights,
    /// Whether the entry in memory is known to be marked as written.
    pub dirty: bool,
}

/// A cached upper-level entry: where the table for a stretch of addresses is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upper {
    pub space: SpaceTag,
    /// Address divided by what the entry covers.
    pub part: u64,
    /// The table it points to.
    pub table: Pfn,
    /// Limits from this entry and those above it.
    pub rights: Rights,
}

/// The root that a CPU has loaded, if the format has registers for its entries.
#[derive(Clone, Debug)]
pub(super) struct LoadedRoot {
    pub space: SpaceTag,
    pub frame: Pfn,
    pub entries: Vec<u64>,
}

/// The caches of one CPU. They take no memory until first used.
#[derive(Default)]
pub(crate) struct Tlb {
    leaves: Vec<Option<Leaf>>,
    /// For each set, which way is replaced next.
    next_way: Vec<u8>,
    /// `[level - 2]`: entries of tables at `level`.
    upper: Vec<Vec<Option<Upper>>>,
    /// Sizes that valid leaves have, ascending, and how many have each.
    sizes: Vec<(u8, usize)>,
    /// Leaves when another is loaded, and when everything of its space is flushed:
    /// that is done by loading it again.
    pub(super) root: Option<LoadedRoot>,
    pub(super) stats: CpuStats,
}

impl Tlb {
    /// Makes room for entries, the first time.
    pub(super) fn ensure(&mut self, geometry: TlbGeometry, levels: u8) {
        if self.leaves.is_empty() {
            self.leaves = vec![None; geometry.sets * geometry.ways];
            self.next_way = vec![0; geometry.sets];
            self.upper = vec![vec![None; geometry.upper_entries]; usize::from(levels - 1)];
        }
    }

    fn ways_of(&self, page: u64) -> std::ops::Range<usize> {
        let ways = self.leaves.len() / self.next_way.len();
        let set = page as usize & (self.next_way.len() - 1);
        set * ways..(set + 1) * ways
    }

    /// The cached translations of `address`, one of each size that has one; the smallest first.
    pub(super) fn found(&self, space: SpaceTag, address: u64) -> impl Iterator<Item = Leaf> {
        self.sizes.iter().filter_map(move |&(shift, _)| {
            let page = address >> shift;
            self.leaves[self.ways_of(page)]
                .iter()
                .flatten()
                .find(|leaf| (leaf.space, leaf.page, leaf.shift) == (space, page, shift))
                .copied()
        })
    }

    fn count(&mut self, shift: u8) {
        match self.sizes.binary_search_by_key(&shift, |&(size, _)| size) {
            Ok(place) => self.sizes[place].1 += 1,
            Err(place) => self.sizes.insert(place, (shift, 1)),
        }
    }

    fn uncount(&mut self, shift: u8) {
        if let Ok(place) = self.sizes.binary_search_by_key(&shift, |&(size, _)| size) {
            self.sizes[place].1 -= 1;
            if self.sizes[place].1 == 0 {
                self.sizes.remove(place);
            }
        }
    }

    /// Caches a translation, in place of an older one of the same page or of
    /// whichever page is next to go.
    pub(super) fn insert(&mut self, leaf: Leaf) {
        let ways = self.ways_of(leaf.page);
        let set = leaf.page as usize & (self.next_way.len() - 1);
        let is_same = |old: &Option<Leaf>| {
            old.is_some_and(|old| {
                (old.space, old.page, old.shift) == (leaf.space, leaf.page, leaf.shift)
            })
        };
        let candidates = &self.leaves[ways.clone()];
        let way = candidates
            .iter()
            .position(is_same)
            .or_else(|| candidates.iter().position(Option::is_none))
            .unwrap_or_else(|| {
                let way = usize::from(self.next_way[set]);
                self.next_way[set] = ((way + 1) % ways.len()) as u8;
                self.stats.evictions += 1;
                way
            });
        if let Some(old) = self.leaves[ways.start + way].replace(leaf) {
            self.uncount(old.shift);
        }
        self.count(leaf.shift);
    }

    /// Drops the leaf that translates `address`, after a fault.
    pub(super) fn drop_leaf(&mut self, space: SpaceTag, address: u64) {
        self.drop_leaves(|leaf| leaf.space == space && leaf.page == address >> leaf.shift);
    }

    /// Drops the cached entries on the way to `address`, after a fault.
    pub(super) fn drop_tables(&mut self, space: SpaceTag, address: u64, walker: &dyn Walker) {
        for (level, entries) in (2..).zip(&mut self.upper) {
            let part = address >> walker.coverage_shift(level);
            let index = part as usize & (entries.len() - 1);
            if entries[index].is_some_and(|upper| (upper.space, upper.part) == (space, part)) {
                entries[index] = None;
            }
        }
    }

    /// The deepest cached table for `address` and the level it is at.
    pub(super) fn find_upper(
        &self,
        space: SpaceTag,
        address: u64,
        walker: &dyn Walker,
    ) -> Option<(u8, Upper)> {
        (2..=self.upper.len() as u8 + 1).find_map(|level| {
            let part = address >> walker.coverage_shift(level);
            let entries = &self.upper[usize::from(level - 2)];
            entries[part as usize & (entries.len() - 1)]
                .filter(|upper| (upper.space, upper.part) == (space, part))
                .map(|upper| (level - 1, upper))
        })
    }

    /// Caches an entry of a table at `level`.
    pub(super) fn insert_upper(&mut self, level: u8, upper: Upper) {
        let entries = &mut self.upper[usize::from(level - 2)];
        let index = upper.part as usize & (entries.len() - 1);
        entries[index] = Some(upper);
    }

    /// The entries of this root, if it is the one loaded.
    pub(super) fn loaded(&self, space: SpaceTag, root: Pfn) -> Option<&[u64]> {
        let loaded = self.root.as_ref()?;
        ((loaded.space, loaded.frame) == (space, root)).then_some(&loaded.entries)
    }

    /// Forgets what `request` names. True if nothing at all is cached then.
    pub(crate) fn flush(&mut self, request: &Flush, walker: &dyn Walker) -> bool {
        let base = walker.frame_shift();
        // Pages `page..page + 1` of `1 << shift` bytes, against a range of frames.
        let covers = |range: &PageRange, page: u64, shift: u32| {
            let first = page << (shift - base);
            let end = first + (1 << (shift - base));
            first < range.end.0 && range.start.0 < end
        };
        let named = |space: SpaceTag, page: u64, shift: u32| {
            space == request.space
                && request
                    .range
                    .is_none_or(|range| covers(&range, page, shift))
        };
        let dropped = self.drop_leaves(|leaf| named(leaf.space, leaf.page, u32::from(leaf.shift)));
        self.stats.flushed_entries += dropped;
        if request.tables {
            for (level, entries) in (2..).zip(&mut self.upper) {
                let shift = walker.coverage_shift(level);
                for entry in entries {
                    if entry.is_some_and(|upper| named(upper.space, upper.part, shift)) {
                        *entry = None;
                    }
                }
            }
        }
        let loads_again = |root: &LoadedRoot| root.space == request.space;
        if request.range.is_none() && self.root.as_ref().is_some_and(loads_again) {
            self.root = None;
        }
        self.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.sizes.is_empty()
            && self.upper.iter().flatten().all(Option::is_none)
            && self.root.is_none()
    }

    fn drop_leaves(&mut self, goes: impl Fn(&Leaf) -> bool) -> u64 {
        let mut dropped = 0;
        for place in 0..self.leaves.len() {
            if let Some(leaf) = self.leaves[place].filter(&goes) {
                self.uncount(leaf.shift);
                self.leaves[place] = None;
                dropped += 1;
            }
        }
        dropped
    }
}
