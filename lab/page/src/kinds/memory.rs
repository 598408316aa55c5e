//! How much memory a workload needs: `vellum plan memory`.

use maud::{Markup, html};
use vellum_terminal::table::grouped;

use super::{Answer, Section, Shown};
use crate::draw::Axis;
use crate::draw::chart::{Chart, Series, Style};
use crate::draw::marks::Arm;
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::memory::{MemoryPlan, Row};

const MIB: f64 = 1_048_576.0;
const SECOND: f64 = 1e9;

/// Shows a plan.
pub fn show(plan: &MemoryPlan) -> Shown {
    let [times, moved] = charts(plan);
    let curves = html! {
        (times.figure(&html! { "What the workload takes with so much memory." }))
        (moved.figure(&html! { "Pages that the device reads and writes." }))
    };
    let device = &plan.device;
    let mut sections = vec![
        Section::new("With less and less memory", curves),
        Section::new("By size of memory", table(plan)),
    ];
    sections.extend(compressed(plan));
    Shown {
        title: format!("Less memory for {}", words::file_name(&plan.trace)),
        answer: answer(plan),
        sections,
        facts: vec![
            ("Design".to_owned(), plan.design.clone()),
            (
                "Workload".to_owned(),
                format!(
                    "{}, {}",
                    plan.trace,
                    words::plural(u64::from(plan.copies), "copy", "copies")
                ),
            ),
            (
                "Device".to_owned(),
                format!(
                    "{}: {} \u{b5}s for a read, {} \u{b5}s for a write, {} MB/s, one request at a \
                     time",
                    device.name,
                    words::number(device.read_ns as f64 / 1e3),
                    words::number(device.write_ns as f64 / 1e3),
                    words::number(device.bytes_per_s as f64 / 1e6),
                ),
            ),
        ],
    }
}

fn answer(plan: &MemoryPlan) -> Answer {
    let enough = match plan.enough_bytes {
        Some(bytes) => format!(
            "With {} memory management and the device take at most a tenth longer than with all \
             memory.",
            words::bytes(bytes)
        ),
        None => "With none of these sizes memory management and the device take at most a tenth \
                 longer than with all memory."
            .to_owned(),
    };
    let touches = match plan.accesses {
        None if plan.first_touches_only => {
            " The recording has the first use of each page only: this is the least that less \
             memory would cost, and no need of the workload."
                .to_owned()
        }
        None => String::new(),
        Some(accesses) => format!(
            " Pages are used again as was sampled every {} ms, {}.",
            accesses.interval_us as f64 / 1e3,
            match accesses.of_regions {
                true => "as to how many pages of each region",
                false => "page by page",
            }
        ),
    };
    Answer {
        sentence: format!(
            "{} are in use at the peak. {enough}{touches}",
            words::bytes(plan.peak_bytes)
        ),
        warning: plan
            .interrupted
            .then(|| "Interrupted: complete rows are shown.".to_owned()),
        ..Answer::default()
    }
}

/// The charts of a plan: time, and pages that the device moves.
pub fn charts(plan: &MemoryPlan) -> [Chart; 2] {
    let line = |name: &str, number: usize, value: fn(&Row) -> f64| Series {
        name: name.to_owned(),
        arm: Arm::Number(number),
        points: plan
            .rows
            .iter()
            .filter(|row| row.failed.is_none())
            .map(|row| (row.ram_bytes as f64 / MIB, value(row)))
            .collect(),
        style: Style::Marks,
    };
    let chart = |told: &str, y: &str, series: Vec<Series>| {
        let sizes = plan.rows.iter().map(|row| row.ram_bytes as f64 / MIB);
        let all = series.iter().flat_map(|series| &series.points);
        Chart {
            told: told.to_owned(),
            x: (Axis::from_zero(sizes), "MiB of memory".to_owned()),
            y: (Axis::from_zero(all.map(|point| point.1)), y.to_owned()),
            height: 260,
            reference: None,
            series,
            zooms: false,
        }
    };
    [
        chart(
            "Elapsed time and CPU time in the core by size of memory",
            "seconds",
            vec![
                line("elapsed", 0, |row| row.cost.elapsed_ns() as f64 / SECOND),
                line("in the core", 1, |row| row.cost.core_ns as f64 / SECOND),
            ],
        ),
        chart(
            "Pages read and written by size of memory",
            "thousands of pages",
            vec![
                line("read", 2, |row| row.pages_read as f64 / 1e3),
                line("written", 3, |row| row.pages_written as f64 / 1e3),
            ],
        ),
    ]
}

/// What the compressed store did, if there is one.
fn compressed(plan: &MemoryPlan) -> Option<Section> {
    let percent = plan.compressed_percent?;
    let mut grid = Grid::new("compressed stores by size of memory")
        .number("memory, MiB")
        .number("set aside, MiB")
        .number("pages taken")
        .number("of one word")
        .number("bytes for each other")
        .number("do not compress")
        .number("written back");
    for row in &plan.rows {
        let Some(done) = row.compressed else {
            continue;
        };
        let mib = |bytes: u64| {
            let mib = bytes as f64 / MIB;
            Cell::number(mib, words::number(mib))
        };
        let count = |count: u64| Cell::number(count as f64, grouped(count));
        let cells = vec![
            mib(row.ram_bytes),
            mib(done.set_aside),
            count(done.taken),
            count(done.same),
            count(done.bytes_each),
            count(done.incompressible),
            count(done.written_back),
        ];
        grid.row("", cells);
    }
    let told = html! {
        p {
            "Of each size of memory " (percent) " % are set aside for a compressed store in front \
             of swap. The recording does not have what pages hold; they are taken to compress as \
             those of Cargo and Python do."
        }
        (grid.render())
    };
    Some(Section::new("The compressed store", told))
}

fn table(plan: &MemoryPlan) -> Markup {
    let mut grid = Grid::new("replays on machines with less and less memory")
        .number("memory, MiB")
        .number("of the peak, %")
        .number("elapsed, s")
        .number("times")
        .number("adds, %")
        .number("in the core, s")
        .number("device, s")
        .number("pages scanned")
        .number("pages that left")
        .number("refaults")
        .number("pages read")
        .number("pages written");
    for row in &plan.rows {
        let mib = row.ram_bytes as f64 / MIB;
        let mut cells = vec![
            Cell::number(mib, words::number(mib)),
            Cell::number(row.part, format!("{:.0}", 100.0 * row.part)),
        ];
        match &row.failed {
            Some(place) => {
                cells.push(Cell::text(format!("fails at {place}")));
                cells.resize_with(12, Cell::empty);
            }
            None => {
                let seconds =
                    |ns: u64| Cell::number(ns as f64, format!("{:.3}", ns as f64 / SECOND));
                let count = |count: u64| Cell::number(count as f64, grouped(count));
                cells.extend([
                    seconds(row.cost.elapsed_ns()),
                    Cell::number(row.slowdown, format!("{:.2}", row.slowdown)),
                    match plan.added(row) {
                        Some(share) => Cell::number(share, format!("{:.1}", 100.0 * share)),
                        None => Cell::empty(),
                    },
                    seconds(row.cost.core_ns),
                    seconds(row.cost.device_ns),
                    count(row.scanned),
                    count(row.reclaimed),
                    count(row.refaults),
                    count(row.pages_read),
                    count(row.pages_written),
                ]);
            }
        }
        grid.row("", cells);
    }
    html! {
        (grid.render())
        p.note { (plan.left_out()) }
    }
}
