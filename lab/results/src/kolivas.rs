//! Results of `vellum bench kernbench --format kolivas`.

use serde::{Deserialize, Serialize};

use crate::Kind;

/// Kernbench of Con Kolivas, on a host or on a simulated machine. Times are seconds, as in
/// the block.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Kolivas {
    /// Version of the program.
    pub version: String,
    /// Release of the kernel; of a simulation the design and the machine.
    pub kernel: String,
    /// CPUs that it may use.
    pub cpus: usize,
    /// Memory in MiB, if it is known.
    pub memory_mebibytes: Option<u64>,
    /// The kernel source tree that was built.
    pub tree: String,
    /// What was built; null for what `make` builds by itself.
    pub target: Option<String>,
    /// Runs of each load that were asked for.
    pub runs: usize,
    /// Whether `--fast` was given.
    pub fast: bool,
    /// Whether `--compat` was given.
    pub compat: bool,
    /// Runs of each load.
    pub loads: Vec<Load>,
    /// The blocks as kernbench prints them.
    pub block: String,
    /// What was said before the first run.
    pub notes: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Why a build failed, if one did.
    pub failure: Option<String>,
}

impl Kind for Kolivas {
    const SCHEMA: &'static str = "vellum-kolivas/1";
}

/// The runs of one load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Its name: `half-3`, `optimal-16`, ….
    pub load: String,
    /// The runs.
    pub runs: Vec<Build>,
}

/// One build.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Build {
    /// Elapsed seconds.
    pub elapsed_s: f64,
    /// Seconds of user time.
    pub user_s: f64,
    /// Seconds of system time.
    pub system_s: f64,
    /// User and system time in percent of the elapsed time.
    pub cpu_percent: f64,
    /// Context switches.
    pub context_switches: u64,
    /// Sleeps.
    pub sleeps: u64,
}
