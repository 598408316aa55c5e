//! As much of physical memory as the page lock needs: one frame.

#[path = "../../../../vellum/src/frame/record.rs"]
#[allow(dead_code, unused_imports, reason = "the models use a part of it")]
mod record;

pub use record::{Frame, Kind, MappingsCounted, PageFlags};

use crate::addr::Pfn;
use crate::platform::{CpuId, NodeId, Platform};
use crate::sync::{Epochs, Pin, PinHost, SleepHost};

/// A memory of one frame, and the pins of those who use it.
pub struct PhysicalMemory<P: Platform> {
    platform: P,
    frame: Frame,
    epochs: Epochs,
}

impl<P: Platform> PhysicalMemory<P> {
    /// The frame, with a clean record.
    pub fn new(platform: P) -> Self {
        PhysicalMemory {
            epochs: Epochs::new(platform.cpus()),
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

impl<P: Platform> PinHost for PhysicalMemory<P> {
    fn unpin(&self, cpu: CpuId) {
        self.platform.unpin(cpu);
    }

    fn relax(&self, _: CpuId, spins: u32) {
        self.platform.relax(spins);
    }
}

impl<P: Platform> SleepHost for PhysicalMemory<P> {
    type Platform = P;

    fn platform(&self) -> &P {
        &self.platform
    }

    fn pin(&self) -> Pin<'_> {
        let cpu = self.platform.pin();
        // SAFETY: each thread of a model has a CPU of its own.
        unsafe { self.epochs.enter(self, cpu) }
    }
}
