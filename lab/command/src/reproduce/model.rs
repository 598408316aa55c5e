//! What a reproduction found, and how it is laid out.

use std::fmt::Write;

use serde::Serialize;

use super::judge::{Change, Factor, Judgement, judge, judge_counts, judge_times};
use super::published::Source;
use crate::report::text::{plural, wrapped};
use crate::stats::bootstrap::LEAST_PASSES;
use vellum_terminal::table::Table;

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "vellum-reproduce/1";

/// A published figure with ours beside it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// What the figure is of.
    pub what: String,
    /// The published figure.
    pub published: String,
    /// Ours, of the same kind; absent where it could not be measured.
    pub ours: Option<String>,
    /// What follows, in words.
    pub says: String,
    /// Whether ours has the other sign or another size (by more than two).
    pub disagrees: bool,
    /// Both as numbers; absent where they are no numbers of one unit.
    pub numbers: Option<Numbers>,
}

/// A published figure and ours as numbers of the same unit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Numbers {
    /// `%` of change, `x` (times as much), or `count`.
    pub unit: &'static str,
    /// The published one.
    pub published: Bounded,
    /// Ours.
    pub ours: Bounded,
}

/// A number, and its bounds where they are known.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bounded {
    /// The number.
    pub value: f64,
    /// Lower bound.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
}

impl Bounded {
    fn new(value: f64, bounds: Option<(f64, f64)>) -> Self {
        Self {
            value,
            low: bounds.map(|bounds| bounds.0),
            high: bounds.map(|bounds| bounds.1),
        }
    }

    fn of_change(change: &Change) -> Self {
        Self::new(change.percent, change.bounds)
    }
}

impl Comparison {
    /// Of two relative changes.
    pub fn of_changes(what: impl Into<String>, published: Change, ours: Change) -> Self {
        Self::new(
            what.into(),
            published.to_string(),
            ours.to_string(),
            judge(published, ours),
            Numbers {
                unit: "%",
                published: Bounded::of_change(&published),
                ours: Bounded::of_change(&ours),
            },
        )
    }

    /// Of two factors ("9 times as slow").
    pub fn of_times(what: impl Into<String>, published: f64, ours: Factor) -> Self {
        Self::new(
            what.into(),
            format!("{published:.2} x"),
            ours.to_string(),
            judge_times(published, ours),
            Numbers {
                unit: "x",
                published: Bounded::new(published, None),
                ours: Bounded::new(ours.value, ours.bounds),
            },
        )
    }

    /// Of two counts, which no chance changes.
    pub fn of_counts(what: impl Into<String>, published: u64, ours: u64) -> Self {
        let judgement = judge_counts(published as f64, ours as f64);
        let numbers = Numbers {
            unit: "count",
            published: Bounded::new(published as f64, None),
            ours: Bounded::new(ours as f64, None),
        };
        let published = format!("about {published}");
        Self::new(what.into(), published, ours.to_string(), judgement, numbers)
    }

    fn new(
        what: String,
        published: String,
        ours: String,
        judgement: Judgement,
        numbers: Numbers,
    ) -> Self {
        Self {
            what,
            published,
            ours: Some(ours),
            says: judgement.to_string(),
            disagrees: judgement.disagrees(),
            numbers: Some(numbers),
        }
    }

    /// Figures that stand side by side and are not judged.
    pub fn beside(what: impl Into<String>, published: String, ours: String, why: &str) -> Self {
        Self {
            what: what.into(),
            published,
            ours: Some(ours),
            says: why.to_owned(),
            disagrees: false,
            numbers: None,
        }
    }

    /// A published figure that has no counterpart here, and why.
    pub fn missing(what: impl Into<String>, published: String, why: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            published,
            ours: None,
            says: why.into(),
            disagrees: false,
            numbers: None,
        }
    }
}

