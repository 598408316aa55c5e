//! What is said of one design against another.

use serde::{Deserialize, Serialize};

/// How B stands against A. As JSON it is an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "Answer", try_from = "Answer")]
pub enum Verdict {
    /// B needs less.
    Less,
    /// B needs more.
    More,
    /// No difference is proven.
    NotProven(Reason),
}

impl Verdict {
    /// Whether a difference is proven.
    pub fn is_difference(&self) -> bool {
        !matches!(self, Verdict::NotProven(_))
    }
}

/// Why no difference is proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// There are too few passes for an interval.
    TooFewPasses,
    /// The difference is no larger than chance makes it.
    WithinChance,
    /// The difference is larger than chance makes it, but not by more than the control strays.
    #[serde(rename = "within-control")]
    WithinStray,
}

impl Reason {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Reason::TooFewPasses => "too-few-passes",
            Reason::WithinChance => "within-chance",
            Reason::WithinStray => "within-control",
        }
    }
}

/// How B stands against A.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// Whether a difference is proven.
    outcome: Outcome,
    /// With a difference, the arm that needs less.
    less: Option<Arm>,
    /// Why no difference is proven: one reason, none with a difference.
    #[serde(default)]
    reasons: Vec<Reason>,
}

/// Whether a difference is proven.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// It is.
    Difference,
    /// It is not.
    NotProven,
}

/// One of two arms.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Arm {
    /// The first.
    A,
    /// The second.
    B,
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Self {
        let difference = |less| Answer {
            outcome: Outcome::Difference,
            less: Some(less),
            reasons: Vec::new(),
        };
        match verdict {
            Verdict::Less => difference(Arm::B),
            Verdict::More => difference(Arm::A),
            Verdict::NotProven(reason) => Answer {
                outcome: Outcome::NotProven,
                less: None,
                reasons: vec![reason],
            },
        }
    }
}

impl TryFrom<Answer> for Verdict {
    type Error = &'static str;

    fn try_from(answer: Answer) -> Result<Self, Self::Error> {
        match (answer.outcome, answer.less, answer.reasons.first()) {
            (Outcome::Difference, Some(Arm::B), _) => Ok(Verdict::Less),
            (Outcome::Difference, Some(Arm::A), _) => Ok(Verdict::More),
            (Outcome::Difference, None, _) => Err("a difference without the arm that needs less"),
            (Outcome::NotProven, _, Some(reason)) => Ok(Verdict::NotProven(*reason)),
            (Outcome::NotProven, _, None) => Err("`not-proven` without a reason"),
        }
    }
}

/// What is said of one of several arms. As JSON it is two fields of what it is said of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "Said", try_from = "Said")]
pub enum Standing {
    /// It is what the others are held against.
    Base,
    /// It is the base once more.
    Control,
    /// A design and the verdict on it.
    Judged(Verdict),
}

/// What is said of one of several arms.
#[derive(Serialize, Deserialize)]
struct Said {
    /// How it stands against the first arm.
    verdict: Word,
    /// Why no difference is proven: one reason with `not-proven`, none otherwise.
    #[serde(default)]
    reasons: Vec<Reason>,
}

/// How an arm stands against the first.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    /// It is the first.
    Base,
    /// It is the first once more.
    Control,
    /// It needs less.
    Less,
    /// It needs more.
    More,
    /// No difference is proven.
    NotProven,
}

impl From<Standing> for Said {
    fn from(standing: Standing) -> Self {
        let (verdict, reason) = match standing {
            Standing::Base => (Word::Base, None),
            Standing::Control => (Word::Control, None),
            Standing::Judged(Verdict::Less) => (Word::Less, None),
            Standing::Judged(Verdict::More) => (Word::More, None),
            Standing::Judged(Verdict::NotProven(reason)) => (Word::NotProven, Some(reason)),
        };
        Said {
            verdict,
            reasons: Vec::from_iter(reason),
        }
    }
}

impl TryFrom<Said> for Standing {
    type Error = &'static str;

    fn try_from(said: Said) -> Result<Self, Self::Error> {
        Ok(match (said.verdict, said.reasons.first()) {
            (Word::Base, _) => Standing::Base,
            (Word::Control, _) => Standing::Control,
            (Word::Less, _) => Standing::Judged(Verdict::Less),
            (Word::More, _) => Standing::Judged(Verdict::More),
            (Word::NotProven, Some(reason)) => Standing::Judged(Verdict::NotProven(*reason)),
            (Word::NotProven, None) => return Err("`not-proven` without a reason"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ALL: [Verdict; 5] = [
        Verdict::Less,
        Verdict::More,
        Verdict::NotProven(Reason::TooFewPasses),
        Verdict::NotProven(Reason::WithinChance),
        Verdict::NotProven(Reason::WithinStray),
    ];

    #[test]
    fn verdicts_are_written_as_documented_and_read_back() {
        let written = ALL.map(|verdict| serde_json::to_value(verdict).expect("plain data"));
        assert_eq!(
            written[0],
            json!({"outcome": "difference", "less": "b", "reasons": []})
        );
        assert_eq!(
            written[4],
            json!({"outcome": "not-proven", "less": null, "reasons": ["within-control"]})
        );
        for (verdict, written) in ALL.into_iter().zip(written) {
            assert_eq!(serde_json::from_value(written).ok(), Some(verdict));
        }
    }

    #[test]
    fn standings_are_written_as_documented_and_read_back() {
        let judged = ALL.map(Standing::Judged);
        for standing in judged
            .into_iter()
            .chain([Standing::Base, Standing::Control])
        {
            let written = serde_json::to_value(standing).expect("plain data");
            assert_eq!(serde_json::from_value(written).ok(), Some(standing));
        }
        let written = serde_json::to_value(judged[2]).expect("plain data");
        assert_eq!(
            written,
            json!({"verdict": "not-proven", "reasons": ["too-few-passes"]})
        );
    }

    #[test]
    fn a_verdict_that_says_nothing_is_refused() {
        for wrong in [
            json!({"outcome": "difference", "less": null}),
            json!({"outcome": "not-proven", "less": null}),
            json!({"outcome": "maybe", "less": null}),
        ] {
            assert!(serde_json::from_value::<Verdict>(wrong).is_err());
        }
    }

    #[test]
    fn reasons_have_the_names_that_are_written() {
        for verdict in ALL {
            let Verdict::NotProven(reason) = verdict else {
                continue;
            };
            assert_eq!(
                serde_json::to_value(reason).ok(),
                Some(reason.name().into())
            );
        }
    }
}
