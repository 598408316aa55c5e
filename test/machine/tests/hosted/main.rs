//! The hosted machine: what it promises as a platform, its MMU and walkers, and its backing
//! stores. One program, because each has to be linked with the core.

mod common;
mod flush_waits;
mod format_tables;
mod mmu;
mod platform;
mod random_tables;
mod runs;
mod stores;
mod walkers;
