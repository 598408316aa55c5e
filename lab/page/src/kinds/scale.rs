//! A workload on more and more simulated CPUs: `vellum scale WORKLOAD`.

use maud::{Markup, html};
use vellum_terminal::table::grouped;

use super::{Answer, Named, Section, Shown};
use crate::draw::Axis;
use crate::draw::chart::{Chart, Series, Style};
use crate::draw::marks::Arm;
use crate::grid::{Cell, Grid};
use crate::kinds::arms;
use crate::words;
use vellum_results::scale::{Curve, Line, Lock, Point, Scale};

/// Cache lines that are shown of each design.
const LINES: usize = 8;

/// Shows the curves.
pub fn show(scale: &Scale) -> Shown {
    let names = names(scale.curves.iter().map(|curve| curve.design.as_str()));
    let last = html! {
        @for (curve, named) in scale.curves.iter().zip(&names) {
            @if let Some(point) = curve.points.last() {
                h4 { (named.whole()) " with " (words::plural(point.cpus as u64, "CPU", "CPUs")) }
                (lines(&point.cell.lines, "share of the CPUs' time"))
                (locks(&point.cell.locks, point.cell.time_ns, "share of the CPUs' time"))
            }
        }
    };
    Shown {
        title: format!("{} on {}", scale.workload, scale.machine),
        answer: answer(scale, &names),
        sections: vec![
            Section::new("Throughput", throughput(scale)),
            Section::new("By number of CPUs", table(scale, &names)),
            Section::new("Where the time of the CPUs goes", shares(scale, &names)),
            Section::new("The cache lines and locks that cost most", last),
        ],
        facts: vec![
            (
                "Machine".to_owned(),
                format!("{}: {}", scale.machine, scale.title),
            ),
            ("Workload".to_owned(), format!("each CPU {}", scale.summary)),
            (
                "Window".to_owned(),
                format!("{} \u{b5}s of virtual time", scale.window_ns / 1000),
            ),
            ("Seeds".to_owned(), seeds(&scale.seeds)),
        ],
    }
}

/// Designs by letter.
pub(super) fn names<'d>(designs: impl Iterator<Item = &'d str>) -> Vec<Named> {
    let letters = (b'A'..=b'Z').cycle();
    let named = designs
        .zip(letters)
        .enumerate()
        .map(|(number, (design, letter))| {
            let label = char::from(letter).to_string();
            Named::new(Arm::Number(number), label, words::design(design))
        });
    named.collect()
}

pub(super) fn seeds(seeds: &[u64]) -> String {
    match seeds {
        [] => "none".to_owned(),
        [one] => one.to_string(),
        [first, .., last] => format!("{first} to {last}"),
    }
}

fn answer(scale: &Scale, names: &[Named]) -> Answer {
    let sentences = scale.curves.iter().zip(names).filter_map(|(curve, named)| {
        let point = curve.points.last()?;
        let part = match point.ceiling {
            Some(ceiling) => format!(
                "reaches {} of the machine's ceiling with {}",
                words::percent(point.rate.median / ceiling),
                words::plural(point.cpus as u64, "CPU", "CPUs")
            ),
            None => format!(
                "does {} {}/s with {}",
                words::number(point.rate.median),
                scale.unit,
                words::plural(point.cpus as u64, "CPU", "CPUs")
            ),
        };
        let stops = match &curve.knee {
            Some(knee) => {
                let line = knee.line.as_ref();
                let line = line.map_or_else(String::new, |line| format!(", by {}", line.name));
                format!(
                    " and stops scaling between {} and {} CPUs{line}",
                    knee.from, knee.to
                )
            }
            None => " and scales all the way".to_owned(),
        };
        Some(format!("{} {part}{stops}.", named.name))
    });
    let repeats = scale.control == 1.0;
    Answer {
        sentence: sentences.collect::<Vec<_>>().join(" "),
        told: None,
        warning: match (scale.interrupted, repeats) {
            (_, false) => Some(
                "The same seed did not give the same result: a defect of the simulator.".to_owned(),
            ),
            (true, _) => {
                Some("Interrupted: numbers of CPUs that were not complete are left out.".to_owned())
            }
            _ => None,
        },
        ..Answer::default()
    }
}

/// The charts of a result: throughput, and time of one thing.
pub fn charts(scale: &Scale) -> [Chart; 2] {
    let names = &names(scale.curves.iter().map(|curve| curve.design.as_str()));
    let rates = scale.curves.iter().flat_map(|curve| &curve.points);
    let most = rates.map(|point| point.rate.median.max(point.ceiling.unwrap_or(0.0)));
    let (factor, prefix) = match most.fold(0.0, f64::max) {
        most if most >= 1e6 => (1e6, "million "),
        most if most >= 1e3 => (1e3, "thousand "),
        _ => (1.0, ""),
    };
    let series = |value: &dyn Fn(&Point) -> Option<f64>, style: Style| {
        let line = |(curve, named): (&Curve, &Named)| Series {
            name: named.whole(),
            arm: named.arm,
            points: curve
                .points
                .iter()
                .filter_map(|point| Some((point.cpus as f64, value(point)?)))
                .collect(),
            style,
        };
        scale
            .curves
            .iter()
            .zip(names)
            .map(line)
            .collect::<Vec<Series>>()
    };
    let chart = |told: &str, y: String, series: Vec<Series>| {
        let all = || series.iter().flat_map(|series| &series.points);
        Chart {
            told: format!(
                "{told} of {} on {} by number of CPUs",
                scale.workload, scale.machine
            ),
            x: (
                Axis::doublings(all().map(|point| point.0)),
                "CPUs".to_owned(),
            ),
            y: (Axis::from_zero(all().map(|point| point.1)), y),
            height: 280,
            reference: None,
            series,
            zooms: false,
        }
    };
    let mut rates = series(&|point| Some(point.rate.median / factor), Style::Marks);
    rates.extend(series(
        &|point| point.ceiling.map(|rate| rate / factor),
        Style::Bound,
    ));
    let times = series(
        &|point| Some(point.cpus as f64 * 1e6 / point.rate.median),
        Style::Marks,
    );
    [
        chart(
            "Throughput",
            format!("{prefix}{}/s of all CPUs", scale.unit),
            rates,
        ),
        chart(
            "CPU time of one",
            format!("CPU time of one of the {}, \u{b5}s", scale.unit),
            times,
        ),
    ]
}

