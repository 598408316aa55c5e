//! Comparison of designs on one workload.
//!
//! The *arms* live side by side in one process: design A, design B (and more, if there are more
//! designs), and A again in an engine of its own, the control. The workload is cut into slices of
//! about a millisecond ([`measure()`]), and every slice is executed by all of them before the next
//! one begins, in an order that changes from slice to slice and from pass to pass, so that whatever
//! disturbs the machine disturbs all arms alike. Each pass builds fresh engines and moves the
//! memory they live in on to the next arm. [`analysis`] turns the times into ratios with intervals,
//! and [`verdict`] these into a [`Verdict`].

pub mod analysis;
pub mod apart;
mod arenas;
mod atomics;
pub mod crew;
mod entries;
pub mod error;
pub mod measure;
mod needless;
pub mod order;
mod profiled;
pub mod verdict;
pub mod workload;

pub use crate::clock::{Clock, HostClock};
pub use crate::stats::Estimate;
pub use analysis::{Analysis, Contrast, Method};
pub use apart::{Apart, Values};
pub use arenas::Arenas;
pub use atomics::Counters;
pub use crew::{ClassTime, LapTime, Tally};
pub use entries::{WithEntries, with_entries};
pub use error::CompareError;
pub use measure::{Builder, Measurement, MemoryAt, Pass, Place, Settings, measure};
pub use needless::{Entered, Needed};
pub use profiled::attached;
pub use vellum_results::{Reason, Verdict};
pub use verdict::{Judged, Resolution};
pub use workload::Load;

/// Index of design A among the arms.
pub const A: usize = 0;
/// Index of design B among the arms.
pub const B: usize = 1;
/// Index of the control (design A in an engine of its own) among the arms of a
/// comparison of two designs. With more designs it is the last arm, too.
pub const CONTROL: usize = 2;
/// Arms of a comparison of two designs.
pub const ARMS: usize = 3;
