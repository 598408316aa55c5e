//! Results of `vellum replay` on the core: schema `vellum-replay/1`.

use serde::Deserialize;

/// A replay of a trace on one design.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Replay {
    /// Path of the trace.
    pub trace: String,
    /// The design, complete.
    pub design: String,
    /// Simulated CPUs.
    pub cpus: u64,
    /// Copies of the process family.
    pub copies: u32,
    /// Memory of the simulated machine in bytes.
    pub ram_bytes: u64,
    /// Recorded events replayed.
    pub events: u64,
    /// Operations they came to.
    pub ops: u64,
    /// Operations by class.
    pub ops_by_class: Vec<Count>,
    /// CPU time in the core in nanoseconds.
    pub core_ns: u64,
    /// Elapsed time of the replay in nanoseconds.
    pub wall_ns: u64,
    /// What a device takes beside that, if one was modelled.
    #[serde(default)]
    pub device: Option<Device>,
    /// Divergences by kind.
    pub divergences: Vec<Count>,
    /// Divergences that nothing explains.
    pub unexplained: u64,
    /// Events that the core counted.
    pub counters: Vec<Count>,
    /// Memory of the core.
    pub memory: Vec<Memory>,
}

/// A device whose time was modelled.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Device {
    /// What it is called.
    pub name: String,
    /// Its time in nanoseconds.
    pub device_ns: u64,
    /// CPU time and that, one after the other.
    pub elapsed_ns: Option<u64>,
}

/// A count with its name.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Count {
    /// What is counted.
    pub name: String,
    /// How many.
    pub count: u64,
    /// What it means, where the name does not say it.
    #[serde(default)]
    pub meaning: String,
}

/// Memory by what it holds.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Memory {
    /// What it holds.
    pub name: String,
    /// Bytes at the end.
    pub bytes: u64,
    /// The most bytes at any time.
    pub peak_bytes: u64,
}
