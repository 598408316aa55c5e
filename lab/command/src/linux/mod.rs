//! The host's own kernel as a replay target.
//!
//! The same prepared workload that the core executes ([`crate::replay`]) is made a
//! [`plan()`] for real processes, and a [`tree`] of them carries it out: real `fork`,
//! `vfork`, threads, `execve`, `mmap` at the recorded addresses, touches of the
//! recorded pages. Every process runs the stub of the crate `lab/stub/`, which leaves
//! nothing else in its address space.
//!
//! What a tree costs without its memory operations is measured likewise and
//! subtracted ([`series`]). `docs/host-kernel.md` says what is and what is not
//! comparable with the core; [`coverage`] says it beside every result.

pub mod arms;
pub mod coverage;
pub mod entry;
pub mod environment;
mod error;
pub(crate) mod files;
pub mod kinds;
mod memory;
pub mod plan;
mod process;
#[path = "../../../stub/src/protocol.rs"]
pub mod protocol;
pub mod report;
pub mod saved;
pub mod series;
pub mod summary;
mod sys;
pub mod tree;

pub use error::LinuxError;
pub use plan::{Plan, plan};
pub use series::{Series, Settings};

/// The stub, ready to be executed; empty where it does not exist.
static STUB: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vellum-stub"));

/// Refuses hosts for which there is no stub.
///
/// # Errors
/// The host is not x86-64 Linux.
pub fn supported() -> Result<(), LinuxError> {
    match STUB.is_empty() {
        false => Ok(()),
        true => Err(LinuxError::Unsupported(format!(
            "replays on the host's own kernel exist only on x86-64 Linux; this is {} {}",
            std::env::consts::ARCH,
            std::env::consts::OS
        ))),
    }
}
