//! What the tests of several crates share.
//!
//! [`generate`] makes random workloads that a real system could have produced,
//! [`by_hand`] small traces of a few processes; [`Scratch`] is a directory that goes
//! with the test; [`browser`] opens pages in Chromium.

pub mod browser;
pub mod by_hand;
pub mod generate;
mod scratch;

pub use scratch::Scratch;

/// Whether a recording is `possible`. If not it says so, which is a failure with
/// `VELLUM_REQUIRE_PERF=1` in the environment.
pub fn recording_permitted<E: std::fmt::Display>(possible: Result<(), E>) -> bool {
    match possible {
        Ok(()) => true,
        Err(reason) => {
            let required = std::env::var_os("VELLUM_REQUIRE_PERF").is_some_and(|v| v == "1");
            assert!(!required, "recording is required here: {reason}");
            eprintln!("SKIPPED: nothing was recorded: {reason}");
            false
        }
    }
}
