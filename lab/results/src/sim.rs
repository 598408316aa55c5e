//! Results of traces on simulated machines: `vellum replay` and `vellum compare` with
//! `--on sim`, `vellum scale TRACE`, and `vellum bench --on sim`.

use serde::{Deserialize, Serialize};

use crate::scale::{Line, Lock, Ticks};
use crate::{Figure, Kind, Spread};

/// A trace on one simulated machine. Times are virtual.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Findings {
    /// The trace.
    pub trace: String,
    /// What the user called the machine.
    pub machine: String,
    /// What it is.
    pub title: String,
    /// How many of its CPUs.
    pub cpus: usize,
    /// Its memory in bytes.
    pub ram_bytes: u64,
    /// What was replayed.
    #[serde(flatten)]
    pub about: About,
    /// The seeds with which all designs are through.
    pub seeds: Vec<u64>,
    /// Whether some seeds are missing, since the user stopped it.
    pub interrupted: bool,
    /// One for each design.
    pub sides: Vec<Side>,
    /// The first design with the first seed once more, unless one design is replayed alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// The second design against the first, if two are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

impl Kind for Findings {
    const SCHEMA: &'static str = "vellum-sim/1";
}

impl Findings {
    /// Whether the same seed gave the same result, as far as that was tried.
    pub fn repeats(&self) -> bool {
        self.control.is_none_or(|control| control.repeats)
    }

    /// The largest share of operations that went otherwise than recorded without an
    /// explanation, of all simulations, at the least.
    pub fn unexplained_share(&self) -> f64 {
        let runs = self.sides.iter().flat_map(|side| &side.runs);
        let shares = runs.map(|run| run.unexplained as f64 / run.ops.max(1) as f64);
        shares.fold(0.0, f64::max)
    }
}

/// What is known of a workload that was simulated.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct About {
    /// Tasks of all copies that do anything.
    pub tasks: u64,
    /// Copies of the process family.
    pub copies: u32,
    /// Recorded events of all copies.
    pub events: u64,
    /// Operations of all tasks.
    pub ops: u64,
    /// What was taken out of the recorded CPU times, so that user time is left; null if the
    /// recording does not know how long tasks ran: then there is no user time.
    #[serde(default)]
    pub service: Option<TakenService>,
    /// Touches that the trace explains finding their page mapped.
    pub may_be_mapped: u64,
    /// Accesses that the recording refused, too.
    pub may_fail: u64,
}

/// Service of the recorded kernel that is not part of the user time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TakenService {
    /// How much of all copies' CPU times it was.
    pub seconds: f64,
    /// What each kind of it is taken to have cost at the recording.
    #[serde(default)]
    pub prices: Vec<ServicePrice>,
}

/// What the recorded kernel took for one service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServicePrice {
    /// For what.
    pub of: Served,
    /// How long, in nanoseconds.
    pub ns: u64,
}

/// What is served: faults, and those calls that are simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Served {
    /// A fault that mapped one page.
    Fault,
    /// A fault of a file that mapped pages around it.
    FaultAround,
    /// `fork`, `vfork` and `clone`.
    Create,
    /// `mmap`.
    Map,
    /// `munmap`.
    Unmap,
    /// `mprotect`.
    Protect,
    /// `mremap`.
    Remap,
    /// `brk`.
    Brk,
    /// `madvise`.
    Advise,
    /// Reading from a file.
    FileRead,
    /// Writing to a file.
    FileWrite,
    /// `truncate` and `unlink`.
    Truncate,
}

impl Served {
    /// All, in the order in which they are shown.
    pub const ALL: [Served; 12] = [
        Served::Fault,
        Served::FaultAround,
        Served::Create,
        Served::Map,
        Served::Unmap,
        Served::Protect,
        Served::Remap,
        Served::Brk,
        Served::Advise,
        Served::FileRead,
        Served::FileWrite,
        Served::Truncate,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Served::Fault => "fault",
            Served::FaultAround => "fault with others around it",
            Served::Create => "fork",
            Served::Map => "mmap",
            Served::Unmap => "munmap",
            Served::Protect => "mprotect",
            Served::Remap => "mremap",
            Served::Brk => "brk",
            Served::Advise => "madvise",
            Served::FileRead => "read",
            Served::FileWrite => "write",
            Served::Truncate => "truncate",
        }
    }
}

/// One design.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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

    /// The median of a figure over the seeds.
    pub fn median(&self, name: &str) -> f64 {
        self.figure(name).map_or(f64::NAN, |spread| spread.median)
    }

    /// The simulation in the middle by its elapsed time, or the one before it.
    pub fn middle(&self) -> Option<&Account> {
        let mut runs: Vec<&Account> = self.runs.iter().collect();
        runs.sort_by_key(|run| run.elapsed_ns);
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }
}

