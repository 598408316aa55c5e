//! Confidence intervals by resampling passes.
//!
//! All arms are resampled together: a draw takes whole passes, so that whatever
//! a pass did to every arm alike stays common to them and cancels in ratios.
//!
//! The plain percentile bootstrap is too narrow when passes are few, because
//! the spread of a sample of `n` is short by `(n - 1) / n` and because it knows
//! nothing of Student's t. The *expanded* percentile interval (T. Hesterberg,
//! "What Teachers Should Know About the Bootstrap", The American Statistician
//! 69, 2015) reads the quantiles further out by exactly those two factors.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::{Samples, quantile};

/// Bounds that hold the true value with the stated confidence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies between the bounds.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Whether the two have a value in common.
    pub fn overlaps(&self, other: &Interval) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Half the distance between the bounds.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Passes are too few for an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} passes do not give an interval; at least 2 are needed")]
pub struct TooFewPasses(
    /// How many there are.
    pub usize,
);

/// Totals of several arms under the same random choices of passes.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    passes: usize,
    confidence: f64,
    /// One row per arm, one entry per resample.
    totals: Vec<Vec<f64>>,
}

impl Bootstrap {
    /// Draws `resamples` samples of passes, each as large as the original and
    /// with replacement, and keeps every arm's total in each. `confidence` is
    /// a share (`0.95`).
    ///
    /// # Errors
    /// There are fewer than two passes.
    ///
    /// # Panics
    /// The arms have different numbers of passes, there is no arm, or
    /// `resamples` is 0.
    pub fn new(
        arms: &[&Samples],
        resamples: usize,
        confidence: f64,
        seed: u64,
    ) -> Result<Self, TooFewPasses> {
        let passes = arms[0].passes();
        assert!(
            arms.iter().all(|arm| arm.passes() == passes),
            "arms are resampled together and need the same passes"
        );
        assert!(resamples > 0, "an interval needs resamples");
        if passes < 2 {
            return Err(TooFewPasses(passes));
        }
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut totals = vec![Vec::with_capacity(resamples); arms.len()];
        let mut weights = vec![0u32; passes];
        for _ in 0..resamples {
            weights.fill(0);
            for _ in 0..passes {
                weights[below(&mut random, passes)] += 1;
            }
            for (arm, totals) in arms.iter().zip(&mut totals) {
                totals.push(arm.total_weighted(&weights));
            }
        }
        Ok(Self {
            passes,
            confidence,
            totals,
        })
    }

    /// The interval of arm `arm`'s total, in nanoseconds.
    pub fn total(&self, arm: usize) -> Interval {
        self.interval(self.totals[arm].clone())
    }

    /// The interval of the total of arm `over` divided by that of arm `under`.
    pub fn ratio(&self, over: usize, under: usize) -> Interval {
        let pairs = self.totals[over].iter().zip(&self.totals[under]);
        self.interval(pairs.map(|(over, under)| over / under).collect())
    }

    fn interval(&self, mut values: Vec<f64>) -> Interval {
        values.sort_by(f64::total_cmp);
        let tail = expanded_tail(self.passes, self.confidence);
        Interval {
            low: quantile(&values, tail),
            high: quantile(&values, 1.0 - tail),
        }
    }
}

/// The share of resamples to leave out on each side.
fn expanded_tail(passes: usize, confidence: f64) -> f64 {
    let n = passes as f64;
    let nominal = (1.0 - confidence) / 2.0;
    let student = StudentsT::new(0.0, 1.0, n - 1.0).map(|t| t.inverse_cdf(nominal));
    match (student, Normal::new(0.0, 1.0)) {
        (Ok(t), Ok(normal)) => normal.cdf(t * (n / (n - 1.0)).sqrt()),
        // Both constructors accept every n of two or more.
        _ => nominal,
    }
}

/// A number below `bound`, all equally likely to within 2^-32.
fn below(random: &mut Pcg64Mcg, bound: usize) -> usize {
    ((u64::from(random.next_u32()) * bound as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_passes_widen_the_interval() {
        // Student's t with 9 degrees of freedom: 2.2622; times sqrt(10/9): 2.3845.
        assert!((expanded_tail(10, 0.95) - 0.008_55).abs() < 5e-5);
        // Many passes: the ordinary percentile interval.
        assert!((expanded_tail(100_000, 0.95) - 0.025).abs() < 1e-4);
    }

    #[test]
    fn one_pass_has_no_interval() {
        let samples = Samples::from_passes(&[&[1, 2, 3]]);
        assert_eq!(
            Bootstrap::new(&[&samples], 100, 0.95, 1).unwrap_err(),
            TooFewPasses(1)
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_interval_and_another_a_different_one() {
        let passes: Vec<Vec<u64>> = (0..9u64)
            .map(|pass| {
                (0..50)
                    .map(|slice| 1000 + (pass * 37 + slice * 11) % 101)
                    .collect()
            })
            .collect();
        let rows: Vec<&[u64]> = passes.iter().map(Vec::as_slice).collect();
        let samples = Samples::from_passes(&rows);
        let interval = |seed| {
            let drawn = Bootstrap::new(&[&samples], 200, 0.95, seed);
            drawn.map(|drawn| drawn.total(0))
        };
        assert_eq!(interval(1), interval(1));
        assert_ne!(interval(1), interval(2));
    }

    #[test]
    fn what_is_common_to_a_pass_cancels_in_the_ratio() {
        let slow: Vec<Vec<u64>> = (1..=8u64).map(|pass| vec![1000 * pass; 20]).collect();
        let slower: Vec<Vec<u64>> = (1..=8u64).map(|pass| vec![1200 * pass; 20]).collect();
        let samples = |times: &[Vec<u64>]| {
            let rows: Vec<&[u64]> = times.iter().map(Vec::as_slice).collect();
            Samples::from_passes(&rows)
        };
        let (a, b) = (samples(&slow), samples(&slower));
        let ratio = Bootstrap::new(&[&a, &b], 500, 0.95, 7).map(|drawn| drawn.ratio(1, 0));
        let ratio = ratio.expect("8 passes suffice");
        assert!((ratio.low - 1.2).abs() < 1e-9 && (ratio.high - 1.2).abs() < 1e-9);
    }
}
