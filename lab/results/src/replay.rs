//! Results of `vellum replay` on the core.

use serde::{Deserialize, Serialize};

use crate::compare::Device;
use crate::{Kind, Whole};

/// A replay of a trace on one design.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Replay {
    /// Path of the trace.
    pub trace: String,
    /// The design, complete.
    pub design: String,
    /// Its options that are not the default, in the same syntax; none in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differences: Option<String>,
    /// Simulated CPUs.
    pub cpus: usize,
    /// Copies of the process family.
    pub copies: u32,
    /// Memory of the simulated machine in bytes.
    pub ram_bytes: u64,
    /// Recorded events replayed, all copies together.
    pub events: u64,
    /// Operations that these events are, without those in `needless`.
    pub ops: u64,
    /// Recorded faults that the design does not meet, because it has mapped their pages: they are
    /// in no time. 0 in older results, which executed them.
    #[serde(default)]
    pub needless: u64,
    /// Operations by class.
    pub ops_by_class: Vec<Count>,
    /// CPU time in the core, all CPUs together, in nanoseconds, after the beginning of the
    /// recording: what was mapped by then is made and not timed.
    pub core_ns: u64,
    /// The same by CPU.
    pub core_ns_by_cpu: Vec<u64>,
    /// Elapsed time of the replay in nanoseconds.
    pub wall_ns: u64,
    /// The whole workload, of which this is a part; null if the recording has no CPU times.
    #[serde(default)]
    pub whole: Option<Whole>,
    /// What a device takes beside that, if one was modelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<WithDevice>,
    /// Events per second of core CPU time.
    pub events_per_core_second: u64,
    /// Operations that went otherwise than recorded, by kind.
    pub divergences: Vec<Count>,
    /// Divergences that nothing explains.
    pub unexplained: u64,
    /// Where the trace knew too little.
    pub repairs: Vec<Count>,
    /// Events that the core counted.
    pub counters: Vec<Count>,
    /// Memory of the core.
    pub memory: Vec<Memory>,
    /// Private frames by number of mappings (1, 2, …; the last collects the rest), summed
    /// over samples taken in the course of the replay.
    pub mapping_histogram: Vec<u64>,
    /// Whether the audit was carried out and held.
    pub audited: bool,
    /// What the verification did, if there was one and it held.
    pub verified: Option<Verified>,
    /// What was refuted, if anything was.
    pub refuted: Option<String>,
}

impl Kind for Replay {
    const SCHEMA: &'static str = "vellum-replay/1";
}

impl Replay {
    /// Share of the operations that diverged without explanation.
    pub fn unexplained_share(&self) -> f64 {
        match self.ops {
            0 => 0.0,
            ops => self.unexplained as f64 / ops as f64,
        }
    }
}

/// What a replay took with a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WithDevice {
    /// The device.
    #[serde(flatten)]
    pub device: Device,
    /// Its time in nanoseconds.
    pub device_ns: u64,
    /// CPU time in the core and that of the device, one after the other; null with several
    /// CPUs, of which one may work while another waits.
    pub elapsed_ns: Option<u64>,
}

/// A count with its name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Count {
    /// What is counted.
    pub name: String,
    /// How many.
    pub count: u64,
    /// What it means; left out where the name says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub meaning: String,
}

/// Memory by what it holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// What it holds.
    pub name: String,
    /// Bytes at the end of the replay.
    pub bytes: u64,
    /// The most bytes at any time.
    pub peak_bytes: u64,
}

/// What a verification did that held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Verified {
    /// Operations executed.
    pub ops: u64,
    /// Pages that were written: each counts once in each space or file, however often it was
    /// written.
    pub written: u64,
    /// Pages that were read back where they changed hands.
    pub read_back: u64,
    /// Pages that were checked right after a store or load.
    pub after_access: u64,
    /// Written pages of files that were found in the backing store at the end.
    pub stored: u64,
    /// Accesses that had to be refused, and were.
    pub refused: u64,
    /// Pages that could not be read back because their region forbids it.
    pub unreadable: u64,
    /// Pages of files that were left out because another CPU was changing the file at that
    /// moment; always 0 with one CPU.
    pub raced: u64,
}

/// Verifications of a trace on simulated CPUs: `vellum replay --on sim --verify`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verification {
    /// Path of the trace.
    pub trace: String,
    /// The design.
    pub design: String,
    /// What the user called the machine.
    pub machine: String,
    /// What it is.
    pub title: String,
    /// How many of its CPUs.
    pub cpus: usize,
    /// Nodes that these CPUs are on.
    pub nodes: usize,
    /// Copies of the process family.
    pub copies: u32,
    /// Memory of the machine in bytes.
    pub ram_bytes: u64,
    /// What held, by seed.
    pub runs: Vec<VerifiedInTime>,
    /// What was wrong, if anything was.
    pub refuted: Option<Refuted>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

impl Kind for Verification {
    const SCHEMA: &'static str = "vellum-verify-sim/1";
}

/// What a verification on simulated CPUs did, and how long that took them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VerifiedInTime {
    /// Its seed.
    pub seed: u64,
    /// Virtual time, what the verifier itself looks at included.
    pub virtual_ns: u64,
    /// What was done.
    #[serde(flatten)]
    pub verified: Verified,
}

/// What was wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refuted {
    /// With which seed.
    pub seed: u64,
    /// What.
    pub what: String,
}
