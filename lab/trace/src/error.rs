//! Why a trace could not be read or written.

use std::path::PathBuf;

/// A trace could not be read or written. The message names the file, the
/// place in it, what was wrong and, where that helps, what to do.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system refused.
    #[error("{path}: {action}: {source}", path = path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no trace at all.
    #[error("{path}: not a Vellum trace: {reason}", path = path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// The file was written by a later version.
    #[error("{path}: byte {offset}: {what}; read it with a later version of vellum", path = path.display())]
    Future {
        /// Which file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What is not known here.
        what: String,
    },
    /// The file is cut short or its contents contradict themselves.
    #[error("{path}: byte {offset}: damaged trace: {reason}", path = path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// An event that the writer was given breaks a rule of traces.
    #[error("{path}: event {index} cannot be written: {reason}", path = path.display())]
    BadEvent {
        /// The trace being written.
        path: PathBuf,
        /// Number of the event, from 0.
        index: u64,
        /// Which rule it breaks.
        reason: String,
    },
}
