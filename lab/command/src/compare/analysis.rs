//! From times to estimates: totals and ratios with their intervals. What follows
//! from them is decided in [`super::verdict`].

use super::verdict::{Judged, judge};
use super::{A, ARMS, B, CONTROL, Measurement};
use crate::stats::{Bootstrap, Estimate, Samples};

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
    /// What is said of each design but the first, in their order; nothing is
    /// said of the first and of the control.
    pub judged: Vec<Judged>,
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
        let judged = match ratios.as_slice() {
            [_, designs @ .., control] => {
                let passes = arms[A].passes();
                judge(designs, &[*control], passes, method.confidence)
            }
            _ => Vec::new(),
        };
        Self {
            judged,
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
    /// The answer, and what could have been told.
    pub judged: Judged,
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
            judged: cpu.judged[0],
        }
    }
}
