//! A trace on one design of the core: `vellum replay`.

use maud::{Markup, html};

use super::{Answer, Section, Shown};
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::replay::{Count, Replay};

/// Adds the time of the device, if one was modelled.
fn with_device(replay: &Replay, mut facts: Vec<(String, String)>) -> Vec<(String, String)> {
    if let Some(device) = &replay.device {
        let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
        let time = format!("{} of {}", seconds(device.device_ns), device.device.name);
        facts.push(("Time of the device".to_owned(), time));
        let sum = device.elapsed_ns.map(seconds);
        facts.extend(sum.map(|sum| ("Core and device".to_owned(), sum)));
    }
    facts
}

/// Shows a replay.
pub fn show(replay: &Replay) -> Shown {
    let (unit, divisor) = words::time_unit(replay.core_ns as f64);
    let share = replay.unexplained as f64 / replay.ops.max(1) as f64;
    Shown {
        title: format!(
            "{} on {}",
            words::file_name(&replay.trace),
            words::design(replay.differences.as_ref().unwrap_or(&replay.design))
        ),
        answer: Answer {
            sentence: format!(
                "The {} of {} take {} {unit} of CPU time in the core, in one pass; {} of the operations went \
                 otherwise than recorded without an explanation.",
                words::plural(replay.events, "event", "events"),
                words::file_name(&replay.trace),
                words::number(replay.core_ns as f64 / divisor),
                words::percent(share)
            ),
            ..Answer::default()
        },
        sections: vec![
            Section::new(
                "Operations",
                counts(&replay.ops_by_class, "operations by class"),
            ),
            Section::new(
                "What went otherwise than recorded",
                counts(&replay.divergences, "divergences by kind"),
            ),
            Section::new(
                "Events that were counted",
                counts(&replay.counters, "counts"),
            ),
            Section::new("Memory", memory(replay)),
        ],
        facts: with_device(
            replay,
            vec![
                ("Design".to_owned(), replay.design.clone()),
                (
                    "Machine".to_owned(),
                    format!(
                        "{}, {}, {}",
                        words::plural(replay.cpus as u64, "simulated CPU", "simulated CPUs"),
                        words::bytes(replay.ram_bytes),
                        words::plural(u64::from(replay.copies), "copy", "copies")
                    ),
                ),
                (
                    "Elapsed".to_owned(),
                    format!("{:.3} s", replay.wall_ns as f64 / 1e9),
                ),
            ],
        ),
    }
}

fn counts(counts: &[Count], caption: &str) -> Markup {
    if counts.is_empty() {
        return html! { p { "None." } };
    }
    let mut grid = Grid::new(caption)
        .text("what")
        .number("count")
        .text("meaning");
    for count in counts {
        grid.row(
            "",
            vec![
                Cell::text(&count.name),
                Cell::number(
                    count.count as f64,
                    vellum_terminal::table::grouped(count.count),
                ),
                Cell::text(&count.meaning),
            ],
        );
    }
    grid.render()
}

fn memory(replay: &Replay) -> Markup {
    let mut grid = Grid::new("memory by what it holds")
        .text("what")
        .number("at the end, KiB")
        .number("at the peak, KiB");
    for row in &replay.memory {
        let kib =
            |bytes: u64| Cell::number(bytes as f64, vellum_terminal::table::grouped(bytes >> 10));
        grid.row(
            "",
            vec![Cell::text(&row.name), kib(row.bytes), kib(row.peak_bytes)],
        );
    }
    grid.render()
}
