//! The report: a table for each group, and what its readers should know.

use std::fs;

use vellum_lab::host::forkfault::TrapCost;
use vellum_lab::host::kernel_release;

use crate::measure::{Figure, Plan};
use crate::rows::Row;
use crate::worth;

/// The arms that are ours.
const OURS: &str = "Vellum";
const CONTROL: usize = 1;

/// Where a run was made.
#[derive(serde::Serialize)]
pub struct Environment {
    kernel: String,
    processor: String,
    cpus: usize,
    /// Name and version of each peer.
    peers: Vec<(String, String)>,
}

impl Environment {
    /// This machine.
    pub fn here(peers: &[&str]) -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "model name").then(|| value.trim().to_owned())
        });
        Environment {
            kernel: kernel_release(),
            processor: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: vellum_lab::host::cpus(),
            peers: versions(peers),
        }
    }
}

/// Versions as they were built, out of the lock file.
fn versions(peers: &[&str]) -> Vec<(String, String)> {
    let quoted = |line: &str, key: &str| {
        let value = line.strip_prefix(key)?.trim_matches('"');
        Some(value.to_owned())
    };
    let lock = include_str!("../Cargo.lock");
    let mut name = String::new();
    let mut found = Vec::new();
    for line in lock.lines() {
        if let Some(next) = quoted(line, "name = ") {
            name = next;
        } else if let Some(version) = quoted(line, "version = ")
            && peers.contains(&name.as_str())
        {
            found.push((name.clone(), version));
        }
    }
    found
}

/// Everything that a run found out.
#[derive(serde::Serialize)]
pub struct Report {
    pub environment: Environment,
    pub passes: usize,
    pub seed: u64,
    pub interrupted: bool,
    /// What entering the host's kernel costs.
    pub trap: Option<TrapCost>,
    pub rows: Vec<Row>,
}

impl Report {
    pub fn new(environment: Environment, plan: Plan) -> Self {
        Report {
            environment,
            passes: plan.passes,
            seed: plan.seed,
            interrupted: false,
            trap: None,
            rows: Vec::new(),
        }
    }

    /// The report as Markdown.
    pub fn text(&self) -> String {
        let here = &self.environment;
        let peers: Vec<String> = here
            .peers
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        let mut text = format!(
            "{}, {} CPUs, Linux {}. {} passes a row.\n{}.\n",
            here.processor,
            here.cpus,
            here.kernel,
            self.passes,
            peers.join(", ")
        );
        let mut rows = self.rows.as_slice();
        while let Some(first) = rows.first() {
            let end = rows.iter().position(|row| row.group != first.group);
            let (group, rest) = rows.split_at(end.unwrap_or(rows.len()));
            text += &format!("\n### {}\n\n{}", first.group, table(group));
            let notes: Vec<String> = group.iter().flat_map(notes).collect();
            if !notes.is_empty() {
                text += &format!("\n{}\n", notes.join("\n"));
            }
            rows = rest;
        }
        if let Some(trap) = &self.trap {
            text += &trap_text(trap);
        }
        if self.interrupted {
            text += "\nInterrupted: what was not measured is missing.\n";
        }
        text
    }
}

fn trap_text(trap: &TrapCost) -> String {
    let fault = trap.fault_ns.map_or(String::new(), |ns| {
        format!(
            ", a page fault that is answered at once {}",
            nanoseconds(ns)
        )
    });
    format!(
        "\nThe kernel's figures contain what ours do not: entering the kernel (here a system call that does nothing takes \
         {}{fault}), real flushes, control groups, lists for reclaim.\n",
        nanoseconds(trap.syscall_ns)
    )
}

/// One table, with a column for each arm that any of the rows has.
fn table(rows: &[Row]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for figure in rows.iter().flat_map(|row| &row.figures) {
        if !names.contains(&figure.name) {
            names.push(figure.name);
        }
    }
    // Ours first, whichever row had them.
    names.sort_by_key(|name| !name.starts_with(OURS));
    let mut lines = vec![vec![String::new()]];
    lines[0].extend(names.iter().map(|&name| name.to_owned()));
    for row in rows {
        let mut line = vec![row.name.to_owned()];
        for name in &names {
            let figure = row.figures.iter().position(|figure| figure.name == *name);
            line.push(figure.map_or("–".into(), |place| cell(row, place)));
        }
        lines.push(line);
    }
    aligned(&lines)
}

/// `15.2 ns, 1.66 ±0.02`, the best of the row in bold type.
fn cell(row: &Row, place: usize) -> String {
    let figure = &row.figures[place];
    let time = nanoseconds(figure.ns);
    let time = if place == best(row) {
        format!("**{time}**")
    } else {
        time
    };
    if place == 0 {
        return time;
    }
    let spread = figure.interval().half_width();
    format!("{time}, {} ±{}", ratio(figure.ratio), ratio(spread))
}

/// The arm with the shortest time, where the control does not count.
fn best(row: &Row) -> usize {
    let others = row.figures.iter().enumerate().skip(CONTROL + 1);
    let shortest = others.min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
    match shortest {
        Some((place, figure)) if figure.ratio < 1.0 => place,
        _ => 0,
    }
}

fn is_rival(figure: &Figure) -> bool {
    !figure.name.starts_with(OURS)
}

/// What has to be said about a row: a bar, and who is before us.
fn notes(row: &Row) -> Vec<String> {
    let mut notes = Vec::new();
    let ours = &row.figures[0];
    if let Some(bar) = worth::bar(row.name) {
        let reached = if ours.ns <= bar { "reached" } else { "missed" };
        notes.push(format!(
            "* {}: bar {}, {reached}.",
            row.name,
            nanoseconds(bar)
        ));
    }
    let control = row.figures.get(CONTROL).map(Figure::interval);
    let told_apart = |figure: &&Figure| {
        figure.high < 1.0 && control.is_none_or(|control| !control.overlaps(&figure.interval()))
    };
    let before = row.figures.iter().filter(|figure| is_rival(figure));
    let mut before: Vec<&Figure> = before.filter(told_apart).collect();
    before.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    if !before.is_empty() {
        let who: Vec<String> = before
            .iter()
            .map(|figure| {
                format!(
                    "{} times that of {}",
                    ratio(1.0 / figure.ratio),
                    figure.name
                )
            })
            .collect();
        let why = worth::reason(row.name).unwrap_or("No reason is known.");
        notes.push(format!(
            "* {}: our time is {}. {why}",
            row.name,
            who.join(", ")
        ));
    }
    notes
}

/// Two significant digits or more, without more than two after the point.
fn ratio(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

fn nanoseconds(ns: f64) -> String {
    match ns {
        1e6.. => format!("{:.2} ms", ns / 1e6),
        1e4.. => format!("{:.1} us", ns / 1e3),
        100.0.. => format!("{ns:.0} ns"),
        10.0.. => format!("{ns:.1} ns"),
        _ => format!("{ns:.2} ns"),
    }
}

/// A Markdown table whose columns line up.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines[0].len();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0).max(3))
        .collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            let blanks = width - cell.chars().count();
            text += &format!("| {cell}{} ", " ".repeat(blanks));
        }
        text += "|\n";
        if number == 0 {
            for width in &widths {
                text += &format!("|{}", "-".repeat(width + 2));
            }
            text += "|\n";
        }
    }
    text
}
