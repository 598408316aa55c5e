//! Findings as tables.

use std::fmt::Write;

use super::waits::locks_table;
use crate::report::names::letter;
use vellum_results::Spread;
use vellum_results::scale::{Curve, Knee, Line, Point, Scale};
use vellum_terminal::table::Table;
use vellum_terminal::text::plural;

/// Lines of the profile that are printed.
const LINES: usize = 10;

/// Seeds from which on the least and the most are a 95 % interval of the median.
const SEEDS_OF_INTERVAL: usize = 6;

/// The findings; with `profile`, what time was lost on at the largest number of CPUs.
pub fn render(findings: &Scale, profile: bool) -> String {
    let mut text = header(findings);
    let unit = Unit::of(findings);
    for (number, curve) in findings.curves.iter().enumerate() {
        text += &format!("\n{} {}\n", letter(number), curve.design);
        text += &table(findings, curve, number, unit);
        text += &scaling(curve);
        if profile {
            text += &lines(curve);
        }
    }
    text
}

fn header(findings: &Scale) -> String {
    let mut text = format!(
        "{}: each CPU {}\n{}: {}\n{} of virtual time after {} without counting; {}\n",
        findings.workload,
        findings.summary,
        findings.machine,
        findings.title,
        microseconds(findings.window_ns),
        microseconds(findings.warm_up_ns),
        spread_is(findings.seeds.len()),
    );
    let _ = match findings.control == 1.0 {
        true => writeln!(
            text,
            "Control: A with its first seed once more, ratio 1.000 exactly"
        ),
        false => writeln!(
            text,
            "CONTROL FAILED: A with its first seed once more has a ratio of {:.6}, expected 1 exactly",
            findings.control
        ),
    };
    if findings.interrupted {
        text += "INTERRUPTED: numbers of CPUs that were not complete are left out\n";
    }
    text
}

fn microseconds(ns: u64) -> String {
    format!("{} us", ns as f64 / 1e3)
}

/// What a median and the range beside it are, of so many seeds.
pub fn spread_is(seeds: usize) -> String {
    match seeds {
        1 => "one seed".to_owned(),
        few if few < SEEDS_OF_INTERVAL => format!("the median and the range of {few} seeds"),
        many => format!(
            "the median of {many} seeds and their range, a {} % interval of the median",
            // Each seed is above the median or below it; all are on one side this often.
            (1000.0 * (1.0 - 0.5f64.powi(many as i32 - 1))).floor() / 10.0
        ),
    }
}

/// The unit of rates.
#[derive(Clone, Copy)]
struct Unit {
    scale: f64,
    name: &'static str,
}

impl Unit {
    fn of(findings: &Scale) -> Unit {
        let points = findings.curves.iter().flat_map(|curve| &curve.points);
        let most = points.map(|point| point.rate.median).fold(0.0, f64::max);
        match most {
            most if most >= 1e6 => Unit {
                scale: 1e6,
                name: "millions",
            },
            most if most >= 1e3 => Unit {
                scale: 1e3,
                name: "thousands",
            },
            _ => Unit {
                scale: 1.0,
                name: "units",
            },
        }
    }

    fn range(self, spread: &Spread) -> String {
        let [least, most] = [spread.least, spread.most].map(|value| value / self.scale);
        format!("{least:.3} .. {most:.3}")
    }
}

fn table(findings: &Scale, curve: &Curve, number: usize, unit: Unit) -> String {
    let rate = format!("{} of {}/s", unit.name, findings.unit);
    let mut header = vec![
        "CPUs",
        &rate,
        "range",
        "us each",
        "of ceiling",
        "limited by",
    ];
    if number > 0 {
        header.extend(["/ A", "range"]);
    }
    let mut table = Table::new(&header);
    for point in &curve.points {
        let share = point
            .of_ceiling()
            .map_or("-".to_owned(), |share| format!("{share:.3}"));
        let mut row = vec![
            point.cpus.to_string(),
            format!("{:.3}", point.rate.median / unit.scale),
            unit.range(&point.rate),
            format!("{:.3}", each_us(point)),
            share,
            point.limit.as_deref().unwrap_or("-").to_owned(),
        ];
        if number > 0 {
            let ratio = &point.to_base;
            row.push(format!("{:.3}", ratio.median));
            row.push(format!("{:.3} .. {:.3}", ratio.least, ratio.most));
        }
        table.row(row);
    }
    table.render(0)
}

/// CPU time of each thing done, in microseconds.
fn each_us(point: &Point) -> f64 {
    point.cpus as f64 * 1e6 / point.rate.median
}

/// Whether the design scales, and what stops it.
fn scaling(curve: &Curve) -> String {
    let Some(last) = curve.points.last() else {
        return String::new();
    };
    match &curve.knee {
        None if curve.points.len() < 2 || last.ceiling.is_none() => {
            "Whether it scales cannot be told: that takes 1 CPU and others (--cpus 1,2,...)\n"
                .into()
        }
        None => format!("It scales up to {}.\n", plural(last.cpus, "CPU", "CPUs")),
        Some(Knee {
            from,
            to,
            gain,
            line,
        }) => {
            let mut text = format!(
                "It stops scaling between {from} and {to} CPUs: there it gains {:.0} % of what the machine \
                 allows.\n",
                gain * 100.0
            );
            if let Some(line) = line {
                let _ = writeln!(
                    text,
                    "What costs most with {to} CPUs is {}: {:.1} % of their time ({:.1} % moving it, {:.1} % \
                     spinning).",
                    line.name,
                    line.share() * 100.0,
                    line.moving * 100.0,
                    line.spinning * 100.0
                );
            }
            text
        }
    }
}

/// Where time goes with the largest number of CPUs.
fn lines(curve: &Curve) -> String {
    let Some(last) = curve.points.last() else {
        return String::new();
    };
    let cell = &last.cell;
    let text = format!(
        "With {}, of their time: {} % moving lines, {} % spinning, {} % asleep, {} % shootdowns\n",
        plural(last.cpus, "CPU", "CPUs"),
        percent(cell.moving),
        percent(cell.spinning),
        percent(cell.sleeping),
        percent(cell.flushing),
    );
    text + &lines_table(&cell.lines) + &locks_table(&cell.locks, cell.time_ns as f64)
}

/// A share, as a figure in percent.
pub fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// The lines that cost most.
pub fn lines_table(lines: &[Line]) -> String {
    let mut table = Table::new(&["line", "moving %", "spinning %", "reads", "writes", "false"]);
    for line in lines.iter().take(LINES) {
        table.row(vec![
            line.name.clone(),
            percent(line.moving),
            percent(line.spinning),
            line.reads.to_string(),
            line.writes.to_string(),
            line.false_sharing.to_string(),
        ]);
    }
    table.render(2)
}
