//! Why a recording could not be made.

use std::io;
use std::path::{Path, PathBuf};

use vellum_trace::TraceError;

/// A recording could not be made. Messages name what is missing and how to
/// grant it.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The kernel would not let this user open events.
    #[error(
        "the kernel does not let this user observe events of the kernel: {}",
        perfmon_cure(*root, binary)
    )]
    NoPerfmon {
        /// This program.
        binary: PathBuf,
        /// The user is root already, without the capabilities of root.
        root: bool,
    },
    /// The kernel was built without perf events.
    #[error("this kernel has no perf events (CONFIG_PERF_EVENTS); no recording is possible on it")]
    NoPerfEvents,
    /// The description of trace events is not mounted.
    #[error(
        "tracefs is not mounted, so the numbers of the kernel's events are unknown, and vellum \
         may not mount it for itself ({why}): {cure}",
        cure = tracefs_cure(*root)
    )]
    NoTracefs {
        /// What the system said to a mount for this process alone.
        why: io::Error,
        /// The user is root already, without the capabilities of root.
        root: bool,
    },
    /// The description of trace events cannot be read.
    #[error(
        "{path} cannot be read, so the numbers of the kernel's events are unknown: grant it \
         with: sudo mount -o remount,mode=755 {mount} && sudo chmod -R a+rX {mount}/events",
        path = path.display(), mount = mount.display()
    )]
    TracefsUnreadable {
        /// What could not be read.
        path: PathBuf,
        /// Where tracefs is mounted.
        mount: PathBuf,
    },
    /// The kernel lacks an event.
    #[error("this kernel has no event {event} ({path} is missing); Linux 6.9 or later is needed", path = path.display())]
    NoEvent {
        /// The event, as `group:name`.
        event: &'static str,
        /// Where it is described.
        path: PathBuf,
    },
    /// An event's description is not understood.
    #[error("{path}: no field {field}; this kernel describes the event in an unknown way", path = path.display())]
    NoField {
        /// The description.
        path: PathBuf,
        /// The field that is missing.
        field: &'static str,
    },
    /// Too little locked memory for the buffers.
    #[error(
        "the kernel refuses {bytes} bytes of buffer for each CPU: lower --buffer, or raise the \
         limit with: sudo sysctl kernel.perf_event_mlock_kb={kib}"
    )]
    BufferRefused {
        /// What was asked for.
        bytes: usize,
        /// What would suffice, in KiB.
        kib: usize,
    },
    /// Too few file descriptors.
    #[error(
        "{needed} event descriptors are needed, more than this process may open: raise the limit \
         with: ulimit -n {needed}"
    )]
    TooManyFiles {
        /// How many are needed.
        needed: usize,
    },
    /// The command could not be started.
    #[error("cannot run {command}: {source}")]
    Command {
        /// What was to be run.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// Running processes cannot be recorded.
    #[error("{0}")]
    Target(String),
    /// Events were lost.
    #[error(
        "{lost} events were lost because the kernel's buffer was full: record again with \
         --buffer {suggestion}, or keep an incomplete trace with --allow-lost"
    )]
    Lost {
        /// How many.
        lost: u64,
        /// A buffer size that is more likely to do.
        suggestion: String,
    },
    /// The kernel shows no accessed marks.
    #[error(
        "accessed marks cannot be sampled ({0}): leave out --accesses, or run vellum with the rights \
         of root (CAP_SYS_ADMIN) on a kernel that shows them"
    )]
    NoMarks(String),
    /// The kernel's records make no sense.
    #[error("a record of the kernel cannot be understood: {0}")]
    BadRecord(String),
    /// The operating system refused something else.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

fn perfmon_cure(root: bool, binary: &Path) -> String {
    match root {
        true => "root has not all its capabilities here, as in a container: start that with \
                 --privileged, or with CAP_PERFMON and CAP_IPC_LOCK (or CAP_SYS_ADMIN) and without \
                 a filter of perf_event_open"
            .to_owned(),
        false => format!(
            "run vellum as root, or grant its binary the capability with: sudo setcap \
             cap_perfmon,cap_ipc_lock=ep {}",
            binary.display()
        ),
    }
}

fn tracefs_cure(root: bool) -> &'static str {
    match root {
        true => {
            "root has not CAP_SYS_ADMIN here, as in a container: start that with --privileged, or \
             mount tracefs into it from the host (docker run -v \
             /sys/kernel/tracing:/sys/kernel/tracing)"
        }
        false => {
            "run vellum as root, or mount it with: sudo mount -t tracefs tracefs /sys/kernel/tracing"
        }
    }
}

/// Whether the user is root, with or without its capabilities.
pub fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

impl RecordError {
    /// For `map_err`: what was tried when the system refused.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> RecordError {
        let what = what.into();
        move |source| RecordError::Io { what, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_without_capabilities_is_not_told_to_become_root() {
        let of = |root| {
            let why = io::Error::from_raw_os_error(libc::EPERM);
            let binary = PathBuf::from("vellum");
            [
                RecordError::NoTracefs { why, root }.to_string(),
                RecordError::NoPerfmon { binary, root }.to_string(),
            ]
        };
        for text in of(true) {
            assert!(!text.contains("as root"), "{text}");
            assert!(text.contains("CAP_SYS_ADMIN"), "{text}");
            assert!(text.contains("--privileged"), "{text}");
        }
        for text in of(false) {
            assert!(text.contains("run vellum as root"), "{text}");
        }
    }
}
