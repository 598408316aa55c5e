//! Confidence intervals by resampling passes.
//!
//! All arms are resampled together: a draw takes whole passes, so that whatever
//! a pass did to every arm alike stays common to them and cancels in ratios.
//!
//! A resample of `n` passes spreads less than the truth by `(n - 1) / n`, which
//! makes the plain percentile interval too narrow when passes are few (T.
//! Hesterberg, "What Teachers Should Know About the Bootstrap", The American
//! Statistician 69, 2015). The quantiles are therefore read further out by the
//! square root of that factor. Hesterberg's second widening, for Student's t, is
//! left out: resampled medians of few values spread more than the medians
//! themselves, and that makes up for it. Counted over 1000 seeds with 6 to 24
//! passes, 95 % intervals made so cover the truth in 94.4 to 98.2 % under normal
//! disturbances (the lower end where they affect whole passes) and in up to 99 %
//! under heavy-tailed ones.

use std::thread;

use statrs::distribution::{ContinuousCDF, Normal};

use super::{Random, Samples, quantile};

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

    /// Whether the intervals have a value in common.
    pub fn overlaps(&self, other: &Interval) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Both bounds divided by `divisor`, which is positive.
    #[must_use]
    pub fn divided_by(&self, divisor: f64) -> Interval {
        Interval {
            low: self.low / divisor,
            high: self.high / divisor,
        }
    }

    /// Half the distance between the bounds.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Passes below which there is no interval: with fewer, it would be little more
/// than the range of what was seen.
pub const LEAST_PASSES: usize = 5;

/// Passes are too few for an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} passes do not give an interval; at least {LEAST_PASSES} are needed")]
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
    /// There are fewer than [`LEAST_PASSES`] passes.
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
        if passes < LEAST_PASSES {
            return Err(TooFewPasses(passes));
        }
        let mut random = Random::seeded(seed);
        let mut draw = || {
            let mut weights = vec![0u32; passes];
            for _ in 0..passes {
                weights[random.below(passes)] += 1;
            }
            weights
        };
        let draws: Vec<Vec<u32>> = (0..resamples).map(|_| draw()).collect();
        let totals = |arm: &Samples| draws.iter().map(|draw| arm.total_weighted(draw)).collect();
        let totals = thread::scope(|scope| {
            let arms: Vec<_> = arms.iter().map(|arm| scope.spawn(|| totals(arm))).collect();
            let totals = arms.into_iter().map(|arm| match arm.join() {
                Ok(totals) => totals,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            totals.collect()
        });
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

    /// The interval of the total of arm `over` divided by that of arm `under` of
    /// another measurement, whose passes were drawn by themselves.
    pub fn ratio_apart(&self, over: usize, other: &Bootstrap, under: usize) -> Interval {
        let pairs = self.totals[over].iter().zip(&other.totals[under]);
        let ratios = pairs.map(|(over, under)| over / under).collect();
        interval(ratios, self.passes.min(other.passes), self.confidence)
    }

    fn interval(&self, values: Vec<f64>) -> Interval {
        interval(values, self.passes, self.confidence)
    }
}

fn interval(mut values: Vec<f64>, passes: usize, confidence: f64) -> Interval {
    values.sort_by(f64::total_cmp);
    let tail = expanded_tail(passes, confidence);
    Interval {
        low: quantile(&values, tail),
        high: quantile(&values, 1.0 - tail),
    }
}

/// The share of resamples to leave out on each side.
fn expanded_tail(passes: usize, confidence: f64) -> f64 {
    let n = passes as f64;
    let normal = Normal::standard();
    let nominal = normal.inverse_cdf((1.0 - confidence) / 2.0);
    normal.cdf(nominal * (n / (n - 1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_passes_widen_the_interval() {
        // 1.959964 * sqrt(10 / 9) = 2.065984 standard deviations.
        assert!((expanded_tail(10, 0.95) - 0.019_416).abs() < 1e-5);
        // Many passes: the ordinary percentile interval.
        assert!((expanded_tail(100_000, 0.95) - 0.025).abs() < 1e-4);
    }

    #[test]
    fn the_range_of_a_few_passes_is_no_interval() {
        for passes in 1..LEAST_PASSES {
            let samples = Samples::from_passes(&vec![[1, 2, 3].as_slice(); passes]);
            assert_eq!(
                Bootstrap::new(&[&samples], 100, 0.95, 1).unwrap_err(),
                TooFewPasses(passes)
            );
        }
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
