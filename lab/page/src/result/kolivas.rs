//! Results of `vellum bench kernbench --format kolivas`: schema `vellum-kolivas/1`.

use serde::Deserialize;

/// Kernbench of Con Kolivas on a host.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Kolivas {
    /// Version of the program.
    pub version: String,
    /// Release of the kernel.
    pub kernel: String,
    /// CPUs of the host.
    pub cpus: u64,
    /// The kernel source tree that was built.
    pub tree: String,
    /// Runs of each load.
    pub loads: Vec<Load>,
    /// The blocks as kernbench prints them.
    pub block: String,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// What ended it early otherwise.
    pub failure: Option<String>,
}

/// The runs of one load.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Load {
    /// Its name.
    pub load: String,
    /// The runs.
    pub runs: Vec<Build>,
}

/// One build.
#[derive(Clone, PartialEq, Debug, Deserialize)]
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
