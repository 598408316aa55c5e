//! Whether our figure says what the published one said.
//!
//! Ours are judged as `docs/measuring.md` describes: a change is one if it is larger
//! than the resolution of the run that it comes from, in which the control has its
//! part, and nothing is judged with too few passes. Two changes agree if the signs
//! do and neither is more than twice the other.

use crate::stats::bootstrap::LEAST_PASSES;
use vellum_results::sim::Ratio;

/// How much larger than the other a change may be and still agree.
const FACTOR: f64 = 2.0;

/// How far from 1 a published factor may be and still be no change: none was
/// published with its deviation.
const NO_CHANGE: f64 = 0.1;

/// What there is to show for a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// It can be told from none.
    Proven,
    /// It cannot.
    NotProven,
    /// There are too few passes to say.
    TooFewPasses,
}

/// A relative change and how far it may be off.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// In percent; negative is less.
    pub percent: f64,
    /// Lower and upper bound, in percent.
    pub bounds: Option<(f64, f64)>,
    /// Whether it is one.
    pub evidence: Evidence,
    /// The largest change that could not have been told from none, in percent.
    pub resolution: f64,
}

/// How many times as much, as in "9 times as slow".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Factor {
    /// The factor.
    pub value: f64,
    /// Its bounds.
    pub bounds: Option<(f64, f64)>,
    /// Whether it differs from 1.
    pub evidence: Evidence,
    /// The largest distance from 1 that could not have been told from none.
    pub resolution: f64,
}

impl Evidence {
    /// What the interval of a ratio says.
    pub fn of(ratio: &Ratio) -> Evidence {
        match ratio.differs() {
            true => Evidence::Proven,
            false => Evidence::NotProven,
        }
    }
}

impl Factor {
    /// Of a ratio with its interval.
    pub fn of(ratio: &Ratio) -> Factor {
        Factor {
            value: ratio.ratio,
            bounds: Some((ratio.low, ratio.high)),
            evidence: Evidence::of(ratio),
            resolution: (ratio.high - ratio.low) / 2.0,
        }
    }
}

/// The result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Judgement {
    /// Same sign, neither more than twice the other.
    Agrees,
    /// Neither is proven to be a change.
    NeitherProven,
    /// Only the published one is a change.
    OursNotProven,
    /// Only ours is a change.
    PublishedNotProven,
    /// One grew where the other shrank.
    OtherSign,
    /// Ours is so many times the published one, more than 2 or less than 1/2.
    OtherSize(f64),
    /// Ours is no change, and half of the published one would have been told.
    Absent,
    /// There are too few passes to judge by.
    TooFewPasses,
}

impl Change {
    /// A published one from `old` to `new`, with bounds `uncertainty` percent to
    /// both sides.
    pub fn between(old: f64, new: f64, uncertainty: f64) -> Change {
        let percent = 100.0 * (new / old - 1.0);
        Change {
            percent,
            bounds: Some((percent - uncertainty, percent + uncertainty)),
            evidence: match percent.abs() > uncertainty {
                true => Evidence::Proven,
                false => Evidence::NotProven,
            },
            resolution: uncertainty,
        }
    }

    /// Of a ratio new / old and its interval; nothing is said of it yet.
    pub fn of_ratio(ratio: f64, interval: Option<(f64, f64)>) -> Change {
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        Change {
            percent: percent(ratio),
            bounds: interval.map(|(low, high)| (percent(low), percent(high))),
            evidence: Evidence::TooFewPasses,
            resolution: 0.0,
        }
    }

    /// The same with what the run says of it; `resolution` is a share.
    pub fn judged(self, evidence: Evidence, resolution: f64) -> Change {
        Change {
            evidence,
            resolution: 100.0 * resolution,
            ..self
        }
    }

    fn proven(&self) -> bool {
        self.evidence == Evidence::Proven
    }
}

/// Compares our change with the published one.
pub fn judge(published: Change, ours: Change) -> Judgement {
    if ours.evidence == Evidence::TooFewPasses {
        return Judgement::TooFewPasses;
    }
    match (published.proven(), ours.proven()) {
        (false, false) => return Judgement::NeitherProven,
        (false, true) => return Judgement::PublishedNotProven,
        (true, false) => {
            let most = ours.percent.abs() + ours.resolution;
            return match most < published.percent.abs() / FACTOR {
                true => Judgement::Absent,
                false => Judgement::OursNotProven,
            };
        }
        (true, true) => {}
    }
    if published.percent.signum() != ours.percent.signum() {
        return Judgement::OtherSign;
    }
    size(ours.percent / published.percent)
}

fn size(factor: f64) -> Judgement {
    match factor {
        factor if (1.0 / FACTOR..=FACTOR).contains(&factor) => Judgement::Agrees,
        factor => Judgement::OtherSize(factor),
    }
}

/// Compares our factor with the published one.
pub fn judge_times(published: f64, ours: Factor) -> Judgement {
    let published_sign = match published {
        factor if factor > 1.0 + NO_CHANGE => 1.0,
        factor if factor < 1.0 - NO_CHANGE => -1.0,
        _ => 0.0,
    };
    let agrees = |factor: f64| size(factor / published) == Judgement::Agrees;
    match ours.evidence {
        Evidence::TooFewPasses => Judgement::TooFewPasses,
        Evidence::Proven if published_sign * (ours.value - 1.0) < 0.0 => Judgement::OtherSign,
        Evidence::Proven => size(ours.value / published),
        Evidence::NotProven if published_sign == 0.0 => Judgement::NeitherProven,
        // What ours may be at the most and at the least.
        Evidence::NotProven
            if agrees(ours.value + ours.resolution) || agrees(ours.value - ours.resolution) =>
        {
            Judgement::OursNotProven
        }
        Evidence::NotProven => size(ours.value / published),
    }
}

