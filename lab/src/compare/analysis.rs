//! From times to a verdict.
//!
//! A difference is reported only if the interval of B / A excludes 1 *and* has
//! no value in common with the interval of the control, A' / A: what the same
//! design shows against itself in this very run is not evidence.

use super::{A, ARMS, B, CONTROL, Measurement};
use crate::stats::{Bootstrap, Interval, Samples};

/// Passes below which no difference is called: with fewer, the interval is
/// little more than the range of what was seen.
pub const PASSES_FOR_A_VERDICT: usize = 5;

/// A value and the bounds of its uncertainty; none with a single pass.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The best value.
    pub value: f64,
    /// Where the true value lies with the stated confidence.
    pub interval: Option<Interval>,
}

/// Why no difference could be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The interval of the ratio includes 1.
    IncludesOne,
    /// The interval of the ratio overlaps that of the control.
    WithinControl,
    /// There are fewer than [`PASSES_FOR_A_VERDICT`] passes.
    TooFewPasses,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The design of this arm needs less time.
    Difference {
        /// Which arm needs less.
        less: usize,
    },
    /// No difference is proven, for these reasons.
    NotProven(Vec<Reason>),
}

/// How intervals are drawn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Method {
    /// Confidence of every interval, as a share.
    pub confidence: f64,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Seed of the resampling.
    pub seed: u64,
}

/// One quantity under several designs and the control: totals, and each arm's
/// ratio to the first.
#[derive(Clone, Debug)]
pub struct Contrast {
    /// Total of each arm, in nanoseconds; the control is the last.
    pub totals: Vec<Estimate>,
    /// Total of each arm divided by that of the first.
    pub ratios: Vec<Estimate>,
    /// For each arm the smallest relative difference to the first that could
    /// have been called, as a share; none with a single pass.
    pub resolutions: Vec<Option<f64>>,
    /// For each arm whether it differs from the first. In a
    /// [`Verdict::Difference`], `less` is the arm that needs less.
    pub verdicts: Vec<Verdict>,
}

impl Contrast {
    /// Analyses the times of all arms, of which the last is the control.
    ///
    /// # Panics
    /// There is no arm, or the arms have different numbers of passes.
    pub fn new(arms: &[Samples], method: &Method) -> Self {
        let all: Vec<&Samples> = arms.iter().collect();
        let drawn = Bootstrap::new(&all, method.resamples, method.confidence, method.seed).ok();
        let totals: Vec<Estimate> = (0..arms.len())
            .map(|arm| Estimate {
                value: arms[arm].total(),
                interval: drawn.as_ref().map(|drawn| drawn.total(arm)),
            })
            .collect();
        let ratio = |arm: usize| Estimate {
            value: totals[arm].value / totals[A].value,
            interval: drawn.as_ref().map(|drawn| drawn.ratio(arm, A)),
        };
        let ratios: Vec<Estimate> = (0..arms.len()).map(ratio).collect();
        let control = ratios[arms.len() - 1];
        let passes = arms[A].passes();
        let verdict = |(arm, ratio)| Verdict::of(arm, ratio, &control, passes);
        Self {
            resolutions: ratios.iter().map(|r| resolution(r, &control)).collect(),
            verdicts: ratios.iter().enumerate().map(verdict).collect(),
            totals,
            ratios,
        }
    }
}

/// What the measurement of two designs says.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// Confidence of every interval, as a share.
    pub confidence: f64,
    /// CPU time of each arm, in nanoseconds.
    pub cpu_ns: [Estimate; ARMS],
    /// Wall-clock time of each arm, in nanoseconds.
    pub wall_ns: [Estimate; ARMS],
    /// CPU time of B divided by that of A.
    pub ratio: Estimate,
    /// CPU time of the control divided by that of A.
    pub control: Estimate,
    /// The smallest relative difference that this run could have called, as a
    /// share; none with a single pass.
    pub resolution: Option<f64>,
    /// The answer.
    pub verdict: Verdict,
}

