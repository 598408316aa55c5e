//! A virtual-memory manager to be linked into kernels, hypervisors,
//! unikernels and simulators.
#![no_std]

extern crate alloc;

pub mod addr;
pub mod frame;
pub mod platform;
pub mod sync;
