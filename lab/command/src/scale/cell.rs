//! What one simulation found, as far as anybody asks.

use vellum_results::scale::{Cell, Line};
use vellum_scale::{LineCosts, Measured, Needs};

use super::waits::{locks, waits};

/// Lines that are kept of each simulation.
pub const LINES: usize = 20;

/// A line and what it cost, as a share of `time` in picoseconds.
pub fn line(name: String, costs: &LineCosts, time: f64) -> Line {
    Line {
        name,
        moving: costs.lost as f64 / time,
        spinning: costs.spun as f64 / time,
        reads: costs.read_misses,
        writes: costs.write_misses,
        false_sharing: costs.false_misses,
    }
}

/// What was measured.
pub fn cell(measured: &Measured) -> Cell {
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
            .map(|costly| line(measured.name_of(costly), &costly.costs, time))
            .collect(),
        time_ns: measured.cpu_time() / 1000,
        locks: locks(measured.lock_classes()),
        waits: waits(
            measured.cpu_time() / 1000,
            &measured.line_classes(),
            &measured.cpus,
        ),
    }
}

/// What each thing done took of the machine.
pub fn needs(cell: &Cell) -> Needs {
    Needs {
        bulk_bytes: cell.bulk_bytes,
        busiest_node: cell.busiest_node,
        shootdowns: cell.shootdowns,
        interrupts: cell.interrupts,
    }
}
