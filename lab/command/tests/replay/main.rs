//! Replays: what is prepared, verified, found wrong, and left behind.

mod by_task;
mod defects;
mod formats;
mod prepare;
mod random;
mod reclaim;
mod sampled;
mod simulated;
mod superpages;
#[path = "../support/mod.rs"]
mod support;
mod tmpfs;
mod together;
mod verify;

#[global_allocator]
static HEAP: vellum_scale::PlacedHeap = vellum_scale::PlacedHeap;
