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

/// The smallest of all keys, kept as the winners of pairs of pairs.
#[derive(Debug)]
pub(crate) struct Tournament {
    /// The winner of a pair is at half the number of its members; CPU `n` is at
    /// `leaves + n`.
    winners: Vec<(u64, u32)>,
    leaves: usize,
}

impl Tournament {
    /// Nobody runs.
    pub(crate) fn new(cpus: usize) -> Tournament {
        let leaves = cpus.next_power_of_two();
        let mut winners = vec![(NEVER, u32::MAX); 2 * leaves];
        for (cpu, leaf) in winners[leaves..].iter_mut().enumerate() {
            leaf.1 = cpu as u32;
        }
        Tournament { winners, leaves }
    }

    pub(crate) fn set(&mut self, cpu: u32, key: u64) {
        let mut place = self.leaves + cpu as usize;
        self.winners[place].0 = key;
        while place > 1 {
            let (one, other) = (self.winners[place], self.winners[place ^ 1]);
            place /= 2;
            self.winners[place] = if other.0 < one.0 { other } else { one };
        }
    }

    /// The smallest key and whose it is; [`NEVER`] if nobody runs.
    pub(crate) fn first(&self) -> (u64, u32) {
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
                let cpu = (state >> 33) as usize % cpus;
                let time = if state >> 60 == 0 { NEVER } else { state >> 40 };
                keys[cpu] = time;
                tournament.set(cpu as u32, time);
                let least = keys.iter().copied().min();
                assert_eq!(Some(tournament.first().0), least);
                if let Some(least) = least.filter(|&least| least != NEVER) {
                    assert_eq!(keys[tournament.first().1 as usize], least);
                }
            }
        }
    }
}
