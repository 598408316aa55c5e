//! Nodes and zones: the memory map checked and divided, watermarks, and the
//! order in which each node falls back to others.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::offset_of;

use super::MAX_ORDER;
use super::buddy::FreeLists;
use super::cpu::{CpuFrames, ListsOf};
use super::report::SetupError;
use super::ring::{BlockStack, HIGH_BATCHES, MAX_BATCH, MAX_HIGH};
use super::table::FrameTable;
use crate::addr::Pfn;
use crate::platform::{CpuId, Machine, MemoryRange, NodeId, Zone};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::report::{Fields, name};
use crate::sync::{CachePadded, PerCpu, SpinLock};

/// Part of the frames that only urgent requests may use.
const MIN_SHARE: u64 = 512;
/// Most frames of the reserve of a zone.
const MIN_MOST: u64 = 16384;

/// Part of a CPU's share of a zone that moves to or from its list at once.
const BATCH_SHARE: u64 = 128;

/// What is constant about a zone.
pub(crate) struct ZoneInfo {
    pub(crate) node: NodeId,
    pub(crate) zone: Zone,
    pub(crate) total: u64,
    pub(super) min: u64,
    pub(crate) low: u64,
    pub(super) high: u64,
}

/// The frames of one node that are reached one way.
pub(crate) struct ZoneFrames {
    pub(crate) info: ZoneInfo,
    pub(crate) lists: CachePadded<SpinLock<FreeLists>>,
    /// On a line that those who read `info` do not need.
    pub(super) published: CachePadded<Published>,
}

/// What those without the lock may know of a zone's lists.
pub(super) struct Published {
    /// [`FreeLists::free`].
    pub(crate) free: AtomicU64,
    /// [`FreeLists::zeroed`].
    pub(super) zeroed: AtomicU64,
}

impl ZoneFrames {
    const FIELDS: Fields = &[
        ("info", offset_of!(ZoneFrames, info)),
        ("lists", offset_of!(ZoneFrames, lists)),
        ("published", offset_of!(ZoneFrames, published)),
    ];

    /// Publishes the numbers of free frames, before the lock is given up.
    #[inline]
    pub(super) fn publish(&self, lists: &FreeLists) {
        let Published { free, zeroed } = &*self.published;
        free.store(lists.free(), Ordering::Relaxed);
        zeroed.store(lists.zeroed(), Ordering::Relaxed);
    }

    /// Publishes the number of free frames of a zone whose lists are elsewhere.
    #[cfg(feature = "published")]
    #[inline]
    pub(crate) fn publish_free(&self, free: u64) {
        self.published.free.store(free, Ordering::Relaxed);
    }

    /// Free frames, as published last.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        self.published.free.load(Ordering::Relaxed)
    }

    /// Frames that a request must leave free here.
    pub(crate) fn floor(&self, wanted: Zone, urgent: bool, any_high: bool) -> u64 {
        if urgent {
            0
        } else if any_high && wanted == Zone::High && self.info.zone == Zone::Low {
            // Page tables and the manager's own nodes have no other zone to go to.
            self.info.high
        } else {
            self.info.min
        }
    }
}

/// All zones, and who asks which first.
pub(crate) struct Zones {
    pub(crate) all: Box<[ZoneFrames]>,
    /// For each node, zone numbers: nearest node first, and of one node high
    /// memory before low.
    fallback: Box<[Box<[u16]>]>,
    pub(crate) any_high: bool,
    /// The lowest frame of high memory: all before it are low.
    pub(super) first_high: Pfn,
}

impl Zones {
    #[inline]
    pub(crate) fn get(&self, zone: u16) -> &ZoneFrames {
        &self.all[usize::from(zone)]
    }

    /// Zone numbers in the order in which `node` uses them. A node that does
    /// not exist uses them as node 0 does.
    pub(crate) fn fallback(&self, node: NodeId) -> &[u16] {
        self.fallback
            .get(usize::from(node.0))
            .unwrap_or(&self.fallback[0])
    }
}

