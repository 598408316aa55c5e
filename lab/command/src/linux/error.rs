//! Why a replay on the host's kernel could not be made.

use std::io;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::host::HostError;
use vellum_trace::TraceError;

/// A replay on the host's kernel that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum LinuxError {
    /// Not on this machine, or not this request.
    #[error("{0}")]
    Unsupported(String),
    /// Something is where the recording has a mapping.
    #[error(
        "{what} needs {:#x}-{:#x}, where {:#x}-{:#x} is taken ({name}); the trace cannot be \
         replayed on the host's kernel",
        .wanted.0, .wanted.1, .found.0, .found.1
    )]
    Collision {
        /// What the recording does.
        what: String,
        /// Addresses that it needs.
        wanted: (u64, u64),
        /// Addresses that are taken.
        found: (u64, u64),
        /// By what.
        name: String,
    },
    /// A stub could not go on.
    #[error("task {task} of the trace, process {process}: {what}")]
    Stopped {
        /// The task; the number of tasks for the first process of the tree.
        task: u32,
        /// Its process.
        process: u32,
        /// What happened.
        what: String,
    },
    /// The host refused more than a replay may lose.
    #[error(
        "the host's kernel refused {failed} of {ops} operations (first: {first}); the limit is 1 %"
    )]
    Refused {
        /// How many.
        failed: u64,
        /// Of how many.
        ops: u64,
        /// The first.
        first: String,
    },
    /// A file of results cannot be used.
    #[error("{}: {what}", .path.display())]
    Saved {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A benchmark that belongs to the replay failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The operating system refused something.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: String,
        /// The refusal.
        source: io::Error,
    },
    /// The design of the core that the host is held against failed.
    #[error("the core: {0}")]
    Core(String),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl LinuxError {
    /// Attaches what was being done.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> LinuxError {
        let doing = doing.into();
        |source| LinuxError::Io { doing, source }
    }

    /// The command's end with the exit code that fits.
    pub fn into_failure(self) -> Failure {
        let code = match &self {
            LinuxError::Unsupported(_) | LinuxError::Saved { .. } | LinuxError::Trace(_) => {
                Failure::usage
            }
            LinuxError::Refused { .. } => Failure::refuted,
            LinuxError::Interrupted | LinuxError::Host(HostError::Interrupted) => {
                Failure::interrupted
            }
            _ => Failure::failed,
        };
        code(Failure::from(self).message().to_owned())
    }
}
