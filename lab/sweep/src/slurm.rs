//! Cells on a Slurm cluster.
//!
//! Cells that need the same go into a job array: a *round*, a directory
//! `slurm/NUMBER/` with a [`Plan`] that says which cell each task of the array runs. A
//! task is `vellum sweep-cell PLAN TASK` ([`worker`]); it puts the finished cell into the
//! store itself. So nothing but the store says what is finished, and only Slurm's queue
//! says what is on its way ([`queue`]). Neither is kept a second time, so there is nothing
//! that could get lost between the two when the sweep is killed: the next one finds its
//! jobs by the name of the round, which is made before the jobs are.
//!
//! A cell whose job has left the queue without a finished cell and without a failure of
//! its command is lost (killed, node dead, disk full) and goes into another round, as
//! often as the spec allows.

mod plan;
pub mod queue;
pub mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use vellum_terminal::progress::{Interrupt, Progress, Style};

use crate::cell::{Cell, HostId};
use crate::error::SweepError;
use crate::local::Done;
use crate::spec::SlurmSettings;
use crate::store::{State, Store};
pub use plan::Plan;
use plan::{Class, Rounds};
use queue::Queue;

/// How often the queue is asked, in the beginning and at last.
const OFTEN: Duration = Duration::from_millis(500);
const SELDOM: Duration = Duration::from_secs(10);

/// In between: the time since the last news, divided by this.
const PATIENCE: u32 = 10;

/// How often a cell must be looked for in vain after its job has gone: file systems of
/// clusters show what another node wrote some seconds late.
const LOOKS: u32 = 3;

/// The nodes called `names`, with their kernels.
///
/// # Errors
/// Slurm cannot be asked, or has no such node.
pub fn hosts(names: &[String]) -> Result<Vec<HostId>, SweepError> {
    names.iter().map(|name| queue::host(name)).collect()
}

/// Runs the cells that are missing on the cluster. The program is copied to the results, so
/// that it is the same when the jobs start.
///
/// # Errors
/// Slurm cannot be used, or the results cannot be written. Finished cells stay, and jobs
/// go on.
pub fn run(
    cells: &[Cell],
    store: &Store,
    program: &Path,
    settings: &SlurmSettings,
    style: Style,
    interrupt: &Interrupt,
) -> Result<Done, SweepError> {
    let queue = Queue::open(store.root())?;
    let mut rounds = Rounds::open(store, program, settings)?;
    let mut done = Done::read(store, cells)?;
    let keys: Vec<String> = cells.iter().map(Cell::key).collect();
    let mut progress = Progress::new(style, "sweep on Slurm", cells.len() as u64, "cells");
    progress.advance(done.finished.len() as u64);
    let mut estimate = done.estimate(cells);
    let mut tracks: BTreeMap<&str, Track> = BTreeMap::new();
    let mut said: BTreeSet<String> = BTreeSet::new();
    let mut news = Instant::now();
    loop {
        let jobs = match queue.jobs() {
            Ok(jobs) => jobs,
            Err(why) => {
                // The controller may be away for a while: its jobs are not.
                say(&mut said, &progress, &format!("{why}; asking again"));
                if wait(SELDOM, interrupt) {
                    continue;
                }
                break;
            }
        };
        let queued = rounds.cells_of(&jobs)?;
        for reason in &queued.reasons {
            say(&mut said, &progress, reason);
        }
        for job in &queued.stuck {
            queue.cancel(job)?;
        }
        let mut lost = Vec::new();
        for (cell, key) in cells.iter().zip(&keys) {
            let settled = done.finished.contains_key(key) || done.failed.contains_key(key);
            if settled {
                continue;
            }
            match store.state(key)? {
                State::Finished(finished) => {
                    estimate.add(cell, finished.seconds);
                    done.finished.insert(key.clone(), *finished);
                    progress.advance(1);
                    news = Instant::now();
                    continue;
                }
                State::Damaged(what) => progress.note(&format!("vellum: {what}")),
                State::Missing => {}
            }
            let track = tracks.entry(key).or_default();
            if queued.keys.contains(key) {
                // One of an earlier sweep counts, too: it may be about to finish.
                track.attempts = track.attempts.max(1);
                track.looks = 0;
                continue;
            }
            track.looks += 1;
            if track.attempts > 0 && track.looks < LOOKS {
                continue;
            }
            match (track.attempts, store.failure(key)) {
                (1.., Some(why)) => {
                    progress.note(&format!("vellum: a cell failed: {}", why.trim_end()));
                    done.failed.insert(key.clone(), why);
                }
                (attempts, None) if attempts >= settings.attempts => {
                    let why = format!(
                        "{}\nits job vanished {attempts} times without a result (killed, a dead \
                         node, a full disk?); the logs are in {}",
                        cell.command_line(),
                        rounds.directory().display()
                    );
                    done.failed.insert(key.clone(), why);
                }
                _ => {
                    track.attempts += 1;
                    track.looks = 0;
                    lost.push(cell);
                }
            }
        }
        if !lost.is_empty() {
            submit(&lost, store, &queue, &mut rounds, settings)?;
            news = Instant::now();
        }
        if done.finished.len() + done.failed.len() == cells.len() {
            break;
        }
        let running = jobs.iter().filter(|job| job.state == "RUNNING").count();
        let left = done.missing(cells).into_iter();
        if let Some(time) = estimate.left(left, running, settings.hosts.len()) {
            progress.expect(time);
        }
        let pause = (news.elapsed() / PATIENCE).clamp(OFTEN, SELDOM);
        if !wait(pause, interrupt) {
            break;
        }
    }
    progress.finish();
    done.interrupted = interrupt.requested();
    if done.interrupted {
        eprintln!(
            "vellum: the jobs go on, and the same command collects what they find; to end them: \
             scancel --user=$USER --name={}",
            queue.names(&rounds.numbers()?)
        );
    }
    Ok(done)
}

/// What is known of a cell that is not finished.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    /// Rounds of this sweep that it was in.
    attempts: u64,
    /// How often it was looked for since it left the queue.
    looks: u32,
}

/// Makes rounds of `cells`, which need not all get the same, and hands them to Slurm.
fn submit(
    cells: &[&Cell],
    store: &Store,
    queue: &Queue,
    rounds: &mut Rounds<'_>,
    settings: &SlurmSettings,
) -> Result<(), SweepError> {
    let mut classes: BTreeMap<Class, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        store.forget_failure(&cell.key())?;
        let class = Class::of(cell, settings);
        classes.entry(class).or_default().push(cell);
    }
    for (class, cells) in classes {
        for cells in cells.chunks(queue.largest_array()) {
            let round = rounds.create(cells)?;
            queue.submit(&round, &class, cells.len(), settings)?;
        }
    }
    Ok(())
}

/// Says something once.
fn say(said: &mut BTreeSet<String>, progress: &Progress, what: &str) {
    if said.insert(what.to_owned()) {
        progress.note(&format!("vellum: {what}"));
    }
}

/// Waits; false after an interrupt.
fn wait(time: Duration, interrupt: &Interrupt) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if interrupt.requested() {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
    !interrupt.requested()
}
