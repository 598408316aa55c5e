//! Memory for the manager's own nodes: typed, type-stable arenas over page
//! frames, with 32-bit handles.
//!
//! A slot that was a `T` once stays a `T`: it is used anew for another
//! `T`, never for anything else. So a stale handle can be followed;
//! what is found must be re-verified. Slots move between a CPU's cache and the
//! arena's depot in batches, and only then is a lock taken.
//!
//! How long that holds is part of an arena's type. The frames of most stay theirs as long as they
//! live ([`ForGood`]): spaces, regions and objects, whose handles and addresses CPUs keep from one
//! pin to the next. Nodes of which many come and go are followed under a pin only
//! ([`WhilePinned`]), and frames that have become empty are given back when memory is wanted.

mod arena;
mod audit;
mod batch;
mod cache;
mod directory;
mod handle;
mod home;
mod maker;
mod numbers;
mod pinned;

#[cfg(test)]
mod tests;

pub use arena::{Arena, Item};
pub use audit::{ArenaCensus, ArenaStats};
pub use batch::Batch;
pub use handle::Handle;
pub use maker::ArenaMaker;
pub use pinned::{AtHand, ForGood, Stay, Under, WhilePinned};
