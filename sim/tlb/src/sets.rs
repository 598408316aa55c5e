//! Sets of entries that are replaced by least recent use.

use vellum_description::Count;

/// An associative store of keys, none of which is 0.
pub struct Sets {
    ways: usize,
    sets: u64,
    /// Set by set, the one used last first; 0 where there is none.
    keys: Vec<u64>,
}

impl Sets {
    pub fn new(entries: &Count, ways: &Count) -> Sets {
        let (entries, ways) = (entries.count as usize, ways.count as usize);
        Sets::of(entries / ways, ways)
    }

    /// Of so many sets, one at least.
    pub fn of(sets: usize, ways: usize) -> Sets {
        let sets = sets.max(1);
        Sets {
            ways,
            sets: sets as u64,
            keys: vec![0; sets * ways],
        }
    }

    /// Whether `key` was in the set that `place` belongs to; it is now, as the one used last.
    pub fn touch(&mut self, place: u64, key: u64) -> bool {
        let first = (place % self.sets) as usize * self.ways;
        let set = &mut self.keys[first..first + self.ways];
        let found = set.iter().position(|held| *held == key);
        let last = found.unwrap_or(self.ways - 1);
        set.copy_within(0..last, 1);
        set[0] = key;
        found.is_some()
    }
}
