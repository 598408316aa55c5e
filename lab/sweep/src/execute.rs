//! One cell, run as a child process.
//!
//! The child holds the machine's lock through its standard input: exclusively if it is
//! timed, and shared with other cells if not. So a timed cell has the machine for itself
//! among all sweeps, and keeps it if the sweep that started it is killed.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::Value;
use vellum_results::Loaded;
use vellum_results::sweep::CELL_SCHEMA;
use vellum_terminal::job::{Job, WATCH};
use vellum_terminal::progress::Interrupt;

use crate::cell::{Cell, HostId};
use crate::error::SweepError;
use crate::files::FileId;
use crate::record::Record;

/// Exit codes of `vellum` that say something of the cell.
const REFUTED: i32 = 3;

/// What a command says on standard error is kept up to so many bytes, from the end.
const MESSAGE: usize = 4096;

/// Who runs cells.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The program.
    pub program: PathBuf,
    /// The host by the name that the sweep has for it.
    pub here: HostId,
    /// The file whose lock means the machine.
    pub machine: PathBuf,
}

/// What became of a cell.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It is to be kept.
    Done(Box<Record>),
    /// Its command failed, for this reason.
    Failed(String),
    /// It was to stop.
    Interrupted,
}

impl Runner {
    /// Runs a cell. Files are where `place` says.
    ///
    /// # Errors
    /// The machine's lock cannot be had, or a process not be started.
    pub fn run(
        &self,
        cell: &Cell,
        place: impl Fn(&FileId) -> PathBuf,
        interrupt: &Interrupt,
    ) -> Result<Outcome, SweepError> {
        let Some(lock) = self.lock(cell.timed, interrupt)? else {
            return Ok(Outcome::Interrupted);
        };
        let begun = Instant::now();
        let ended = self.child(&cell.arguments(place), lock, interrupt);
        let ended = ended.map_err(SweepError::at(&self.program))?;
        let seconds = begun.elapsed().as_secs_f64();
        if interrupt.requested() {
            return Ok(Outcome::Interrupted);
        }
        Ok(match self.judge(cell, &ended, seconds) {
            Ok(record) => Outcome::Done(Box::new(record)),
            Err(why) => Outcome::Failed(format!("{}\n{why}\n", cell.command_line())),
        })
    }

    /// The machine, as soon as it can be had; none after an interrupt.
    fn lock(&self, alone: bool, interrupt: &Interrupt) -> Result<Option<File>, SweepError> {
        let failed = SweepError::at(&self.machine);
        let file = match open_lock(&self.machine) {
            Ok(file) => file,
            Err(error) => return Err(failed(error)),
        };
        loop {
            let locked = match alone {
                true => file.try_lock(),
                false => file.try_lock_shared(),
            };
            match locked {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if interrupt.requested() => return Ok(None),
                Err(TryLockError::WouldBlock) => thread::sleep(WATCH),
            }
        }
    }

    fn child(
        &self,
        arguments: &[OsString],
        lock: File,
        interrupt: &Interrupt,
    ) -> io::Result<Ended> {
        let mut command = Command::new(&self.program);
        command
            .arg0("vellum")
            .args(arguments)
            .stdin(Stdio::from(lock))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // A group of its own, so that Ctrl-C reaches it through us alone.
        let mut job = Job::start(&mut command)?;
        // The lock is the child's alone.
        drop(command);
        let (out, err) = (job.stdout.take(), job.stderr.take());
        thread::scope(|scope| {
            let [output, messages] = [
                scope.spawn(move || read(out)),
                scope.spawn(move || read(err)),
            ];
            let status = job.wait(interrupt).status;
            let joined = |thread: thread::ScopedJoinHandle<'_, io::Result<Vec<u8>>>| {
                let result = thread.join();
                result.unwrap_or_else(|_| Err(io::Error::other("a thread that reads ended early")))
            };
            Ok(Ended {
                status,
                output: joined(output)?,
                messages: joined(messages)?,
            })
        })
    }

    fn judge(&self, cell: &Cell, ended: &Ended, seconds: f64) -> Result<Record, String> {
        let refuted = match ended.status.code() {
            Some(0) => None,
            Some(REFUTED) => Some(ended.message()),
            _ => return Err(ended.why()),
        };
        let result = match ended.output.is_empty() && refuted.is_some() {
            true => None,
            false => Some(result(cell, &ended.output)?),
        };
        Ok(Record {
            schema: CELL_SCHEMA.to_owned(),
            key: cell.key(),
            cell: cell.clone(),
            ran_on: self.here.clone(),
            seconds,
            refuted,
            result,
        })
    }
}

/// The result that a cell's command printed, with the files in it that the cell has.
fn result(cell: &Cell, output: &[u8]) -> Result<Value, String> {
    let value: Value = serde_json::from_slice(output)
        .map_err(|error| format!("it printed no result as JSON: {error}"))?;
    let loaded = Loaded::of_value("its result", value.clone());
    let loaded = loaded.map_err(|error| error.to_string())?;
    for trace in &loaded.run.traces {
        let is_one = |file: &FileId| file.sha256 == trace.sha256;
        if !trace.sha256.is_empty() && !cell.files().any(is_one) {
            return Err(format!(
                "{} changed since the sweep began: run it again",
                trace.path
            ));
        }
    }
    Ok(value)
}

/// A process that has ended.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    output: Vec<u8>,
    messages: Vec<u8>,
}

impl Ended {
    /// The end of what it said.
    fn message(&self) -> String {
        let from = self.messages.len().saturating_sub(MESSAGE);
        let text = String::from_utf8_lossy(&self.messages[from..]);
        text.trim().to_owned()
    }

    fn why(&self) -> String {
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        };
        match self.message() {
            message if message.is_empty() => how,
            message => format!("{how}: {message}"),
        }
    }
}

fn read(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Opens the file, which may be another user's: then it cannot be written, nor need it be.
fn open_lock(path: &Path) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::options().create(true).append(true).open(path)?;
            File::open(path)
        }
        opened => opened,
    }
}
