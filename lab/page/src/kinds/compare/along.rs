//! Where along the workload the difference arises, and how memory grows.

use maud::{Markup, html};

use super::super::{Named, Section};
use crate::draw::Axis;
use crate::draw::chart::{Chart, Series, Style};
use crate::draw::marks::Arm;
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::compare::{Along, Held, MemoryAlong, Places};

/// Stretches of the table of the largest differences.
const BINS: usize = 40;
/// Rows of that table.
const ROWS: usize = 10;
/// Kinds of memory that are drawn.
const DRAWN: usize = 4;

/// Sections on times and memory along the workload.
pub fn sections(along: &Along, names: &[Named; 3]) -> Vec<Section> {
    if along.places.ops.len() < 2 {
        return Vec::new();
    }
    let mut sections = vec![Section::new(
        "Where along the trace the difference arises",
        times(along, names),
    )];
    if along.memory.places.ops.len() > 1 {
        sections.push(Section::new(
            "Memory over the replay",
            memory(&along.memory, names),
        ));
    }
    sections
}

/// What the horizontal axis counts, and its value at the end of each stretch.
fn numbers(places: &Places) -> (&'static str, Vec<f64>) {
    let as_numbers = |list: &[u64]| list.iter().map(|place| *place as f64).collect();
    match places.events.len() == places.ops.len() {
        true => ("event of the trace", as_numbers(&places.events)),
        false => ("operations done", as_numbers(&places.ops)),
    }
}

fn times(along: &Along, names: &[Named; 3]) -> Markup {
    let (what, places) = numbers(&along.places);
    let total = along.cpu_ns.a.iter().sum::<u64>() as f64;
    html! {
        (chart(along, names).figure(&html! {
            "The difference so far: where the line falls, B needs less than A; where it is level, the two are \
             alike; a step is a place to look at. The control shows how far the same design wanders from \
             itself."
        }))
        (largest_table(along, &places, what, total))
    }
}

/// The time of B, and of the control, beyond that of A so far.
pub fn chart(along: &Along, names: &[Named; 3]) -> Chart {
    let (what, places) = numbers(&along.places);
    let [a, b, control] = along.cpu_ns.list();
    let sums = |list: &[u64]| {
        let mut sum = 0.0;
        let pairs = list.iter().zip(a);
        pairs
            .map(|(ns, a)| {
                sum += *ns as f64 - *a as f64;
                sum
            })
            .collect::<Vec<f64>>()
    };
    let (of_b, of_control) = (sums(b), sums(control));
    let largest = of_b
        .iter()
        .chain(&of_control)
        .fold(0.0, |most: f64, ns| most.max(ns.abs()));
    let (unit, divisor) = words::time_unit(largest);
    let line = |name: &str, arm: Arm, sums: &[f64]| Series {
        name: name.to_owned(),
        arm,
        points: std::iter::once((0.0, 0.0))
            .chain(
                places
                    .iter()
                    .copied()
                    .zip(sums.iter().map(|ns| ns / divisor)),
            )
            .collect(),
        style: Style::Line,
    };
    let values = of_b.iter().chain(&of_control).map(|ns| ns / divisor);
    Chart {
        told: format!(
            "B minus A, added up along the trace: {} {unit} at the end",
            words::signed(of_b.last().copied().unwrap_or(0.0) / divisor)
        ),
        x: (
            Axis::between(0.0, places.last().copied().unwrap_or(1.0)),
            what.to_owned(),
        ),
        y: (
            Axis::around(values.chain([0.0])),
            format!("time beyond that of A so far, {unit}"),
        ),
        height: 240,
        reference: Some(0.0),
        series: vec![
            line(
                &format!("B \u{2212} A ({})", names[1].name),
                names[1].arm,
                &of_b,
            ),
            line("A' \u{2212} A (the control)", Arm::Control, &of_control),
        ],
        zooms: true,
    }
}

