//! Free frames in linked lists, as Linux 3.15 kept them (`framelists=linked`), to be
//! compared with runs.
//!
//! Each CPU has, for each zone, a list for each kind of page. One frame moves at a time,
//! by its record, which has the links. What the patches of 2014 changed are
//! options: `zonecache`, `blockflags`, `buddycheck`, `marks`.
//!
//! The lists of the default stay where they are, empty and closed, so that every request
//! and every free frame comes to the slow paths, which ask for these. Blocks of zero
//! frames are not kept apart here; a single frame's mark survives in a CPU's list.

mod audit;
mod blocks;
mod buddy;
mod dirty;
mod full;
mod list;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use crate::addr::Pfn;
use crate::design::{Design, FrameLists, MarkChecks};
use crate::frame::PhysicalMemory;
use crate::frame::cpu::CpuFrames;
use crate::frame::zones::ZoneFrames;
use crate::frame::{AuditError, KeepsFrames, MAX_ORDER, Request, Site, ZoneStats};
use crate::platform::{Machine, NodeId, Zone};
use crate::sync::{CachePadded, PerCpu, Pin, SpinGuard, SpinLock};
use blocks::BlockKinds;
use buddy::TypedLists;
use dirty::ZonesDirty;
use full::FullZones;
use list::{FrameList, Mobility};

/// Part of a zone's frames that moves between a CPU and the zone at once, and the most.
const BATCH: (u64, u64) = (4096, 31);
/// Batches that a CPU keeps for a zone.
const HIGH_BATCHES: u32 = 6;

/// What a CPU keeps of one zone's frames.
#[derive(Default)]
struct CpuLists {
    kinds: [FrameList; 2],
}

impl CpuLists {
    fn len(&self) -> u32 {
        self.kinds.iter().map(FrameList::len).sum()
    }
}

/// What there is of one zone.
struct LinkedZone {
    lists: CachePadded<SpinLock<TypedLists>>,
    kinds: BlockKinds,
    batch: u32,
}

/// Free frames of all zones and CPUs.
struct Linked {
    marks: MarkChecks,
    zones: Box<[LinkedZone]>,
    cpus: PerCpu<Box<[CpuLists]>>,
    full: FullZones,
    dirty: ZonesDirty,
}

/// How one pass over the zones is made.
#[derive(Clone, Copy)]
struct Pass {
    /// The node whose order of zones it is.
    node: NodeId,
    /// Looks at zones that were found full, too.
    all: bool,
    /// Leaves out zones with as many dirty pages as they may have.
    limited: bool,
}

/// The kind of page that a request is for.
fn mobility_of(site: Site) -> Mobility {
    match site {
        Site::AnonymousPage
        | Site::CopyOnWrite
        | Site::ForkCopy
        | Site::CachePage
        | Site::Superpage => Mobility::Movable,
        _ => Mobility::Unmovable,
    }
}

impl Linked {
    /// Frames that CPUs keep of all zones.
    fn cached(&self) -> u64 {
        let lists = self.cpus.iter().flatten();
        lists.map(|lists| u64::from(lists.len())).sum()
    }

    /// What there is of one zone.
    fn zone_stats(&self, zone: usize, stats: ZoneStats, pin: &Pin<'_>) -> ZoneStats {
        let lists = self.zones[zone].lists.lock(pin);
        ZoneStats {
            free: lists.free(),
            zeroed: 0,
            blocks: lists.blocks(),
            ..stats
        }
    }
}

impl<P: Machine> KeepsFrames<P> for Linked {
    fn take(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, request: &Request) -> Option<Pfn> {
        memory.alloc_linked(self, pin, request)
    }

    fn give(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, frame: Pfn) {
        memory.free_linked(self, pin, frame);
    }

    fn give_block(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, first: Pfn, order: u32) {
        memory.give_block_linked(self, pin, first, order);
    }

    fn drain(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, cpu: &CpuFrames) {
        memory.drain_linked(self, pin, cpu);
    }

    fn note_dirty(&self, pin: &Pin<'_>, zone: usize, change: i32) {
        self.dirty.add(pin, zone, change);
    }

    fn dirty(&self) -> u64 {
        self.dirty.total()
    }

    fn cached(&self) -> u64 {
        self.cached()
    }

    fn zone_stats(&self, zone: usize, stats: ZoneStats, pin: &Pin<'_>) -> ZoneStats {
        self.zone_stats(zone, stats, pin)
    }

