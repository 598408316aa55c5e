//! What the core does on many simulated CPUs: workloads in which every CPU does the same
//! for as long as virtual time lasts, as micro-benchmarks of scaling do.
//!
//! [`run`] is one of them, on so many CPUs of one machine under one design: how much is
//! done in a window of virtual time, and which cache lines cost how much. [`Ceiling`] is
//! what the machine would allow if no CPU ever waited for another.
//!
//! [`replay::replay`] runs a workload of tasks instead, which compute, wait for each other and
//! share the CPUs: how long it takes, and what the CPUs did meanwhile.
//!
//! [`hosted::run`] runs what a hosted machine can be timed at, for holding one against the
//! other.
//!
//! [`Verifiable`] is an engine whose pages have bytes and whose CPUs have TLBs, for verifying
//! what the core does on many CPUs instead of timing it.
//!
//! The program has to have [`vellum_sim::PlacedHeap`] as its global allocator.
#![deny(missing_docs)]

mod ceiling;
#[path = "../../../test/engine/src/core_counters.rs"]
mod core_counters;
#[path = "../../../test/engine/src/executor.rs"]
mod executor;
pub mod hosted;
mod kinds;
pub mod replay;
mod run;
#[path = "../../../test/engine/src/slots.rs"]
mod slots;
mod verifiable;
mod work;
mod work_kind;
mod workloads;

use vellum_engine::op;

pub use ceiling::{Ceiling, Limit};
pub use kinds::{LineClass, LockClass};
pub use run::{Measured, Needs, Request, ScaleError, WARM_UP_NS, run};
pub use vellum_sim::{
    Cpu, CpuTotals, LineCosts, LineProfile, LockCosts, LockProfile, PlacedHeap, ProfiledLine,
};
pub use verifiable::Verifiable;
pub use workloads::{WORKLOADS, Workload, workload};
