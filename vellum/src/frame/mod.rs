//! Physical memory: the frame table, nodes and zones, the buddy allocator and
//! per-CPU lists.
//!
//! A frame is in exactly one place at any time: a buddy list of its zone, a
//! list of one CPU, waiting for its epoch, or handed out. Single frames move
//! between the last three without a lock or a read-modify-write; everything
//! else is under the zone's lock, of which a CPU holds one at most and takes
//! nothing under it.

mod audit;
mod buddy;
mod content;
mod cpu;
mod give_back;
mod inject;
mod keeper;
mod memory;
mod record;
mod report;
mod request;
mod reserve;
mod site;
mod table;
mod zeroed;
mod zones;

#[cfg(test)]
mod tests;

pub(crate) use cpu::Ring;
pub use keeper::Keeper;
pub use memory::PhysicalMemory;
pub use record::{Counts, Flags, Frame, Kind, MAX_MAPPINGS, MAX_PINS, MappingsCounted};
pub use report::{AuditError, AuditPlace, FrameCensus, FrameStats, SetupError, ZoneStats};
pub use request::{FailAt, OutOfMemory, Request};
pub use site::Site;
pub use zeroed::FreedTables;

/// Log2 of the frames in the largest block.
pub const MAX_ORDER: u32 = 10;
