//! Memory for the manager's own nodes: typed, type-stable arenas over page
//! frames, with 32-bit handles.
//!
//! A slot that was a `T` once stays a `T` for good: it is used anew for another
//! `T`, never for anything else. So a stale handle can be followed at any time;
//! what is found must be re-verified. Slots move between a CPU's cache and the
//! arena's depot in batches, and only then is a lock taken.
//!
//! The frames of an arena stay its own as long as it lives.

mod arena;
mod audit;
mod batch;
mod cache;
mod directory;
mod handle;
mod maker;
mod numbers;

#[cfg(test)]
mod tests;

pub use arena::{Arena, Item};
pub use audit::{ArenaCensus, ArenaStats};
pub use batch::Batch;
pub use handle::Handle;
pub use maker::ArenaMaker;
