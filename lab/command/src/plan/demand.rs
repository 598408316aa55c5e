//! What a workload needs of low memory, measured.

use serde::Serialize;

use super::session::Session;
use crate::failure::Failure;
use crate::replay::ram::too_small;

/// What the engine calls page tables, and all frames in use. The rest of its list is what
/// else lies in low memory.
const TABLES: &str = "page tables";
pub(super) const FRAMES: &str = "all frames";

/// Bytes of something at their peak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Held {
    /// What it is.
    pub name: &'static str,
    /// The most bytes at any time.
    pub bytes: u64,
}

/// What a replay with all tables in low memory used, all copies together.
#[derive(Clone, PartialEq, Debug, Serialize)]
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
        (self.low_bytes() / u64::from(self.copies)).max(1)
    }

    /// All memory that one copy uses, in bytes.
    pub fn all_of_a_copy(&self) -> u64 {
        (self.all_bytes / u64::from(self.copies)).max(1)
    }
}

/// Replays once with tables in low memory, of which there is as much as there is memory.
///
/// # Errors
/// The machine is too small, the replay is not the recording, or the user interrupted.
pub fn measure(session: &mut Session<'_>) -> Result<Demand, Failure> {
    let replay = session.replay("nohigh", session.ram_bytes())?;
    let workload = session.workload();
    if let Some(starved) = replay.starved {
        let place = starved.place(workload, std::iter::empty());
        let text = too_small(&place, session.ram_bytes(), workload.ram_bytes());
        return Err(Failure::failed(text.replace("--ram", "--machine-ram")));
    }
    replay.trusted()?;
    let peaks = replay.peaks();
    let peak = |wanted: &str| {
        let mut found = peaks.iter().filter(|peak| peak.0 == wanted);
        found.next().map_or(0, |peak| peak.1)
    };
    let others = peaks
        .iter()
        .filter(|peak| ![TABLES, FRAMES].contains(&peak.0));
    Ok(Demand {
        design: replay.design(),
        copies: workload.copies(),
        cpus: workload.cpus(),
        faults: replay.counter("faults"),
        tables_made: replay.counter("tables made"),
        tables_bytes: peak(TABLES),
        others: others.map(|&(name, bytes)| Held { name, bytes }).collect(),
        all_bytes: peak(FRAMES),
        core_ns: replay.replayed.core_ns,
    })
}
