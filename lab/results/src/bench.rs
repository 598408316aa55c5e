//! Results of `vellum bench`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compare::KernbenchRow;
use crate::figure::number;
use crate::profile::Profile;
use crate::{Kind, Standing};

/// A benchmark under several designs. Times are nanoseconds, memory bytes, ratios and
/// resolutions shares.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
    /// Tables in historic formats, each a text of whole lines.
    pub blocks: Vec<String>,
    /// What a reader must know to read the figures rightly, one sentence each.
    pub notes: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Where the designs spend their time, with `--profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

impl Kind for Bench {
    const SCHEMA: &'static str = "vellum-bench/1";
}

/// How a benchmark was asked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct About {
    /// Passes wanted.
    pub passes: usize,
    /// Memory of each simulated machine as it was asked for; null if it was not, and on the
    /// host.
    pub ram_bytes: Option<u64>,
    /// The device that pages leave for and come from, if it was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Slice length aimed at, in microseconds.
    pub slice_us: u64,
    /// The benchmark's sizes, by name.
    pub sizes: Map<String, Value>,
    /// Confidence of the intervals, as a share.
    pub confidence: f64,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Seed of everything drawn.
    pub seed: u64,
}

/// One of what was compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arm {
    /// `A`, `B`, … and `A'` for the control.
    pub label: String,
    /// As it was asked for; the kernel's release on the host.
    pub given: String,
    /// The complete design as its engine states it; the same as `given` on the host.
    pub full: String,
}

/// One load, shape or variant of a benchmark.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BenchRun {
    /// Which.
    pub title: String,
    /// What it consisted of, one sentence each.
    pub facts: Vec<String>,
    /// Complete passes.
    pub passes: usize,
    /// Memory of each simulated machine; null on the host.
    pub ram_bytes: Option<u64>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Event counts of one pass, medians over the passes.
    pub counters: Vec<Row>,
    /// Bytes held at the peak, medians over the passes.
    pub memory: Vec<Row>,
    /// Events for each page looked up through reverse mapping in the last pass, by arm, where
    /// pages are looked up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_lookup: Vec<Share>,
    /// What too little memory cost, by arm, where there is too little.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reclaim: Vec<Share>,
    /// Samples in the shape of tables that were published, where there are some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// Rows of the kernbench block, where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernbench: Vec<KernbenchRow>,
}

/// A named number for each arm, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What was counted.
    pub name: String,
    /// By arm; null where an arm does not count it.
    pub values: Vec<Option<u64>>,
}

/// A named share or figure for each arm, in their order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Share {
    /// What it is.
    pub name: String,
    /// By arm.
    pub values: Vec<f64>,
}

/// Samples of every arm in the shape of a table that was published.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Block {
    /// What stands above it.
    pub title: String,
    /// What the values are called, in a table of one row for each operation; null in one of
    /// statistics.
    #[serde(default)]
    pub value: Option<String>,
    /// Whether a higher value is better.
    pub higher_is_better: bool,
    /// What was measured.
    pub operations: Vec<Operation>,
}

/// One quantity of a [`Block`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// What it is called in the table.
    pub name: String,
    /// Its samples, by arm.
    pub samples: Vec<Vec<f64>>,
}

/// One quantity under every arm.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// What was timed.
    pub name: String,
    /// What one unit of it is.
    pub per: String,
    /// Units in one pass.
    pub units: f64,
    /// What it was timed with.
    pub clock: String,
    /// By arm, the control last.
    pub arms: Vec<ArmFigure>,
}

/// One quantity under one arm. Times are nanoseconds per unit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ArmFigure {
    /// Time of one unit.
    #[serde(deserialize_with = "number")]
    pub value: f64,
    /// Lower bound of its interval; null with too few passes.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
    /// `value` divided by that of the first arm.
    #[serde(deserialize_with = "number")]
    pub ratio: f64,
    /// Lower bound of the ratio.
    pub ratio_low: Option<f64>,
    /// Upper bound.
    pub ratio_high: Option<f64>,
    /// The largest relative difference to the first arm that is not significant.
    pub resolution: Option<f64>,
    /// What is said of it.
    #[serde(flatten)]
    pub standing: Standing,
    /// How the single parts are distributed, all passes together, if they are alike.
    pub spread: Option<Spread>,
    /// The sum of the parts in each pass, for statistics of one's own.
    pub passes: Vec<f64>,
}

impl ArmFigure {
    /// The time with its bounds.
    pub fn time(&self) -> crate::Figure {
        crate::Figure {
            value: self.value,
            low: self.low,
            high: self.high,
        }
    }

    /// The ratio with its bounds.
    pub fn to_first(&self) -> crate::Figure {
        crate::Figure {
            value: self.ratio,
            low: self.ratio_low,
            high: self.ratio_high,
        }
    }
}

/// A distribution of times per unit, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// Parts that it is made of.
    pub parts: usize,
    /// The least.
    pub least: f64,
    /// 5th percentile.
    pub p5: f64,
    /// Median.
    pub median: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The most.
    pub most: f64,
}
