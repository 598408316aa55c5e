//! What a reproduction found, and how it is laid out.

use std::fmt::Write;

use super::judge::{Change, Factor, Judgement, judge, judge_counts, judge_times};
use super::published::Source;
use crate::report::Detail;
use crate::stats::bootstrap::LEAST_PASSES;
use vellum_results::Figure;
use vellum_results::reproduce::Numbers;
use vellum_terminal::table::Table;
use vellum_terminal::text::{plural, wrapped};

pub use vellum_results::reproduce::{Comparison, Reproduction, Section};

fn bounded(value: f64, bounds: Option<(f64, f64)>) -> Figure {
    Figure {
        value,
        low: bounds.map(|bounds| bounds.0),
        high: bounds.map(|bounds| bounds.1),
    }
}

fn of_change(change: Change) -> Figure {
    bounded(change.percent, change.bounds)
}

/// Of two relative changes.
pub fn of_changes(what: impl Into<String>, published: Change, ours: Change) -> Comparison {
    compared(
        what.into(),
        published.to_string(),
        ours.to_string(),
        judge(published, ours),
        Numbers {
            unit: "%".to_owned(),
            published: of_change(published),
            ours: of_change(ours),
        },
    )
}

/// Of two factors ("9 times as slow").
pub fn of_times(what: impl Into<String>, published: f64, ours: Factor) -> Comparison {
    compared(
        what.into(),
        format!("{published:.2} x"),
        ours.to_string(),
        judge_times(published, ours),
        Numbers {
            unit: "x".to_owned(),
            published: bounded(published, None),
            ours: bounded(ours.value, ours.bounds),
        },
    )
}

/// Of two counts, which no chance changes.
pub fn of_counts(what: impl Into<String>, published: u64, ours: u64) -> Comparison {
    let judgement = judge_counts(published as f64, ours as f64);
    let numbers = Numbers {
        unit: "count".to_owned(),
        published: bounded(published as f64, None),
        ours: bounded(ours as f64, None),
    };
    let published = format!("about {published}");
    compared(what.into(), published, ours.to_string(), judgement, numbers)
}

fn compared(
    what: String,
    published: String,
    ours: String,
    judgement: Judgement,
    numbers: Numbers,
) -> Comparison {
    Comparison {
        what,
        published,
        ours: Some(ours),
        says: judgement.to_string(),
        disagrees: judgement.disagrees(),
        numbers: Some(numbers),
    }
}

/// Figures that stand side by side and are not judged.
pub fn beside(what: impl Into<String>, published: String, ours: String, why: &str) -> Comparison {
    Comparison {
        what: what.into(),
        published,
        ours: Some(ours),
        says: why.to_owned(),
        disagrees: false,
        numbers: None,
    }
}

/// A published figure that has no counterpart here, and why.
pub fn missing(what: impl Into<String>, published: String, why: impl Into<String>) -> Comparison {
    Comparison {
        what: what.into(),
        published,
        ours: None,
        says: why.into(),
        disagrees: false,
        numbers: None,
    }
}

/// A section without figures.
pub fn section(title: &str, sources: &[Source]) -> Section {
    let source = |source: &Source| format!("{}; {}", source.text, source.machine);
    Section {
        title: title.to_owned(),
        source: sources.iter().map(source).collect(),
        ..Section::default()
    }
}

/// A section for a terminal: in a summary its comparisons, or the tables of one without.
fn render_section(section: &Section, detail: Detail) -> String {
    let mut text = format!("== {}\n", section.title);
    if detail == Detail::Full {
        for source in &section.source {
            text += &wrapped(&format!("published: {source}"));
        }
        for method in &section.method {
            text += &wrapped(&format!("ours: {method}"));
        }
    }
    if detail == Detail::Full || section.comparisons.is_empty() {
        for (heading, table) in &section.tables {
            let _ = write!(text, "\n-- {heading}\n{table}");
        }
    }
    if !section.comparisons.is_empty() {
        let mut table = Table::new(&["", "published", "ours", ""]);
        for row in &section.comparisons {
            table.row(vec![
                row.what.clone(),
                row.published.clone(),
                row.ours.clone().unwrap_or_else(|| "-".to_owned()),
                format!("  {}", row.says),
            ]);
        }
        text.push('\n');
        text += &table.render(0);
    }
    if let Some(failed) = &section.failed {
        text += &wrapped(&format!("NOT MEASURED: {failed}"));
    }
    text
}

