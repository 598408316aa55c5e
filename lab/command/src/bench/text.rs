//! Findings for people, laid out for a terminal 100 columns wide.

use std::fmt::Write;

use super::findings::{Arm, ArmFigure, Figure, Findings, Row, Run, Share, Standing};
use super::request::Request;
use crate::compare::Verdict;
use crate::on::On;
use crate::report::Detail;
use crate::report::figures::{bounds, said, uneven};
use crate::report::names::{Names, WIDTH};
use crate::report::published::{self, Format, unit};

use vellum_tables::mmtests::Edition;
use vellum_terminal::table::{Table, grouped, marked};
use vellum_terminal::text::{plural, wrapped};

/// What is marked.
const LESS: Standing = Standing::Judged(Verdict::Less);

/// Everything that was found.
pub fn render(request: &Request, findings: &Findings, detail: Detail) -> String {
    let mut sections = vec![header(request, findings, detail)];
    sections.extend(
        findings
            .runs
            .iter()
            .map(|run| of_run(run, request, findings, detail)),
    );
    sections.extend(findings.blocks.iter().cloned());
    if !findings.notes.is_empty() {
        sections.push(findings.notes.iter().map(|note| wrapped(note)).collect());
    }
    if detail == Detail::Summary && findings.runs.iter().any(has_more) {
        let more = "--details prints counts, memory and the spread of each figure.\n";
        sections.push(more.to_owned());
    }
    sections.join("\n")
}

/// Whether a run has more than its figures.
fn has_more(run: &Run) -> bool {
    !run.counters.is_empty() || !run.memory.is_empty()
}

/// The samples of every figure as `format` has them: a table for each run.
pub fn render_as(format: Format, request: &Request, findings: &Findings, detail: Detail) -> String {
    let arms = columns(findings);
    let mut sections = vec![header(request, findings, detail)];
    sections.extend(findings.runs.iter().map(|run| {
        if format == Format::Mmtests && !run.blocks.is_empty() {
            return format!("== {}\n{}", run.title, blocks(run, Edition::Of2025, &arms));
        }
        let figures = run.figures.iter().map(|figure| published::Figure {
            name: figure.name.clone(),
            per: figure.per.clone(),
            ns: figure.arms.iter().map(|arm| arm.passes.clone()).collect(),
        });
        let figures: Vec<published::Figure> = figures.collect();
        format!(
            "== {}\n{}",
            run.title,
            published::table(format, &arms, &figures)
        )
    }));
    sections.join("\n")
}

/// What stands above the columns of published tables.
fn columns(findings: &Findings) -> Vec<published::Arm> {
    let names = names(findings);
    let arm = |(index, arm): (usize, &Arm)| match index < designs(findings).len() {
        true => published::Arm::new(&arm.label, names.alone(index)),
        false => published::Arm::new(&arm.label, None),
    };
    findings.arms.iter().enumerate().map(arm).collect()
}

/// The published tables of a run, one below the other.
fn blocks(run: &Run, edition: Edition, arms: &[published::Arm]) -> String {
    let tables = run
        .blocks
        .iter()
        .map(|block| published::block_table(block, edition, arms));
    tables.collect::<Vec<String>>().join("\n")
}

fn header(request: &Request, findings: &Findings, detail: Detail) -> String {
    let (benchmark, place) = (request.benchmark, request.on.place());
    let mut text = format!("{} {place}: {}\n", benchmark.name, benchmark.summary);
    let labels = designs(findings).iter().map(|arm| arm.label.as_str());
    text += &names(findings).lines(labels, "as A, once more: the control", detail);
    let mut facts: Vec<String> = Vec::new();
    let sizes: Vec<String> = request
        .sizes
        .iter()
        .map(|(n, v)| format!("{n}={v}"))
        .collect();
    if !sizes.is_empty() {
        facts.push(sizes.join(" "));
    }
    if let Some(bytes) = request.ram_bytes {
        facts.push(format!("{} MiB each", grouped(bytes >> 20)));
    }
    facts.push(plural(request.passes, "pass", "passes"));
    facts.push(format!("seed {}", request.method.seed));
    text += &wrapped(&facts.join("; "));
    if request.on == On::Core {
        text += &uneven(request.passes, findings.arms.len());
    }
    if findings.interrupted {
        text += "INTERRUPTED: the figures are of what was complete\n";
    }
    text
}

