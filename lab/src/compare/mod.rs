//! Comparison of two designs on one workload.
//!
//! Three *arms* live side by side in one process: design A, design B, and A
//! again in an engine of its own, the control. The workload is cut into slices
//! of about a millisecond ([`measure`]), and every slice is executed by all
//! three before the next one begins, in an order that changes from slice to
//! slice and from pass to pass, so that whatever disturbs the machine disturbs
//! all arms alike. Each pass builds fresh engines and moves the memory they live
//! in on to the next arm. [`analysis`] turns the times into a ratio, an interval
//! and a [`Verdict`].

pub mod analysis;
mod atomics;
pub mod clock;
pub mod crew;
pub mod error;
pub mod measure;
mod order;
pub mod workload;

pub use analysis::{Analysis, Estimate, Reason, Verdict};
pub use atomics::Counters;
pub use clock::{Clock, HostClock};
pub use crew::{ClassTime, Tally};
pub use error::CompareError;
pub use measure::{ARMS, Builder, Measurement, Pass, Settings, measure};
pub use workload::Load;

/// Index of design A among the arms.
pub const A: usize = 0;
/// Index of design B among the arms.
pub const B: usize = 1;
/// Index of the control (design A in an engine of its own) among the arms.
pub const CONTROL: usize = 2;
