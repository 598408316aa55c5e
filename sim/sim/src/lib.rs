//! Runs code of the core on many simulated processors in virtual time.
//!
//! A [`Simulation`] is so many CPUs of a machine that a [`Description`] describes. Each
//! CPU is a coroutine with a clock of its own, and all of them run on the calling thread,
//! the CPU with the lowest clock first. The core is compiled with atomics that report
//! each access before it happens (`test/verify/instrumented`). Here every access is charged
//! with what it would cost on the machine: whether the core has the line, how far away
//! who has it is, how many others wait for it.
//!
//! The same seed, program and description give the same virtual time to the picosecond,
//! on every host: memory is known by its place ([`Simulation::place`]) and never by its
//! address. What is modelled and what is not is in `docs/many-cpus.md`.
//!
//! ```
//! use vellum::platform::NodeId;
//! use vellum::sync::CachePadded;
//! use vellum::sync::atomic::{AtomicU64, Ordering};
//! use vellum_sim::{Description, Simulation};
//!
//! let machine = Description::named("epyc-milan-1s")?;
//! let counter = CachePadded(AtomicU64::new(0));
//! let mut simulation = Simulation::new(&machine, 8)?;
//! simulation.place_value("counter", &counter, NodeId(0))?;
//! let outcome = simulation.run(|_| {
//!     for _ in 0..100 {
//!         counter.fetch_add(1, Ordering::Relaxed);
//!     }
//! })?;
//! println!("{} ps", outcome.elapsed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

mod board;
mod clocks;
mod costs;
mod directory;
mod heap;
mod line;
mod locks;
mod names;
mod net;
mod places;
mod profile;
mod random;
mod recent;
mod room;
mod run;
mod sharers;
mod stack;
mod state;
mod topology;

pub use board::{Board, BoardError};
pub use heap::{Filled, HeapError, PlacedHeap};
pub use locks::{LockCosts, LockProfile, ProfiledLock};
pub use names::What;
pub use places::{Homes, PlaceError};
pub use profile::{LineCosts, LineProfile, ProfiledLine};
pub use random::Random;
pub use run::{Cpu, Outcome, RunError, Simulation, TooManyCpus, with_cpu};
pub use state::CpuTotals;
pub use topology::Level;
pub use vellum_description::{
    Bandwidth, Basis, Count, Description, DescriptionError, Flaw, FlushPrices, Lines, MOST_CPUS,
    Memory, Processor, Rate, SHIPPED, Share, Shipped, SystemPrices, Time, Topology, Work, WorkKind,
};
