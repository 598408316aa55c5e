//! What comparisons of arms have in common: ratios on one axis, passes as points,
//! counts that differ, memory.

use maud::{Markup, html};

use super::Named;
use crate::draw::chart::{Chart, Series, Style};
use crate::draw::marks::{self, Arm};
use crate::draw::{Axis, bars, forest};
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::{Figure, Reason, Verdict};

/// One arm of a table of ratios.
#[derive(Clone, Debug)]
pub struct RatioRow {
    /// Who.
    pub named: Named,
    /// Its time, in the unit of the table.
    pub time: Figure,
    /// Its ratio to the first.
    pub ratio: Figure,
    /// The largest difference that is not told of it.
    pub resolution: Option<f64>,
    /// What is said of it.
    pub says: String,
}

/// Label and name, with the mark.
pub fn name_cell(named: &Named) -> Cell {
    Cell::markup(html! { (marks::sample(named.arm)) b { (named.label) } " " (named.name) })
}

/// Times and ratios of all arms with their intervals, on one axis. `what` is the heading
/// of the times, with the unit; `caption` says what they are.
pub fn ratios(rows: &[RatioRow], what: &str, caption: &str) -> Markup {
    let figures: Vec<Figure> = rows.iter().map(|row| row.ratio).collect();
    let axis = forest::axis(&figures, 1.0);
    let mut grid = Grid::new(caption)
        .text("arm")
        .number(what)
        .number("95\u{a0}% interval")
        .number("ratio to A")
        .number("95\u{a0}% interval")
        .number("told from")
        .text("verdict")
        .picture(forest::head(&axis));
    for row in rows {
        let title = format!(
            "{}: ratio {}",
            row.named.whole(),
            words::with_bounds(&row.ratio, words::ratio)
        );
        let told = row.resolution.map_or_else(String::new, words::percent);
        grid.row(
            row.named.arm.class(),
            vec![
                name_cell(&row.named),
                Cell::number(row.time.value, words::number(row.time.value)),
                Cell::text(words::bounds(&row.time, words::number)),
                Cell::number(row.ratio.value, words::ratio(row.ratio.value)),
                Cell::text(words::bounds(&row.ratio, words::ratio)),
                Cell::number(row.resolution.unwrap_or(f64::NAN), told),
                Cell::text(&row.says),
                Cell::markup(forest::row(
                    &axis,
                    row.named.arm,
                    &row.ratio,
                    1.0,
                    row.resolution,
                    &title,
                )),
            ],
        );
    }
    grid.render()
}

/// Each pass of each arm as a mark. Values are in the unit that `what` names.
pub fn passes(arms: &[(Named, Vec<f64>)], what: &str, told: &str) -> Markup {
    match passes_chart(arms, what, told) {
        None => html! { p.note { "There was one pass: how passes differ is not known." } },
        Some(chart) => chart.figure(&html! {
            "Each mark is a pass over the whole workload. Marks that scatter are noise; marks that rise \
             or fall together are the machine, which changes under all arms alike."
        }),
    }
}

/// The chart of that; none of fewer than two passes.
pub fn passes_chart(arms: &[(Named, Vec<f64>)], what: &str, told: &str) -> Option<Chart> {
    let most = arms.iter().map(|(_, passes)| passes.len()).max()?;
    (most > 1).then(|| Chart {
        told: told.to_owned(),
        x: (Axis::between(0.5, most as f64 + 0.5), "pass".to_owned()),
        y: (
            Axis::around(arms.iter().flat_map(|(_, passes)| passes.iter().copied())),
            what.to_owned(),
        ),
        height: 180,
        reference: None,
        series: arms
            .iter()
            .map(|(named, passes)| Series {
                name: named.whole(),
                arm: named.arm,
                points: (1..).map(f64::from).zip(passes.iter().copied()).collect(),
                style: Style::Marks,
            })
            .collect(),
        zooms: false,
    })
}

/// A count under every arm.
#[derive(Clone, Debug)]
pub struct CountRow {
    /// What was counted.
    pub name: String,
    /// How often, by arm; absent where an arm does not count it.
    pub values: Vec<Option<u64>>,
    /// Whether the second differs from the first by more than it varies.
    pub differs: bool,
}

