//! What the lab can run a workload on.
//!
//! The lab does not know the type parameters of the core. It talks to a
//! [`dyn Engine`](Engine): a memory manager of one design on one simulated
//! machine, which executes batches of [`Op`]s. A batch crosses the virtual
//! call once, so the price of dynamic dispatch is paid per slice and not per
//! page fault.
//!
//! Pages are the trace's 4 KiB pages everywhere in this module.

pub mod op;

pub use op::{
    Access, Advice, Backing, Divergence, Engine, EngineError, FileSlot, Op, OpError, Outcome, Prot,
    Sharing, SpaceSlot,
};
