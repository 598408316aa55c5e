//! Which cores share a line.

use crate::topology::{Level, Topology};

/// Sets of cores, numbered from 1. Set 0 is empty.
#[derive(Debug)]
pub(crate) struct SharerSets {
    /// Words of one set.
    width: usize,
    words: Vec<u64>,
    free: Vec<u32>,
}

impl SharerSets {
    pub(crate) fn new(cores: u32) -> SharerSets {
        let width = (cores as usize).div_ceil(64);
        SharerSets {
            width,
            words: vec![0; width],
            free: Vec::new(),
        }
    }

    fn words(&self, set: u32) -> &[u64] {
        &self.words[set as usize * self.width..][..self.width]
    }

    pub(crate) fn new_set(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let set = self.words.len() / self.width;
            self.words.resize(self.words.len() + self.width, 0);
            set as u32
        })
    }

    pub(crate) fn free(&mut self, set: u32) {
        self.words[set as usize * self.width..][..self.width].fill(0);
        self.free.push(set);
    }

    pub(crate) fn insert(&mut self, set: u32, core: u32) {
        self.words[set as usize * self.width + core as usize / 64] |= 1 << (core % 64);
    }

    pub(crate) fn contains(&self, set: u32, core: u32) -> bool {
        self.words(set)[core as usize / 64] & 1 << (core % 64) != 0
    }

    /// The first member that is not below `from` and below `end`.
    fn first_in(&self, set: u32, (from, end): (u32, u32)) -> Option<u32> {
        let words = self.words(set);
        let mut at = from;
        while at < end {
            let rest = words[at as usize / 64] >> (at % 64);
            if rest != 0 {
                let found = at + rest.trailing_zeros();
                return (found < end).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// A member that is as near to `core` as any, which is not one itself.
    pub(crate) fn nearest(&self, topology: &Topology, set: u32, core: u32) -> u32 {
        Level::ALL
            .into_iter()
            .find_map(|level| self.first_in(set, topology.within(core, level)))
            .unwrap_or(core)
    }

    /// How far the farthest member but `core` is.
    pub(crate) fn farthest(&self, topology: &Topology, set: u32, core: u32) -> Level {
        let beyond = |level| {
            let (from, end) = topology.within(core, level);
            self.first_in(set, (0, from)).is_some()
                || self.first_in(set, (end, topology.cores)).is_some()
        };
        let levels = [Level::Cluster, Level::Socket, Level::Board];
        levels
            .into_iter()
            .find(|&level| !beyond(level))
            .unwrap_or(Level::System)
    }
}