/// Compares our count with the published one.
pub fn judge_counts(published: f64, ours: f64) -> Judgement {
    size(ours / published)
}

impl Judgement {
    /// Whether the output has to point it out.
    pub fn disagrees(&self) -> bool {
        matches!(
            self,
            Judgement::OtherSign | Judgement::OtherSize(_) | Judgement::Absent
        )
    }
}

impl std::fmt::Display for Judgement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Judgement::Agrees => f.write_str("agrees"),
            Judgement::NeitherProven => f.write_str("both within noise"),
            Judgement::OursNotProven => f.write_str("ours within noise"),
            Judgement::PublishedNotProven => f.write_str("published within noise"),
            Judgement::OtherSign => f.write_str("DISAGREES: other sign"),
            Judgement::OtherSize(factor) => write!(f, "DISAGREES: {factor:.2} x as large"),
            Judgement::Absent => f.write_str("DISAGREES: no change here"),
            Judgement::TooFewPasses => {
                write!(f, "not judged: that needs {LEAST_PASSES} passes")
            }
        }
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:+.1} %", self.percent)?;
        match self.bounds {
            Some((low, high)) => write!(f, " ({low:+.1} to {high:+.1})"),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Factor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} x", self.value)?;
        match self.bounds {
            Some((low, high)) => write!(f, " ({low:.2} to {high:.2})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(percent: f64) -> Change {
        Change::between(100.0, 100.0 + percent, 1.0)
    }

    fn factor(value: f64, evidence: Evidence) -> Factor {
        Factor {
            value,
            bounds: Some((value - 0.02, value + 0.02)),
            evidence,
            resolution: 0.05,
        }
    }

    #[test]
    fn sign_and_a_factor_of_two_decide() {
        let judged = |published, ours| judge(change(published), change(ours));
        assert_eq!(judged(-16.0, -9.0), Judgement::Agrees);
        assert_eq!(judged(-16.0, -32.0), Judgement::Agrees);
        assert!(matches!(judged(-16.0, -4.0), Judgement::OtherSize(f) if (f - 0.25).abs() < 1e-9));
        assert!(matches!(judged(-16.0, -48.0), Judgement::OtherSize(f) if (f - 3.0).abs() < 1e-9));
        assert_eq!(judged(-16.0, 5.0), Judgement::OtherSign);
    }

    #[test]
    fn what_is_within_noise_neither_agrees_nor_disagrees() {
        let judged = |published, ours| judge(change(published), change(ours));
        assert_eq!(judged(0.4, -0.5), Judgement::NeitherProven);
        assert_eq!(judged(2.0, -0.5), Judgement::OursNotProven);
        assert_eq!(judged(0.5, -5.0), Judgement::PublishedNotProven);
        assert!(!judged(0.5, -5.0).disagrees());
    }

    #[test]
    fn the_verdict_decides_and_not_the_interval() {
        // The interval is far from 1, and the control strays farther.
        let ours = Change::of_ratio(0.9, Some((0.89, 0.91))).judged(Evidence::NotProven, 0.2);
        assert_eq!(judge(change(-16.0), ours), Judgement::OursNotProven);
    }

    #[test]
    fn no_change_where_half_of_the_published_would_have_been_told_disagrees() {
        let ours = Change::of_ratio(1.001, Some((0.999, 1.003))).judged(Evidence::NotProven, 0.005);
        assert_eq!(judge(change(-16.0), ours), Judgement::Absent);
        assert!(Judgement::Absent.disagrees());
    }

    #[test]
    fn a_few_passes_are_not_judged() {
        let ours = Change::of_ratio(0.5, None);
        let judgement = judge(change(-50.0), ours);
        assert_eq!(judgement, Judgement::TooFewPasses);
        assert_eq!(judgement.to_string(), "not judged: that needs 5 passes");
        assert_eq!(ours.to_string(), "-50.0 %");
        let judgement = judge_times(9.0, factor(9.0, Evidence::TooFewPasses));
        assert_eq!(judgement, Judgement::TooFewPasses);
    }

    #[test]
    fn factors_are_held_against_one_another() {
        let told = |published, ours| judge_times(published, factor(ours, Evidence::Proven));
        assert_eq!(told(9.0, 5.0), Judgement::Agrees);
        assert_eq!(told(9.0, 3.0), Judgement::OtherSize(1.0 / 3.0));
        assert_eq!(told(13.2, 0.8), Judgement::OtherSign);
        assert_eq!(told(1.01, 1.3), Judgement::Agrees);
        let not = |published, ours| judge_times(published, factor(ours, Evidence::NotProven));
        assert_eq!(not(1.01, 0.96), Judgement::NeitherProven);
        assert_eq!(not(1.5, 1.02), Judgement::OursNotProven);
        assert!(not(9.0, 1.02).disagrees());
    }

    #[test]
    fn counts_agree_within_a_factor_of_two() {
        assert_eq!(judge_counts(40.0, 35.0), Judgement::Agrees);
        assert_eq!(judge_counts(40.0, 4.0), Judgement::OtherSize(0.1));
        assert!(judge_counts(40.0, 0.0).disagrees());
    }

    #[test]
    fn changes_are_read_off_pairs_and_ratios() {
        let mm3 = Change::between(80.63, 80.57, 1.0);
        assert_eq!(mm3.to_string(), "-0.1 % (-1.1 to +0.9)");
        let ratio = Change::of_ratio(0.75, Some((0.7, 0.8)));
        assert_eq!(ratio.to_string(), "-25.0 % (-30.0 to -20.0)");
    }
}
