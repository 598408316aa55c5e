//! Benchmarks on the core.

pub mod buildkernel;
pub mod descent;
pub mod families;
pub mod files;
pub mod forkfault;
pub mod frames;
pub mod io;
pub mod lat_mmap;
pub mod loopdd;
pub mod ops;
pub mod pft;
pub mod primitives;
pub mod run;
pub mod script;
pub mod traces;
mod used;