/// A reproduction for a terminal.
pub fn render(found: &Reproduction, detail: Detail) -> String {
    let mut text = format!(
        "source {}: {}, seed {}{}; {}\n",
        found.source,
        plural(found.passes, "pass", "passes"),
        found.seed,
        if found.quick {
            ", QUICK: small workloads, no result"
        } else {
            ""
        },
        found.host,
    );
    if found.interrupted {
        text += "INTERRUPTED: what follows was complete\n";
    }
    for section in &found.sections {
        text.push('\n');
        text += &render_section(section, detail);
    }
    text.push('\n');
    let disagreements: Vec<_> = found.disagreements().collect();
    if found.passes < LEAST_PASSES {
        let _ = writeln!(
            text,
            "Times are judged only with {LEAST_PASSES} passes or more (option -n)."
        );
    }
    match disagreements.len() {
        0 => text += "No figure of ours disagrees in sign or by more than a factor of two.\n",
        n => {
            let _ = writeln!(
                text,
                "{n} {} in sign or by more than a factor of two:",
                if n == 1 {
                    "figure disagrees"
                } else {
                    "figures disagree"
                }
            );
            for (section, row) in disagreements {
                let ours = row.ours.as_deref().unwrap_or("-");
                text += &wrapped(&format!(
                    "  {}, {}: published {}, ours {ours}",
                    section.title, row.what, row.published
                ));
            }
            text += "docs/reproductions.md says why.\n";
        }
    }
    if !found.left_out.is_empty() {
        text += &wrapped(&format!("Left out: {}.", found.left_out.join("; ")));
    }
    for note in &found.notes {
        text += &wrapped(note);
    }
    if detail == Detail::Summary {
        text += "--details prints the published tables and ours, where they come from, and how ours \
                 were measured.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::judge::Evidence;
    use super::*;

    fn factor(value: f64) -> Factor {
        Factor {
            value,
            bounds: None,
            evidence: Evidence::Proven,
            resolution: 0.1,
        }
    }

    fn reproduction(comparisons: Vec<Comparison>) -> Reproduction {
        Reproduction {
            version: "0".to_owned(),
            source: 0,
            quick: true,
            passes: 1,
            seed: 1,
            host: "host".to_owned(),
            left_out: Vec::new(),
            sections: vec![Section {
                title: "kernbench".to_owned(),
                comparisons,
                ..Section::default()
            }],
            notes: Vec::new(),
            interrupted: false,
        }
    }

    #[test]
    fn disagreements_are_listed_again_at_the_end() {
        let change = |percent: f64| Change::between(100.0, 100.0 + percent, 0.5);
        let text = render(
            &reproduction(vec![
                of_changes("fine", change(-16.0), change(-10.0)),
                of_changes("wrong way", change(-16.0), change(10.0)),
                of_times("too small", 9.0, factor(3.0)),
            ]),
            Detail::Full,
        );
        assert!(text.contains("2 figures disagree"), "{text}");
        assert!(
            text.contains("kernbench, wrong way: published -16.0 %"),
            "{text}"
        );
        assert!(text.contains("DISAGREES: 0.33 x as large"), "{text}");
        assert!(!text.contains("kernbench, fine"), "{text}");
    }

    #[test]
    fn agreement_is_said_too() {
        let text = render(
            &reproduction(vec![of_times("f", 9.0, factor(8.0))]),
            Detail::Summary,
        );
        assert!(text.contains("No figure of ours disagrees"), "{text}");
    }
}
