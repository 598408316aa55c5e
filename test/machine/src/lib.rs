//! A hosted machine for the Vellum memory manager.
//!
//! A [`Machine`] is what the core sees through its `Platform` trait: RAM in
//! NUMA nodes, CPUs that host threads enter, an MMU with a TLB per CPU that
//! walks the tables the core built, flushes that take effect only where they
//! are asked for, backing stores that can fail, and sleep. A process holds any
//! number of machines.
//!
//! The crate guarantees to the core the numbered conditions of
//! [`vellum::platform::Platform`], and promises to whoever tests the core that
//! nothing here repairs its mistakes: a translation stays in a TLB until it is
//! evicted or flushed, a page table is decoded from the architecture's manual
//! and not by the core's code, and high memory is reached through windows or
//! not at all.
//!
//! ```
//! use vellum::platform::{CpuId, Machine as _};
//! use vellum_machine::{Arena, Machine, MachineConfig};
//!
//! let config = MachineConfig::new(64 << 20);
//! let arena = Arena::new(config.arena_bytes()?)?;
//! let machine = Machine::new(config, arena)?;
//! let cpu = machine.run_on(CpuId(0), || {
//!     let cpu = machine.pin();
//!     machine.unpin(cpu);
//!     cpu
//! });
//! assert_eq!(cpu, CpuId(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

mod arena;
mod config;
mod cpu;
mod device;
mod flush;
mod host;
mod lock;
mod machine;
pub mod mmu;
mod platform;
mod ram;
mod shortage;
mod stats;
pub mod store;
mod task;
mod window;

pub use arena::{Arena, ArenaOptions};
pub use config::{Hole, MachineConfig, MachineError};
pub use cpu::CpuGuard;
pub use flush::{Defects, FlushRecord};
pub use machine::{AccessHook, Machine};
pub use stats::{CpuStats, MachineStats};
pub use store::{BackingStore, PatternStore};
pub use task::Scheduler;
