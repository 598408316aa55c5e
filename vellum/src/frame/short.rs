//! Nodes that are short of memory, and who is told so.

use alloc::boxed::Box;

use super::memory::PhysicalMemory;
use super::zones::ZoneFrames;
use crate::platform::{Machine, NodeId};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{CachePadded, Pin};

/// What makes room for items of a type of which there are as many as there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Relief {
    /// What makes room in memory: pages that leave have their items freed.
    Memory,
    /// That pages of files leave.
    Files,
    /// Only that others give items back.
    Others,
}

impl<P: Machine> PhysicalMemory<P> {
    /// A call on this CPU is refused although there may be free frames, because of how many items
    /// there are: frames would not help it, but this may.
    #[cold]
    pub(crate) fn note_refusal(&self, pin: &Pin<'_>, relief: Relief) {
        let word = &self.cpus.get(pin).relief;
        word.store(relief as u32, Ordering::Relaxed);
    }

    /// What [`PhysicalMemory::note_refusal`] was told last on this CPU since it was asked. It
    /// may have been of a call that went on without the item, or of another task: a caller that
    /// is told something else than [`Relief::Memory`] tries once more before it gives up.
    pub(crate) fn take_refusal(&self, pin: &Pin<'_>) -> Relief {
        let word = &self.cpus.get(pin).relief;
        let noted = word.load(Ordering::Relaxed);
        word.store(Relief::Memory as u32, Ordering::Relaxed);
        match noted {
            noted if noted == Relief::Files as u32 => Relief::Files,
            noted if noted == Relief::Others as u32 => Relief::Others,
            _ => Relief::Memory,
        }
    }

    /// Has the platform told from now on when a node is short ([`Machine::wake_reclaim`]).
    pub(crate) fn tell_of_shortage(&mut self) {
        let nodes = self.platform.nodes();
        let woken = (0..nodes).map(|_| CachePadded(AtomicU32::new(0)));
        self.woken = Some(woken.collect());
    }

    /// Tells the platform if the CPU's node is below a low watermark and nobody has been told.
    #[inline]
    pub(super) fn wake_if_short(&self, pin: &Pin<'_>) {
        if let Some(woken) = &self.woken
            && self.is_short(pin)
        {
            let node = self.cpus.get(pin).node;
            let woken = &woken[usize::from(node.0)];
            if woken.load(Ordering::Relaxed) == 0 && woken.swap(1, Ordering::Relaxed) == 0 {
                self.platform.wake_reclaim(node);
            }
        }
    }

    /// The same of a node, by a CPU that may be on another.
    pub(super) fn wake_node(&self, node: NodeId) {
        let is_low = |zone: &ZoneFrames| zone.free() < zone.info.low;
        if let Some(woken) = (self.woken.as_ref()).and_then(|all| all.get(usize::from(node.0)))
            && self.zones_of(node).any(is_low)
            && woken.load(Ordering::Relaxed) == 0
            && woken.swap(1, Ordering::Relaxed) == 0
        {
            self.platform.wake_reclaim(node);
        }
    }

    /// Whether an allocation has ever found no frame. (Planned failures do not look for one.)
    pub(crate) fn was_short(&self) -> bool {
        self.shortage.load(Ordering::Relaxed) != 0
    }

    /// The node's reclaim begins: the platform is told anew from now on.
    pub(crate) fn reclaim_begins(&self, node: NodeId) {
        let woken = self.woken.as_ref();
        if let Some(woken) = woken.and_then(|woken| woken.get(usize::from(node.0))) {
            woken.store(0, Ordering::Relaxed);
        }
    }

    fn zones_of(&self, node: NodeId) -> impl Iterator<Item = &ZoneFrames> {
        let zones = self.zones.all.iter();
        zones.filter(move |zone| zone.info.node == node)
    }

    /// Frames that the node's zones lack to their high watermarks.
    pub(crate) fn lacking(&self, node: NodeId) -> u64 {
        self.zones_of(node)
            .map(|zone| zone.info.high.saturating_sub(zone.free()))
            .sum()
    }

    /// Frames of a node.
    pub(crate) fn frames_of(&self, node: NodeId) -> u64 {
        self.zones_of(node).map(|zone| zone.info.total).sum()
    }

    /// The number of each zone's node.
    pub(crate) fn nodes_of_zones(&self) -> Box<[u16]> {
        self.zones.all.iter().map(|zone| zone.info.node.0).collect()
    }

    /// The node of the pin's CPU.
    pub(crate) fn home(&self, pin: &Pin<'_>) -> NodeId {
        self.cpus.get(pin).node
    }
}
