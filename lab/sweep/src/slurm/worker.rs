//! A task of a round: one cell on a node of the cluster.

use std::fs;
use std::path::{Path, PathBuf};

use vellum_output::PartialFile;
use vellum_terminal::progress::Interrupt;

use super::Plan;
use crate::cell::Cell;
use crate::error::SweepError;
use crate::execute::{Outcome, Runner};
use crate::files::{self, FileId, directory};
use crate::store::Store;

/// What a task came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// The cell is finished, now or since earlier.
    Finished,
    /// Its command failed.
    Failed(String),
    /// It was to stop.
    Interrupted,
}

/// Runs the cell of a task, unless it is finished.
///
/// # Errors
/// The plan cannot be read, or the results not be written.
pub fn run(
    plan: &Path,
    task: usize,
    runner: &Runner,
    interrupt: &Interrupt,
) -> Result<Task, SweepError> {
    let read = Plan::read(plan)?;
    let cell = read.cells.get(task).ok_or_else(|| {
        SweepError::at(plan)(std::io::Error::other(format!(
            "it has {} tasks, none with number {task}",
            read.cells.len()
        )))
    })?;
    let store = Store::open(&read.results)?;
    let key = cell.key();
    if store.has(&key) {
        return Ok(Task::Finished);
    }
    let outcome = match refused(cell, runner)? {
        Some(why) => Outcome::Failed(format!("{}\n{why}\n", cell.command_line())),
        None => match read.copies_traces {
            false => runner.run(cell, |file| file.path.clone(), interrupt)?,
            true => match copies(cell)? {
                Ok(copied) => runner.run(cell, |file| copied.join(&file.sha256), interrupt)?,
                Err(why) => Outcome::Failed(format!("{}\n{why}\n", cell.command_line())),
            },
        },
    };
    match outcome {
        Outcome::Done(record) => {
            store.finish(&record)?;
            Ok(Task::Finished)
        }
        Outcome::Failed(why) => {
            store.fail(&key, &why)?;
            Ok(Task::Failed(why))
        }
        Outcome::Interrupted => Ok(Task::Interrupted),
    }
}

/// Why this host or this program cannot run the cell.
fn refused(cell: &Cell, runner: &Runner) -> Result<Option<String>, SweepError> {
    if let Some(host) = cell.host.as_ref().filter(|host| **host != runner.here) {
        return Ok(Some(format!(
            "it is of host {} with kernel {}, and this is {} with kernel {}",
            host.name, host.kernel, runner.here.name, runner.here.kernel
        )));
    }
    let program = &runner.program;
    let hash = files::copy(program, &mut std::io::sink()).map_err(SweepError::at(program))?;
    Ok((hash != cell.program)
        .then(|| "this is another version of the program than the cell's".to_owned()))
}

/// The directory of this node with copies of the cell's files, by their hash; the inner
/// error is that one of them has changed.
fn copies(cell: &Cell) -> Result<Result<PathBuf, String>, SweepError> {
    // SAFETY: takes nothing and cannot fail.
    let user = unsafe { libc::getuid() };
    let place = std::env::temp_dir().join(format!("vellum-traces-{user}"));
    let place = directory(place)?;
    for file in cell.files() {
        if let Err(why) = copy(file, &place.join(&file.sha256))? {
            return Ok(Err(why));
        }
    }
    Ok(Ok(place))
}

/// Copies a file, if it is not there. Tasks that do so at once each bring a whole one.
fn copy(file: &FileId, to: &Path) -> Result<Result<(), String>, SweepError> {
    if fs::metadata(to).is_ok() {
        return Ok(Ok(()));
    }
    let mut copy = PartialFile::create(to).map_err(SweepError::at(to))?;
    let hash = files::copy(&file.path, &mut copy).map_err(SweepError::at(&file.path))?;
    if hash != file.sha256 {
        return Ok(Err(format!(
            "{} changed since the sweep began: run it again",
            file.path.display()
        )));
    }
    copy.finish().map_err(SweepError::at(to))?;
    Ok(Ok(()))
}
