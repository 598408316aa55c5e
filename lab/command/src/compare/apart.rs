//! Measurements that were made apart: in two runs of the program, days or versions apart.
//!
//! Nothing of them ran at the same time, so passes are drawn for each by itself. What a
//! run does to all of its arms alike does not cancel. Each run's control says how far its
//! arms stray; *repeats* say how far runs do: ratios of runs of the same program on the
//! same machine, which would be 1 if runs did not differ. The worst of all of them counts
//! ([`judge`]).

use super::analysis::Method;
use super::verdict::{Judged, judge};
use crate::stats::{Bootstrap, Estimate, Samples};

/// Values by pass become whole numbers of this part of their unit.
const PARTS: f64 = 1000.0;

/// What a run measured: values by pass.
#[derive(Clone, Copy, Debug)]
pub struct Values<'v> {
    /// Of what is compared.
    pub of: &'v [f64],
    /// Of the run's first arm, which the control repeats.
    pub base: &'v [f64],
    /// Of the control.
    pub control: &'v [f64],
}

/// Two runs against each other.
#[derive(Clone, Debug)]
pub struct Apart {
    /// A's value.
    pub a: Estimate,
    /// B's.
    pub b: Estimate,
    /// B's divided by A's.
    pub ratio: Estimate,
    /// Each run's control divided by its first arm.
    pub controls: [Estimate; 2],
    /// What is said of B.
    pub judged: Judged,
}

fn samples(passes: &[f64]) -> Samples {
    let whole: Vec<u64> = passes
        .iter()
        .map(|value| (value * PARTS).round() as u64)
        .collect();
    let rows: Vec<&[u64]> = whole.iter().map(std::slice::from_ref).collect();
    Samples::from_passes(&rows)
}

/// A run with what is drawn of it.
struct Drawn {
    samples: [Samples; 3],
    totals: Option<Bootstrap>,
}

impl Drawn {
    fn new(values: Values<'_>, method: &Method, seed: u64) -> Drawn {
        let samples = [values.of, values.base, values.control].map(samples);
        let arms: Vec<&Samples> = samples.iter().collect();
        let totals = Bootstrap::new(&arms, method.resamples, method.confidence, seed);
        let totals = totals.ok();
        Drawn { samples, totals }
    }

    fn value(&self) -> Estimate {
        let interval = self.totals.as_ref().map(|totals| totals.total(0));
        Estimate {
            value: self.samples[0].total() / PARTS,
            interval: interval.map(|interval| interval.divided_by(PARTS)),
        }
    }

    fn control(&self) -> Estimate {
        Estimate {
            value: self.samples[2].total() / self.samples[1].total(),
            interval: self.totals.as_ref().map(|totals| totals.ratio(2, 1)),
        }
    }
}

impl Values<'_> {
    fn is_complete(&self) -> bool {
        let passes = self.of.len();
        passes > 0 && self.base.len() == passes && self.control.len() == passes
    }
}

impl Apart {
    /// Compares B with A. `repeats` are ratios of runs that would be alike if runs did
    /// not differ. `None` if a run has no pass, or another number of them for its control.
    pub fn new(
        a: Values<'_>,
        b: Values<'_>,
        repeats: &[Estimate],
        method: &Method,
    ) -> Option<Apart> {
        if !a.is_complete() || !b.is_complete() {
            return None;
        }
        let passes = a.of.len().min(b.of.len());
        let a = Drawn::new(a, method, method.seed);
        let b = Drawn::new(b, method, method.seed.wrapping_add(1));
        let ratio = Estimate {
            value: b.samples[0].total() / a.samples[0].total(),
            interval: match (&a.totals, &b.totals) {
                (Some(a), Some(b)) => Some(b.ratio_apart(0, a, 0)),
                _ => None,
            },
        };
        let controls = [a.control(), b.control()];
        let all: Vec<Estimate> = controls.iter().chain(repeats).copied().collect();
        Some(Apart {
            a: a.value(),
            b: b.value(),
            judged: judge(&[ratio], &all, passes, method.confidence)[0],
            ratio,
            controls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Reason, Verdict};

    const METHOD: Method = Method {
        confidence: 0.95,
        resamples: 500,
        seed: 1,
    };
    const A: [f64; 6] = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1000.0];
    const CONTROL: [f64; 6] = [1004.0, 1002.0, 993.0, 1001.0, 999.0, 1003.0];

    fn values<'v>(of: &'v [f64], control: &'v [f64]) -> Values<'v> {
        Values {
            of,
            base: of,
            control,
        }
    }

    #[test]
    fn runs_differ_only_beyond_their_controls() {
        let (faster, fasters) = (A.map(|ns| ns * 0.8), CONTROL.map(|ns| ns * 0.8));
        let (a, b) = (values(&A, &CONTROL), values(&faster, &fasters));
        let apart = Apart::new(a, b, &[], &METHOD).expect("complete");
        assert_eq!(apart.judged.verdict, Verdict::Less);
        assert!((apart.ratio.value - 0.8).abs() < 0.01, "{:?}", apart.ratio);
        assert!((apart.a.value - 1000.0).abs() < 10.0, "{:?}", apart.a);
        let same = Apart::new(a, values(&CONTROL, &A), &[], &METHOD).expect("complete");
        assert!(matches!(same.judged.verdict, Verdict::NotProven(_)));
        let short = Apart::new(values(&A[..2], &CONTROL[..2]), b, &[], &METHOD);
        let reason = Verdict::NotProven(Reason::TooFewPasses);
        assert_eq!(short.expect("complete").judged.verdict, reason);
        assert!(Apart::new(values(&A, &[]), b, &[], &METHOD).is_none());
    }

    #[test]
    fn what_repeats_differ_by_is_not_told() {
        let slower = A.map(|ns| ns * 1.05);
        let (a, b) = (values(&A, &CONTROL), values(&slower, &slower));
        let told = |repeats: &[Estimate]| {
            let apart = Apart::new(a, b, repeats, &METHOD).expect("complete");
            apart.judged.verdict == Verdict::More
        };
        assert!(told(&[]));
        // Two runs of the same program differed by 6 %.
        let repeated = A.map(|ns| ns * 1.06);
        let repeat = Apart::new(a, values(&repeated, &repeated), &[], &METHOD);
        assert!(!told(&[repeat.expect("complete").ratio]));
    }
}
