//! Results of `vellum bench`: schema `vellum-bench/1`.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Figure as Estimate;
use super::compare::KernbenchRow;
use super::profile::Profile;

/// A benchmark under several designs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Bench {
    /// Version of the program.
    pub version: String,
    /// Name of the benchmark.
    pub benchmark: String,
    /// Where it ran: `core` or `linux`.
    pub on: String,
    /// How it was asked for.
    pub about: About,
    /// What was compared; the control last.
    pub arms: Vec<Arm>,
    /// One for each load, shape or variant.
    pub runs: Vec<BenchRun>,
    /// Tables in historic formats.
    pub blocks: Vec<String>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Where the designs spend their time, if it was asked for.
    #[serde(default)]
    pub profile: Option<Profile>,
}

/// How a benchmark was asked for.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct About {
    /// Passes wanted.
    pub passes: u64,
    /// The device that pages leave for, if it was named.
    #[serde(default)]
    pub device: Option<String>,
    /// The benchmark's sizes.
    pub sizes: Map<String, Value>,
    /// Confidence of the intervals, as a share.
    pub confidence: f64,
    /// Bootstrap resamples.
    pub resamples: u64,
    /// Seed of everything drawn.
    pub seed: u64,
}

/// One of what was compared.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Arm {
    /// `A`, `B`, … and `A'` for the control.
    pub label: String,
    /// As it was asked for.
    pub given: String,
    /// The complete design.
    pub full: String,
}

/// One load, shape or variant.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct BenchRun {
    /// Which.
    pub title: String,
    /// What it consisted of.
    pub facts: Vec<String>,
    /// Complete passes.
    pub passes: u64,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Event counts of one pass, medians.
    pub counters: Vec<Row>,
    /// Bytes at the peak, medians.
    pub memory: Vec<Row>,
    /// What too little memory cost, where there is too little.
    #[serde(default)]
    pub reclaim: Vec<Share>,
    /// Samples in the shape of published tables.
    #[serde(default)]
    pub blocks: Vec<Block>,
    /// Rows of the kernbench block.
    #[serde(default)]
    pub kernbench: Vec<KernbenchRow>,
}

/// A named number for each arm.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Row {
    /// What was counted.
    pub name: String,
    /// By arm; absent where an arm does not count it.
    pub values: Vec<Option<u64>>,
}

/// A named figure for each arm.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Share {
    /// What it is.
    pub name: String,
    /// By arm.
    pub values: Vec<f64>,
}

/// Samples of every arm in the shape of a published table.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Block {
    /// What stands above it.
    pub title: String,
    /// Whether a higher value is better.
    pub higher_is_better: bool,
    /// What was measured.
    pub operations: Vec<Operation>,
}

/// One quantity of a [`Block`].
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Its samples, by arm.
    pub samples: Vec<Vec<f64>>,
}

/// One quantity under every arm.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Figure {
    /// What was timed.
    pub name: String,
    /// What one unit of it is.
    pub per: String,
    /// What it was timed with.
    pub clock: String,
    /// By arm.
    pub arms: Vec<ArmFigure>,
}

/// One quantity under one arm. Times are nanoseconds per unit.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct ArmFigure {
    /// Time of one unit.
    #[serde(deserialize_with = "super::number")]
    pub value: f64,
    /// Bounds of its interval.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
    /// `value` divided by that of the first arm.
    #[serde(deserialize_with = "super::number")]
    pub ratio: f64,
    /// Bounds of the ratio.
    pub ratio_low: Option<f64>,
    /// Upper bound.
    pub ratio_high: Option<f64>,
    /// The largest relative difference to the first arm that is not told.
    pub resolution: Option<f64>,
    /// `base`, `control`, `less`, `more` or `not-proven`.
    pub verdict: String,
    /// The sum of the parts in each pass, per unit.
    pub passes: Vec<f64>,
}

impl ArmFigure {
    /// The time with its bounds.
    pub fn time(&self) -> Estimate {
        Estimate {
            value: self.value,
            low: self.low,
            high: self.high,
        }
    }

    /// The ratio with its bounds.
    pub fn to_first(&self) -> Estimate {
        Estimate {
            value: self.ratio,
            low: self.ratio_low,
            high: self.ratio_high,
        }
    }
}
