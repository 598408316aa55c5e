//! What keeps a sweep from going on.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::spec::SpecError;

/// Why a sweep cannot go on. A cell whose command fails is not one of these.
#[derive(Debug, Error)]
pub enum SweepError {
    /// The file that describes it cannot be used.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A file or directory of the results cannot be read or written.
    #[error("{}: {error}{}", .path.display(), advice(.error))]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another sweep uses the directory.
    #[error(
        "{}: another sweep is at work with these results; wait for it, or give this one \
         --results of its own",
        .0.display()
    )]
    Busy(PathBuf),
    /// Slurm cannot be used.
    #[error("{0}")]
    Slurm(String),
}

impl SweepError {
    /// Names the file that the error is about.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> SweepError {
        let path = path.to_owned();
        move |error| SweepError::Io { path, error }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; finished cells are kept: make room, and run the same command again"
        }
        _ => "",
    }
}
