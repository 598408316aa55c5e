//! Simulations that are done and kept in a file, so that an interrupted run goes on where
//! it stopped.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Plan, Task};
use crate::failure::{Failure, OrFail};
use crate::program;
use vellum_results::scale::Cell;

/// Finished simulations, by what determines them: the program, and what it was told to do.
#[derive(Debug, Default)]
pub struct Kept {
    done: HashMap<Name, Value>,
    file: Option<(PathBuf, File)>,
    /// What tells this program from others, which may simulate something else.
    program: u32,
}

/// Checksum of a program, and what it was told to do, as it stands in the file.
type Name = (u32, String);

/// How each line begins.
const BEGINNING: &str = "{\"program\":";

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Entry<K, C> {
    program: u32,
    key: K,
    cell: C,
}

/// What determines a simulation of a workload.
#[derive(Serialize)]
struct Key<'k> {
    /// Checksum of the machine's description.
    machine: u32,
    workload: &'k str,
    design: &'k str,
    cpus: usize,
    seed: u64,
    warm_up_ns: u64,
    window_ns: u64,
}

impl Kept {
    /// Reads what is in the file, and adds to it from now on. It is made if need be. A last
    /// line that is not complete was being written when the run ended, and is dropped.
    ///
    /// # Errors
    /// The file cannot be read or written, or another line is not one of these.
    pub fn open(path: &Path) -> Result<Kept, Failure> {
        let doing = || format!("the kept simulations in {}", path.display());
        let program = program::checksum().doing(doing)?;
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).doing(doing),
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let last = &text[whole..];
        if !last.starts_with(BEGINNING) && !BEGINNING.starts_with(last) {
            return Err(Failure::usage(format!(
                "{}: its last line is no simulation that `--resume` wrote; choose another file or \
                 delete the line",
                path.display()
            )));
        }
        let mut done = HashMap::new();
        for (number, line) in (1..).zip(text[..whole].lines()) {
            let entry: Entry<Value, Value> = serde_json::from_str(line).map_err(|error| {
                Failure::usage(format!(
                    "{}:{number}: {error}; expected a simulation that `--resume` wrote; choose \
                     another file or delete the line",
                    path.display()
                ))
            })?;
            done.insert((entry.program, entry.key.to_string()), entry.cell);
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.doing(doing)?;
        file.set_len(whole as u64).doing(doing)?;
        Ok(Kept {
            done,
            file: Some((path.to_owned(), file)),
            program,
        })
    }

    /// The file, if there is one, or nothing that is kept.
    ///
    /// # Errors
    /// As [`Kept::open`].
    pub fn open_if(path: Option<&Path>) -> Result<Kept, Failure> {
        path.map_or_else(|| Ok(Kept::default()), Kept::open)
    }

    fn name(&self, key: &impl Serialize) -> Result<Name, Failure> {
        Ok((self.program, serde_json::to_value(key)?.to_string()))
    }

    /// What a simulation found, if it is kept.
    ///
    /// # Errors
    /// What is kept is not what such a simulation finds: somebody else wrote it.
    pub fn get<C: DeserializeOwned>(&self, key: &impl Serialize) -> Result<Option<C>, Failure> {
        let Some((path, _)) = &self.file else {
            return Ok(None);
        };
        let name = self.name(key)?;
        let Some(cell) = self.done.get(&name) else {
            return Ok(None);
        };
        let found = C::deserialize(cell).map_err(|error| {
            let (path, key) = (path.display(), &name.1);
            Failure::usage(format!(
                "{path}: {error} in the simulation {key}; delete its line"
            ))
        });
        found.map(Some)
    }

    /// Keeps what a simulation found.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, key: &impl Serialize, cell: &impl Serialize) -> Result<(), Failure> {
        let Some((path, file)) = &mut self.file else {
            return Ok(());
        };
        let program = self.program;
        let mut line = serde_json::to_string(&Entry { program, key, cell })?;
        line.push('\n');
        let written = file.write_all(line.as_bytes());
        written.doing(|| format!("the kept simulations in {}", path.display()))
    }

    /// What a simulation of a workload found, if it is kept. A control is always run.
    pub(super) fn of_workload(&self, plan: &Plan, task: Task) -> Result<Option<Cell>, Failure> {
        match task.is_control {
            true => Ok(None),
            false => self.get(&Key::of(plan, task)),
        }
    }

    /// Keeps what such a simulation found.
    pub(super) fn add_of_workload(
        &mut self,
        plan: &Plan,
        task: Task,
        cell: &Cell,
    ) -> Result<(), Failure> {
        match task.is_control {
            true => Ok(()),
            false => self.add(&Key::of(plan, task), cell),
        }
    }
}

impl Key<'_> {
    fn of(plan: &Plan, task: Task) -> Key<'_> {
        Key {
            machine: crc32fast::hash(plan.machine.to_string().as_bytes()),
            workload: plan.workload.name,
            design: &plan.designs[task.design],
            cpus: task.cpus,
            seed: task.seed,
            warm_up_ns: plan.warm_up_ns,
            window_ns: plan.window_ns,
        }
    }
}
