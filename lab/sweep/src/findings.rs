//! The table of a sweep: what its finished cells say.

use vellum_results::sweep::{FailedCell, Place, Quantity, Ratio, Row, Sweep};
use vellum_results::{Figure, Spread};

use crate::cell::Cell;
use crate::local::Done;
use crate::record::Finished;

/// The table of `cells`.
pub fn findings(name: &str, cells: &[Cell], done: &Done) -> Sweep {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut hosts = Vec::new();
    for cell in cells {
        let key = cell.key();
        let Some(finished) = done.finished.get(&key) else {
            continue;
        };
        if !hosts.contains(&finished.host) && !finished.host.cpu.is_empty() {
            hosts.push(finished.host.clone());
        }
        let found = groups.iter_mut().find(|group| group.takes(cell));
        match found {
            Some(group) => group.cells.push((cell, key, finished)),
            None => groups.push(Group {
                cells: vec![(cell, key, finished)],
            }),
        }
    }
    let mut rows: Vec<Row> = groups.iter().map(Group::row).collect();
    let to_base: Vec<Option<Ratio>> = groups
        .iter()
        .map(|group| group.to_base(&groups, cells))
        .collect();
    for (row, ratio) in rows.iter_mut().zip(to_base) {
        row.ratio = row.ratio.take().or(ratio);
    }
    let failed = cells.iter().filter_map(|cell| {
        let key = cell.key();
        let why = done.failed.get(&key)?;
        Some(FailedCell {
            place: cell.place.clone(),
            seed: cell.seed,
            why: why.trim().to_owned(),
            key,
        })
    });
    Sweep {
        name: name.to_owned(),
        cells: cells.len() as u64,
        finished: done.finished.len() as u64,
        interrupted: done.interrupted,
        hosts,
        failed: failed.collect(),
        rows,
    }
}

/// Finished cells that differ in nothing but the seed; of timed ones those of one host.
struct Group<'c> {
    cells: Vec<(&'c Cell, String, &'c Finished)>,
}

/// Whether two cells do the same but for the seed, wherever they run.
fn same_command(one: &Cell, other: &Cell) -> bool {
    let without_seed = |cell: &Cell| {
        let mut words = cell.words.clone();
        words.retain(|word| !is_seed(word));
        words
    };
    one.place == other.place
        && one.program == other.program
        && without_seed(one) == without_seed(other)
}

fn is_seed(word: &crate::cell::Word) -> bool {
    matches!(word, crate::cell::Word::Text(text) if text.starts_with("--seed="))
}

impl Group<'_> {
    fn takes(&self, cell: &Cell) -> bool {
        let (first, ..) = self.cells[0];
        first.host == cell.host && same_command(first, cell)
    }

    fn row(&self) -> Row {
        let (first, ..) = &self.cells[0];
        let mut hosts: Vec<&str> = Vec::new();
        for (.., finished) in &self.cells {
            if !hosts.contains(&finished.ran_on.name.as_str()) {
                hosts.push(&finished.ran_on.name);
            }
        }
        let refuted = self.cells.iter().find_map(|(cell, _, finished)| {
            let what = finished.refuted.as_ref()?;
            Some(format!("seed {}: {what}", cell.seed))
        });
        Row {
            place: first.place.clone(),
            timed: first.timed,
            host: hosts.join(", "),
            seeds: self.cells.iter().map(|(cell, ..)| cell.seed).collect(),
            keys: self.cells.iter().map(|(_, key, _)| key.clone()).collect(),
            value: self.value(),
            ratio: self.ratio(),
            refuted: refuted.is_some(),
            answer: refuted.unwrap_or_else(|| self.answer()),
            seconds: self.cells.iter().map(|(.., one)| one.seconds).sum(),
        }
    }

    /// What is said in a sentence: of one seed what its result says.
    fn answer(&self) -> String {
        let [(cell, _, finished)] = self.cells.as_slice() else {
            let (first, ..) = &self.cells[0];
            let seeds = self.cells.len();
            let told = self.ratio().and_then(|ratio| ratio.told);
            return match (first.place.run.as_str(), told) {
                ("verify", _) => format!("verified with {seeds} seeds"),
                (_, Some(told)) => format!("{told} of {seeds} seeds tell a difference"),
                _ => String::new(),
            };
        };
        match cell.place.run.as_str() {
            "verify" => "verified".to_owned(),
            _ => finished.measured.answer.clone(),
        }
    }

    fn value(&self) -> Option<Quantity> {
        let (first, ..) = &self.cells[0];
        if first.place.run == "verify" {
            return None;
        }
        let values = self
            .cells
            .iter()
            .map(|(.., one)| one.measured.value.clone());
        let values: Vec<_> = values.collect::<Option<_>>()?;
        let (name, unit, _) = values[0].clone();
        let numbers: Vec<f64> = values.iter().map(|(.., number)| *number).collect();
        let spread = Spread::of(numbers);
        Some(Quantity {
            name: name.to_owned(),
            unit,
            median: spread.median,
            least: spread.least,
            most: spread.most,
        })
    }

    /// The ratio that the results themselves have.
    fn ratio(&self) -> Option<Ratio> {
        let (first, ..) = &self.cells[0];
        let to = first.place.base.clone()?;
        let ratios = self.cells.iter().map(|(.., one)| one.measured.ratio);
        let ratios: Vec<Figure> = ratios.collect::<Option<_>>()?;
        let told = self.cells.iter().map(|(.., one)| one.measured.told);
        let told: Option<Vec<bool>> = told.collect();
        Some(Ratio {
            to,
            figure: over_seeds(&ratios)?,
            told: told.map(|told| told.into_iter().filter(|told| *told).count() as u64),
        })
    }

    /// The ratio to the first design of the grid, seed by seed, in kinds whose results do
    /// not depend on the host.
    fn to_base(&self, groups: &[Group<'_>], cells: &[Cell]) -> Option<Ratio> {
        let (first, ..) = &self.cells[0];
        let place = &first.place;
        if first.timed || place.base.is_some() || place.run == "verify" {
            return None;
        }
        let elsewhere = |other: &Place| Place {
            design: None,
            ..other.clone()
        };
        let base = cells
            .iter()
            .find(|cell| elsewhere(&cell.place) == elsewhere(place))?;
        let to = base.place.design.clone()?;
        if base.place.design == place.design {
            return None;
        }
        let base = groups.iter().find(|group| group.takes(base))?;
        let ratios = self.cells.iter().filter_map(|(cell, _, one)| {
            let other = base
                .cells
                .iter()
                .find(|(other, ..)| other.seed == cell.seed)?;
            let (.., mine) = one.measured.value.as_ref()?;
            let (.., of_base) = other.2.measured.value.as_ref()?;
            let value = mine / of_base;
            value.is_finite().then_some(Figure {
                value,
                low: None,
                high: None,
            })
        });
        Some(Ratio {
            to,
            figure: over_seeds(&ratios.collect::<Vec<_>>())?,
            told: None,
        })
    }
}

/// The only one, or the median with the range.
fn over_seeds(ratios: &[Figure]) -> Option<Figure> {
    match ratios {
        [] => None,
        [one] => Some(*one),
        several => {
            let spread = Spread::of(several.iter().map(|ratio| ratio.value));
            Some(Figure {
                value: spread.median,
                low: Some(spread.least),
                high: Some(spread.most),
            })
        }
    }
}