/// The stretches with the largest differences.
fn largest_table(along: &Along, places: &[f64], what: &str, total: f64) -> Markup {
    let [a, b, control] = along.cpu_ns.list();
    let count = a.len().min(b.len()).min(control.len()).min(places.len());
    let size = count.div_ceil(BINS).max(1);
    let mut bins: Vec<(f64, f64, [f64; 3])> = (0..count)
        .step_by(size)
        .map(|from| {
            let range = from..(from + size).min(count);
            let sum = |list: &[u64]| list[range.clone()].iter().sum::<u64>() as f64;
            let start = if from == 0 { 0.0 } else { places[from - 1] };
            (start, places[range.end - 1], [sum(a), sum(b), sum(control)])
        })
        .collect();
    bins.sort_by(|one, other| {
        let size = |bin: &(f64, f64, [f64; 3])| (bin.2[1] - bin.2[0]).abs();
        size(other).total_cmp(&size(one))
    });
    let (unit, divisor) = words::time_unit(bins.first().map_or(1.0, |bin| bin.2[0].max(bin.2[1])));
    let mut grid = Grid::new(format!(
        "the {} of {} stretches in which A and B differ most",
        ROWS.min(bins.len()),
        bins.len()
    ))
    .number(format!("from ({what})"))
    .number("to")
    .number(format!("A, {unit}"))
    .number(format!("B, {unit}"))
    .number(format!("B \u{2212} A, {unit}"))
    .number(format!("A' \u{2212} A, {unit}"))
    .number("share of A's time, %");
    for (from, to, [a, b, control]) in bins.into_iter().take(ROWS) {
        let time = |ns: f64| Cell::number(ns, words::number(ns / divisor));
        let change = |ns: f64| Cell::number(ns, words::signed(ns / divisor));
        grid.row(
            "",
            vec![
                Cell::number(from, words::number(from)),
                Cell::number(to, words::number(to)),
                time(a),
                time(b),
                change(b - a),
                change(control - a),
                Cell::number(a / total, format!("{:.1}", 100.0 * a / total.max(1.0))),
            ],
        );
    }
    grid.render()
}

/// What is drawn of memory: all of it, and those kinds that differ most at some time.
fn memory(along: &MemoryAlong, names: &[Named; 3]) -> Markup {
    let (what, places) = numbers(&along.places);
    let apart = |row: &Held| {
        let pairs = row.a.iter().zip(&row.b);
        pairs.map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
    };
    let mut rows: Vec<&Held> = along.kinds.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(apart(row)));
    let whole = rows.iter().position(|row| row.name == "all frames");
    if let Some(place) = whole {
        let whole = rows.remove(place);
        rows.insert(0, whole);
    }
    let drawn: Vec<&Held> = rows
        .into_iter()
        .enumerate()
        .filter(|(number, row)| (*number == 0 && whole.is_some()) || apart(row) > 0)
        .map(|(_, row)| row)
        .take(DRAWN)
        .collect();
    html! {
        p { "Taken at the end of each stretch, in a pass that is not timed as a whole." }
        div.pair {
            @for row in drawn {
                (memory_chart(row, &places, what, names))
            }
        }
    }
}

fn memory_chart(row: &Held, places: &[f64], what: &str, names: &[Named; 3]) -> Markup {
    let mib = |bytes: &u64| *bytes as f64 / f64::from(1 << 20);
    let line = |named: &Named, values: &[u64]| Series {
        name: named.whole(),
        arm: named.arm,
        points: places.iter().copied().zip(values.iter().map(mib)).collect(),
        style: Style::Line,
    };
    let most = row.a.iter().chain(&row.b).max().copied().unwrap_or(0);
    let chart = Chart {
        told: format!("{} over the replay, up to {}", row.name, words::bytes(most)),
        x: (
            Axis::between(0.0, places.last().copied().unwrap_or(1.0)),
            what.to_owned(),
        ),
        y: (
            Axis::from_zero(row.a.iter().chain(&row.b).map(mib)),
            "MiB".to_owned(),
        ),
        height: 160,
        reference: None,
        series: vec![line(&names[0], &row.a), line(&names[1], &row.b)],
        zooms: true,
    };
    chart.figure(&html! { b { (row.name) } })
}
