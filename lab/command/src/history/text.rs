//! Tables for people.

use vellum_results::Figure;
use vellum_results::history::{Change, Difference, Passage, Trend};
use vellum_terminal::table::{Table, marked};
use vellum_terminal::text::plural;

use super::gate;
use crate::compare::Verdict;

/// A number of nanoseconds in the unit in which it has few digits.
pub fn time(ns: f64) -> String {
    match ns.abs() {
        size if size >= 1e9 => format!("{:.4} s", ns / 1e9),
        size if size >= 1e6 => format!("{:.3} ms", ns / 1e6),
        size if size >= 1e3 => format!("{:.3} us", ns / 1e3),
        _ => format!("{ns:.2} ns"),
    }
}

fn interval(figure: &Figure) -> String {
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format!("{low:.4} .. {high:.4}"),
        _ => "too few passes".to_owned(),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{:.2} %", share * 100.0))
}

/// What is said of a later result, in a few words.
pub fn verdict(change: &Change) -> String {
    let difference = (change.ratio.value - 1.0) * 100.0;
    match change.verdict {
        Verdict::More => format!("slower by {difference:.2} %, proven"),
        Verdict::Less => format!("faster by {:.2} %, proven", -difference),
        Verdict::NotProven(reason) => format!("no difference proven ({})", reason.name()),
    }
}

/// Names come from files of others: no control characters get to the terminal.
pub fn one_line(text: &str) -> String {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(clean).collect()
}

fn changes(changes: &[Change]) -> String {
    let header = [
        "design",
        "old",
        "new",
        "new / old",
        "95 % interval",
        "told from",
        "",
    ];
    let mut table = Table::new(&header);
    for change in changes {
        let is_less = change.verdict == Verdict::Less;
        table.row(vec![
            format!("{}, {}", one_line(&change.design), one_line(&change.name)),
            marked(time(change.old_ns.value), change.verdict == Verdict::More),
            marked(time(change.new_ns.value), is_less),
            format!("{:.4}", change.ratio.value),
            interval(&change.ratio),
            percent(change.resolution),
            verdict(change),
        ]);
    }
    table.render(0)
}

/// Two results against each other.
pub fn difference(difference: &Difference) -> String {
    let (old, new) = (&difference.old, &difference.new);
    let mut text = format!("old {old}, new {new}\n");
    if let Some(why) = &difference.refused {
        text += &format!("Times are not held against each other: {why}.\n");
    }
    if !difference.changes.is_empty() {
        text += &changes(&difference.changes);
    }
    for name in &difference.unmatched {
        text += &format!("only in one of them: {}\n", one_line(name));
    }
    if difference.changes.is_empty() && difference.refused.is_none() {
        text += "They have nothing by pass in common that could be held against each other.\n";
    }
    text
}

/// What a gate says.
pub fn passage(passage: &Passage) -> String {
    let mut text = format!(
        "\nAgainst {} of {}; allowed: slower by {:.2} %\n{}",
        one_line(&passage.against),
        passage.started,
        passage.limit * 100.0,
        changes(&passage.changes)
    );
    if gate::is_blind(passage) {
        text += "A slow-down of the allowed size could not have been told: take more passes, a \
                 quieter machine, or a larger --limit.\n";
    }
    text += &said_of_repeats(passage.repeats);
    text
}

fn said_of_repeats(repeats: usize) -> String {
    match repeats {
        0 => "No program was measured twice: how far runs of the same program differ is not \
              known, and not in the resolution.\n"
            .to_owned(),
        count => format!(
            "The resolution holds what runs of the same program differ by ({}).\n",
            plural(count, "comparison", "comparisons")
        ),
    }
}

/// A design over time.
pub fn trend(trend: &Trend) -> String {
    let mut text = format!(
        "{}, {} ({})\non {}\n",
        one_line(&trend.design),
        one_line(&trend.name),
        one_line(&trend.setting),
        one_line(&trend.host)
    );
    let mut table = Table::new(&["begun", "id", "program", "kernel", "median", "by the first"]);
    for point in &trend.points {
        table.row(vec![
            point.started.clone(),
            one_line(&point.name),
            one_line(&point.program),
            one_line(&point.kernel),
            time(point.value_ns),
            format!("{:.4}", point.ratio),
        ]);
    }
    text += &table.render(0);
    match &trend.change {
        Some(change) => {
            text += &format!(
                "Last against first: {:.4} ({}), told from {}: {}.\n",
                change.ratio.value,
                interval(&change.ratio),
                percent(change.resolution),
                verdict(change)
            );
            text += &said_of_repeats(trend.repeats);
        }
        None if trend.points.len() > 1 => text += "Without controls nothing is told.\n",
        None => text += "One result is no trend.\n",
    }
    text
}
