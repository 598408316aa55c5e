//! Results of `vellum plan userpte`.

use serde::{Deserialize, Serialize};

use crate::Kind;

/// Where page tables should lie on a machine with high memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What the published text counts.
    pub arithmetic: Arithmetic,
    /// Machines of several sizes, with what is known without a workload.
    pub sizes: Sizes,
    /// What was measured, if there was a trace.
    pub measured: Option<Measured>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

impl Kind for Plan {
    const SCHEMA: &'static str = "vellum-plan-userpte/1";
}

/// How the published text counts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Arithmetic {
    /// Low memory in bytes.
    pub low_bytes: u64,
    /// Page tables that are as large as it.
    pub tables: u64,
    /// Bytes that one of them maps.
    pub table_maps: u64,
    /// Bytes that all of them map.
    pub mappable: u64,
    /// One table in so many is available, the rest is for other things and for error.
    pub slop: f64,
    /// Bytes that those map.
    pub with_slop: f64,
}

/// Machines of several sizes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sizes {
    /// From the smallest to the largest.
    pub rows: Vec<Size>,
    /// Where the copies that were measured need more than low memory has.
    pub fails_for_measured: Option<Begins>,
    /// Where as many copies as fill all memory need more than low memory has.
    pub fails_when_full: Option<Begins>,
    /// The same if only one part of low memory in `slop` is available.
    pub fails_when_full_with_slop: Option<Begins>,
}

/// Where `nohigh` begins to fail on the way to more memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "bytes")]
pub enum Begins {
    /// On every machine that has high memory.
    Always,
    /// With more memory than this.
    Above(u64),
    /// With none that can be addressed.
    Never,
}

/// A machine with a certain amount of memory.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Size {
    /// All its memory in bytes.
    pub ram_bytes: u64,
    /// The frame table, which lies in low memory.
    pub frame_table_bytes: u64,
    /// Low memory that is left for tables and everything else.
    pub left_bytes: u64,
    /// How many copies fit, if a workload was measured.
    pub fits: Option<Fits>,
}

/// Copies of a workload on a machine, with their tables in low memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fits {
    /// Copies that low memory has room for.
    pub low: u64,
    /// Copies that it has room for if only one part in `slop` is available.
    pub low_with_slop: u64,
    /// Copies that all memory has room for.
    pub all: u64,
    /// Whether the copies that were measured fit into low memory.
    pub measured: bool,
}

/// What replays of a workload showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Path of the trace.
    pub trace: String,
    /// What it needs.
    pub demand: Demand,
    /// What a window costs.
    pub price: Price,
    /// The replays on machines with little low memory.
    pub sweep: Sweep,
}

/// What a replay with all tables in low memory used, all copies together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Demand {
    /// The design, complete.
    pub design: String,
    /// Copies of the recorded processes.
    pub copies: u32,
    /// Simulated CPUs.
    pub cpus: usize,
    /// Page faults.
    pub faults: u64,
    /// Page tables made.
    pub tables_made: u64,
    /// Page tables of all levels at their peak, in bytes.
    pub tables_bytes: u64,
    /// Everything else that must lie in low memory, at its peak.
    pub others: Vec<Held>,
    /// Everything, pages of programs and files included, at its peak, in bytes.
    pub all_bytes: u64,
    /// CPU time in the core in nanoseconds, without windows.
    pub core_ns: u64,
}

impl Demand {
    /// Bytes of what must lie in low memory beside tables.
    pub fn others_bytes(&self) -> u64 {
        self.others.iter().map(|held| held.bytes).sum()
    }

    /// Bytes of low memory that are needed with tables in it.
    pub fn low_bytes(&self) -> u64 {
        self.tables_bytes + self.others_bytes()
    }

    /// The same of one copy.
    pub fn low_of_a_copy(&self) -> u64 {
        (self.low_bytes() / u64::from(self.copies.max(1))).max(1)
    }

    /// All memory that one copy uses, in bytes.
    pub fn all_of_a_copy(&self) -> u64 {
        (self.all_bytes / u64::from(self.copies.max(1))).max(1)
    }
}

/// Bytes of something at their peak.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// What it is.
    pub name: String,
    /// The most bytes at any time.
    pub bytes: u64,
}

/// The price of a window to a page table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Price {
    /// In nanoseconds.
    pub ns: f64,
    /// Where it comes from.
    pub source: String,
}

impl Price {
    /// What so many windows cost, in nanoseconds.
    pub fn of(&self, windows: u64) -> f64 {
        self.ns * windows as f64
    }
}

/// Replays with little low memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// From the least low memory to the most.
    pub rows: Vec<Row>,
    /// What follows.
    pub findings: Findings,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

/// The values of `userpte=`, in the order of the cells of a [`Row`].
pub const VALUES: [&str; 3] = ["high", "nohigh", "auto"];

/// All values on a machine with so much low memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Low memory in bytes.
    pub low_bytes: u64,
    /// The same in parts of what the workload needs.
    pub part: f64,
    /// Of `userpte=high`, `nohigh` and `auto`.
    pub cells: Vec<Cell>,
}

/// One value of `userpte=` on one machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Where it had no memory, if it failed.
    pub failed: Option<String>,
    /// Windows to page tables.
    pub windows: u64,
    /// Those of them that were opened while another one was open.
    pub nested: u64,
    /// What they cost, in nanoseconds.
    pub charged_ns: f64,
}

/// What follows from the rows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Findings {
    /// The least low memory with which `nohigh` does not fail, in bytes: from there on
    /// `high` is dearer.
    pub crossing_bytes: Option<u64>,
    /// Low memory with which `auto` failed and `high` did not.
    pub auto_failed_alone: Vec<u64>,
    /// Low memory with which `auto` was farther than one percent from the better of the
    /// others that did not fail, and by how many percent.
    pub auto_behind: Vec<(u64, f64)>,
    /// The least low memory from which on `auto` opened no window.
    pub auto_free_bytes: Option<u64>,
}