impl Analysis {
    /// Analyses a measurement of two designs that has at least one pass.
    ///
    /// # Panics
    /// The measurement is of another number of designs.
    pub fn new(measured: &Measurement, confidence: f64, resamples: usize, seed: u64) -> Self {
        let method = Method {
            confidence,
            resamples,
            seed,
        };
        let contrast = |times: fn(&super::Pass) -> &[Vec<u64>]| {
            let samples = [A, B, CONTROL].map(|arm| {
                let passes: Vec<&[u64]> = measured
                    .passes
                    .iter()
                    .map(|pass| times(pass)[arm].as_slice())
                    .collect();
                Samples::from_passes(&passes)
            });
            Contrast::new(&samples, &method)
        };
        let cpu = contrast(|pass| &pass.cpu_ns);
        let wall = contrast(|pass| &pass.wall_ns);
        let arms = |of: &[Estimate]| [of[A], of[B], of[CONTROL]];
        Self {
            confidence,
            cpu_ns: arms(&cpu.totals),
            wall_ns: arms(&wall.totals),
            ratio: cpu.ratios[B],
            control: cpu.ratios[CONTROL],
            resolution: cpu.resolutions[B],
            verdict: cpu.verdicts[B].clone(),
        }
    }
}

impl Verdict {
    /// Of `arm` against the first.
    fn of(arm: usize, ratio: &Estimate, control: &Estimate, passes: usize) -> Self {
        let mut reasons = Vec::new();
        if passes < PASSES_FOR_A_VERDICT {
            reasons.push(Reason::TooFewPasses);
        }
        if let (Some(ratio), Some(control)) = (ratio.interval, control.interval) {
            if ratio.contains(1.0) {
                reasons.push(Reason::IncludesOne);
            }
            if ratio.overlaps(&control) {
                reasons.push(Reason::WithinControl);
            }
        }
        match reasons.is_empty() {
            false => Verdict::NotProven(reasons),
            true if ratio.value < 1.0 => Verdict::Difference { less: arm },
            true => Verdict::Difference { less: A },
        }
    }
}

/// Half of the interval of the ratio, and how far the control strays from 1:
/// a ratio closer to 1 than their sum cannot clear both.
fn resolution(ratio: &Estimate, control: &Estimate) -> Option<f64> {
    let (ratio, control) = (ratio.interval?, control.interval?);
    let astray = (control.high - 1.0).max(1.0 - control.low);
    Some(ratio.half_width() + astray.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate {
            value,
            interval: Some(Interval { low, high }),
        }
    }

    #[test]
    fn a_difference_must_clear_one_and_the_control() {
        let control = estimate(1.004, 1.001, 1.007);
        let verdict = |ratio| Verdict::of(B, &ratio, &control, 12);
        assert_eq!(
            verdict(estimate(1.02, 1.01, 1.03)),
            Verdict::Difference { less: A }
        );
        assert_eq!(
            verdict(estimate(0.98, 0.97, 0.99)),
            Verdict::Difference { less: B }
        );
        assert_eq!(
            verdict(estimate(1.006, 1.005, 1.008)),
            Verdict::NotProven(vec![Reason::WithinControl])
        );
        assert_eq!(
            verdict(estimate(1.0, 0.9995, 1.0005)),
            Verdict::NotProven(vec![Reason::IncludesOne])
        );
        assert_eq!(
            verdict(estimate(1.003, 0.999, 1.006)),
            Verdict::NotProven(vec![Reason::IncludesOne, Reason::WithinControl])
        );
    }

    #[test]
    fn too_few_passes_call_no_difference() {
        let (ratio, control) = (estimate(2.0, 1.9, 2.1), estimate(1.0, 0.99, 1.01));
        assert_eq!(
            Verdict::of(B, &ratio, &control, PASSES_FOR_A_VERDICT - 1),
            Verdict::NotProven(vec![Reason::TooFewPasses])
        );
    }

    #[test]
    fn resolution_adds_the_stray_of_the_control() {
        let (ratio, control) = (estimate(1.1, 1.08, 1.12), estimate(0.99, 0.97, 1.01));
        let resolution = resolution(&ratio, &control).expect("both have intervals");
        assert!((resolution - 0.05).abs() < 1e-12);
    }
}
