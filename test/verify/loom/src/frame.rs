//! As much of physical memory as the page lock needs: one frame.

#[path = "../../../../vellum/src/frame/record.rs"]
#[allow(dead_code, unused_imports, reason = "the models use a part of it")]
mod record;

pub use record::{Frame, Kind, MappingsCounted, PageFlags};

use crate::addr::Pfn;
use crate::platform::{NodeId, Platform};

/// A memory of one frame.
pub struct PhysicalMemory<P: Platform> {
    platform: P,
    frame: Frame,
}

impl<P: Platform> PhysicalMemory<P> {
    /// The frame, with a clean record.
    pub fn new(platform: P) -> Self {
        PhysicalMemory {
            platform,
            frame: Frame::default(),
        }
    }

    /// The platform.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// The only node.
    pub fn node_of(&self, _: Pfn) -> NodeId {
        NodeId(0)
    }

    /// The record of the one frame.
    pub fn frame(&self, _pfn: Pfn) -> &Frame {
        &self.frame
    }
}
