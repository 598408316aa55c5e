//! Results of `vellum scale WORKLOAD`: schema `vellum-scale/1`.

use serde::Deserialize;

/// A workload on more and more simulated CPUs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Scale {
    /// What each CPU did.
    pub workload: String,
    /// In a sentence.
    pub summary: String,
    /// What was counted.
    pub unit: String,
    /// What the user called the machine.
    pub machine: String,
    /// What it is.
    pub title: String,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// The window, in virtual nanoseconds.
    pub window_ns: u64,
    /// Whether some numbers of CPUs are missing.
    pub interrupted: bool,
    /// What the first seed of the base differed by when it was run once more.
    pub control: f64,
    /// One for each design.
    pub curves: Vec<Curve>,
}

/// One design on more and more CPUs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Curve {
    /// The design.
    pub design: String,
    /// By number of CPUs.
    pub points: Vec<Point>,
    /// Where it stops scaling.
    pub knee: Option<Knee>,
}

/// One design on so many CPUs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Point {
    /// How many.
    pub cpus: u64,
    /// Things done in a second.
    pub rate: Spread,
    /// The same as a ratio to the base.
    pub to_base: Spread,
    /// The most that the machine allows.
    pub ceiling: Option<f64>,
    /// What limits that.
    pub limit: Option<String>,
    /// The simulation of the median seed.
    pub cell: Cell,
}

/// A median with the least and the most.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Spread {
    /// The median.
    #[serde(deserialize_with = "super::number")]
    pub median: f64,
    /// The least.
    #[serde(deserialize_with = "super::number")]
    pub least: f64,
    /// The most.
    #[serde(deserialize_with = "super::number")]
    pub most: f64,
}

/// One simulation: shares of the CPUs' time.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Cell {
    /// That went to moving cache lines.
    pub moving: f64,
    /// To spinning.
    pub spinning: f64,
    /// To sleeping.
    pub sleeping: f64,
    /// To shootdowns.
    pub flushing: f64,
    /// The lines that cost most.
    pub lines: Vec<Line>,
    /// Time of all CPUs together, in nanoseconds.
    #[serde(default)]
    pub time_ns: f64,
    /// The locks by class, those waited for longest first.
    #[serde(default)]
    pub locks: Vec<Lock>,
}

/// What the locks of one class cost.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Lock {
    /// What they are in.
    pub name: String,
    /// How often one was taken.
    pub acquired: u64,
    /// How often it was not free at first.
    pub contended: u64,
    /// Time from then on until it was taken, in nanoseconds.
    pub waited_ns: f64,
    /// Time from its taking to its release, in nanoseconds.
    pub held_ns: f64,
}

/// A call stack, outermost first, and how long CPUs were there.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Ticks {
    /// The stack.
    pub stack: Vec<String>,
    /// The time of all CPUs, in nanoseconds.
    pub ns: u64,
}

/// What one cache line cost.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Line {
    /// What is there.
    pub name: String,
    /// Share of the time that it took to move it.
    pub moving: f64,
    /// Share for which CPUs spun on it.
    pub spinning: f64,
}

/// Between which numbers of CPUs a design stops scaling.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Knee {
    /// The last at which it still gained.
    pub from: u64,
    /// The first at which it did not.
    pub to: u64,
    /// What it gained, as a share of what the ceiling did.
    pub gain: f64,
    /// The line that cost most at `to`.
    pub line: Option<Line>,
}
