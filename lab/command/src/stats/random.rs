//! Random numbers that follow from a seed, the same on every machine.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The sequence of `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A number below `bound`, all equally likely to within `bound / 2^32`.
    ///
    /// # Panics
    /// `bound` is 0 or more than 2^32.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!((1..=1 << 32).contains(&bound), "no number is below {bound}");
        ((u64::from(self.0.next_u32()) * bound as u64) >> 32) as usize
    }

    /// Puts `items` in an order of which all are equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (2..=items.len()).rev() {
            items.swap(end - 1, self.below(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_of_three_is_about_equally_frequent() {
        let mut random = Random::seeded(1);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(
            counts.values().all(|count| (900..1100).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::seeded(7);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(1), 0);
    }
}
