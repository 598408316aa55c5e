//! Results against earlier ones: the field `against` of a comparison, and what
//! `vellum history` writes.

use serde::{Deserialize, Serialize};

use crate::{Figure, Verdict};

/// How a run stands against earlier results.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Passage {
    /// What the earlier result is called.
    pub against: String,
    /// When it was begun.
    pub started: String,
    /// The allowed slow-down, as a share.
    pub limit: f64,
    /// Comparisons of saved runs with each other.
    pub repeats: usize,
    /// By design.
    pub changes: Vec<Change>,
}

/// How a design did later, by how it did earlier.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// What was measured.
    pub name: String,
    /// The design as the later result has it.
    pub design: String,
    /// Earlier, in nanoseconds.
    pub old_ns: Figure,
    /// Later.
    pub new_ns: Figure,
    /// Later by earlier.
    pub ratio: Figure,
    /// The largest relative difference that is not significant, as a share.
    pub resolution: Option<f64>,
    /// What is said of it: `more` or `less` time, or why no difference is proven.
    #[serde(with = "word")]
    pub verdict: Verdict,
}

/// A verdict in one word.
mod word {
    use serde::de::IntoDeserializer;
    use serde::de::value::StrDeserializer;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::{Reason, Verdict};

    pub fn serialize<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match verdict {
            Verdict::Less => "less",
            Verdict::More => "more",
            Verdict::NotProven(reason) => reason.name(),
        })
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Verdict, D::Error> {
        let word = String::deserialize(deserializer)?;
        match word.as_str() {
            "less" => Ok(Verdict::Less),
            "more" => Ok(Verdict::More),
            why => {
                let why: StrDeserializer<'_, D::Error> = why.into_deserializer();
                Reason::deserialize(why).map(Verdict::NotProven)
            }
        }
    }
}

/// A result against an earlier one: `vellum history diff --json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// What the earlier result is called.
    pub old: String,
    /// What the later one is called.
    pub new: String,
    /// Why times are not held against each other; null if they are.
    pub refused: Option<String>,
    /// The series that both have.
    pub changes: Vec<Change>,
    /// Series that only one of them has, as `design: name`.
    pub unmatched: Vec<String>,
}

/// One series on one machine over time: `vellum history trend --json`, which writes a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Trend {
    /// What was measured.
    pub name: String,
    /// Under what circumstances.
    pub setting: String,
    /// The design as it was asked for.
    pub design: String,
    /// On which machine.
    pub host: String,
    /// By time.
    pub points: Vec<Point>,
    /// Comparisons of runs of one program with each other, which say what runs differ by.
    pub repeats: usize,
    /// The last against the first; null with a single result, or without controls.
    pub change: Option<Change>,
}

/// One result in a trend.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// What the result is called.
    pub name: String,
    /// When it was begun.
    pub started: String,
    /// The program that made it.
    pub program: String,
    /// The kernel that it ran on.
    pub kernel: String,
    /// Median over the passes, in nanoseconds.
    pub value_ns: f64,
    /// By that of the first.
    pub ratio: f64,
}
