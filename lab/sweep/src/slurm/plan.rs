//! Rounds: what each task of a job array runs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vellum_output::PartialFile;

use super::queue::Job;
use crate::cell::{Cell, Resources};
use crate::error::SweepError;
use crate::files::{self, directory};
use crate::spec::{SlurmSettings, Traces};
use crate::store::Store;

/// Name of the schema of plans.
const SCHEMA: &str = "vellum-sweep-plan/1";

/// What the tasks of an array run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    schema: String,
    /// Where the results go.
    pub results: PathBuf,
    /// Whether each node makes copies of traces.
    pub copies_traces: bool,
    /// The cell of each task.
    pub cells: Vec<Cell>,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Plan, SweepError> {
        let bytes = fs::read(path).map_err(SweepError::at(path))?;
        let plan = serde_json::from_slice::<Plan>(&bytes).map_err(std::io::Error::other);
        let plan = plan.map_err(SweepError::at(path))?;
        match plan.schema == SCHEMA {
            true => Ok(plan),
            false => Err(SweepError::at(path)(std::io::Error::other(format!(
                "its schema is `{}`, not `{SCHEMA}`",
                plan.schema
            )))),
        }
    }
}

/// What cells of one array have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Class {
    /// The node of timed cells, which they have for themselves.
    pub host: Option<String>,
    /// CPUs.
    pub threads: u64,
    /// Memory and time.
    pub resources: Resources,
}

impl Class {
    /// That of a cell.
    pub fn of(cell: &Cell, settings: &SlurmSettings) -> Class {
        let (own, all) = (&cell.resources, &settings.resources);
        Class {
            host: cell.host.as_ref().map(|host| host.name.clone()),
            threads: cell.threads,
            resources: Resources {
                memory: own.memory.clone().or_else(|| all.memory.clone()),
                time: own.time.clone().or_else(|| all.time.clone()),
            },
        }
    }
}

/// A round that is ready for Slurm.
#[derive(Clone, Debug)]
pub struct Round {
    /// Its number.
    pub number: u64,
    /// Its directory, where the logs of its tasks go.
    pub directory: PathBuf,
    /// Its plan.
    pub plan: PathBuf,
    /// The program that its tasks run.
    pub program: PathBuf,
}

/// The rounds of a directory of results.
#[derive(Debug)]
pub struct Rounds<'s> {
    store: &'s Store,
    directory: PathBuf,
    program: PathBuf,
    copies_traces: bool,
}

/// Cells that are on their way.
#[derive(Clone, Debug, Default)]
pub struct Queued {
    /// Their keys.
    pub keys: BTreeSet<String>,
    /// Why some of them wait, where somebody has to do something about it.
    pub reasons: BTreeSet<String>,
    /// Jobs that will never run.
    pub stuck: Vec<String>,
}

impl<'s> Rounds<'s> {
    /// Those of `store`, for tasks that run a copy of `program`.
    pub fn open(
        store: &'s Store,
        program: &Path,
        settings: &SlurmSettings,
    ) -> Result<Rounds<'s>, SweepError> {
        let hash = files::copy(program, &mut std::io::sink()).map_err(SweepError::at(program))?;
        let kept = directory(store.root().join("programs").join(&hash))?.join("vellum");
        if !kept.exists() {
            let mut file = PartialFile::create(&kept).map_err(SweepError::at(&kept))?;
            files::copy(program, &mut file).map_err(SweepError::at(&kept))?;
            file.finish().map_err(SweepError::at(&kept))?;
        }
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&kept, executable).map_err(SweepError::at(&kept))?;
        Ok(Rounds {
            store,
            directory: directory(store.root().join("slurm"))?,
            program: kept,
            copies_traces: settings.traces == Traces::Copied,
        })
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Their numbers, in order.
    pub fn numbers(&self) -> Result<Vec<u64>, SweepError> {
        let entries = fs::read_dir(&self.directory).map_err(SweepError::at(&self.directory))?;
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry.map_err(SweepError::at(&self.directory))?.file_name();
            numbers.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn plan(&self, number: u64) -> PathBuf {
        self.directory.join(number.to_string()).join("plan.json")
    }

    /// Makes the next one.
    pub fn create(&mut self, cells: &[&Cell]) -> Result<Round, SweepError> {
        let number = self.numbers()?.last().map_or(1, |last| last + 1);
        let directory = directory(self.directory.join(number.to_string()))?;
        let plan = self.plan(number);
        let text = serde_json::to_string(&Plan {
            schema: SCHEMA.to_owned(),
            results: self.store.root().to_owned(),
            copies_traces: self.copies_traces,
            cells: cells.iter().map(|&cell| cell.clone()).collect(),
        });
        let text = text
            .map_err(std::io::Error::other)
            .map_err(SweepError::at(&plan))?;
        let file = PartialFile::create(&plan).map_err(SweepError::at(&plan))?;
        file.commit(&text).map_err(SweepError::at(&plan))?;
        Ok(Round {
            number,
            directory,
            plan,
            program: self.program.clone(),
        })
    }

    /// The cells that `jobs` will run or are running.
    pub fn cells_of(&self, jobs: &[Job]) -> Result<Queued, SweepError> {
        let mut queued = Queued::default();
        let mut numbers: Vec<u64> = jobs.iter().map(|job| job.round).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let plan = Plan::read(&self.plan(number))?;
            for job in jobs.iter().filter(|job| job.round == number) {
                if job.is_stuck() {
                    queued.stuck.push(job.id.clone());
                    continue;
                }
                queued.reasons.extend(job.trouble());
                let cells = plan.cells.get(job.task as usize);
                queued.keys.extend(cells.map(Cell::key));
            }
        }
        Ok(queued)
    }
}