    fn audit(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>) -> Result<(), AuditError> {
        memory.audit_linked(self, pin)
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Keeps free frames as the design says from now on, before any is in use but those
    /// that were reserved.
    pub(crate) fn keep_lists_of(&mut self, design: &Design) {
        if design.frame_lists == FrameLists::Linked {
            self.other_lists = Some(Box::new(self.lists_of(design)));
            self.counts_dirty = true;
        }
    }

    /// Linked lists with all free frames, which leave the other lists, and those closed.
    fn lists_of(&mut self, design: &Design) -> Linked {
        let map = self.platform.memory_map();
        let (first, last) = (map[0].start, &map[map.len() - 1]);
        let end = last.start.offset(last.frames);
        let zones = (0..).zip(&mut self.zones.all).map(|(number, zone)| {
            let mut lists = TypedLists::new(number, design.buddy_check);
            let free = zone.lists.0.get_mut();
            for order in (0..=MAX_ORDER).rev() {
                while let Some(pfn) = free.take_exact(&self.table, order) {
                    lists.give(&self.table, pfn, order, Mobility::Movable);
                }
            }
            let batch = (zone.info.total / BATCH.0).clamp(1, BATCH.1);
            LinkedZone {
                lists: CachePadded(SpinLock::new(lists)),
                kinds: BlockKinds::new(first, end, design.block_flags),
                batch: batch as u32,
            }
        });
        let zones: Box<[LinkedZone]> = zones.collect();
        for cpu in self.cpus.iter_mut() {
            cpu.close();
        }
        let cpu_lists = || zones.iter().map(|_| CpuLists::default()).collect();
        Linked {
            marks: design.mark_checks,
            cpus: PerCpu::new(self.platform.cpus(), |_| cpu_lists()),
            full: FullZones::new(design.zone_cache, self.platform.nodes()),
            dirty: ZonesDirty::new(zones.len(), self.platform.cpus()),
            zones,
        }
    }

    /// A block for a request, of the zones that it may have, in its node's order.
    fn alloc_linked(&self, linked: &Linked, pin: &Pin<'_>, request: &Request) -> Option<Pfn> {
        let node = request.node.unwrap_or(self.cpus.get(pin).node);
        let first = Pass {
            node,
            all: false,
            limited: request.dirty,
        };
        // All that the cache calls full is looked at again; then it does not matter how
        // much is dirty.
        let again = Pass { all: true, ..first };
        let last = Pass {
            limited: false,
            ..again
        };
        let (asked, limited) = (linked.full.is_asked(), request.dirty);
        let passes = [(true, first), (asked, again), (limited, last)];
        let mut passes = passes.iter().filter(|(wanted, _)| *wanted);
        passes.find_map(|(_, pass)| self.search(linked, pin, request, *pass))
    }

    /// One pass over the zones (Linux's `get_page_from_freelist`).
    fn search(
        &self,
        linked: &Linked,
        pin: &Pin<'_>,
        request: &Request,
        Pass { node, all, limited }: Pass,
    ) -> Option<Pfn> {
        let mut asks = false;
        let class = self.class_of(request);
        for (place, &number) in self.zones.fallback(node).iter().enumerate() {
            let zone = self.zones.get(number);
            if asks && !linked.full.is_worth(node, place) {
                continue;
            }
            let class = match linked.marks {
                MarkChecks::Late => class,
                MarkChecks::Early => self.class_of(request),
            };
            let allowed = (class == Zone::High || zone.info.zone == Zone::Low)
                && (!request.exact_node || zone.info.node == node);
            if !allowed {
                continue;
            }
            let limited = match linked.marks {
                MarkChecks::Late => limited,
                MarkChecks::Early => limited && self.is_dirtied(request),
            };
            if limited && linked.dirty.is_at_limit(number.into(), zone.info.total) {
                // Not worth a mark, as others may have the zone's frames. But until 2014
                // it was marked.
                if !linked.full.marks_at_limit() {
                    continue;
                }
            } else if self.may_take(linked, zone, request)
                && let Some(pfn) = self.take_linked(linked, pin, number, request)
            {
                self.note_linked(pin, zone, node);
                return Some(pfn);
            }
            linked.full.mark(node, place, asks);
            if !asks && !all && linked.full.is_asked() {
                linked.full.begin(node);
                asks = true;
            }
        }
        None
    }

    /// The highest kind of zone that a request may have.
    #[inline(never)]
    fn class_of(&self, request: &Request) -> Zone {
        request.zone
    }

    /// Whether the page is written at once.
    #[inline(never)]
    fn is_dirtied(&self, request: &Request) -> bool {
        request.dirty
    }

    /// Whether a zone has more frames than it has to keep from the request.
    fn may_take(&self, linked: &Linked, zone: &ZoneFrames, request: &Request) -> bool {
        if linked.marks == MarkChecks::Early && request.urgent {
            return true;
        }
        let floor = zone.floor(request.zone, false, self.zones.any_high);
        zone.free() >= floor + (1 << request.order) || request.urgent
    }

    /// Takes a block of a zone: a single frame of the CPU's lists, filled if need be.
    fn take_linked(
        &self,
        linked: &Linked,
        pin: &Pin<'_>,
        number: u16,
        request: &Request,
    ) -> Option<Pfn> {
        let zone = &linked.zones[usize::from(number)];
        let kind = mobility_of(request.site);
        if request.order > 0 {
            let mut lists = zone.lists.lock(pin);
            let pfn = lists.take(&self.table, &zone.kinds, (request.order, kind));
            self.publish_linked(number, &lists);
            return pfn;
        }
        let own = &linked.cpus.get(pin)[usize::from(number)].kinds[kind as usize];
        if own.len() == 0 {
            let mut lists = zone.lists.lock(pin);
            for _ in 0..zone.batch {
                let Some(pfn) = lists.take(&self.table, &zone.kinds, (0, kind)) else {
                    break;
                };
                self.frame(pfn).set_owner(kind as u32);
                own.push_last(&self.table, pfn);
            }
            self.publish_linked(number, &lists);
            self.cpus.get(pin).counters.refills.bump();
        }
        let pfn = own.first();
        if pfn.is_none() {
            return None;
        }
        own.remove(&self.table, pfn);
        Some(pfn)
    }

    fn publish_linked(&self, number: u16, lists: &TypedLists) {
        self.zones.get(number).publish_free(lists.free());
    }

    fn note_linked(&self, pin: &Pin<'_>, zone: &ZoneFrames, wanted: NodeId) {
        let counters = &self.cpus.get(pin).counters;
        if zone.info.node != wanted {
            counters.remote_allocs.bump();
        }
        if zone.free() < zone.info.low {
            counters.below_low.bump();
        }
    }

    /// Keeps a free single frame, which is marked as cached, on the CPU's list of its zone
    /// and its block's kind.
    fn free_linked(&self, linked: &Linked, pin: &Pin<'_>, pfn: Pfn) {
        let frame = self.frame(pfn);
        let number = frame.zone();
        let zone = &linked.zones[number];
        let kind = zone.kinds.get(pfn);
        frame.set_owner(kind as u32);
        let own = &linked.cpus.get(pin)[number];
        own.kinds[kind as usize].push(&self.table, pfn);
        if own.len() >= zone.batch * HIGH_BATCHES {
            self.cpus.get(pin).counters.drains.bump();
            self.give_back_linked(linked, pin, number, zone.batch);
        }
    }

    /// Gives the oldest frames of a CPU's lists back to their zone, of each kind in turn.
    fn give_back_linked(&self, linked: &Linked, pin: &Pin<'_>, number: usize, count: u32) {
        let own = &linked.cpus.get(pin)[number];
        let mut lists: SpinGuard<'_, TypedLists> = linked.zones[number].lists.lock(pin);
        let mut left = count.min(own.len());
        while left > 0 {
            for (kind, list) in Mobility::ALL.into_iter().zip(&own.kinds) {
                let pfn = list.last();
                if pfn.is_none() || left == 0 {
                    continue;
                }
                list.remove(&self.table, pfn);
                lists.give(&self.table, pfn, 0, kind);
                left -= 1;
            }
        }
        self.publish_linked(number as u16, &lists);
    }

    /// Gives a block that is marked as cached back to its zone.
    fn give_block_linked(&self, linked: &Linked, pin: &Pin<'_>, pfn: Pfn, order: u32) {
        let number = self.frame(pfn).zone();
        let zone = &linked.zones[number];
        let kind = zone.kinds.get(pfn);
        let mut lists = zone.lists.lock(pin);
        lists.give(&self.table, pfn, order, kind);
        self.publish_linked(number as u16, &lists);
    }

    /// Gives all of a CPU's lists back.
    fn drain_linked(&self, linked: &Linked, pin: &Pin<'_>, cpu: &CpuFrames) {
        for number in 0..linked.zones.len() {
            let kept = linked.cpus.get(pin)[number].len();
            if kept > 0 {
                cpu.counters.drains.bump();
                self.give_back_linked(linked, pin, number, kept);
            }
        }
    }
}
