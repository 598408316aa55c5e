//! Replays: what is prepared, verified, found wrong, and left behind.

mod by_task;
mod defects;
mod formats;
mod prepare;
mod random;
mod reclaim;
mod sampled;
mod superpages;
#[path = "../support/mod.rs"]
mod support;
mod tmpfs;
mod together;
mod verify;