/// Checks everything the platform says about its CPUs, nodes and memory.
pub(super) fn check<P: Machine>(platform: &P) -> Result<(), SetupError> {
    let (cpus, nodes, shift) = (platform.cpus(), platform.nodes(), platform.frame_shift());
    if !(1..=4096).contains(&cpus) {
        return Err(SetupError::CpuCount(cpus));
    }
    if !(1..=1024).contains(&nodes) {
        return Err(SetupError::NodeCount(nodes));
    }
    if !(12..=21).contains(&shift) {
        return Err(SetupError::FrameShift(shift));
    }
    for cpu in (0..cpus).map(|cpu| CpuId(cpu as u16)) {
        let node = platform.node_of(cpu);
        if usize::from(node.0) >= nodes {
            return Err(SetupError::CpuNode { cpu, node });
        }
    }
    check_map(platform.memory_map(), nodes)?;
    check_addresses(platform)
}

/// Looks at the first and the last frame of each range of low memory: everything that tells
/// pages and tables from their addresses relies on aligned frames.
fn check_addresses<P: Machine>(platform: &P) -> Result<(), SetupError> {
    let low = |range: &&MemoryRange| range.zone == Zone::Low;
    for range in platform.memory_map().iter().filter(low) {
        for frame in [range.start, range.start.offset(range.frames - 1)] {
            let address = platform.frame(frame).addr().get();
            if !address.is_multiple_of(1 << platform.frame_shift()) {
                return Err(SetupError::Misaligned { frame, address });
            }
        }
    }
    Ok(())
}

fn check_map(map: &[MemoryRange], nodes: usize) -> Result<(), SetupError> {
    let mut end = 0;
    for (range, memory) in map.iter().enumerate() {
        if memory.frames == 0 {
            return Err(SetupError::EmptyRange { range });
        }
        if usize::from(memory.node.0) >= nodes {
            let node = memory.node;
            return Err(SetupError::RangeNode { range, node });
        }
        if range > 0 && memory.start.0 < end {
            return Err(SetupError::RangeOrder { range });
        }
        end = memory
            .start
            .0
            .checked_add(memory.frames)
            .filter(|end| *end <= Pfn::END.0)
            .ok_or(SetupError::RangeEnd { range })?;
    }
    if map.is_empty() {
        return Err(SetupError::NoMemory);
    }
    if map.iter().all(|memory| memory.zone == Zone::High) {
        return Err(SetupError::NoLowMemory);
    }
    Ok(())
}

/// The frame table and the zones of a map that [`check`] accepted, every frame
/// free.
pub(super) fn build<P: Machine>(platform: &P) -> Result<(FrameTable, Zones), SetupError> {
    let map = platform.memory_map();
    let last = map[map.len() - 1];
    let table = FrameTable::new(map[0].start, last.start.offset(last.frames))?;
    let mut parts: Vec<(NodeId, Zone, u64)> = Vec::new();
    let mut number = |memory: &MemoryRange| {
        let same = |part: &(NodeId, Zone, u64)| (part.0, part.1) == (memory.node, memory.zone);
        let at = parts.iter().position(same).unwrap_or_else(|| {
            parts.push((memory.node, memory.zone, 0));
            parts.len() - 1
        });
        parts[at].2 += u64::from(memory.frames);
        at as u16
    };
    let numbers: Vec<u16> = map.iter().map(&mut number).collect();
    let zones = (0..).zip(&parts).map(|(number, &part)| zone(number, part));
    let mut all: Box<[ZoneFrames]> = zones.collect();
    // Last to first, so that the lists hand out low addresses first.
    for (memory, &zone) in map.iter().zip(&numbers).rev() {
        give_range(&table, all[usize::from(zone)].lists.0.get_mut(), memory);
    }
    for zone in &mut all {
        zone.published.0.free = AtomicU64::new(zone.lists.0.get_mut().free());
    }
    name("Zone", ZoneFrames::FIELDS, all.as_ptr(), all.len());
    let fallback = (0..platform.nodes() as u16)
        .map(|node| fallback_of(platform, NodeId(node), &all))
        .collect();
    let high = |range: &&MemoryRange| range.zone == Zone::High;
    let first_high = platform.memory_map().iter().find(high);
    let first_high = first_high.map_or(Pfn::NONE, |range| range.start);
    Ok((
        table,
        Zones {
            all,
            fallback,
            any_high: !first_high.is_none(),
            first_high,
        },
    ))
}

