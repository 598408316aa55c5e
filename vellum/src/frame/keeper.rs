//! Layers above the allocator that keep free frames.

use super::cpu::CpuFrames;
use super::memory::PhysicalMemory;
use super::report::{AuditError, ZoneStats};
use super::request::Request;
use crate::addr::Pfn;
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

/// Who keeps all free frames instead of this module's lists ([`PhysicalMemory`] asks wherever
/// a list of its own has nothing or is full).
pub(crate) trait KeepsFrames<P: Machine>: Send + Sync {
    /// A block for a request, of the zones that it may have.
    fn take(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, request: &Request) -> Option<Pfn>;

    /// Keeps a free single frame, which is marked as cached.
    fn give(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, frame: Pfn);

    /// Gives a block that is marked as cached back to its zone.
    fn give_block(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, first: Pfn, order: u32);

    /// Gives what is kept for this CPU back to the zones.
    fn drain(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, cpu: &CpuFrames);

    /// So many more pages of a zone are newer than their files.
    fn note_dirty(&self, pin: &Pin<'_>, zone: usize, change: i32);

    /// How many are, in all zones.
    fn dirty(&self) -> u64;

    /// Frames that are kept for CPUs.
    fn cached(&self) -> u64;

    /// What there is of a zone.
    fn zone_stats(&self, zone: usize, stats: ZoneStats, pin: &Pin<'_>) -> ZoneStats;

    /// Marks the frames that are kept, while nothing else runs.
    ///
    /// # Errors
    /// The first that is not as its record says.
    fn audit(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>) -> Result<(), AuditError>;
}
