//! Which differences are told: the resolution and the verdict, from one formula.
//!
//! The model, in words (`docs/measuring.md` has it in full). Under a design that
//! does not differ from the first, its ratio to the first deviates from 1 for two
//! reasons. *Chance* differs from pass to pass; the bootstrap over passes says how
//! large it is. A *stray* stays with an arm for the whole run, so no number of
//! passes shows it; the control, the first design in an engine of its own, is the
//! one look at it that a run has. The resolution is the sum of what both can come
//! to. A design differs if its ratio is farther from 1 than the resolution.
//!
//! Several designs held against the first are judged together by the step-down
//! procedure of S. Holm ("A Simple Sequentially Rejective Multiple Test Procedure",
//! Scandinavian Journal of Statistics 6, 1979): what no single comparison does
//! wrong too often, many of them together do not do too often either.

use statrs::distribution::{ContinuousCDF, StudentsT};
use vellum_results::{Reason, Verdict};

use crate::stats::Estimate;
use crate::stats::bootstrap::LEAST_PASSES;

/// How often larger than the control's stray that of another arm is with a
/// probability of 1 in 20, if one arm strays like another: two differences from
/// the same arm have a ratio with a Cauchy distribution around 1/2.
const STRAY_AT_5_PERCENT: f64 = 11.0;

/// What a run can tell of one design: no difference up to this size, as a share
/// of the first design's value, and every larger one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Resolution {
    /// What chance can come to.
    pub chance: f64,
    /// What a stray can come to.
    pub stray: f64,
}

impl Resolution {
    /// Both together.
    pub fn total(&self) -> f64 {
        self.chance + self.stray
    }
}

/// What is said of one design.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Judged {
    /// The answer.
    pub verdict: Verdict,
    /// What could have been told; none with too few passes.
    pub resolution: Option<Resolution>,
}

/// Judges designs together. `ratios` are those of each design to the first, and
/// `controls` those of the first once more to itself: one of them, unless what is
/// compared was measured in several runs. With more than one design the chance
/// that any is falsely told to differ is held, not that of each.
pub fn judge(
    ratios: &[Estimate],
    controls: &[Estimate],
    passes: usize,
    confidence: f64,
) -> Vec<Judged> {
    // Each step assumes that `open` designs do not differ; the fewer those are,
    // the finer the resolution, so that what was told once stays told.
    let mut open = ratios.len();
    loop {
        let judge = |ratio| judge_one(ratio, controls, open.max(1), passes, confidence);
        let judged: Vec<Judged> = ratios.iter().map(judge).collect();
        let left = judged
            .iter()
            .filter(|judged| matches!(judged.verdict, Verdict::NotProven(_)));
        let left = left.count();
        if left >= open {
            return judged;
        }
        open = left;
    }
}

fn judge_one(
    ratio: &Estimate,
    controls: &[Estimate],
    comparisons: usize,
    passes: usize,
    confidence: f64,
) -> Judged {
    let Some(resolution) = resolution(ratio, controls, comparisons, passes, confidence) else {
        return Judged {
            verdict: Verdict::NotProven(Reason::TooFewPasses),
            resolution: None,
        };
    };
    let difference = ratio.value - 1.0;
    let verdict = match difference.abs() {
        size if size <= resolution.chance => Verdict::NotProven(Reason::WithinChance),
        size if size <= resolution.total() => Verdict::NotProven(Reason::WithinStray),
        _ if difference < 0.0 => Verdict::Less,
        // A ratio that is no number differs from nothing.
        _ if difference > 0.0 => Verdict::More,
        _ => Verdict::NotProven(Reason::WithinChance),
    };
    Judged {
        verdict,
        resolution: Some(resolution),
    }
}

/// The resolution for one of `comparisons` designs that are judged together.
///
/// `chance` is how far the ratio's interval reaches from its value. `stray` is
/// the farthest that a control's interval reaches from 1; where all of that
/// interval is on one side of 1, so that the control strays by more than chance,
/// the part that is certain counts as often as another arm's stray may be larger.
fn resolution(
    ratio: &Estimate,
    controls: &[Estimate],
    comparisons: usize,
    passes: usize,
    confidence: f64,
) -> Option<Resolution> {
    if passes < LEAST_PASSES {
        return None;
    }
    let wider = widening(comparisons, passes, confidence);
    let strays = controls.iter().map(|control| {
        let (size, reach) = ((control.value - 1.0).abs(), control.reach()?);
        let certain = (size - reach).max(0.0);
        let repeated = STRAY_AT_5_PERCENT * comparisons as f64 - 1.0;
        Some(size + reach * wider + certain * repeated)
    });
    Some(Resolution {
        chance: ratio.reach()? * wider,
        stray: strays
            .collect::<Option<Vec<f64>>>()?
            .into_iter()
            .fold(0.0, f64::max),
    })
}

