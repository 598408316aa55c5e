//! The directory of results.
//!
//! A finished cell is the file `cells/KEY.json`, which appears when all of it is on the
//! disk and never changes after that: if a cell was finished twice, as when a cluster
//! starts a job again that it believed dead, the first one stays. A cell that failed
//! leaves `failed/KEY.txt` until it is tried again.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vellum_output::PartialFile;

use crate::error::SweepError;
use crate::files::directory;
use crate::record::{Finished, Record};

/// Nobody takes so long to write a file.
const YOUNG: Duration = Duration::from_secs(24 * 60 * 60);

/// Results in a directory.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// Keeps other sweeps from a directory while it is there.
#[derive(Debug)]
pub struct Claim(File);

impl Drop for Claim {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that another thread is starting has it open,
        // too, until it executes its program.
        let _ = self.0.unlock();
    }
}

/// What became of a cell, as far as its directory says.
#[derive(Clone, PartialEq, Debug)]
pub enum State {
    /// It is finished.
    Finished(Box<Finished>),
    /// It is not.
    Missing,
    /// There is a file that is not what it should be; it has been set aside, and is named
    /// with what is wrong with it.
    Damaged(String),
}

impl Store {
    /// The results in `root`, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(root: &Path) -> Result<Store, SweepError> {
        let root = std::path::absolute(root).map_err(SweepError::at(root))?;
        let root = directory(root)?;
        for name in ["cells", "failed", "partial"] {
            directory(root.join(name))?;
        }
        Ok(Store { root })
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Keeps other sweeps from these results.
    ///
    /// # Errors
    /// Another one is at work.
    pub fn claim(&self) -> Result<Claim, SweepError> {
        let path = self.root.join("lock");
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(SweepError::at(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Claim(file)),
            Err(TryLockError::WouldBlock) => Err(SweepError::Busy(self.root.clone())),
            Err(TryLockError::Error(error)) => Err(SweepError::at(&path)(error)),
        }
    }

    fn cell(&self, key: &str) -> PathBuf {
        self.root.join("cells").join(format!("{key}.json"))
    }

    /// Whether the cell is finished, by the name of its file alone.
    pub fn has(&self, key: &str) -> bool {
        self.cell(key).exists()
    }

    /// Reads a cell. One that is damaged is set aside, to be run again.
    ///
    /// # Errors
    /// There is a file that cannot be read or not be set aside.
    pub fn state(&self, key: &str) -> Result<State, SweepError> {
        let path = self.cell(key);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::Missing),
            Err(error) => return Err(SweepError::at(&path)(error)),
        };
        let record = serde_json::from_slice::<Record>(&bytes);
        let finished = record
            .map_err(|error| error.to_string())
            .and_then(|record| record.digest(key));
        match finished {
            Ok(finished) => Ok(State::Finished(Box::new(finished))),
            Err(why) => {
                let aside = self.root.join("failed").join(format!("{key}.damaged"));
                fs::rename(&path, &aside).map_err(SweepError::at(&path))?;
                Ok(State::Damaged(format!(
                    "{}: {why}; set aside as {}",
                    path.display(),
                    aside.display()
                )))
            }
        }
    }

    /// Makes a cell finished. If it is already, that one stays.
    ///
    /// # Errors
    /// It cannot be written. Nothing is left behind then.
    pub fn finish(&self, record: &Record) -> Result<(), SweepError> {
        let path = self.cell(&record.key);
        // The name tells hosts apart whose processes have the same number.
        let name = format!("{}.{}", record.key, record.ran_on.name);
        let complete = self.root.join("partial").join(name);
        let text = serde_json::to_string(record)
            .map_err(|error| SweepError::at(&path)(io::Error::other(error)))?;
        let file = PartialFile::create(&complete).map_err(SweepError::at(&complete))?;
        file.commit(&text).map_err(SweepError::at(&complete))?;
        // Not renamed, as that would replace one that is there.
        let named = match fs::hard_link(&complete, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            // A file system without hard links.
            Err(error) if error.kind() != io::ErrorKind::StorageFull && !path.exists() => {
                fs::rename(&complete, &path)
            }
            named => named,
        };
        let removed = fs::remove_file(&complete);
        named.map_err(SweepError::at(&path))?;
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(SweepError::at(&complete)(error));
        }
        let cells = self.root.join("cells");
        let synced = File::open(&cells).and_then(|directory| directory.sync_all());
        synced.map_err(SweepError::at(&cells))?;
        self.forget_failure(&record.key)
    }

    fn failure_path(&self, key: &str) -> PathBuf {
        self.root.join("failed").join(format!("{key}.txt"))
    }

    /// Notes why a cell failed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn fail(&self, key: &str, why: &str) -> Result<(), SweepError> {
        let path = self.failure_path(key);
        let file = PartialFile::create(&path).map_err(SweepError::at(&path))?;
        file.commit(why).map_err(SweepError::at(&path))
    }

    /// Why a cell failed, if it did since it was last tried.
    pub fn failure(&self, key: &str) -> Option<String> {
        fs::read_to_string(self.failure_path(key)).ok()
    }

    /// Forgets why a cell failed, before it is tried again.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn forget_failure(&self, key: &str) -> Result<(), SweepError> {
        let path = self.failure_path(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(SweepError::at(&path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Removes what was being written when an earlier sweep was killed. What is younger than
    /// a day may be of a job that still writes.
    ///
    /// # Errors
    /// The directory cannot be read, or a file not be removed.
    pub fn clear_partial(&self) -> Result<(), SweepError> {
        let path = self.root.join("partial");
        for entry in fs::read_dir(&path).map_err(SweepError::at(&path))? {
            let entry = entry.map_err(SweepError::at(&path))?;
            let written = entry.metadata().and_then(|data| data.modified());
            let age = written.map(|written| written.elapsed().unwrap_or_default());
            if age.is_ok_and(|age| age > YOUNG) {
                let file = entry.path();
                fs::remove_file(&file).map_err(SweepError::at(&file))?;
            }
        }
        Ok(())
    }
}
