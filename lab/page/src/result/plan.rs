//! Results of `vellum plan userpte`: schema `vellum-plan-userpte/1`.

use serde::Deserialize;

/// Where page tables should lie on a machine with high memory.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Plan {
    /// What the published text counts.
    pub arithmetic: Arithmetic,
    /// Machines of several sizes.
    pub sizes: Sizes,
    /// What was measured, if there was a trace.
    pub measured: Option<Measured>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

/// How the published text counts.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Arithmetic {
    /// Low memory in bytes.
    pub low_bytes: u64,
    /// Page tables that are as large as it.
    pub tables: u64,
    /// Bytes that all of them map.
    pub mappable: u64,
    /// One table in so many can be had.
    pub slop: f64,
    /// Bytes that those map.
    pub with_slop: f64,
}

/// Machines of several sizes.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Sizes {
    /// From the smallest to the largest.
    pub rows: Vec<Size>,
    /// Where the copies that were measured need more than low memory has.
    pub fails_for_measured: Option<Begins>,
    /// Where as many copies as fill all memory need more than low memory has.
    pub fails_when_full: Option<Begins>,
}

/// Where `nohigh` begins to fail on the way to more memory.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "bytes")]
pub enum Begins {
    /// On every machine that has high memory.
    Always,
    /// With more memory than so many bytes.
    Above(u64),
    /// With none that can be addressed.
    Never,
}

/// A machine with a certain amount of memory.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Size {
    /// All its memory in bytes.
    pub ram_bytes: u64,
    /// The frame table.
    pub frame_table_bytes: u64,
    /// Low memory that is left.
    pub left_bytes: u64,
    /// Who fits, if a workload was measured.
    pub fits: Option<Fits>,
}

/// Copies of a workload on a machine.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Fits {
    /// Copies that low memory has room for.
    pub low: u64,
    /// The same if only a part of it can be had.
    pub low_with_slop: u64,
    /// Copies that all memory has room for.
    pub all: u64,
    /// Whether the copies that were measured fit.
    pub measured: bool,
}

/// What replays of a workload showed.
#[derive(Clone, PartialEq, Debug, Deserialize)]
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

/// What a replay with all tables in low memory used.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Demand {
    /// The design, complete.
    pub design: String,
    /// Copies of the recorded processes.
    pub copies: u32,
    /// Page tables at their peak, in bytes.
    pub tables_bytes: u64,
    /// Everything else that must lie in low memory.
    pub others: Vec<Held>,
    /// Everything, in bytes.
    pub all_bytes: u64,
    /// CPU time in the core in nanoseconds.
    pub core_ns: u64,
}

impl Demand {
    /// Bytes of low memory that one copy needs with tables in it.
    pub fn low_of_a_copy(&self) -> u64 {
        let others: u64 = self.others.iter().map(|held| held.bytes).sum();
        ((self.tables_bytes + others) / u64::from(self.copies.max(1))).max(1)
    }

    /// All memory that one copy uses, in bytes.
    pub fn all_of_a_copy(&self) -> u64 {
        (self.all_bytes / u64::from(self.copies.max(1))).max(1)
    }
}

/// Bytes of something at their peak.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Held {
    /// What it is.
    pub name: String,
    /// The most bytes.
    pub bytes: u64,
}

/// The price of a window.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Price {
    /// In nanoseconds.
    pub ns: f64,
    /// Where it comes from.
    pub source: String,
}

/// Replays with little low memory.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Sweep {
    /// From the least low memory to the most.
    pub rows: Vec<Row>,
    /// What follows.
    pub findings: Findings,
}

/// The values of `userpte=`, in the order of the cells of a [`Row`].
pub const VALUES: [&str; 3] = ["high", "nohigh", "auto"];

/// All values on a machine with so much low memory.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Row {
    /// Low memory in bytes.
    pub low_bytes: u64,
    /// The same in parts of what the workload needs.
    pub part: f64,
    /// In the order of [`VALUES`].
    pub cells: Vec<Cell>,
}

/// One value on one machine.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Cell {
    /// Where it had no memory, if it failed.
    pub failed: Option<String>,
    /// Windows to page tables.
    pub windows: u64,
    /// What they cost, in nanoseconds.
    pub charged_ns: f64,
}

/// What follows from the rows.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Findings {
    /// The least low memory with which `nohigh` does not fail, in bytes.
    pub crossing_bytes: Option<u64>,
}
