//! Physical memory: the frame table, nodes and zones, the buddy allocator and
//! per-CPU lists.

mod record;
mod site;

pub use record::{Counts, Flags, Frame, Kind, MAX_MAPPINGS, MAX_PINS};
pub use site::Site;
