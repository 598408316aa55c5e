//! Results of `vellum reproduce`: schema `vellum-reproduce/1`.

use serde::Deserialize;

/// Published tables with ours beside them.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Reproduction {
    /// Version of the program.
    pub version: String,
    /// Number of the source.
    pub source: u8,
    /// Whether it was cut down for a quick look.
    pub quick: bool,
    /// Passes of each measurement.
    pub passes: u64,
    /// Seed of everything drawn.
    pub seed: u64,
    /// CPUs and kernel of the host.
    pub host: String,
    /// The tables.
    pub sections: Vec<Section>,
    /// Titles of the sections that were not asked for.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// What a reader must know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

/// One published table with ours beside it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Section {
    /// What it is about.
    pub title: String,
    /// Where the published figures are from.
    pub source: Vec<String>,
    /// How ours were made.
    pub method: Vec<String>,
    /// Heading and whole lines, in the published format where there is one.
    pub tables: Vec<(String, String)>,
    /// Figure beside figure.
    pub comparisons: Vec<Comparison>,
    /// Why there are no figures of ours.
    pub failed: Option<String>,
}

/// A published figure with ours beside it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Comparison {
    /// What the figure is of.
    pub what: String,
    /// The published figure.
    pub published: String,
    /// Ours.
    pub ours: Option<String>,
    /// What follows, in words.
    pub says: String,
    /// Whether ours has the other sign or another size.
    pub disagrees: bool,
    /// Both as numbers, where they are.
    #[serde(default)]
    pub numbers: Option<Numbers>,
}

/// A published figure and ours as numbers of the same unit.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Numbers {
    /// `%` of change, `x` (times as much), or `count`.
    pub unit: String,
    /// The published figure.
    pub published: Bounded,
    /// Ours.
    pub ours: Bounded,
}

/// A number and its bounds where they are known.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Bounded {
    /// The number.
    pub value: f64,
    /// Lower bound.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
}