/// Gives a range to the lists, in blocks as large as alignment allows.
fn give_range(table: &FrameTable, lists: &mut FreeLists, memory: &MemoryRange) {
    let mut end = memory.start.0 + memory.frames;
    while end > memory.start.0 {
        let room = (end - memory.start.0).ilog2();
        let order = end.trailing_zeros().min(room).min(MAX_ORDER);
        end -= 1 << order;
        lists.give(table, Pfn(end), order, false);
    }
}

/// A zone without free frames.
fn zone(number: u16, (node, zone, total): (NodeId, Zone, u64)) -> ZoneFrames {
    let min = (total / MIN_SHARE).min(MIN_MOST);
    ZoneFrames {
        info: ZoneInfo {
            node,
            zone,
            total,
            min,
            low: min + min / 4,
            high: min + min / 2,
        },
        published: CachePadded(Published {
            free: AtomicU64::new(0),
            zeroed: AtomicU64::new(0),
        }),
        lists: CachePadded(SpinLock::new(FreeLists::new(number, total))),
    }
}

fn fallback_of<P: Machine>(platform: &P, node: NodeId, zones: &[ZoneFrames]) -> Box<[u16]> {
    let mut order: Vec<u16> = (0..zones.len() as u16).collect();
    // (A stable sort would take 4 KiB of a kernel's stack.)
    order.sort_unstable_by_key(|&zone| {
        let info = &zones[usize::from(zone)].info;
        let distance = platform.distance(node, info.node);
        (distance, info.node, info.zone == Zone::Low, zone)
    });
    order.into_boxed_slice()
}

/// Empty lists for every CPU, sized to the zones that fill them.
pub(super) fn cpu_lists<P: Machine>(platform: &P, zones: &Zones) -> PerCpu<CpuFrames> {
    let cpus = platform.cpus();
    let homes: Vec<(NodeId, u16, Option<u16>)> = (0..cpus)
        .map(|cpu| {
            let node = platform.node_of(CpuId(cpu as u16));
            let order = zones.fallback(node);
            let is_low = |&&zone: &&u16| zones.get(zone).info.zone == Zone::Low;
            let low = order.iter().find(is_low);
            let first = order[0];
            let high = (zones.get(first).info.zone == Zone::High).then_some(first);
            (node, *low.unwrap_or(&first), high)
        })
        .collect();
    let mut sharing: Vec<u64> = alloc::vec![0; zones.all.len()];
    for &(_, low, high) in &homes {
        sharing[usize::from(low)] += 1;
        if let Some(high) = high {
            sharing[usize::from(high)] += 1;
        }
    }
    let lists = |zone: u16| {
        let share = zones.get(zone).info.total / sharing[usize::from(zone)];
        // A power of two, so that one block can fill a list.
        let batch = 1 << (share / BATCH_SHARE).clamp(1, u64::from(MAX_BATCH)).ilog2();
        let blocks = match leaf_order(platform.frame_shift()) {
            Some(order) => BlockStack::new(order, ((share / BATCH_SHARE) >> order) as u32),
            None => BlockStack::new(0, 0),
        };
        ListsOf {
            zone,
            range: longest_range(platform, zones, zone),
            batch,
            high: (HIGH_BATCHES * batch).min(MAX_HIGH),
            blocks,
        }
    };
    let make = |cpu: CpuId, place| {
        let (node, low, high) = homes[usize::from(cpu.0)];
        // SAFETY: the memory is zeroed, and for this alone.
        unsafe { CpuFrames::init(place, node, lists(low), high.map(lists)) }
    };
    // SAFETY: `init` leaves a value.
    unsafe { PerCpu::new_in_place(cpus, make) }
}

/// The longest range of the map that is a zone's, with its length.
fn longest_range<P: Machine>(platform: &P, zones: &Zones, zone: u16) -> (Pfn, u32) {
    let info = &zones.get(zone).info;
    let map = platform.memory_map().iter();
    let own = map.filter(|range| (range.node, range.zone) == (info.node, info.zone));
    own.max_by_key(|range| range.frames)
        .map_or((Pfn(0), 0), |range| (range.start, range.frames))
}

/// The order of what a leaf above the lowest level maps: as many frames as a
/// frame has entries of 8 bytes. None if there are no blocks of that order.
fn leaf_order(frame_shift: u32) -> Option<u32> {
    let order = frame_shift - size_of::<u64>().ilog2();
    (order <= MAX_ORDER).then_some(order)
}
