//! Layers above the allocator that keep free frames.

use super::memory::PhysicalMemory;
use crate::platform::Platform;
use crate::sync::Pin;

/// A layer above the allocator that keeps frames which nobody uses, to have them
/// at hand, and can do without them.
pub trait Keeper<P: Platform>: Send + Sync {
    /// Frees what is kept for this CPU. Called when an allocation failed or
    /// left a zone below its low watermark, and when the CPU gives back its
    /// lists; no lock is held.
    fn give_up(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>);
}
