//! Results of `vellum sweep`.

use serde::{Deserialize, Serialize};

use crate::run::Host;
use crate::{Figure, Kind};

/// A grid of measurements.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// What the grid is called.
    pub name: String,
    /// Cells of the grid.
    pub cells: u64,
    /// Cells that are finished, of which each is in one row.
    pub finished: u64,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// The hosts that finished cells ran on.
    pub hosts: Vec<Host>,
    /// Cells that differ in nothing but the seed, on one host if they are timed.
    pub rows: Vec<Row>,
    /// Cells that could not be measured.
    pub failed: Vec<FailedCell>,
}

impl Kind for Sweep {
    const SCHEMA: &'static str = "vellum-sweep/1";
}

/// Name and version of the files of finished cells, which hold the result of the command that
/// a cell is.
pub const CELL_SCHEMA: &str = "vellum-sweep-cell/1";

/// Where in the grid a cell is. What it does not have is null.
#[derive(Clone, PartialEq, PartialOrd, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// What is done: `verify`, `replay`, `compare`, `simulate`, `scale`, `bench` or `linux`.
    pub run: String,
    /// The trace's path as the grid names it, or the name of the workload or benchmark.
    pub subject: String,
    /// The simulated machine.
    pub machine: Option<String>,
    /// Its CPUs.
    pub cpus: Option<u64>,
    /// Copies of the process family.
    pub copies: Option<u64>,
    /// Memory, as the grid says it.
    pub ram: Option<String>,
    /// What a benchmark's sizes are multiplied by.
    pub scale: Option<f64>,
    /// The design that `design` is held against.
    pub base: Option<String>,
    /// The design.
    pub design: Option<String>,
}

/// What was found at one place.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Where in the grid.
    #[serde(flatten)]
    pub place: Place,
    /// Whether it was timed: then it says something of its host alone.
    pub timed: bool,
    /// The host or hosts, by name; timed rows have one.
    pub host: String,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Keys of the cells, in the order of the seeds.
    pub keys: Vec<String>,
    /// What was measured, if it is one number.
    pub value: Option<Quantity>,
    /// A ratio, if there is one.
    pub ratio: Option<Ratio>,
    /// What the results say, or what did not hold.
    pub answer: String,
    /// Whether a check did not hold.
    pub refuted: bool,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// A number over the seeds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Quantity {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The median of the seeds.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

/// A design by another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// By which.
    pub to: String,
    /// The ratio: of one seed with its interval, of several their median and their range.
    #[serde(flatten)]
    pub figure: Figure,
    /// With how many seeds the difference is significant; null where nothing is judged.
    pub told: Option<u64>,
}

/// A cell that could not be measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FailedCell {
    /// Where in the grid.
    #[serde(flatten)]
    pub place: Place,
    /// Its seed.
    pub seed: u64,
    /// Its key.
    pub key: String,
    /// Why.
    pub why: String,
}