fn throughput(scale: &Scale) -> Markup {
    let [rates, times] = charts(scale);
    html! {
        div.pair {
            (rates.figure(&html! { "Throughput; dotted: the machine's ceiling." }))
            (times.figure(&html! { "What one costs: level if it scales." }))
        }
    }
}

fn table(scale: &Scale, names: &[Named]) -> Markup {
    let mut grid = Grid::new("medians of the seeds, with the least and the most")
        .text("design")
        .number("CPUs")
        .number(format!("{}/s", scale.unit))
        .text("range")
        .number("to A")
        .number("of the ceiling, %")
        .text("limited by");
    for (curve, named) in scale.curves.iter().zip(names) {
        for point in &curve.points {
            let share = point
                .ceiling
                .map(|ceiling| 100.0 * point.rate.median / ceiling);
            grid.row(
                named.arm.class(),
                vec![
                    arms::name_cell(named),
                    Cell::number(point.cpus as f64, point.cpus.to_string()),
                    Cell::number(point.rate.median, words::number(point.rate.median)),
                    Cell::text(format!(
                        "{} .. {}",
                        words::number(point.rate.least),
                        words::number(point.rate.most)
                    )),
                    Cell::number(point.to_base.median, words::ratio(point.to_base.median)),
                    share.map_or_else(Cell::empty, |share| {
                        Cell::number(share, format!("{share:.1}"))
                    }),
                    Cell::text(point.limit.as_deref().unwrap_or("")),
                ],
            );
        }
    }
    grid.render()
}

fn shares(scale: &Scale, names: &[Named]) -> Markup {
    let mut grid =
        Grid::new("shares of the CPUs' time, in percent, in the simulation of the median seed")
            .text("design")
            .number("CPUs")
            .number("moving cache lines, %")
            .number("spinning, %")
            .number("sleeping, %")
            .number("shootdowns, %");
    for (curve, named) in scale.curves.iter().zip(names) {
        for point in &curve.points {
            let cell = &point.cell;
            let mut cells = vec![
                arms::name_cell(named),
                Cell::number(point.cpus as f64, point.cpus.to_string()),
            ];
            let shares = [cell.moving, cell.spinning, cell.sleeping, cell.flushing];
            cells.extend(shares.map(|share| Cell::number(share, format!("{:.1}", share * 100.0))));
            grid.row(named.arm.class(), cells);
        }
    }
    grid.render()
}

/// The lines that cost most.
pub(super) fn lines(lines: &[Line], of: &str) -> Markup {
    if lines.is_empty() {
        return html! { p { "No line cost anything." } };
    }
    let mut grid = Grid::new(format!("cache lines, {of} in percent"))
        .text("what lies there")
        .number("moving, %")
        .number("spinning, %");
    for line in lines.iter().take(LINES) {
        let share = |share: f64| Cell::number(share, format!("{:.2}", share * 100.0));
        grid.row(
            "",
            vec![
                Cell::text(&line.name),
                share(line.moving),
                share(line.spinning),
            ],
        );
    }
    grid.render()
}

/// The locks that were waited for, with shares of `time_ns`.
pub(super) fn locks(locks: &[Lock], time_ns: u64, of: &str) -> Markup {
    let waited = locks.iter().filter(|lock| lock.waited_ns > 0);
    let mut grid = Grid::new(format!("locks that were waited for, {of} in percent"))
        .text("lock")
        .number("acquired")
        .number("contended")
        .number("waited, %")
        .number("held, %")
        .number("\u{b5}s waited each time");
    for lock in waited.clone().take(LINES) {
        let share = |ns: u64| {
            let ns = ns as f64;
            Cell::number(ns, format!("{:.2}", 100.0 * ns / time_ns.max(1) as f64))
        };
        let each = lock.waited_ns as f64 / 1e3 / lock.contended.max(1) as f64;
        grid.row(
            "",
            vec![
                Cell::text(&lock.name),
                Cell::number(lock.acquired as f64, grouped(lock.acquired)),
                Cell::number(lock.contended as f64, grouped(lock.contended)),
                share(lock.waited_ns),
                share(lock.held_ns),
                Cell::number(each, format!("{each:.3}")),
            ],
        );
    }
    html! { @if waited.count() > 0 { (grid.render()) } }
}
