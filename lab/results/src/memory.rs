//! Results of `vellum plan memory`.

use serde::{Deserialize, Serialize};

use crate::compare::Device;
use crate::{Kind, Whole};

/// How much memory a workload needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// Path of the trace.
    pub trace: String,
    /// Copies of the recorded processes.
    pub copies: u32,
    /// The design in option syntax; what it does not name is the default.
    pub design: String,
    /// The device that pages leave for and come from.
    pub device: Device,
    /// How much of the memory of each size is set aside for a compressed store in front of
    /// swap, in percent, if any is.
    #[serde(default)]
    pub compressed_percent: Option<u8>,
    /// Memory in use at the peak, in bytes, where there is more than enough.
    pub peak_bytes: u64,
    /// What it takes with that memory, without reclaim.
    pub unlimited: Cost,
    /// The whole workload, whose own time is in no row; null if the recording has no CPU times.
    #[serde(default)]
    pub whole: Option<Whole>,
    /// Whether the recording has only the first use of each page, as a trace of faults does.
    pub first_touches_only: bool,
    /// How later uses of pages were sampled, if they were.
    #[serde(default)]
    pub accesses: Option<Sampled>,
    /// From the most memory to the least.
    pub rows: Vec<Row>,
    /// The least memory with which it takes at most a tenth longer than with all memory, in
    /// bytes.
    pub enough_bytes: Option<u64>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

impl Kind for MemoryPlan {
    const SCHEMA: &'static str = "vellum-plan-memory/1";
}

impl MemoryPlan {
    /// What a row takes beyond what it takes with all memory, as a share of the CPU time of the
    /// whole workload, if that is known.
    pub fn added(&self, row: &Row) -> Option<f64> {
        let more = row.cost.elapsed_ns() as f64 - self.unlimited.elapsed_ns() as f64;
        self.whole.map(|whole| whole.share(more))
    }

    /// What no row has, in words.
    pub fn left_out(&self) -> String {
        let known = match &self.whole {
            Some(whole) => format!(
                "The workload took {:.3} s of CPU time when it was recorded; `adds` is what a size \
                 of memory adds to that if nothing is computed meanwhile.",
                whole.cpu_ns as f64 / 1e9
            ),
            None => "What share of the whole it is cannot be said, since the recording has no CPU \
                     times."
                .to_owned(),
        };
        format!(
            "Elapsed time and `times` are of memory management and the device alone: what the \
             programs compute is in neither. {known}"
        )
    }
}

/// How uses of pages were sampled.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sampled {
    /// Microseconds from one sample to the next.
    pub interval_us: u64,
    /// Whether only the number of pages that were used is known of each region.
    pub of_regions: bool,
}

/// What a replay takes.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time in the core, in nanoseconds.
    pub core_ns: u64,
    /// Time that the device takes for reads and writes, in nanoseconds.
    pub device_ns: u64,
}

impl Cost {
    /// Both, one after the other.
    pub fn elapsed_ns(self) -> u64 {
        self.core_ns + self.device_ns
    }
}

/// One size of memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Compressed {
    /// Pages that it took.
    pub taken: u64,
    /// Those of them that are one repeated word.
    pub same: u64,
    /// Bytes that each of the others took on average.
    pub bytes_each: u64,
    /// Pages that do not compress, and went to the device.
    pub incompressible: u64,
    /// Pages that were written back to the device, the oldest first.
    pub written_back: u64,
    /// Its memory, in bytes.
    pub set_aside: u64,
}
