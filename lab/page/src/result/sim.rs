//! Results of traces on simulated machines: schemas `vellum-sim/1` (`vellum replay` and
//! `vellum compare` with `--on sim`), `vellum-sim-sweep/1` (`vellum scale TRACE`) and
//! `vellum-sim-bench/1` (`vellum bench --on sim`).

use serde::Deserialize;

use super::scale::{Line, Lock, Spread, Ticks};

/// A trace on one machine.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Findings {
    /// The trace.
    pub trace: String,
    /// What the user called the machine.
    pub machine: String,
    /// What it is.
    pub title: String,
    /// How many of its CPUs.
    pub cpus: u64,
    /// Its memory in bytes.
    pub ram_bytes: u64,
    /// Tasks that do anything.
    pub tasks: u64,
    /// Copies of the process family.
    pub copies: u32,
    /// Recorded events of all copies.
    pub events: u64,
    /// Operations of all tasks.
    pub ops: u64,
    /// What was taken out of the recorded CPU times so that user time is left; absent if
    /// the recording does not know how long tasks ran.
    #[serde(default)]
    pub service: Option<Service>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Whether some seeds are missing.
    pub interrupted: bool,
    /// One for each design.
    pub sides: Vec<Side>,
    /// The first design with the first seed once more.
    #[serde(default)]
    pub control: Option<Control>,
    /// The second design against the first.
    #[serde(default)]
    pub comparison: Option<Comparison>,
}

/// A benchmark under several loads.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Bench {
    /// Its name.
    pub benchmark: String,
    /// One for each load.
    pub loads: Vec<Loaded>,
    /// Whether loads or seeds are missing.
    pub interrupted: bool,
}

/// One load of a benchmark.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Loaded {
    /// What it stands for.
    pub load: String,
    /// The block in the format of the benchmark that it is named after.
    pub block: String,
    /// Each design against the first.
    pub against_base: Vec<Comparison>,
    /// The simulations.
    #[serde(flatten)]
    pub findings: Findings,
}

/// Service of the recorded kernel that is not part of the user time.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Service {
    /// How much of all CPU times it was.
    pub seconds: f64,
}

/// One design.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Side {
    /// The design.
    pub design: String,
    /// Its figures over the seeds.
    pub figures: Vec<Measured>,
    /// The simulations, by seed.
    pub runs: Vec<Account>,
}

impl Side {
    /// The figure called `name`.
    pub fn figure(&self, name: &str) -> Option<Spread> {
        let mut found = self.figures.iter().filter(|figure| figure.name == name);
        found.next().map(|figure| figure.spread)
    }
}

/// A figure over the seeds.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Measured {
    /// Which.
    pub name: String,
    /// Its median, the least and the most.
    #[serde(flatten)]
    pub spread: Spread,
}

/// One simulation.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Account {
    /// The seed.
    pub seed: u64,
    /// Virtual time to the end of the last task, in nanoseconds.
    pub elapsed_ns: f64,
    /// Share of the system time that went to moving cache lines.
    pub moving: f64,
    /// To spinning.
    pub spinning: f64,
    /// To shootdowns.
    pub flushing: f64,
    /// The lines that cost most, as shares of the system time.
    pub lines: Vec<Line>,
    /// System time of all CPUs together, in nanoseconds.
    pub system_ns: f64,
    /// The locks by class, those waited for longest first.
    #[serde(default)]
    pub locks: Vec<Lock>,
    /// Where the system time went.
    #[serde(default)]
    pub waits: Vec<Ticks>,
}

/// The same simulation once more.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Control {
    /// Its elapsed time, as a ratio.
    pub ratio: f64,
    /// Whether everything about it was the same.
    pub repeats: bool,
}

/// Two designs, seed by seed.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Comparison {
    /// The confidence of the intervals.
    pub confidence: f64,
    /// The second design's figures by those of the first.
    pub ratios: Vec<Ratio>,
}

/// A figure of the second design by that of the first.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Ratio {
    /// Which figure.
    pub name: String,
    /// The median of the seeds' ratios.
    pub ratio: f64,
    /// The interval of that.
    pub low: f64,
    /// Its other end.
    pub high: f64,
}

impl Ratio {
    /// Whether the interval excludes 1.
    pub fn differs(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// A trace on more and more CPUs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Sweep {
    /// By number of CPUs.
    pub points: Vec<Findings>,
    /// Whether some numbers of CPUs are missing.
    pub interrupted: bool,
}