/// By how much an interval is wider that is to hold for `comparisons` at once:
/// the ratio of the quantiles of Student's t for the passes that there are.
fn widening(comparisons: usize, passes: usize, confidence: f64) -> f64 {
    let freedom = (passes - 1) as f64;
    let Ok(student) = StudentsT::new(0.0, 1.0, freedom) else {
        return 1.0;
    };
    let reach = |error: f64| student.inverse_cdf(1.0 - error / 2.0);
    let error = 1.0 - confidence;
    reach(error / comparisons as f64) / reach(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate {
            value,
            interval: Some(Interval { low, high }),
        }
    }

    fn one(ratio: Estimate, control: Estimate) -> Judged {
        judge(&[ratio], &[control], 12, 0.95)[0]
    }

    #[test]
    fn a_difference_is_told_from_just_beyond_the_resolution_on() {
        let control = estimate(1.001, 0.998, 1.004);
        // 0.2 % for chance, 0.4 % for the stray.
        for (value, verdict) in [
            (1.0061, Verdict::More),
            (1.0059, Verdict::NotProven(Reason::WithinStray)),
            (1.0019, Verdict::NotProven(Reason::WithinChance)),
            (0.9981, Verdict::NotProven(Reason::WithinChance)),
            (0.9941, Verdict::NotProven(Reason::WithinStray)),
            (0.9939, Verdict::Less),
        ] {
            let judged = one(estimate(value, value - 0.002, value + 0.002), control);
            assert_eq!(judged.verdict, verdict, "{value}");
            let resolution = judged.resolution.expect("12 passes");
            assert!((resolution.total() - 0.006).abs() < 1e-12, "{value}");
        }
    }

    #[test]
    fn a_stray_counts_on_both_sides_of_one() {
        // The control is above, B below; they have no value in common.
        let judged = one(estimate(0.997, 0.996, 0.998), estimate(1.004, 1.001, 1.007));
        assert_eq!(judged.verdict, Verdict::NotProven(Reason::WithinStray));
    }

    #[test]
    fn a_stray_beyond_chance_counts_elevenfold() {
        let judged = one(estimate(1.0, 0.999, 1.001), estimate(1.02, 1.02, 1.02));
        let resolution = judged.resolution.expect("12 passes");
        assert!((resolution.stray - 0.22).abs() < 1e-12, "{resolution:?}");
        let judged = one(estimate(0.7, 0.699, 0.701), estimate(1.02, 1.02, 1.02));
        assert_eq!(judged.verdict, Verdict::Less);
    }

    #[test]
    fn the_longer_side_of_an_interval_counts() {
        let judged = one(estimate(1.01, 0.995, 1.012), estimate(1.0, 1.0, 1.0));
        assert_eq!(judged.verdict, Verdict::NotProven(Reason::WithinChance));
    }

    #[test]
    fn of_several_controls_the_worst_counts() {
        let (near, far) = (estimate(1.0, 0.999, 1.001), estimate(0.99, 0.97, 1.01));
        let judged = judge(&[estimate(1.02, 1.019, 1.021)], &[near, far], 12, 0.95);
        assert_eq!(judged[0].verdict, Verdict::NotProven(Reason::WithinStray));
    }

    #[test]
    fn too_few_passes_tell_nothing() {
        let (ratio, control) = (estimate(2.0, 1.9, 2.1), estimate(1.0, 0.99, 1.01));
        let judged = judge(&[ratio], &[control], LEAST_PASSES - 1, 0.95);
        let reason = Verdict::NotProven(Reason::TooFewPasses);
        assert_eq!(judged[0].verdict, reason);
        assert_eq!(judged[0].resolution, None);
    }

    #[test]
    fn more_designs_make_the_resolution_coarser_and_those_that_differ_do_not() {
        let control = estimate(1.0, 0.999, 1.001);
        let same = estimate(1.0, 0.999, 1.001);
        let other = estimate(1.5, 1.499, 1.501);
        let resolution = |ratios: &[Estimate]| {
            let judged = judge(ratios, &[control], 6, 0.95);
            judged[0].resolution.expect("6 passes").total()
        };
        assert!((resolution(&[same]) - 0.002).abs() < 1e-12);
        assert!(resolution(&[same, same]) > 0.0022);
        assert!(resolution(&[same, same, same]) > resolution(&[same, same]));
        assert_eq!(resolution(&[same, other, other]), resolution(&[same]));
    }

    #[test]
    fn holm_tells_step_by_step() {
        // Beyond the resolution for one and for two, not for three designs.
        let control = estimate(1.0, 1.0, 1.0);
        let at = |difference: f64| estimate(1.0 + difference, 0.9 + difference, 1.1 + difference);
        let three = 0.1 * widening(3, 12, 0.95);
        let two = 0.1 * widening(2, 12, 0.95);
        let (clear, middle, least) = (at(three + 0.01), at(two + 0.001), at(0.101));
        let verdicts = |ratios: &[Estimate]| {
            let judged = judge(ratios, &[control], 12, 0.95);
            let told = judged.iter().map(|judged| judged.verdict == Verdict::More);
            told.collect::<Vec<bool>>()
        };
        assert_eq!(verdicts(&[middle, least, clear]), [true, true, true]);
        assert_eq!(verdicts(&[middle, least, middle]), [false, false, false]);
        assert_eq!(verdicts(&[least, least, clear]), [false, false, true]);
    }
}
