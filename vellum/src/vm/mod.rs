//! The manager as a whole: statistics and the audit.
//!
//! [`crate::Vm`] itself is defined in [`crate::space`], with the calls that
//! change spaces; here is what looks at everything at once.

#[cfg(test)]
mod allocation_tests;
mod audit;
mod idle;
mod stats;

pub use audit::{AuditFailure, AuditReport};
pub use stats::{EventStats, MemoryStats, Stats};