/// One published table with ours beside it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// What it is about.
    pub title: String,
    /// Where the published figures are from, and on what machine they were taken.
    pub source: Vec<String>,
    /// How ours were made, one sentence each.
    pub method: Vec<String>,
    /// Tables: heading and whole lines, in the published format where there is
    /// one.
    pub tables: Vec<(String, String)>,
    /// Figure beside figure.
    pub comparisons: Vec<Comparison>,
    /// Why there are no figures of ours.
    pub failed: Option<String>,
}

impl Section {
    /// A section without figures.
    pub fn new(title: &str, sources: &[Source]) -> Self {
        let source = |source: &Source| format!("{}; {}", source.text, source.machine);
        Self {
            title: title.to_owned(),
            source: sources.iter().map(source).collect(),
            ..Self::default()
        }
    }

    /// The section for a terminal.
    pub fn render(&self) -> String {
        let mut text = format!("== {}\n", self.title);
        for source in &self.source {
            text += &wrapped(&format!("published: {source}"));
        }
        for method in &self.method {
            text += &wrapped(&format!("ours: {method}"));
        }
        for (heading, table) in &self.tables {
            let _ = write!(text, "\n-- {heading}\n{table}");
        }
        if !self.comparisons.is_empty() {
            let mut table = Table::new(&["", "published", "ours", ""]);
            for row in &self.comparisons {
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
        if let Some(failed) = &self.failed {
            text += &wrapped(&format!("NOT MEASURED: {failed}"));
        }
        text
    }
}

/// Everything that a reproduction found.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// Number of the source.
    pub source: u8,
    /// Whether it was cut down for a quick look.
    pub quick: bool,
    /// Passes of each measurement.
    pub passes: usize,
    /// Seed of everything drawn.
    pub seed: u64,
    /// CPUs and kernel of the host.
    pub host: String,
    /// The tables.
    pub sections: Vec<Section>,
    /// Titles of the sections that were not asked for.
    pub left_out: Vec<&'static str>,
    /// What a reader must know, one sentence each.
    pub notes: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

impl Reproduction {
    /// Comparisons that disagree in sign or by more than a factor of two.
    pub fn disagreements(&self) -> impl Iterator<Item = (&Section, &Comparison)> {
        self.sections.iter().flat_map(|section| {
            let all = section.comparisons.iter();
            all.filter(|row| row.disagrees)
                .map(move |row| (section, row))
        })
    }

    /// Sections that could not be measured.
    pub fn failures(&self) -> usize {
        self.sections.iter().filter(|s| s.failed.is_some()).count()
    }

    /// Everything for a terminal.
    pub fn render(&self) -> String {
        let mut text = format!(
            "source {}: {}, seed {}{}; {}\n",
            self.source,
            plural(self.passes, "pass", "passes"),
            self.seed,
            if self.quick {
                ", QUICK: small workloads, no result"
            } else {
                ""
            },
            self.host,
        );
        if self.interrupted {
            text += "INTERRUPTED: what follows was complete\n";
        }
        for section in &self.sections {
            text.push('\n');
            text += &section.render();
        }
        text.push('\n');
        let disagreements: Vec<_> = self.disagreements().collect();
        if self.passes < LEAST_PASSES {
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
        if !self.left_out.is_empty() {
            text += &wrapped(&format!("Left out: {}.", self.left_out.join("; ")));
        }
        for note in &self.notes {
            text += &wrapped(note);
        }
        text
    }
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
            schema: SCHEMA,
            version: "0",
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
        let text = reproduction(vec![
            Comparison::of_changes("fine", change(-16.0), change(-10.0)),
            Comparison::of_changes("wrong way", change(-16.0), change(10.0)),
            Comparison::of_times("too small", 9.0, factor(3.0)),
        ])
        .render();
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
        let text = reproduction(vec![Comparison::of_times("f", 9.0, factor(8.0))]).render();
        assert!(text.contains("No figure of ours disagrees"), "{text}");
    }
}
