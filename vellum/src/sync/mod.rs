//! The only door to atomics, locks, per-CPU data and epochs.
//!
//! Everything above uses these types and no others, so that one source runs on
//! the processor's atomics, on instrumented ones that report every access, so
//! that accesses are counted, priced or reordered (`cfg(vellum_instrumented)`),
//! and, for the protocols of this folder, under a model checker
//! (`cfg(vellum_loom)`).
//!
//! Spin locks are taken with a [`Pin`]: whoever holds one cannot be preempted
//! on its CPU and cannot sleep.

mod announce;
pub mod atomic;
#[cfg(not(vellum_loom))]
mod batched;
#[cfg_attr(vellum_loom, allow(dead_code, reason = "the models use a part of it"))]
mod bit;
pub mod bytes;
mod counter;
mod crew;
mod cuts;
mod epoch;
mod held;
#[cfg_attr(vellum_loom, allow(dead_code, reason = "the models use a part of it"))]
pub(crate) mod limbo;
#[cfg_attr(vellum_loom, allow(dead_code, reason = "the models use a part of it"))]
pub(crate) mod list;
mod meet;
mod nested;
#[cfg(not(vellum_loom))]
mod once;
mod percpu;
mod queue;
mod range;
#[cfg(not(vellum_instrumented))]
pub(crate) mod report;
#[cfg(vellum_instrumented)]
pub mod report;
mod seq;
mod spin;
mod turns;
#[cfg_attr(vellum_loom, allow(dead_code, reason = "the models use a part of it"))]
mod underway;
mod unpinned;
#[cfg_attr(vellum_loom, allow(dead_code, reason = "no model has users"))]
pub(crate) mod users;
mod wait;

pub(crate) use announce::Expected;
pub use announce::{Announcements, RegionGate, SharedAccess};
#[cfg(not(vellum_loom))]
pub(crate) use batched::BatchedCounts;
#[cfg(not(vellum_loom))]
pub(crate) use bit::set_beside;
pub use bit::{BitGuard, BitLock};
pub use counter::Counter;
pub(crate) use crew::Crew;
pub(crate) use cuts::CutCount;
pub use epoch::{EpochStamp, Epochs, Pin, PinHost};
pub(crate) use held::Held;
pub(crate) use meet::{
    ActiveCpus, ActiveSet, CarriedMark, CpuRoom, DirtyMarks, Length, ManyActiveCpus,
};
pub(crate) use nested::NestedLock;
#[cfg(not(vellum_loom))]
pub(crate) use once::OnceBox;
pub use percpu::{CachePadded, PerCpu};
#[cfg(vellum_loom)]
pub use queue::{QueueNode, Queues, Tail};
pub(crate) use range::{HeldRange, RangeLock};
pub use seq::{SeqCount, SeqWrite};
pub use spin::{SpinGuard, SpinLock};
pub(crate) use turns::{LockTurn, Turn};
pub(crate) use underway::Underway;
pub(crate) use unpinned::{MaybePinned, SleepHost, Unpinned};
pub(crate) use wait::{SleepLock, WaitTable};
