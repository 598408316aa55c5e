//! Quantiles of Student's t, as far as ministat needs them.

use std::fmt;
use std::str::FromStr;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// A confidence that ministat offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Confidence {
    /// 80 %
    P80,
    /// 90 %
    P90,
    /// 95 %
    #[default]
    P95,
    /// 98 %
    P98,
    /// 99 %
    P99,
    /// 99.5 %
    P995,
}

impl Confidence {
    /// All of them, ascending.
    pub const ALL: [Confidence; 6] = [
        Confidence::P80,
        Confidence::P90,
        Confidence::P95,
        Confidence::P98,
        Confidence::P99,
        Confidence::P995,
    ];

    /// In percent.
    pub fn percent(self) -> f64 {
        match self {
            Confidence::P80 => 80.0,
            Confidence::P90 => 90.0,
            Confidence::P95 => 95.0,
            Confidence::P98 => 98.0,
            Confidence::P99 => 99.0,
            Confidence::P995 => 99.5,
        }
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.percent())
    }
}

/// There is no such confidence.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no confidence that ministat offers; it has 80, 90, 95, 98, 99 and 99.5")]
pub struct NoSuchConfidence(
    /// What was asked for.
    pub String,
);

/// From its number in percent, with or without the sign.
impl FromStr for Confidence {
    type Err = NoSuchConfidence;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim_end_matches('%').parse();
        let found = Self::ALL.into_iter().find(|c| number == Ok(c.percent()));
        found.ok_or_else(|| NoSuchConfidence(text.to_owned()))
    }
}

/// How many standard errors a difference must be off zero to be told, with
/// `freedom` degrees of freedom (at least 1): the two-sided quantile of Student's
/// t, rounded to three decimals as in ministat's table.
///
/// With `compat` it is the table's own value where that is another: the column
/// for 99.5 % holds the values for 99.8 %, and above 100 degrees of freedom the
/// normal distribution takes the place of t.
pub fn quantile(freedom: usize, confidence: Confidence, compat: bool) -> f64 {
    let percent = match (confidence, compat) {
        (Confidence::P995, true) => 99.8,
        (confidence, _) => confidence.percent(),
    };
    let below = 0.5 + percent / 200.0;
    let exact = match StudentsT::new(0.0, 1.0, freedom.max(1) as f64) {
        Ok(student) if !(compat && freedom > 100) => student.inverse_cdf(below),
        _ => Normal::standard().inverse_cdf(below),
    };
    let entry = WRONG_ENTRIES.iter().find(|entry| entry.0 == freedom);
    match entry.filter(|_| percent == 99.8) {
        Some(entry) => entry.1,
        None => (exact * 1e3).round() / 1e3,
    }
}

/// Degrees of freedom at which ministat's column of 99.8 % is off in the last
/// digits.
const WRONG_ENTRIES: [(usize, f64); 7] = [
    (1, 318.313),
    (7, 4.782),
    (8, 4.499),
    (9, 4.296),
    (10, 4.143),
    (11, 4.024),
    (12, 3.929),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_tables() {
        // Rows of the published table, for 80, 90, 95, 98 and 99 %.
        for (freedom, row) in [
            (1, [3.078, 6.314, 12.706, 31.821, 63.657]),
            (2, [1.886, 2.920, 4.303, 6.965, 9.925]),
            (4, [1.533, 2.132, 2.776, 3.747, 4.604]),
            (10, [1.372, 1.812, 2.228, 2.764, 3.169]),
            (29, [1.311, 1.699, 2.045, 2.462, 2.756]),
            (100, [1.290, 1.660, 1.984, 2.364, 2.626]),
        ] {
            for (confidence, value) in Confidence::ALL.into_iter().zip(row) {
                for compat in [false, true] {
                    assert_eq!(
                        quantile(freedom, confidence, compat),
                        value,
                        "{freedom} degrees of freedom, {confidence} %"
                    );
                }
            }
        }
    }

    #[test]
    fn the_tables_mistakes_come_back_with_compat_alone() {
        // For 99.5 % the table has what belongs to 99.8 %.
        assert_eq!(quantile(4, Confidence::P995, false), 5.598);
        assert_eq!(quantile(4, Confidence::P995, true), 7.173);
        assert_eq!(quantile(7, Confidence::P995, true), 4.782);
        // Past its last row it has the normal distribution.
        assert_eq!(quantile(150, Confidence::P95, false), 1.976);
        assert_eq!(quantile(150, Confidence::P95, true), 1.960);
        assert_eq!(quantile(150, Confidence::P995, true), 3.090);
    }

    #[test]
    fn a_confidence_that_ministat_lacks_is_refused() {
        assert_eq!("95".parse(), Ok(Confidence::P95));
        assert_eq!("99.5%".parse(), Ok(Confidence::P995));
        let refused = "97".parse::<Confidence>().expect_err("refused");
        assert!(refused.to_string().contains("98, 99"), "{refused}");
    }
}