/// Counts: those that differ, largest difference first, and the others to be unfolded.
/// The picture is of the second arm against the first.
pub fn counts(arms: &[Named], mut rows: Vec<CountRow>, unit: &str) -> Markup {
    let value = |row: &CountRow, arm: usize| row.values.get(arm).copied().flatten().unwrap_or(0);
    rows.sort_by_key(|row| std::cmp::Reverse(value(row, 1).abs_diff(value(row, 0))));
    let (differ, same): (Vec<CountRow>, Vec<CountRow>) =
        rows.into_iter().partition(|row| row.differs);
    let same: Vec<CountRow> = same
        .into_iter()
        .filter(|row| row.values.iter().flatten().any(|count| *count > 0))
        .collect();
    html! {
        @if differ.is_empty() {
            p { "No count differs." }
        } @else {
            (count_table(arms, &differ, &format!("counts that differ, {unit}, largest difference first")))
        }
        @if !same.is_empty() {
            details {
                summary { (words::plural(same.len() as u64, "count that does", "counts that do")) " not differ" }
                (count_table(arms, &same, &format!("counts that do not differ, {unit}")))
            }
        }
    }
}

fn count_table(arms: &[Named], rows: &[CountRow], caption: &str) -> Markup {
    let compares = arms.len() > 1;
    let mut grid = Grid::new(caption).text("count");
    for named in arms {
        grid = grid.number(named.label.as_str());
    }
    if compares {
        grid = grid
            .number("B \u{2212} A")
            .number("change, %")
            .picture(html! { span.heads { span { "B less" } span { "B more" } } });
    }
    for row in rows {
        let mut cells = vec![Cell::text(&row.name)];
        cells.extend(row.values.iter().map(|count| match count {
            Some(count) => Cell::number(*count as f64, words_of(*count)),
            None => Cell::empty(),
        }));
        if compares {
            let of = |arm: usize| row.values.get(arm).copied().flatten().unwrap_or(0) as f64;
            let (a, b) = (of(0), of(1));
            let change = match a {
                0.0 if b == 0.0 => 0.0,
                0.0 => f64::INFINITY,
                a => b / a - 1.0,
            };
            let shown = match change.is_finite() {
                true => words::signed(change * 100.0),
                false => "new".to_owned(),
            };
            let of_larger = (b - a) / a.max(b).max(1.0);
            cells.push(Cell::number(b - a, words::signed(b - a)));
            cells.push(Cell::number(change, &shown));
            cells.push(Cell::markup(bars::change(
                of_larger,
                &format!("{}: {shown} %", row.name),
            )));
        }
        grid.row("", cells);
    }
    grid.render()
}

fn words_of(count: u64) -> String {
    vellum_terminal::table::grouped(count)
}

/// Bars of the same quantity under several arms: a row of a table of times by class.
pub fn bar_cell(values: &[(Arm, f64)], most: f64, title: &str) -> Cell {
    Cell::markup(bars::of_arms(values, most, title))
}

/// A comparison of two designs in a sentence: `what` is what they need.
pub fn sentence((a, b): (&str, &str), ratio: &Figure, verdict: Verdict, what: &str) -> String {
    let distance = |ratio: f64| words::percent((ratio - 1.0).abs());
    let range = match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => {
            let (near, far) = match ratio.value < 1.0 {
                true => (high, low),
                false => (low, high),
            };
            format!(
                " ({} to {}, 95\u{a0}% interval)",
                distance(near),
                distance(far)
            )
        }
        _ => String::new(),
    };
    match verdict {
        Verdict::Less => format!(
            "{b} needs {} less {what} than {a}{range}.",
            distance(ratio.value)
        ),
        Verdict::More => format!(
            "{b} needs {} more {what} than {a}{range}.",
            distance(ratio.value)
        ),
        Verdict::NotProven(reason) => format!(
            "No difference proven between {b} and {a} in {what}: {}.",
            because(reason)
        ),
    }
}

fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::WithinChance => "the difference is no larger than chance may make it",
        Reason::WithinStray => "the control differs as much from itself",
        Reason::TooFewPasses => "fewer than 5 passes have no interval",
    }
}

/// A verdict on B in the table of ratios.
pub fn says(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Less => "\u{25bc} less than A",
        Verdict::More => "\u{25b2} more than A",
        Verdict::NotProven(_) => "no difference proven",
    }
}
