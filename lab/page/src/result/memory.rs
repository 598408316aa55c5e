//! Results of `vellum plan memory`: schema `vellum-plan-memory/1`.

use serde::Deserialize;

/// How much memory a workload needs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct MemoryPlan {
    /// Path of the trace.
    pub trace: String,
    /// Copies of the recorded processes.
    pub copies: u32,
    /// The design in option syntax; what it does not name is the default.
    pub design: String,
    /// The device that pages leave for and come from.
    pub device: Device,
    /// How much of each size is set aside for a compressed store, in percent.
    #[serde(default)]
    pub compressed_percent: Option<u8>,
    /// Memory in use at the peak, in bytes.
    pub peak_bytes: u64,
    /// What it takes with more than that.
    pub unlimited: Cost,
    /// Whether the recording has only the first use of each page.
    pub first_touches_only: bool,
    /// How later uses of pages were sampled, if they were.
    #[serde(default)]
    pub accesses: Option<Sampled>,
    /// From the most memory to the least.
    pub rows: Vec<Row>,
    /// The least memory with which it takes at most a tenth longer, in bytes.
    pub enough_bytes: Option<u64>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

/// How uses of pages were sampled.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Sampled {
    /// Microseconds from one sample to the next.
    pub interval_us: u64,
    /// Whether only the number of pages that were used is known of each region.
    pub of_regions: bool,
}

/// A device, as it is modelled.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Device {
    /// What it is called.
    pub name: String,
    /// Nanoseconds of a read, bytes aside.
    pub read_ns: u64,
    /// Nanoseconds of a write, bytes aside.
    pub write_ns: u64,
    /// Bytes in a second.
    pub bytes_per_s: u64,
}

/// What a replay takes.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Cost {
    /// CPU time in the core, in nanoseconds.
    pub core_ns: u64,
    /// Time of the device, in nanoseconds.
    pub device_ns: u64,
}

impl Cost {
    /// Both, one after the other.
    pub fn elapsed_ns(self) -> u64 {
        self.core_ns + self.device_ns
    }
}

/// One size of memory.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Row {
    /// In bytes.
    pub ram_bytes: u64,
    /// In parts of the peak.
    pub part: f64,
    /// Where it had no memory, if it failed.
    pub failed: Option<String>,
    /// What it took.
    pub cost: Cost,
    /// The sum by that with all memory.
    pub slowdown: f64,
    /// Pages that reclaim looked at.
    pub scanned: u64,
    /// Pages that left.
    pub reclaimed: u64,
    /// Pages of files that came back.
    pub refaults: u64,
    /// Pages read from the device.
    pub pages_read: u64,
    /// Pages written to it.
    pub pages_written: u64,
    /// What the compressed store did, if there is one.
    #[serde(default)]
    pub compressed: Option<Compressed>,
}

/// What a compressed store did.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Compressed {
    /// Pages that it took.
    pub taken: u64,
    /// Those of them that are one repeated word.
    pub same: u64,
    /// Bytes that each of the others took on average.
    pub bytes_each: u64,
    /// Pages that do not compress.
    pub incompressible: u64,
    /// Pages that were written back to the device.
    pub written_back: u64,
    /// Its memory, in bytes.
    pub set_aside: u64,
}
