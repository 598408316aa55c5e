//! Where page tables should lie: `vellum plan userpte`.

use maud::{Markup, html};
use vellum_terminal::table::grouped;

use super::{Answer, Section, Shown};
use crate::draw::Axis;
use crate::draw::chart::{Chart, Series, Style};
use crate::draw::marks::Arm;
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::plan::{Begins, Measured, Plan, Sweep, VALUES};

const GIB: f64 = 1_073_741_824.0;
const MIB: f64 = 1_048_576.0;

/// Shows a plan.
pub fn show(plan: &Plan) -> Shown {
    let mut sections = vec![Section::new("Machines of several sizes", sizes(plan))];
    if let Some(measured) = &plan.measured {
        let costs = html! {
            (costs(measured).figure(&html! {
                "What windows to page tables cost; where a line ends or a mark is missing, the value fails for \
                 want of low memory."
            }))
            (sweep_table(&measured.sweep, measured.demand.core_ns as f64))
        };
        sections.push(Section::new("With little low memory", costs));
    }
    let mut facts = vec![(
        "Low memory".to_owned(),
        words::bytes(plan.arithmetic.low_bytes),
    )];
    if let Some(measured) = &plan.measured {
        facts.extend([
            ("Design".to_owned(), measured.demand.design.clone()),
            (
                "Workload".to_owned(),
                format!(
                    "{}, {}",
                    measured.trace,
                    words::plural(u64::from(measured.demand.copies), "copy", "copies")
                ),
            ),
            (
                "Price of a window".to_owned(),
                format!(
                    "{} ns: {}",
                    words::number(measured.price.ns),
                    measured.price.source
                ),
            ),
        ]);
    }
    Shown {
        title: match &plan.measured {
            Some(measured) => format!(
                "Where page tables should lie: {}",
                words::file_name(&measured.trace)
            ),
            None => "Where page tables should lie".to_owned(),
        },
        answer: answer(plan),
        sections,
        facts,
    }
}

fn answer(plan: &Plan) -> Answer {
    let arithmetic = &plan.arithmetic;
    let counted = format!(
        "{} of low memory hold {} page tables, which map {}, or {} if one in {} can be had.",
        words::bytes(arithmetic.low_bytes),
        words::number(arithmetic.tables as f64),
        words::bytes(arithmetic.mappable),
        words::bytes(arithmetic.with_slop as u64),
        words::number(arithmetic.slop)
    );
    let begins = |begins: &Begins, who: &str| match begins {
        Begins::Always => {
            format!("With {who}, userpte=nohigh fails on every machine that has high memory.")
        }
        Begins::Above(bytes) => {
            format!(
                "With {who}, userpte=nohigh begins to fail above {} of memory.",
                words::bytes(*bytes)
            )
        }
        Begins::Never => format!("With {who}, userpte=nohigh does not fail at any size of memory."),
    };
    let measured = plan.sizes.fails_for_measured.as_ref();
    let full = plan.sizes.fails_when_full.as_ref();
    let sentences = [
        measured.map(|one| begins(one, "what was measured")),
        full.map(|one| begins(one, "memory full of it")),
    ];
    let sentences: Vec<String> = sentences.into_iter().flatten().collect();
    Answer {
        sentence: match sentences.is_empty() {
            true => counted,
            false => sentences.join(" "),
        },
        warning: plan
            .interrupted
            .then(|| "Interrupted: complete rows are shown.".to_owned()),
        ..Answer::default()
    }
}

/// The charts of a plan.
pub fn charts(plan: &Plan) -> Vec<Chart> {
    let costs = plan.measured.as_ref().map(costs);
    std::iter::once(memories(plan)).chain(costs).collect()
}

