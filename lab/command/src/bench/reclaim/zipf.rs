//! Choices of pages by Zipf's law: few are chosen often, and most seldom.

use crate::stats::Random;

/// Numbers below this are drawn.
const DRAWN: usize = 1 << 32;

/// The page of rank r is chosen with a probability in proportion to 1 / r^s. Ranks are given to
/// pages at random, so pages that are chosen often do not lie side by side.
#[derive(Debug)]
pub struct Zipf {
    /// By rank: the first number drawn that does not choose this rank or one before.
    ends: Vec<u64>,
    /// The page of each rank.
    pages: Vec<u32>,
}

impl Zipf {
    /// Of `pages` pages with the exponent `skew`; with 0 all are as likely as any other.
    ///
    /// # Panics
    /// There are no pages.
    pub fn new(pages: u32, skew: f64, random: &mut Random) -> Zipf {
        assert!(pages > 0, "no page to choose");
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=pages)
            .map(|rank| {
                sum += f64::from(rank).powf(-skew);
                sum
            })
            .collect();
        let mut order: Vec<u32> = (0..pages).collect();
        random.shuffle(&mut order);
        Zipf {
            ends: sums
                .iter()
                .map(|part| (part / sum * DRAWN as f64) as u64)
                .collect(),
            pages: order,
        }
    }

    /// A page.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let drawn = random.below(DRAWN) as u64;
        let rank = self.ends.partition_point(|&end| end <= drawn);
        // Sums of parts may end a little short of one.
        let rank = rank.min(self.pages.len() - 1);
        u64::from(self.pages[rank])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(skew: f64) -> Vec<u32> {
        let mut random = Random::seeded(5);
        let zipf = Zipf::new(100, skew, &mut random);
        let mut counts = vec![0; 100];
        (0..100_000).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts
    }

    #[test]
    fn a_page_of_twice_the_rank_is_chosen_half_as_often() {
        let counts = counts(1.0);
        // 1 / H(100) of all choices.
        let first = 100_000.0 / 5.187_377_5;
        for rank in [1_u32, 2, 4, 8, 16] {
            let expected = first / f64::from(rank);
            let found = f64::from(counts[rank as usize - 1]);
            assert!((found / expected - 1.0).abs() < 0.1, "{rank}: {found}");
        }
    }

    #[test]
    fn without_skew_all_pages_are_as_likely_as_any_other() {
        let counts = counts(0.0);
        assert!(counts[0] < 1200 && counts[99] > 800, "{counts:?}");
    }
}
