//! The core under random schedules, and a record of its atomic accesses.
//!
//! [`explore`] runs a closure many times, each time under another random
//! interleaving of its tasks. Every access that the core makes through its
//! `sync` layer, and every step of the machine's page-table walks, is a point
//! where another task may run. Atomics act in the order of that one
//! interleaving: what weaker orderings would allow beyond it is not explored.
//!
//! [`run_scripted`] runs a closure once, under a schedule that is written down, and
//! [`sweep`] once for each place where one task may be preempted for another.
//!
//! [`record_accesses`] lists the accesses of one piece of code, to show which
//! cache lines it writes.
//!
//! All build on the instrumented copies of the core and the machine; their
//! types are other types than those of `vellum` and `vellum-machine`.
#![deny(missing_docs)]

mod bursts;
mod explore;
mod hook;
mod record;
mod script;

pub use explore::{Exploration, Failure, SCHEDULER, explore, find_failure, run_cpus};
pub use hook::undisturbed;
pub use record::{Accesses, Recorded, record_accesses};
pub use script::{Preemption, Step, follow, run_scripted, sweep, sweep_task};
pub use vellum::sync::report::Kind;
