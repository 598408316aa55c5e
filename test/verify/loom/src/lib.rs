//! The core's protocols under loom, which tries every order of their steps and
//! every value that a load may return.
//!
//! The sources are the core's own, unchanged, over loom's atomics: the `sync`
//! folder, the caches, depot and numbers of `slab`, the lists of free page tables, the frame record,
//! the page lock, the errors of writing back, nodes at rest, the bundles of anonmm, and the delayed
//! invalidation of pv entries and the order in which their pages are taken back.
//! What a model needs beside them (a platform, a memory of one frame) is in
//! [`frame`] and in the models. Each protocol has a model that must pass, and
//! models of the protocol with one step left out that must be seen to fail.
//!
//! `cargo test -p vellum-loom` runs them, with at most [`PREEMPTIONS`]
//! involuntary switches in a run; `LOOM_MAX_PREEMPTIONS` overrides that.

extern crate alloc;

#[allow(dead_code, reason = "the models use a part of it")]
#[path = "../../../../vellum/src/addr.rs"]
pub mod addr;
#[allow(dead_code, reason = "the models use a part of it")]
#[path = "../../../../vellum/src/platform.rs"]
pub mod platform;
#[allow(dead_code, unused_imports, reason = "the models use a part of it")]
#[path = "../../../../vellum/src/sync/mod.rs"]
pub mod sync;

#[cfg(test)]
#[path = "../../../../vellum/src/published/rmap/bundle.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod bundle;
#[cfg(test)]
#[path = "../../../../vellum/src/published/sync/byte.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod byte;
#[cfg(test)]
#[path = "../../../../vellum/src/slab/cache.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod cache;
/// What the order of chunks names and the models do not use.
#[cfg(test)]
#[allow(dead_code, reason = "the models use a part of it")]
mod design {
    pub enum PvLru {
        Domain,
        Global,
        Pmap,
    }
}
#[cfg(test)]
mod slab {
    pub struct Arena<T>(pub T);
}
#[cfg(test)]
#[path = "../../../../vellum/src/published/rmap/pv/delayed.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod delayed;
#[cfg(test)]
#[path = "../../../../vellum/src/object/errors.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod errors;
#[cfg(test)]
#[path = "../../../../vellum/src/rmap/family/kin.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod kin;
#[cfg(test)]
#[path = "../../../../vellum/src/published/table/lists.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod lists;
#[cfg(test)]
#[path = "../../../../vellum/src/slab/numbers.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod numbers;
#[allow(dead_code, reason = "the models use a part of it")]
#[path = "../../../../vellum/src/object/page_lock.rs"]
pub mod page_lock;
#[cfg(test)]
#[path = "../../../../vellum/src/published/rmap/anon_vma/list.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod relatives;
#[cfg(test)]
#[path = "../../../../vellum/src/reclaim/rest.rs"]
mod rest;

pub mod frame;

/// Involuntary switches in one run of a model. Known bugs of such protocols
/// need two or fewer.
pub const PREEMPTIONS: usize = 3;

#[cfg(test)]
mod models;
