//! What the lab can run a workload on.
//!
//! The lab does not know the type parameters of the core. It talks to a
//! [`dyn Engine`](Engine): a memory manager of one design on one simulated
//! machine, which executes batches of [`Op`]s. A batch crosses the virtual
//! call once, so the price of dynamic dispatch is paid per slice and not per
//! page fault.
//!
//! [`build`] knows the instances that exist: four reverse mappings on x86-64, and with the feature
//! `designs` every one there, and one on every other format, or two. [`CoreEngine`] is public, so
//! that tests can run instances of their own, with faults built in.
//!
//! Pages are those of the engine's format everywhere in this crate: 4 KiB as in
//! a trace, or larger ([`Engine::pages`]).
//!
//! `vellum-engine-counted` compiles every file of this crate but `op.rs` and
//! `meter.rs` once more, over a core that reports its atomic operations.
//! `vellum-scale` compiles those that need no hosted machine, for simulated CPUs.

mod build;
mod calls;
mod core_counters;
mod core_engine;
mod counters;
mod execute;
mod executor;
mod groups;
mod instances;
mod meter;
pub mod op;
mod pages;
mod slots;

pub use build::{Config, build, check, machine};
pub use core_engine::CoreEngine;
pub use instances::ALL;
pub use op::{
    Access, Advice, Backing, Call, Divergence, Engine, EngineError, FileSlot, GroupName, GroupUse,
    Groups, Leaf, Op, OpError, Outcome, Pages, Prot, Sharing, SpaceSlot, pristine_word,
    written_word,
};
pub use pages::{fault_around_of, gives, has_groups, is_built_in, pages_of, reclaims};
pub use vellum::design::{OptionInfo, Preset};
pub use vellum_machine::store::DeviceModel;
pub use vellum_machine::{Arena, ArenaOptions};

/// The published kernels that `as=` names, for help texts and lists.
pub fn presets() -> &'static [Preset] {
    vellum::design::PRESETS
}

/// The design options, for help texts and lists.
pub fn options() -> &'static [OptionInfo] {
    vellum::design::OPTIONS
}
