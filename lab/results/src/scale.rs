//! Results of `vellum scale WORKLOAD`.

use serde::{Deserialize, Serialize};

use crate::{Kind, Spread};

/// A workload on more and more simulated CPUs. Times are virtual.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
    /// Nanoseconds before the window.
    #[serde(default)]
    pub warm_up_ns: u64,
    /// The window in which things counted, in nanoseconds.
    pub window_ns: u64,
    /// Whether some numbers of CPUs are missing, since the user stopped it.
    pub interrupted: bool,
    /// The largest difference, as a ratio, that the first seed of the base differed by when
    /// it was run once more: 1 if there was none.
    pub control: f64,
    /// One for each design.
    pub curves: Vec<Curve>,
}

impl Kind for Scale {
    const SCHEMA: &'static str = "vellum-scale/1";
}

/// One design on more and more CPUs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// The design.
    pub design: String,
    /// By number of CPUs.
    pub points: Vec<Point>,
    /// Where it stops scaling, if it does.
    pub knee: Option<Knee>,
}

/// One design on so many CPUs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// How many.
    pub cpus: usize,
    /// Things done in a second: the median of the seeds, the least and the most.
    pub rate: Spread,
    /// The same as a ratio to the base, seed by seed.
    pub to_base: Spread,
    /// The most that the machine allows, if one CPU was measured alone.
    pub ceiling: Option<f64>,
    /// What limits that.
    pub limit: Option<String>,
    /// The simulation of the median seed, or the one below it.
    pub cell: Cell,
}

impl Point {
    /// Share of the ceiling.
    pub fn of_ceiling(&self) -> Option<f64> {
        self.ceiling.map(|ceiling| self.rate.median / ceiling)
    }
}

/// One simulation. Shares are of the time of all CPUs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Things done in a second of virtual time by all CPUs together.
    pub rate: f64,
    /// Bytes zeroed, and copied, which count twice, for each.
    pub bulk_bytes: f64,
    /// The largest share of these that the memory of one node provides or takes.
    #[serde(default)]
    pub busiest_node: f64,
    /// Shootdowns for each.
    pub shootdowns: f64,
    /// Interrupts for those.
    pub interrupts: f64,
    /// Share of the CPUs' time that went to moving cache lines.
    pub moving: f64,
    /// Share that went to spinning.
    pub spinning: f64,
    /// Share that went to sleeping.
    pub sleeping: f64,
    /// Share that went to shootdowns, sent and received.
    pub flushing: f64,
    /// The lines that cost most.
    pub lines: Vec<Line>,
    /// Time of all CPUs together without warming up, in nanoseconds.
    #[serde(default)]
    pub time_ns: u64,
    /// The locks by class, those waited for longest first.
    #[serde(default)]
    pub locks: Vec<Lock>,
    /// Where that time went.
    #[serde(default)]
    pub waits: Vec<Ticks>,
}

/// What one cache line cost. Shares are of the CPUs' time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// What is there.
    pub name: String,
    /// Share of the time that it took to move it.
    pub moving: f64,
    /// Share for which CPUs spun on it.
    pub spinning: f64,
    /// Times that it was fetched to be read.
    pub reads: u64,
    /// Times that it was fetched to be written.
    pub writes: u64,
    /// Times among both that it was fetched for other words than were written there.
    pub false_sharing: u64,
}

impl Line {
    /// Share of the CPUs' time.
    pub fn share(&self) -> f64 {
        self.moving + self.spinning
    }
}

/// What the locks of one class cost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Lock {
    /// What they are in.
    pub name: String,
    /// How often one was taken.
    pub acquired: u64,
    /// How often it was not free at first.
    pub contended: u64,
    /// Time from then on until it was taken, in nanoseconds.
    pub waited_ns: u64,
    /// Time from its taking to its release, in nanoseconds.
    pub held_ns: u64,
}

/// A call stack, outermost first, and how long CPUs were there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ticks {
    /// The stack.
    pub stack: Vec<String>,
    /// The time of all CPUs, in nanoseconds.
    pub ns: u64,
}

/// Between which numbers of CPUs a design stops scaling.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Knee {
    /// The last at which it still gained.
    pub from: usize,
    /// The first at which it did not.
    pub to: usize,
    /// What it gained from one to the other, as a share of what the ceiling did.
    pub gain: f64,
    /// The line that cost most at `to`.
    pub line: Option<Line>,
}
