//! A run that must not be slower than saved ones: `--against` of the command `compare`.

use vellum_results::compare::Compare;
use vellum_results::history::{Change, Passage};
use vellum_results::{Content, Kind, Run};

use super::difference::change;
use super::series::options;
use super::{Kept, Series, host_words, is_alike, trend};
use crate::compare::Verdict;
use crate::failure::Failure;

/// What a run is held against.
#[derive(Clone, Debug)]
pub struct Gate {
    /// The saved results, by time; the last is the one that counts, and those of the same
    /// program before it say what runs differ by.
    saved: Vec<Kept>,
    /// By how much the run may be slower, as a share.
    limit: f64,
}

/// What the run that begins will be, as far as a saved result has to fit.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'f> {
    /// Designs A and B as they are asked for.
    pub designs: [&'f str; 2],
    /// Copies of the process family.
    pub copies: u32,
    /// Simulated CPUs.
    pub cpus: usize,
}

impl Gate {
    /// # Errors
    /// A saved result is of something else than the run that begins, or of another
    /// machine: exit code 2, before any time is spent.
    pub fn new(
        mut saved: Vec<Kept>,
        limit: f64,
        expected: &Expected<'_>,
        run: &Run,
    ) -> Result<Gate, Failure> {
        saved.sort_by(|one, other| one.loaded.run.started.cmp(&other.loaded.run.started));
        for kept in &saved {
            expected
                .check(kept, run)
                .map_err(|why| Failure::usage(format!("--against {}: {why}", kept.name)))?;
        }
        Ok(Gate { saved, limit })
    }

    /// What it says of a run.
    ///
    /// # Errors
    /// No series of the run is in the saved result.
    pub fn judge(&self, new: &Kept) -> Result<Passage, Failure> {
        let last = self.saved.last();
        let last = last.ok_or_else(|| Failure::usage("--against names no result"))?;
        let mut changes = Vec::new();
        let mut repeats = 0;
        for series in &new.series {
            let find = |kept: &'_ Kept| -> Option<Series> {
                kept.series.iter().find(|one| one.is_same(series)).cloned()
            };
            let Some(older) = find(last) else { continue };
            let runs: Vec<(&Kept, Series)> = self
                .saved
                .iter()
                .filter_map(|kept| Some((kept, find(kept)?)))
                .collect();
            let runs: Vec<(&Kept, &Series)> =
                runs.iter().map(|(kept, series)| (*kept, series)).collect();
            let ratios = trend::repeats(&runs);
            repeats = repeats.max(ratios.len());
            let apart = series.against(&older, &ratios);
            changes.extend(apart.map(|apart| change(series, &apart)));
        }
        match changes.is_empty() {
            true => Err(Failure::usage(format!(
                "--against {}: it has none of this run's designs with a control",
                last.name
            ))),
            false => Ok(Passage {
                against: last.name.clone(),
                started: last.loaded.run.started.clone(),
                limit: self.limit,
                repeats,
                changes,
            }),
        }
    }
}

/// The designs that are slower by more than the limit, which is proven.
pub fn slower(passage: &Passage) -> impl Iterator<Item = &Change> {
    let limit = passage.limit;
    passage
        .changes
        .iter()
        .filter(move |change| change.verdict == Verdict::More && change.ratio.value - 1.0 > limit)
}

/// Whether a slow-down beyond the limit could have gone unnoticed.
pub fn is_blind(passage: &Passage) -> bool {
    let limit = passage.limit;
    let coarse = |change: &Change| change.resolution.is_none_or(|size| size > limit);
    passage.changes.iter().any(coarse)
}

impl Expected<'_> {
    fn check(&self, kept: &Kept, run: &Run) -> Result<(), String> {
        if kept.loaded.schema != Compare::SCHEMA {
            return Err(format!(
                "its schema is `{}`; expected a result of `vellum compare` on the core",
                kept.loaded.schema
            ));
        }
        let Some(host) = kept.host() else {
            return Err(
                "it does not say on which machine it was measured; make it again with this \
                        version of the program"
                    .to_owned(),
            );
        };
        if !is_alike(host, &run.host) {
            return Err(format!(
                "it is of another machine, {}; this is {}. Times of different machines are not \
                 held against each other",
                host_words(host),
                host_words(&run.host)
            ));
        }
        let hashes = |run: &Run| -> Vec<String> {
            run.traces
                .iter()
                .map(|trace| trace.sha256.clone())
                .collect()
        };
        if hashes(&kept.loaded.run) != hashes(run) {
            return Err("it is of another trace".to_owned());
        }
        if let Content::Compare(compare) = &kept.loaded.content {
            let saved = (compare.about.copies, compare.cpus);
            if saved != (self.copies, self.cpus) {
                return Err(format!("it is of --copies {} --cpus {}", saved.0, saved.1));
            }
        }
        let is_there = |design: &&str| {
            let wanted = options(design);
            kept.series
                .iter()
                .any(|series| options(&series.design) == wanted)
        };
        match self.designs.iter().any(is_there) {
            true => Ok(()),
            false => Err(format!(
                "it has the designs {}, and this run has {} and {}",
                kept.designs(),
                self.designs[0],
                self.designs[1]
            )),
        }
    }
}
