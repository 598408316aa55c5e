//! The core's protocols under loom, which tries every order of their steps and
//! every value that a load may return.
//!
//! The sources are the core's own, unchanged, over loom's atomics: the `sync`
//! folder, the caches and depot of `slab`, the frame record, and the page lock.
//! What a model needs beside them (a platform, a memory of one frame) is in
//! [`frame`] and in the models. Each protocol has a model that must pass, and
//! models of the protocol with one step left out that must be seen to fail.
//!
//! `cargo test -p vellum-loom` runs them, with at most [`PREEMPTIONS`]
//! involuntary switches in a run; `LOOM_MAX_PREEMPTIONS` overrides that.

extern crate alloc;

#[path = "../../../vellum/src/addr.rs"]
pub mod addr;
#[path = "../../../vellum/src/platform.rs"]
pub mod platform;
#[path = "../../../vellum/src/sync/mod.rs"]
pub mod sync;

#[cfg(test)]
#[path = "../../../vellum/src/slab/cache.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod cache;
#[path = "../../../vellum/src/object/page_lock.rs"]
pub mod page_lock;

pub mod frame;

/// Involuntary switches in one run of a model. Known bugs of such protocols
/// need two or fewer.
pub const PREEMPTIONS: usize = 3;

#[cfg(test)]
mod models;