/// What is compared, without the control.
fn designs(findings: &Findings) -> &[Arm] {
    &findings.arms[..findings.arms.len().saturating_sub(1)]
}

fn names(findings: &Findings) -> Names {
    Names::of(designs(findings).iter().map(|arm| arm.full.as_str()))
}

/// What rows call the arms, the control last.
fn labels(findings: &Findings) -> Vec<String> {
    let names = names(findings);
    let arms = findings.arms.iter().enumerate();
    arms.map(|(index, arm)| match index < designs(findings).len() {
        true => names.named(index, &arm.label),
        false => arm.label.clone(),
    })
    .collect()
}

fn of_run(run: &Run, request: &Request, findings: &Findings, detail: Detail) -> String {
    let mut text = format!("== {}\n", run.title);
    for fact in &run.facts {
        text += &wrapped(fact);
    }
    // Said above if it was asked for.
    if let (Some(bytes), None) = (run.ram_bytes, request.ram_bytes) {
        let each = format!("Each simulated machine has {} MiB.", grouped(bytes >> 20));
        text += &wrapped(&each);
    }
    for figure in &run.figures {
        text.push('\n');
        text += &of_figure(figure, findings, detail);
    }
    if !run.blocks.is_empty() {
        text.push('\n');
        text += &blocks(run, Edition::Of2014, &columns(findings));
    }
    if detail == Detail::Full {
        text += &counted(run, findings);
    }
    if !run.per_lookup.is_empty() {
        text.push('\n');
        text += &of_shares(("For each page looked up", true), &run.per_lookup, findings);
    }
    if !run.reclaim.is_empty() {
        text.push('\n');
        text += &of_shares(
            ("With too little memory, in one pass", false),
            &run.reclaim,
            findings,
        );
    }
    text
}

/// What was counted, and memory.
fn counted(run: &Run, findings: &Findings) -> String {
    let mut text = String::new();
    for (name, rows, show) in [
        (
            "Events in one pass",
            &run.counters,
            grouped as fn(u64) -> String,
        ),
        ("Memory at the peak (KiB)", &run.memory, |bytes| {
            grouped(bytes.div_ceil(1024))
        }),
    ] {
        let rows: Vec<&Row> = rows.iter().filter(|row| !is_silent(row)).collect();
        if !rows.is_empty() {
            text.push('\n');
            text += &of_rows(name, &rows, show, findings);
        }
    }
    text
}

/// A table of shares, for each of something or as they are. The control counts as its design does.
fn of_shares((name, is_each): (&str, bool), shares: &[Share], findings: &Findings) -> String {
    let arms = designs(findings);
    let labels: Vec<&str> = arms.iter().map(|arm| arm.label.as_str()).collect();
    let mut table = Table::new(&[&[name], labels.as_slice()].concat());
    for share in shares {
        let mut cells = vec![share.name.to_owned()];
        let values = share.values.iter().take(arms.len());
        let is_count = !is_each && share.values.iter().all(|value| value.fract() == 0.0);
        cells.extend(values.map(|value| match is_count {
            true => grouped(*value as u64),
            false => format!("{value:.2}"),
        }));
        table.row(cells);
    }
    table.render(0)
}

fn is_silent(row: &Row) -> bool {
    row.values.iter().all(|value| value.unwrap_or(0) == 0)
}

