//! Layers above the allocator that keep free frames.

use super::memory::PhysicalMemory;
use crate::platform::{CpuId, Machine};
use crate::sync::Pin;
use crate::sync::limbo::Limbo;

/// A layer above the allocator that keeps frames which nobody uses, to have them
/// at hand, and can do without them.
pub trait Keeper<P: Machine>: Send + Sync {
    /// Frees what is kept for this CPU. Called when an allocation failed or
    /// left a zone below its low watermark, and when the CPU gives back its
    /// lists; no lock is held.
    fn give_up(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>);

    /// Page tables that wait on a CPU for their epoch, if the layer has them wait by itself.
    /// A CPU that is out of memory takes those whose epoch has passed.
    fn limbo(&self, cpu: CpuId) -> Option<&Limbo> {
        let _ = cpu;
        None
    }
}
