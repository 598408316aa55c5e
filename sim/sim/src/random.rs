//! Random numbers that are the same everywhere.

/// The SplitMix64 sequence of a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    /// The numbers below `count` in random order.
    pub(crate) fn permutation(&mut self, count: usize) -> Vec<u16> {
        let mut numbers: Vec<u16> = (0..count as u16).collect();
        for end in (1..count).rev() {
            numbers.swap(end, self.below(end as u64 + 1) as usize);
        }
        numbers
    }
}
