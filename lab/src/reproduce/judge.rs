//! Whether our figure says what the published one said.
//!
//! Both are relative changes, in percent. A change smaller than its own
//! uncertainty has no sign. Two changes that have one agree if the signs do and
//! neither is more than twice the other.

/// How much larger than the other a change may be and still agree.
const FACTOR: f64 = 2.0;

/// A relative change and how far it may be off.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// In percent; negative is less.
    pub percent: f64,
    /// Lower and upper bound, in percent.
    pub bounds: Option<(f64, f64)>,
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
}

impl Change {
    /// From `old` to `new`, with bounds `uncertainty` percent to both sides.
    pub fn between(old: f64, new: f64, uncertainty: f64) -> Change {
        let percent = 100.0 * (new / old - 1.0);
        Change {
            percent,
            bounds: Some((percent - uncertainty, percent + uncertainty)),
        }
    }

    /// Of a ratio new / old and its interval.
    pub fn of_ratio(ratio: f64, interval: Option<(f64, f64)>) -> Change {
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        Change {
            percent: percent(ratio),
            bounds: interval.map(|(low, high)| (percent(low), percent(high))),
        }
    }

    /// Whether it is distinguishable from none. Without bounds nothing is.
    fn proven(&self) -> bool {
        self.bounds
            .is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// Compares our change with the published one.
pub fn judge(published: Change, ours: Change) -> Judgement {
    match (published.proven(), ours.proven()) {
        (false, false) => return Judgement::NeitherProven,
        (true, false) => return Judgement::OursNotProven,
        (false, true) => return Judgement::PublishedNotProven,
        (true, true) => {}
    }
    if published.percent.signum() != ours.percent.signum() {
        return Judgement::OtherSign;
    }
    match ours.percent / published.percent {
        factor if (1.0 / FACTOR..=FACTOR).contains(&factor) => Judgement::Agrees,
        factor => Judgement::OtherSize(factor),
    }
}

/// How far from 1 a factor may be and still be no change.
const NO_CHANGE: f64 = 0.1;

/// Compares our factor with the published one, as in "9 times as slow". A factor
/// within 10 % of 1 has no sign.
pub fn judge_times(published: f64, ours: f64) -> Judgement {
    let sign = |factor: f64| match factor {
        factor if factor > 1.0 + NO_CHANGE => 1,
        factor if factor < 1.0 - NO_CHANGE => -1,
        _ => 0,
    };
    if sign(published) * sign(ours) < 0 {
        return Judgement::OtherSign;
    }
    match ours / published {
        factor if (1.0 / FACTOR..=FACTOR).contains(&factor) => Judgement::Agrees,
        factor => Judgement::OtherSize(factor),
    }
}

impl Judgement {
    /// Whether the output has to point it out.
    pub fn disagrees(&self) -> bool {
        matches!(self, Judgement::OtherSign | Judgement::OtherSize(_))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn change(percent: f64) -> Change {
        Change {
            percent,
            bounds: Some((percent - 1.0, percent + 1.0)),
        }
    }

    #[test]
    fn sign_and_a_factor_of_two_decide() {
        let judged = |published, ours| judge(change(published), change(ours));
        assert_eq!(judged(-16.0, -9.0), Judgement::Agrees);
        assert_eq!(judged(-16.0, -32.0), Judgement::Agrees);
        assert_eq!(judged(-16.0, -4.0), Judgement::OtherSize(0.25));
        assert_eq!(judged(-16.0, -48.0), Judgement::OtherSize(3.0));
        assert_eq!(judged(-16.0, 5.0), Judgement::OtherSign);
    }

    #[test]
    fn what_is_within_noise_neither_agrees_nor_disagrees() {
        let judged = |published, ours| judge(change(published), change(ours));
        assert_eq!(judged(0.4, -0.5), Judgement::NeitherProven);
        assert_eq!(judged(5.0, -0.5), Judgement::OursNotProven);
        assert_eq!(judged(0.5, -5.0), Judgement::PublishedNotProven);
        assert!(!judged(0.5, -5.0).disagrees());
        let single = Change::of_ratio(0.5, None);
        assert_eq!(judge(change(-50.0), single), Judgement::OursNotProven);
    }

    #[test]
    fn factors_are_held_against_one_another() {
        assert_eq!(judge_times(9.0, 5.0), Judgement::Agrees);
        assert_eq!(judge_times(9.0, 3.0), Judgement::OtherSize(1.0 / 3.0));
        assert_eq!(judge_times(13.2, 0.8), Judgement::OtherSign);
        assert_eq!(judge_times(1.01, 0.95), Judgement::Agrees);
    }

    #[test]
    fn changes_are_read_off_pairs_and_ratios() {
        let mm3 = Change::between(80.63, 80.57, 1.0);
        assert_eq!(mm3.to_string(), "-0.1 % (-1.1 to +0.9)");
        let ratio = Change::of_ratio(0.75, Some((0.7, 0.8)));
        assert_eq!(ratio.to_string(), "-25.0 % (-30.0 to -20.0)");
    }
}
