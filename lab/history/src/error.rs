//! Why results cannot be kept or read.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::PATIENCE;

/// Why results cannot be kept or read.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// There is no such file.
    #[error(
        "{}: there is no history yet; `vellum history add RESULT.json` or --keep begins one", .0.display()
    )]
    Missing(PathBuf),
    /// The file is something else.
    #[error("{}: not a history of vellum; name another file with --db", .0.display())]
    Foreign(PathBuf),
    /// A newer version of the program made it.
    #[error(
        "{}: written by a newer version of vellum (schema {found}; this one knows up to {known}). \
         Nothing was changed; use the newer program", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The latest that is known here.
        known: i64,
    },
    /// Somebody else writes, for long.
    #[error(
        "{}: another process has been writing for {PATIENCE} s; nothing was changed. Try again", .0.display()
    )]
    Busy(PathBuf),
    /// The disk is full.
    #[error("{}: the disk is full; nothing was changed. Make room and try again", .0.display())]
    Full(PathBuf),
    /// The file cannot be written.
    #[error("{}: it may not be written ({error}); name another file with --db", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// Why.
        error: rusqlite::Error,
    },
    /// Its bytes were changed by something other than the database.
    #[error("{}: the file is damaged ({error}); restore it from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: rusqlite::Error,
    },
    /// A directory cannot be made.
    #[error("{}: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Anything else.
    #[error("{}: {error}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: rusqlite::Error,
    },
}

impl HistoryError {
    /// What an error of the database means for the file at `path`.
    pub(crate) fn of(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::Foreign(path),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(path),
            Some(ErrorCode::DiskFull) => Self::Full(path),
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, error },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::ReadOnly { path, error }
            }
            _ => Self::Other { path, error },
        }
    }
}