/// Low memory that the frame table leaves, and what copies need.
fn memories(plan: &Plan) -> Chart {
    let rows = &plan.sizes.rows;
    let low = plan.arithmetic.low_bytes as f64 / MIB;
    let line = |name: &str, arm: Arm, values: Vec<f64>| Series {
        name: name.to_owned(),
        arm,
        points: rows
            .iter()
            .map(|row| row.ram_bytes as f64 / GIB)
            .zip(values)
            .collect(),
        style: Style::Marks,
    };
    let of = |value: fn(&vellum_results::plan::Size) -> u64| {
        rows.iter()
            .map(|row| value(row) as f64 / MIB)
            .collect::<Vec<f64>>()
    };
    let mut series = vec![
        line(
            "frame table",
            Arm::Number(6),
            of(|row| row.frame_table_bytes),
        ),
        line(
            "left for tables and all else",
            Arm::Number(0),
            of(|row| row.left_bytes),
        ),
    ];
    if let Some(measured) = &plan.measured {
        let demand = &measured.demand;
        let need = demand.low_of_a_copy() as f64 / MIB;
        let full = rows.iter().map(|row| {
            let copies = row.ram_bytes as f64 / demand.all_of_a_copy() as f64;
            // As far as it fits the picture.
            (copies * need).min(low * 1.1)
        });
        series.push(line(
            "needed if memory is full of copies",
            Arm::Number(1),
            full.collect(),
        ));
    }
    Chart {
        told: "Low memory by size of memory: the frame table, what it leaves, and what is needed"
            .to_owned(),
        x: (
            Axis::doublings(rows.iter().map(|row| row.ram_bytes as f64 / GIB)),
            "GiB of memory".to_owned(),
        ),
        y: (
            Axis::between(0.0, low * 1.1),
            "MiB of low memory".to_owned(),
        ),
        height: 260,
        reference: None,
        series,
        zooms: false,
    }
}

/// What windows cost against low memory; no mark where a value fails.
fn costs(measured: &Measured) -> Chart {
    let core = (measured.demand.core_ns as f64).max(1.0);
    let rows = &measured.sweep.rows;
    let line = |(number, name): (usize, &&str)| Series {
        name: format!("userpte={name}"),
        arm: Arm::Number(number),
        points: rows
            .iter()
            .filter_map(|row| {
                let cell = row.cells.get(number).filter(|cell| cell.failed.is_none())?;
                Some((row.part, 100.0 * cell.charged_ns / core))
            })
            .collect(),
        style: Style::Marks,
    };
    let series: Vec<Series> = VALUES.iter().enumerate().map(line).collect();
    let all = || series.iter().flat_map(|series| &series.points);
    Chart {
        told: "What windows cost by low memory, for each value of userpte=".to_owned(),
        x: (
            Axis::doublings(rows.iter().map(|row| row.part)),
            "low memory, in parts of what the workload needs".to_owned(),
        ),
        y: (
            Axis::from_zero(all().map(|point| point.1)),
            "cost of windows, % of the time in the core".to_owned(),
        ),
        height: 260,
        reference: None,
        series,
        zooms: false,
    }
}

fn sizes(plan: &Plan) -> Markup {
    let mut grid = Grid::new("what is left of low memory on machines of several sizes")
        .number("memory, GiB")
        .number("frame table, MiB")
        .number("left, MiB");
    let measured = plan.measured.is_some();
    if measured {
        grid = grid
            .number("copies that low memory holds")
            .number("with only a part of it")
            .number("copies that all memory holds")
            .text("those measured");
    }
    for row in &plan.sizes.rows {
        let size =
            |bytes: u64, unit: f64| Cell::number(bytes as f64, words::plain(bytes as f64 / unit));
        let mut cells = vec![
            size(row.ram_bytes, GIB),
            size(row.frame_table_bytes, MIB),
            size(row.left_bytes, MIB),
        ];
        if let Some(fits) = &row.fits {
            let copies = |count: u64| Cell::number(count as f64, grouped(count));
            cells.extend([
                copies(fits.low),
                copies(fits.low_with_slop),
                copies(fits.all),
            ]);
            cells.push(Cell::text(match fits.measured {
                true => "\u{2714} fit",
                false => "\u{2716} do not fit",
            }));
        }
        grid.row("", cells);
    }
    html! {
        (memories(plan).figure(&html! { "Low memory that the frame table leaves." }))
        (grid.render())
    }
}

fn sweep_table(sweep: &Sweep, core_ns: f64) -> Markup {
    let mut grid = Grid::new("replays on machines with little low memory")
        .number("low memory, MiB")
        .number("of what is needed");
    for value in VALUES {
        grid = grid
            .number(format!("{value}: windows"))
            .number(format!("{value}: cost, %"));
    }
    for row in &sweep.rows {
        let mut cells = vec![
            Cell::number(
                row.low_bytes as f64,
                words::number(row.low_bytes as f64 / MIB),
            ),
            Cell::number(row.part, format!("{:.2}", row.part)),
        ];
        for cell in &row.cells {
            match &cell.failed {
                Some(place) => {
                    cells.extend([Cell::text(format!("fails at {place}")), Cell::empty()])
                }
                None => {
                    let percent = 100.0 * cell.charged_ns / core_ns.max(1.0);
                    cells.push(Cell::number(cell.windows as f64, grouped(cell.windows)));
                    cells.push(Cell::number(percent, format!("{percent:.2}")));
                }
            }
        }
        grid.row("", cells);
    }
    grid.render()
}
