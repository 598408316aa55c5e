//! Sources of page tables that keep some apart from the allocator's free frames.

mod keep;
pub(crate) mod lists;
mod quicklist;
mod warm;

#[cfg(test)]
mod tests;

pub use quicklist::Quicklist;
pub use warm::Warm;

use alloc::sync::Arc;

use crate::design::{Design, TableSource};
use crate::frame::PhysicalMemory;
use crate::platform::Machine;
use crate::table::TablePages;

/// The source that a design names, if it is one of these.
pub(crate) fn source_of<P: Machine>(
    design: &Design,
    memory: &PhysicalMemory<P>,
) -> Option<Arc<dyn TablePages<P>>> {
    match design.table_source {
        TableSource::Fresh | TableSource::Noted | TableSource::ZeroAware => None,
        TableSource::Quicklist => Some(Arc::new(Quicklist::new(design, memory))),
        TableSource::Warm => Some(Arc::new(Warm::new(memory))),
        TableSource::Depot => Some(Arc::new(Warm::with_depots(memory))),
    }
}
