//! Results of `vellum reproduce`.

use serde::{Deserialize, Serialize};

use crate::{Figure, Kind};

/// Published tables with ours beside them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reproduction {
    /// Version of the program.
    pub version: String,
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
    #[serde(default)]
    pub left_out: Vec<String>,
    /// What a reader must know, one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

impl Kind for Reproduction {
    const SCHEMA: &'static str = "vellum-reproduce/1";
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
}

/// One published table with ours beside it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Section {
    /// What it is about.
    pub title: String,
    /// Where the published figures are from, and on what machine they were taken.
    pub source: Vec<String>,
    /// How ours were made, one sentence each.
    pub method: Vec<String>,
    /// Tables: heading and whole lines, in the published format where there is one.
    pub tables: Vec<(String, String)>,
    /// Figure beside figure.
    pub comparisons: Vec<Comparison>,
    /// Why there are no figures of ours.
    pub failed: Option<String>,
}

/// A published figure with ours beside it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// What the figure is of.
    pub what: String,
    /// The published figure.
    pub published: String,
    /// Ours, of the same kind; null where it could not be measured.
    pub ours: Option<String>,
    /// What follows, in words.
    pub says: String,
    /// Whether ours has the other sign or another size (by more than two).
    pub disagrees: bool,
    /// Both as numbers; null where they are no numbers of one unit.
    #[serde(default)]
    pub numbers: Option<Numbers>,
}

/// A published figure and ours as numbers of the same unit. Bounds are null where they are
/// not known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Numbers {
    /// `%` of change, `x` (times as much), or `count`.
    pub unit: String,
    /// The published one.
    pub published: Figure,
    /// Ours.
    pub ours: Figure,
}
