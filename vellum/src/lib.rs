//! A virtual-memory manager to be linked into kernels, hypervisors,
//! unikernels and simulators.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod addr;
pub mod design;
pub mod frame;
pub mod object;
pub mod platform;
pub mod rmap;
pub mod slab;
pub mod space;
pub mod sync;
pub mod table;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod vm;

pub use design::Design;
pub use object::ObjectId;
pub use space::{SpaceId, Vm};
