//! Whose turn it is: a tournament over the clocks of all CPUs.

/// Bits of a key that order CPUs whose clocks agree.
const RANK_BITS: u32 = 10;
/// The latest time that a clock shows, in picoseconds: five hours.
pub(crate) const LATEST: u64 = (1 << (64 - RANK_BITS)) - 2;
/// The key of who waits for somebody else.
pub(crate) const NEVER: u64 = u64::MAX;

/// A time and a rank as one number.
pub(crate) fn key(time: u64, rank: u16) -> u64 {
    time << RANK_BITS | u64::from(rank)
}

/// The time in a key.
pub(crate) fn time_of(key: u64) -> u64 {
    key >> RANK_BITS
}

/// The rank in a key.
pub(crate) fn rank_of(key: u64) -> u16 {
    (key & ((1 << RANK_BITS) - 1)) as u16
}

/// The smallest of all keys, kept as the winners of pairs of pairs.
#[derive(Debug)]
pub(crate) struct Tournament {
    /// The winner of a pair is at half the number of its members; whoever has rank `n` is at
    /// `leaves + n`.
    winners: Vec<u64>,
    leaves: usize,
}

impl Tournament {
    /// Nobody runs. Ranks are below `cpus`.
    pub(crate) fn new(cpus: usize) -> Tournament {
        let leaves = cpus.next_power_of_two();
        Tournament {
            winners: vec![NEVER; 2 * leaves],
            leaves,
        }
    }

    /// Whoever has this rank has a key, with that rank in it, or none.
    #[inline]
    pub(crate) fn set(&mut self, rank: u16, key: u64) {
        let mut place = self.leaves + usize::from(rank);
        self.winners[place] = key;
        let mut least = key;
        while place > 1 {
            least = least.min(self.winners[place ^ 1]);
            place /= 2;
            self.winners[place] = least;
        }
    }

    /// The smallest key of all others than that of a rank.
    #[inline]
    pub(crate) fn least_beside(&self, rank: u16) -> u64 {
        let mut place = self.leaves + usize::from(rank);
        let mut least = NEVER;
        while place > 1 {
            least = least.min(self.winners[place ^ 1]);
            place /= 2;
        }
        least
    }

    /// The smallest key; [`NEVER`] if nobody runs.
    pub(crate) fn first(&self) -> u64 {
        self.winners[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_key_is_first_whatever_is_set() {
        for cpus in [1, 2, 3, 16, 100, 512] {
            let mut tournament = Tournament::new(cpus);
            let mut keys = vec![NEVER; cpus];
            let mut state = 7u64;
            for _ in 0..4000 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                let rank = (state >> 33) as usize % cpus;
                keys[rank] = match state >> 60 {
                    0 => NEVER,
                    _ => key(state >> 40, rank as u16),
                };
                tournament.set(rank as u16, keys[rank]);
                let beside = (0..cpus)
                    .filter(|&other| other != rank)
                    .map(|other| keys[other]);
                let beside = beside.min().unwrap_or(NEVER);
                assert_eq!(tournament.least_beside(rank as u16), beside);
                let first = tournament.first();
                assert_eq!(Some(first), keys.iter().copied().min());
                assert!(first == NEVER || keys[usize::from(rank_of(first))] == first);
            }
        }
    }
}
