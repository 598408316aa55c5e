//! Cells on this machine: those that are not timed in parallel, then those that are, one
//! after the other.

use std::collections::BTreeMap;

use vellum_terminal::jobs::run_all;
use vellum_terminal::progress::{Interrupt, Progress, Style};

use crate::cell::Cell;
use crate::error::SweepError;
use crate::estimate::Estimate;
use crate::execute::{Outcome, Runner};
use crate::record::Finished;
use crate::store::{State, Store};

/// Cells that are finished or failed, by key.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// The finished ones.
    pub finished: BTreeMap<String, Finished>,
    /// Why others failed.
    pub failed: BTreeMap<String, String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

impl Done {
    /// What the store has of `cells`; says of damaged ones that they are run again.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn read(store: &Store, cells: &[Cell]) -> Result<Done, SweepError> {
        let mut done = Done::default();
        for cell in cells {
            let key = cell.key();
            match store.state(&key)? {
                State::Finished(finished) => {
                    done.finished.insert(key, *finished);
                }
                State::Missing => {}
                State::Damaged(what) => eprintln!("vellum: {what}"),
            }
        }
        Ok(done)
    }

    /// Cells that are not finished.
    pub fn missing<'c>(&self, cells: &'c [Cell]) -> Vec<&'c Cell> {
        let missing = cells
            .iter()
            .filter(|cell| !self.finished.contains_key(&cell.key()));
        missing.collect()
    }

    /// Times of what is finished.
    pub fn estimate(&self, cells: &[Cell]) -> Estimate {
        let mut estimate = Estimate::default();
        for cell in cells {
            if let Some(finished) = self.finished.get(&cell.key()) {
                estimate.add(cell, finished.seconds);
            }
        }
        estimate
    }
}

/// Runs the cells that are missing, `jobs` at a time of those that are not timed.
///
/// # Errors
/// The results cannot be written. What is finished stays.
pub fn run(
    cells: &[Cell],
    store: &Store,
    runner: &Runner,
    jobs: usize,
    style: Style,
    interrupt: &Interrupt,
) -> Result<Done, SweepError> {
    let mut done = Done::read(store, cells)?;
    let missing = done.missing(cells);
    let mut estimate = done.estimate(cells);
    let mut progress = Progress::new(style, "sweep", cells.len() as u64, "cells");
    progress.advance((cells.len() - missing.len()) as u64);
    let (timed, others): (Vec<&Cell>, Vec<&Cell>) =
        missing.into_iter().partition(|cell| cell.timed);
    let mut left: BTreeMap<String, &Cell> = timed
        .iter()
        .chain(&others)
        .map(|cell| (cell.key(), *cell))
        .collect();
    let tell = |progress: &mut Progress, estimate: &Estimate, left: &BTreeMap<_, &Cell>| {
        if let Some(time) = estimate.left(left.values().copied(), jobs, 1) {
            progress.expect(time);
        }
    };
    tell(&mut progress, &estimate, &left);
    for (cells, threads) in [(others, jobs), (timed, 1)] {
        let run = |cell: &&Cell| -> Result<Outcome, SweepError> {
            let key = cell.key();
            store.forget_failure(&key)?;
            let outcome = runner.run(cell, |file| file.path.clone(), interrupt)?;
            match &outcome {
                Outcome::Done(record) => store.finish(record)?,
                Outcome::Failed(why) => store.fail(&key, why)?,
                Outcome::Interrupted => {}
            }
            Ok(outcome)
        };
        run_all(cells, threads, interrupt, run, |cell, outcome| {
            let key = cell.key();
            match outcome {
                Outcome::Interrupted => return Ok(()),
                Outcome::Failed(why) => {
                    progress.note(&format!("vellum: a cell failed: {}", why.trim_end()));
                    done.failed.insert(key.clone(), why);
                }
                Outcome::Done(record) => match record.digest(&key) {
                    Ok(finished) => {
                        estimate.add(cell, finished.seconds);
                        done.finished.insert(key.clone(), finished);
                    }
                    Err(why) => {
                        done.failed.insert(key.clone(), why);
                    }
                },
            }
            left.remove(&key);
            tell(&mut progress, &estimate, &left);
            progress.advance(1);
            Ok(())
        })?;
    }
    progress.finish();
    done.interrupted = interrupt.requested();
    Ok(done)
}
