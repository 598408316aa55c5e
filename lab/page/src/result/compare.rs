//! Results of `vellum compare` on the core: schema `vellum-compare/1`.

use serde::Deserialize;

use super::profile::Profile;
use super::{Arms, Figure, Verdict};

/// A comparison of two designs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Compare {
    /// Version of the program.
    pub version: String,
    /// How it was asked for.
    pub about: About,
    /// Each arm's design, complete.
    pub designs: Arms<String>,
    /// Operations of the workload.
    pub ops: u64,
    /// Simulated CPUs.
    pub cpus: u64,
    /// Slices of the workload.
    pub slices: u64,
    /// Complete passes.
    pub passes: u64,
    /// Whether the user stopped the run early.
    pub interrupted: bool,
    /// CPU time in the core, in nanoseconds.
    pub cpu_ns: Arms<Figure>,
    /// Elapsed time of the slices, in nanoseconds.
    pub wall_ns: Arms<Figure>,
    /// What a device takes beside CPU time, if one was modelled.
    #[serde(default)]
    pub device: Option<Device>,
    /// CPU time of B divided by that of A.
    pub ratio: Figure,
    /// CPU time of the control divided by that of A.
    pub control_ratio: Figure,
    /// Largest relative difference that is not told, as a share.
    pub resolution: Option<f64>,
    /// The answer.
    pub verdict: Verdict,
    /// Time by class of operation.
    pub classes: Vec<ClassRow>,
    /// Event counts.
    pub counters: Vec<CounterRow>,
    /// Memory.
    pub memory: Vec<MemoryRow>,
    /// Rows of the kernbench block.
    pub kernbench: Vec<KernbenchRow>,
    /// Sum of the slices' times in each pass, in nanoseconds.
    pub pass_cpu_ns: Arms<Vec<f64>>,
    /// Time along the workload.
    #[serde(default)]
    pub along: Option<Along>,
    /// What no figure contains.
    pub not_modelled: String,
    /// Where the designs spend their time, if it was asked for.
    #[serde(default)]
    pub profile: Option<Profile>,
}

/// How a comparison was asked for.
/// A device whose time was modelled.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Device {
    /// What it is called.
    pub name: String,
    /// Its time in one pass, in nanoseconds.
    pub device_ns: Arms<f64>,
    /// CPU time and that, one after the other.
    pub elapsed_ns: Option<Arms<f64>>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct About {
    /// The trace's path as given.
    pub trace: String,
    /// Design A as given.
    pub a: String,
    /// Design B as given.
    pub b: String,
    /// Passes wanted.
    pub passes: u64,
    /// Copies of the recorded process family.
    pub copies: u32,
    /// Memory of each simulated machine, in bytes.
    pub ram_bytes: u64,
    /// Slice length aimed at, in microseconds.
    pub slice_us: u64,
    /// Confidence of the intervals, as a share.
    pub confidence: f64,
    /// Bootstrap resamples.
    pub resamples: u64,
    /// Seed of everything drawn.
    pub seed: u64,
}

/// CPU time of one class of operation.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct ClassRow {
    /// The class.
    pub class: String,
    /// Operations of it.
    pub ops: u64,
    /// CPU time in nanoseconds.
    pub cpu_ns: Arms<f64>,
}

/// A count over the passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
pub struct Count {
    /// Median.
    pub median: u64,
    /// Smallest.
    pub low: u64,
    /// Largest.
    pub high: u64,
}

/// How often something happened in one pass.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct CounterRow {
    /// What was counted.
    pub name: String,
    /// `timed` or `atomics`.
    pub pass: String,
    /// How often.
    pub count: Counted,
}

/// A count under each arm.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Counted {
    /// Under design A.
    pub a: Count,
    /// Under design B.
    pub b: Count,
    /// Under the control, which has no part in the pass that counts atomics.
    pub control: Option<Count>,
}

/// Memory held for one purpose.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct MemoryRow {
    /// What it holds.
    pub name: String,
    /// Bytes at the end.
    pub end_bytes: Arms<Count>,
    /// Bytes at the peak.
    pub peak_bytes: Arms<Count>,
}

/// A row of the kernbench block.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct KernbenchRow {
    /// The design.
    pub label: String,
    /// Elapsed seconds.
    pub elapsed_s: f64,
    /// Seconds of system time.
    pub system_s: f64,
    /// Seconds of user time.
    pub user_s: Option<f64>,
    /// System and user time in percent of the elapsed time.
    pub cpu_percent: Option<f64>,
}

/// Places in a workload, from its beginning to its end.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
pub struct Places {
    /// Operations before each place.
    pub ops: Vec<u64>,
    /// The number of the trace's event that the last of these operations came from, from
    /// 0; empty where the workload is not one copy of one trace.
    #[serde(default)]
    pub events: Vec<u64>,
}

/// Time along the workload, in stretches of neighbouring slices.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Along {
    /// The end of each stretch.
    #[serde(flatten)]
    pub places: Places,
    /// CPU time of each stretch: the slices' medians over the passes, added up.
    pub cpu_ns: Arms<Vec<f64>>,
    /// Memory in the course of a pass that is not timed as a whole.
    #[serde(default)]
    pub memory: MemoryAlong,
}

/// Memory along the workload.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
pub struct MemoryAlong {
    /// Where it was looked at.
    #[serde(flatten)]
    pub places: Places,
    /// By what it holds.
    pub kinds: Vec<Held>,
}

/// Bytes held for one purpose at each place.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Held {
    /// What they hold.
    pub name: String,
    /// Under A.
    pub a: Vec<u64>,
    /// Under B.
    pub b: Vec<u64>,
}
