//! Arms that take turns, each against the first in the same pass.
//!
//! Where arms are of different kinds, so that slices do not correspond, the figure of a pass is
//! the ratio of an arm's time to that of the first arm in that pass.

use super::{Bootstrap, Interval, Samples};

const RESAMPLES: usize = 1000;
const CONFIDENCE: f64 = 0.95;
/// Ratios are resampled as whole numbers of this part.
const PART: f64 = 1e-6;

/// An arm's time divided by that of the first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Paired {
    /// Median over the passes.
    pub ratio: f64,
    /// 95 %; none with fewer than [`LEAST_PASSES`](super::bootstrap::LEAST_PASSES) passes.
    pub interval: Option<Interval>,
}

/// For each arm, its times (a pass each, in any unit) against those of the first. Passes beyond
/// those that every arm has are left out.
pub fn against_first(times: &[Vec<f64>], seed: u64) -> Vec<Paired> {
    let passes = times.iter().map(Vec::len).min().unwrap_or(0);
    if passes == 0 {
        return Vec::new();
    }
    let samples: Vec<Samples> = times
        .iter()
        .map(|own| ratios(&own[..passes], &times[0]))
        .collect();
    let all: Vec<&Samples> = samples.iter().collect();
    let drawn = Bootstrap::new(&all, RESAMPLES, CONFIDENCE, seed).ok();
    let one = |(arm, samples): (usize, &Samples)| Paired {
        ratio: samples.total() * PART,
        interval: drawn
            .as_ref()
            .map(|drawn| drawn.total(arm).divided_by(1.0 / PART)),
    };
    samples.iter().enumerate().map(one).collect()
}

/// The ratio of each pass as a pass of one slice.
fn ratios(own: &[f64], first: &[f64]) -> Samples {
    let parts: Vec<[u64; 1]> = own
        .iter()
        .zip(first)
        .map(|(own, first)| [(own / first / PART).round() as u64])
        .collect();
    let passes: Vec<&[u64]> = parts.iter().map(<[u64; 1]>::as_slice).collect();
    Samples::from_passes(&passes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pass_does_to_all_arms_cancels() {
        let slow = [1.0, 2.0, 1.5, 1.1, 3.0, 1.0];
        let arm = |time: f64| slow.iter().map(|by| time * by).collect::<Vec<f64>>();
        let paired = against_first(&[arm(20.0), arm(20.0), arm(50.0)], 1);
        let ratios: Vec<f64> = paired.iter().map(|arm| arm.ratio).collect();
        assert_eq!(ratios, [1.0, 1.0, 2.5]);
        let interval = paired[2].interval.expect("passes enough");
        assert!(interval.contains(2.5) && interval.half_width() < 1e-6);
    }

    #[test]
    fn few_passes_give_a_ratio_alone() {
        let paired = against_first(&[vec![4.0, 4.0], vec![8.0, 8.0, 9.0]], 1);
        assert_eq!((paired[1].ratio, paired[1].interval), (2.0, None));
        assert!(against_first(&[vec![], vec![1.0]], 1).is_empty());
    }
}