fn of_figure(figure: &Figure, findings: &Findings, detail: Detail) -> String {
    let (divisor, unit) = unit(figure.arms[0].value);
    let head = format!("{}, {unit} per {}", figure.name, figure.per);
    let mut table = Table::new(&[
        &head,
        "",
        "95 % interval",
        "/ A",
        "95 % interval",
        "told from",
        "",
    ]);
    for (arm, label) in figure.arms.iter().zip(labels(findings)) {
        let interval = |low: Option<f64>, high: Option<f64>| vellum_results::Figure {
            value: arm.value,
            low,
            high,
        };
        let is_base = arm.standing == Standing::Base;
        let value = format!("{:.2}", arm.value / divisor);
        table.row(vec![
            label,
            marked(value, arm.standing == LESS),
            bounds(&interval(arm.low, arm.high).in_units_of(divisor), 2),
            if is_base {
                String::new()
            } else {
                format!("{:.4}", arm.ratio)
            },
            match is_base {
                true => String::new(),
                false => bounds(&interval(arm.ratio_low, arm.ratio_high), 4),
            },
            arm.resolution.map_or_else(String::new, |resolution| {
                format!("{:.2} %", resolution * 100.0)
            }),
            said(arm.standing),
        ]);
    }
    let mut text = table.render(0);
    let _ = writeln!(
        text,
        "{} in a pass; {}{}",
        plural_of(figure.units, &figure.per),
        figure.clock,
        match figure.arms.iter().any(|arm| arm.standing == LESS) {
            true => "; * proven less than A",
            false => "",
        }
    );
    text += &together(figure);
    match detail {
        Detail::Summary => text,
        Detail::Full => text + &spreads(figure, findings),
    }
}

/// `12 faults`, with the plural of most nouns.
fn plural_of(units: f64, per: &str) -> String {
    let count = grouped(units.round() as u64);
    match (units == 1.0, per.chars().last()) {
        (true, _) => format!("{count} {per}"),
        (_, Some('B')) => format!("{count} {per}"),
        (_, Some('d')) if per == "child" => format!("{count} children"),
        (_, Some('y')) => format!("{count} {}ies", &per[..per.len() - 1]),
        (_, Some('s' | 'x' | 'h')) => format!("{count} {per}es"),
        _ => format!("{count} {per}s"),
    }
}

/// Says that several designs are judged together.
fn together(figure: &Figure) -> String {
    let judged = |arm: &&ArmFigure| matches!(arm.standing, Standing::Judged(_));
    let resolved = |arm: &&ArmFigure| arm.resolution.is_some();
    match figure.arms.iter().filter(judged).filter(resolved).count() {
        0 | 1 => String::new(),
        designs => format!(
            "The {designs} verdicts hold together: a false one among them comes in at most 5 % of \
             such tables (Holm).\n"
        ),
    }
}

fn spreads(figure: &Figure, findings: &Findings) -> String {
    let Some(base) = figure.arms[0].spread else {
        return String::new();
    };
    let (divisor, unit) = unit(base.median);
    let head = format!("spread of {}, {unit}", figure.name);
    let mut table = Table::new(&[
        &head, "least", "5 %", "median", "95 %", "99 %", "most", "of",
    ]);
    for (arm, label) in figure.arms.iter().zip(labels(findings)) {
        let Some(spread) = arm.spread else { continue };
        let mut cells = vec![label];
        let values = [
            spread.least,
            spread.p5,
            spread.median,
            spread.p95,
            spread.p99,
            spread.most,
        ];
        cells.extend(values.map(|ns| format!("{:.1}", ns / divisor)));
        cells.push(grouped(spread.parts as u64));
        table.row(cells);
    }
    table.render(0)
}

fn of_rows(name: &str, rows: &[&Row], show: fn(u64) -> String, findings: &Findings) -> String {
    // The control counts as its design does.
    let arms = designs(findings);
    let table = |labels: &[&str]| {
        let mut table = Table::new(&[&[name], labels].concat());
        for row in rows {
            let mut cells = vec![row.name.clone()];
            let values = row.values.iter().take(arms.len());
            cells.extend(values.map(|value| value.map_or_else(|| "-".to_owned(), show)));
            table.row(cells);
        }
        table.render(0)
    };
    let labels = labels(findings);
    let named: Vec<&str> = labels[..arms.len()].iter().map(String::as_str).collect();
    let text = table(&named);
    match text.lines().all(|line| line.chars().count() <= WIDTH) {
        true => text,
        false => table(
            &arms
                .iter()
                .map(|arm| arm.label.as_str())
                .collect::<Vec<_>>(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals() {
        assert_eq!(plural_of(1.0, "fault"), "1 fault");
        assert_eq!(plural_of(4096.0, "fault"), "4,096 faults");
        assert_eq!(plural_of(2.0, "entry"), "2 entries");
        assert_eq!(plural_of(2.0, "child"), "2 children");
        assert_eq!(plural_of(2.0, "MiB"), "2 MiB");
    }
}
