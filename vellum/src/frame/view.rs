//! What code other than the memory manager may see and do.

use alloc::boxed::Box;

use super::memory::PhysicalMemory;
use super::owned::OwnedBlock;
use super::record::{Counts, Frame, Kind};
use super::report::{FrameStats, ZoneStats};
use super::request::{FailAt, OutOfMemory, Request};
use super::site::Site;
use super::zones::ZoneFrames;
use crate::addr::Pfn;
use crate::platform::{Machine, NodeId};
use crate::sync::Pin;

/// Physical memory as those see it who share it with a manager: statistics,
/// records to read, planned failures, and frames of their own.
///
/// It is the only way to the memory of a [`Vm`](crate::Vm), and leads to nothing that
/// could free, change or forge what is somebody else's.
pub struct MemoryView<'m, P: Machine> {
    memory: &'m PhysicalMemory<P>,
}

impl<P: Machine> Clone for MemoryView<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Machine> Copy for MemoryView<'_, P> {}

impl<P: Machine> PhysicalMemory<P> {
    /// The memory without what only its manager may do.
    #[inline]
    pub fn view(&self) -> MemoryView<'_, P> {
        MemoryView { memory: self }
    }
}

impl<'m, P: Machine> MemoryView<'m, P> {
    /// Hands out a block of `1 << request.order` frames, aligned to its size.
    /// [`Vm::audit`](crate::Vm::audit) counts frames held so as the embedder's.
    ///
    /// # Errors
    /// [`OutOfMemory`] if no zone that the request allows has such a block, or
    /// the failure was planned.
    pub fn alloc(self, pin: &Pin<'_>, request: Request) -> Result<OwnedBlock<'m, P>, OutOfMemory> {
        self.memory.alloc_owned(pin, request)
    }

    /// A block that [`OwnedBlock::into_raw`] gave up.
    ///
    /// # Safety
    /// As for [`OwnedBlock::from_raw`].
    #[inline]
    pub unsafe fn adopt(self, first: Pfn, order: u32) -> OwnedBlock<'m, P> {
        // SAFETY: the caller's promise.
        unsafe { OwnedBlock::from_raw(self.memory, first, order) }
    }

    /// What is known about a frame. Panics if `pfn` lies outside of the lowest to
    /// highest frame of the memory map.
    #[inline]
    pub fn frame(self, pfn: Pfn) -> FrameView<'m> {
        FrameView {
            record: self.memory.frame(pfn),
        }
    }

    /// Whether the memory map has the frame.
    pub fn contains(self, pfn: Pfn) -> bool {
        self.memory.contains(pfn)
    }

    /// The lowest frame of the memory map, and the one after the highest.
    pub fn span(self) -> (Pfn, Pfn) {
        let map = self.memory.platform().memory_map();
        let (first, last) = (&map[0], &map[map.len() - 1]);
        (first.start, last.start.offset(last.frames))
    }

    /// Number of the zone that a frame is of; of a hole, that of any.
    pub fn zone_of(self, pfn: Pfn) -> usize {
        // Not by the record: that of a frame within a block may never have been written.
        let map = self.memory.platform().memory_map();
        let after = map.partition_point(|range| range.start <= pfn);
        let range = &map[after.saturating_sub(1)];
        let mut zones = self.memory.zones.all.iter();
        let is_its =
            |zone: &ZoneFrames| (zone.info.node, zone.info.zone) == (range.node, range.zone);
        zones.position(is_its).unwrap_or(0)
    }

    /// The number of each zone's node.
    pub(crate) fn nodes_of_zones(self) -> Box<[u16]> {
        self.memory.nodes_of_zones()
    }

    /// CPUs that take frames.
    pub fn cpus(self) -> usize {
        self.memory.platform().cpus()
    }

    /// Frames of the memory map, holes not counted.
    pub fn frame_count(self) -> usize {
        self.memory.frame_count()
    }

    /// Bytes in a frame.
    pub fn frame_size(self) -> usize {
        self.memory.frame_size()
    }

    /// Counts of frames and events. Walks all CPUs and zones.
    pub fn stats(self) -> FrameStats {
        self.memory.stats()
    }

    /// Number of zones. Each node has one of each kind that it has memory of.
    pub fn zone_count(self) -> usize {
        self.memory.zone_count()
    }

    /// The state of a zone, by number.
    pub fn zone_stats(self, zone: usize, pin: &Pin<'_>) -> ZoneStats {
        self.memory.zone_stats(zone, pin)
    }

    /// Says how many pages in a row a node gets by
    /// [`NodePolicy::WeightedInterleave`](super::NodePolicy::WeightedInterleave), of whomever; 1 at
    /// first. Pages that are there stay. False, and nothing done, if the weight is 0, or a policy
    /// cannot name the node.
    pub fn set_node_weight(self, node: NodeId, weight: u8) -> bool {
        self.memory.set_node_weight(node, weight)
    }

    /// Gives the CPU's lists back to the zones: [`PhysicalMemory::drain`].
    pub fn drain(self, pin: &Pin<'_>) {
        self.memory.drain(pin);
    }

    /// Installs or removes a planned failure: [`PhysicalMemory::inject`].
    pub fn inject(self, plan: Option<FailAt>) {
        self.memory.inject(plan);
    }

    /// Allocations at `site` since a plan was last installed.
    pub fn reached(self, site: Site) -> u64 {
        self.memory.reached(site)
    }
}

/// The record of a frame, to read. Others change it at the same time.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'m> {
    record: &'m Frame,
}

impl FrameView<'_> {
    /// Where the frame is.
    #[inline]
    pub fn kind(self) -> Kind {
        self.record.kind()
    }

    /// References, mappings and pins.
    pub fn counts(self) -> Counts {
        self.record.counts()
    }

    /// Handle of the object or space; meaning depends on the kind and design.
    pub fn owner(self) -> u32 {
        self.record.owner()
    }

    /// Index in the object, in frames, or as the design defines it.
    pub fn index(self) -> u64 {
        self.record.index()
    }

    /// Where the record lies, for tools that tell accesses apart.
    pub fn address(self) -> usize {
        core::ptr::from_ref(self.record).addr()
    }
}