/// A figure over the seeds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Which.
    pub name: String,
    /// Its median, the least and the most.
    #[serde(flatten)]
    pub spread: Spread,
}

/// One simulation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Account {
    /// The seed.
    pub seed: u64,
    /// Virtual time to the end of the last task, from when what was there when recording began is made, in nanoseconds.
    pub elapsed_ns: u64,
    /// Time of all CPUs that tasks computed.
    pub user_ns: u64,
    /// Time of all CPUs that the core, the scheduler and interrupts took.
    pub system_ns: u64,
    /// Time of all CPUs in which there was nothing to do, or a task slept for a lock.
    pub idle_ns: u64,
    /// How often a CPU took up another task.
    pub context_switches: u64,
    /// How often a task went on on another CPU.
    pub migrations: u64,
    /// How often a task gave way to another at the end of its slice.
    #[serde(default)]
    pub preemptions: u64,
    /// How often a task gave its CPU up because it had to wait for others.
    #[serde(default)]
    pub sleeps: u64,
    /// Operations that were executed.
    pub ops: u64,
    /// Operations that went otherwise than recorded, by what happened.
    pub divergences: Vec<Diverged>,
    /// Divergences that nothing in the trace explains, at the least.
    pub unexplained: u64,
    /// Share of the system time that went to moving cache lines.
    pub moving: f64,
    /// Share that went to spinning.
    pub spinning: f64,
    /// Share that went to shootdowns, sent and received.
    pub flushing: f64,
    /// The lines that cost most, as shares of the system time.
    pub lines: Vec<Line>,
    /// The locks by class, those waited for longest first.
    #[serde(default)]
    pub locks: Vec<Lock>,
    /// Where the system time went.
    #[serde(default)]
    pub waits: Vec<Ticks>,
}

impl Account {
    /// User and system time in percent of the elapsed time: 100 for each busy CPU.
    pub fn percent_cpu(&self) -> f64 {
        let busy = self.user_ns as f64 + self.system_ns as f64;
        100.0 * busy / self.elapsed_ns.max(1) as f64
    }
}

/// Operations that went otherwise than recorded in one way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Diverged {
    /// What happened.
    pub how: String,
    /// How often.
    pub count: u64,
}

/// The same simulation once more.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Control {
    /// Its elapsed time, as a ratio.
    pub ratio: f64,
    /// Whether everything about it was the same.
    pub repeats: bool,
}

/// Two designs, seed by seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The confidence of the intervals.
    pub confidence: f64,
    /// The second design's figures by those of the first.
    pub ratios: Vec<Ratio>,
}

impl Comparison {
    /// The ratio of a figure, if there is one.
    pub fn ratio(&self, name: &str) -> Option<&Ratio> {
        self.ratios.iter().find(|ratio| ratio.name == name)
    }
}

/// A figure of the second design by that of the first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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

    /// With its bounds.
    pub fn figure(&self) -> Figure {
        Figure {
            value: self.ratio,
            low: Some(self.low),
            high: Some(self.high),
        }
    }
}

/// A benchmark under several loads on a simulated machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bench {
    /// Name of the benchmark.
    pub benchmark: String,
    /// One for each load that is complete, and the one that was interrupted if enough of it
    /// was done.
    pub loads: Vec<Loaded>,
    /// Whether some loads or seeds are missing, since the user stopped it.
    pub interrupted: bool,
}

impl Kind for Bench {
    const SCHEMA: &'static str = "vellum-sim-bench/1";
}

/// What was found under one load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Loaded {
    /// What the load stands for.
    pub load: String,
    /// How many of the benchmark's units ran at once: builds or scripts.
    #[serde(default)]
    pub at_once: u64,
    /// The block in the format of the benchmark that it is named after; of `buildkernel` the
    /// lines of `time` and the verdicts.
    pub block: String,
    /// Each design against the first, in the order of the designs.
    pub against_base: Vec<Comparison>,
    /// The simulations.
    #[serde(flatten)]
    pub findings: Findings,
}

/// A trace on more and more CPUs of a simulated machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// By number of CPUs; one at least.
    pub points: Vec<Findings>,
    /// Whether some numbers of CPUs are missing, since the user stopped it.
    pub interrupted: bool,
}

impl Kind for Sweep {
    const SCHEMA: &'static str = "vellum-sim-sweep/1";
}

impl Sweep {
    /// The control that is farthest from what it should be.
    pub fn worst_control(&self) -> Option<Control> {
        let controls = self.points.iter().filter_map(|point| point.control);
        controls.max_by(|one, other| {
            let off = |control: &Control| (control.ratio - 1.0).abs();
            let differs = other.repeats.cmp(&one.repeats);
            differs.then(off(one).total_cmp(&off(other)))
        })
    }
}
