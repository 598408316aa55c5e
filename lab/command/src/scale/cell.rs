//! What one simulation found, as far as anybody asks.

use serde::{Deserialize, Serialize};
use vellum_scale::{LineCosts, Measured, Needs};

use super::waits::{Lock, Ticks, waits};

/// Lines that are kept of each simulation.
pub const LINES: usize = 20;

/// One simulation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Things done in a second of virtual time by all CPUs together.
    pub rate: f64,
    /// Bytes zeroed, and copied, which count twice, for each.
    pub bulk_bytes: f64,
    /// The largest share of these that the memory of one node provides or takes.
    pub busiest_node: f64,
    /// Shootdowns for each.
    pub shootdowns: f64,
    /// Interrupts for those.
    pub interrupts: f64,
    /// Share of the CPUs' time that went to moving cache lines.
    pub moving: f64,
    /// Share that went to spinning.
    pub spinning: f64,
    /// Share that went to sleeping.
    pub sleeping: f64,
    /// Share that went to shootdowns, sent and received.
    pub flushing: f64,
    /// The lines that cost most.
    pub lines: Vec<Line>,
    /// Time of all CPUs together without warming up, in nanoseconds.
    pub time_ns: u64,
    /// The locks by class, those waited for longest first.
    pub locks: Vec<Lock>,
    /// Where that time went.
    pub waits: Vec<Ticks>,
}

/// What one cache line cost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// What is there.
    pub name: String,
    /// Share of the time that it took to move it.
    pub moving: f64,
    /// Share for which CPUs spun on it.
    pub spinning: f64,
    /// Times that it was fetched to be read.
    pub reads: u64,
    /// Times that it was fetched to be written.
    pub writes: u64,
    /// Times among both that it was fetched for other words than were written there.
    pub false_sharing: u64,
}

impl Line {
    /// A line and what it cost, as a share of `time` in picoseconds.
    pub fn new(name: String, costs: &LineCosts, time: f64) -> Line {
        Line {
            name,
            moving: costs.lost as f64 / time,
            spinning: costs.spun as f64 / time,
            reads: costs.read_misses,
            writes: costs.write_misses,
            false_sharing: costs.false_misses,
        }
    }

    /// Share of the CPUs' time.
    pub fn share(&self) -> f64 {
        self.moving + self.spinning
    }
}

impl Cell {
    /// Of what was measured.
    pub fn new(measured: &Measured) -> Cell {
        let time = measured.cpu_time().max(1) as f64;
        let total = measured.profile.total();
        let sum = |value: fn(&vellum_scale::CpuTotals) -> u64| {
            measured.cpus.iter().map(value).sum::<u64>() as f64 / time
        };
        let needs = measured.needs();
        let lines = measured.profile.lines.iter().take(LINES);
        Cell {
            rate: measured.rate(),
            bulk_bytes: needs.bulk_bytes,
            busiest_node: needs.busiest_node,
            shootdowns: needs.shootdowns,
            interrupts: needs.interrupts,
            moving: total.lost as f64 / time,
            spinning: sum(|cpu| cpu.spun),
            sleeping: sum(|cpu| cpu.slept),
            flushing: sum(|cpu| cpu.flushing + cpu.interrupted),
            lines: lines
                .map(|line| Line::new(measured.name_of(line), &line.costs, time))
                .collect(),
            time_ns: measured.cpu_time() / 1000,
            locks: Lock::all(measured.lock_classes()),
            waits: waits(
                measured.cpu_time() / 1000,
                &measured.line_classes(),
                &measured.cpus,
            ),
        }
    }

    /// What each thing done took of the machine.
    pub fn needs(&self) -> Needs {
        Needs {
            bulk_bytes: self.bulk_bytes,
            busiest_node: self.busiest_node,
            shootdowns: self.shootdowns,
            interrupts: self.interrupts,
        }
    }
}
