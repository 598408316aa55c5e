//! The answer of [`super::memory`] for a terminal.

use super::text::size;
use crate::report::{Detail, device};
use vellum_results::memory::{MemoryPlan, Row};
use vellum_terminal::table::{Table, grouped};
use vellum_terminal::text::{plural, wrapped};

/// The answer as a table and sentences.
pub fn render(plan: &MemoryPlan, detail: Detail) -> String {
    let unlimited = plan.unlimited;
    let mut text = wrapped(&format!(
        "{}, {}, {}: {} of frames are in use at the peak (pages, page tables and records of the \
         core, as `vellum replay` counts them). With more than that memory management takes {} s: {} \
         in the core and {} for the device.",
        plan.trace,
        plural(plan.copies as usize, "copy", "copies"),
        detail.design(&plan.design),
        size(plan.peak_bytes as f64),
        seconds(unlimited.elapsed_ns()),
        seconds(unlimited.core_ns),
        seconds(unlimited.device_ns),
    ));
    text += &wrapped(&device::sentence(&plan.device));
    text += &wrapped(&plan.left_out());
    let mut table = Table::new(&[
        "memory",
        "of the peak",
        "elapsed s",
        "times",
        "adds",
        "core s",
        "device s",
        "scanned",
        "left",
        "scanned each",
        "refaults",
        "read",
        "written",
    ]);
    for row in &plan.rows {
        table.row(cells(row, plan));
    }
    text.push('\n');
    text += &table.render(0);
    text.push('\n');
    text += &compressed(plan);
    for row in plan.rows.iter().filter(|row| row.failed.is_some()) {
        let place = row.failed.as_deref().unwrap_or_default();
        text += &wrapped(&format!(
            "With {} memory runs out at {place}: what cannot leave is too much.",
            size(row.ram_bytes as f64)
        ));
    }
    text += &wrapped(&match plan.enough_bytes {
        Some(bytes) => format!(
            "With {} memory management and the device take at most a tenth longer than with all \
             memory.",
            size(bytes as f64)
        ),
        None => "With none of these sizes memory management and the device take at most a tenth \
                 longer than with all memory."
            .to_owned(),
    });
    if plan.first_touches_only {
        text += &wrapped(
            "First touches only: the recording has the first use of each page and not the later \
             ones, so pages that have left come back more seldom than they would. This is no need \
             of the workload, but the least that it would cost.",
        );
    }
    if let Some(accesses) = plan.accesses {
        let known = match accesses.of_regions {
            true => {
                "It shows of how many pages of each region, and those with the lowest addresses are \
                 taken for them: which ones were used can make the need larger."
            }
            false => "It shows of each page.",
        };
        text += &wrapped(&format!(
            "Pages are used again as the recording sampled it, every {} ms. {known} What was used \
             more than once in between is used once here.",
            accesses.interval_us as f64 / 1e3,
        ));
    }
    if plan.interrupted {
        text += "INTERRUPTED: the rows above are complete, others are missing\n";
    }
    text
}

/// What the compressed store did, if there is one.
fn compressed(plan: &MemoryPlan) -> String {
    let Some(percent) = plan.compressed_percent else {
        return String::new();
    };
    let mut text = wrapped(&format!(
        "Of each size of memory {percent} % are set aside for a compressed store in front of swap. \
         The recording does not have what pages hold; they are taken to compress as those of Cargo \
         and Python do (docs/swap.md).",
    ));
    let mut table = Table::new(&[
        "memory",
        "set aside",
        "pages taken",
        "one word",
        "bytes each",
        "do not compress",
        "written back",
    ]);
    for row in &plan.rows {
        if let Some(done) = row.compressed {
            table.row(vec![
                size(row.ram_bytes as f64),
                size(done.set_aside as f64),
                grouped(done.taken),
                grouped(done.same),
                grouped(done.bytes_each),
                grouped(done.incompressible),
                grouped(done.written_back),
            ]);
        }
    }
    text.push('\n');
    text += &table.render(0);
    text.push('\n');
    text
}

fn cells(row: &Row, plan: &MemoryPlan) -> Vec<String> {
    let mut cells = vec![
        size(row.ram_bytes as f64),
        format!("{:.0} %", 100.0 * row.part),
    ];
    if row.failed.is_some() {
        cells.push("fails".to_owned());
        cells.resize(13, "-".to_owned());
        return cells;
    }
    let each = row.scanned as f64 / row.reclaimed as f64;
    cells.extend([
        seconds(row.cost.elapsed_ns()),
        format!("{:.2}", row.slowdown),
        plan.added(row).map_or_else(
            || "-".to_owned(),
            |share| format!("{:+.1} %", 100.0 * share),
        ),
        seconds(row.cost.core_ns),
        seconds(row.cost.device_ns),
        grouped(row.scanned),
        grouped(row.reclaimed),
        match row.reclaimed {
            0 => "-".to_owned(),
            _ => format!("{each:.2}"),
        },
        grouped(row.refaults),
        grouped(row.pages_read),
        grouped(row.pages_written),
    ]);
    cells
}

fn seconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e9)
}
