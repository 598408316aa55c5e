//! Simulations that are done and kept in a file, so that an interrupted run goes on where
//! it stopped.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Cell, Plan, Task};
use crate::failure::{Failure, OrFail};
use crate::program;

/// Finished simulations, by what determines them.
#[derive(Debug, Default)]
pub struct Kept {
    cells: HashMap<Key, Cell>,
    file: Option<(PathBuf, File)>,
    /// What tells this program from others, which may simulate something else.
    program: u32,
}

/// What determines a simulation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct Key {
    /// Checksum of the program.
    program: u32,
    /// Checksum of the machine's description.
    machine: u32,
    workload: String,
    design: String,
    cpus: usize,
    seed: u64,
    window_ns: u64,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Entry<C> {
    #[serde(flatten)]
    key: Key,
    cell: C,
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
        let mut cells = HashMap::new();
        for (number, line) in (1..).zip(text[..whole].lines()) {
            let entry: Entry<Cell> = serde_json::from_str(line).map_err(|error| {
                Failure::usage(format!(
                    "{}:{number}: {error}; expected a simulation that `vellum scale --resume` \
                     wrote; choose another file or delete the line",
                    path.display()
                ))
            })?;
            cells.insert(entry.key, entry.cell);
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.doing(doing)?;
        file.set_len(whole as u64).doing(doing)?;
        Ok(Kept {
            cells,
            file: Some((path.to_owned(), file)),
            program,
        })
    }

    fn key(&self, plan: &Plan, task: Task) -> Key {
        Key {
            program: self.program,
            machine: crc32fast::hash(plan.machine.to_string().as_bytes()),
            workload: plan.workload.name.to_owned(),
            design: plan.designs[task.design].clone(),
            cpus: task.cpus,
            seed: task.seed,
            window_ns: plan.window_ns,
        }
    }

    /// What a simulation found, if it is kept. A control is always run.
    pub fn get(&self, plan: &Plan, task: Task) -> Option<Cell> {
        self.file.as_ref()?;
        let key = self.key(plan, task);
        self.cells.get(&key).filter(|_| !task.is_control).cloned()
    }

    /// Keeps what a simulation found.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, plan: &Plan, task: Task, cell: &Cell) -> Result<(), Failure> {
        let key = self.key(plan, task);
        let Some((path, file)) = self.file.as_mut().filter(|_| !task.is_control) else {
            return Ok(());
        };
        let mut line = serde_json::to_string(&Entry { key, cell })?;
        line.push('\n');
        let written = file.write_all(line.as_bytes());
        written.doing(|| format!("the kept simulations in {}", path.display()))
    }
}
