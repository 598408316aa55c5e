//! What the core does on many simulated CPUs: workloads in which every CPU does the same
//! for as long as virtual time lasts, as micro-benchmarks of scaling do.
//!
//! [`run`] is one of them, on so many CPUs of one machine under one design: how much is
//! done in a window of virtual time, and which cache lines cost how much. [`Ceiling`] is
//! what the machine would allow if no CPU ever waited for another.
//!
//! The program has to have [`vellum_sim::PlacedHeap`] as its global allocator.
#![deny(missing_docs)]

mod ceiling;
mod run;
mod work;
mod workloads;

pub use ceiling::{Ceiling, Limit};
pub use run::{Measured, Needs, Request, ScaleError, run};
pub use vellum_sim::{CpuTotals, PlacedHeap};
pub use workloads::{WORKLOADS, Workload, workload};
