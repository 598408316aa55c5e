//! Statistics, and the proof that every frame is in exactly one place.

use super::MAX_ORDER;
use super::cpu::CpuFrames;
use super::memory::PhysicalMemory;
use super::owned::EMBEDDER;
use super::record::{Frame, Kind};
use super::report::{AuditError, AuditPlace, FrameCensus, FrameStats, ZoneStats};
use super::ring::BlockStack;
use super::zones::ZoneFrames;
use crate::addr::Pfn;
use crate::platform::{Machine, MemoryRange};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::sync::limbo::Chain;

pub(crate) fn wrong(pfn: Pfn, what: &'static str) -> AuditError {
    AuditError {
        place: AuditPlace::Frame(pfn),
        what,
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Counts of frames and events. Walks all CPUs and zones.
    pub fn stats(&self) -> FrameStats {
        let mut stats = FrameStats {
            withdrawn: self.withdrawn.load(Ordering::Relaxed),
            ..FrameStats::default()
        };
        if self.reservations().is_some() {
            stats.reservations = self.reservation_stats();
        }
        for zone in 0..self.zone_count() {
            let zone = &self.zones.all[zone];
            stats.total += zone.info.total;
            stats.free += zone.published.free.load(Ordering::Relaxed);
            stats.zeroed += zone.published.zeroed.load(Ordering::Relaxed);
        }
        stats.cached += self.other_lists().map_or(0, |lists| lists.cached());
        for cpu in self.cpus.iter() {
            stats.cached += cpu.rings().map(|ring| u64::from(ring.len())).sum::<u64>();
            let zeroed = cpu.zones().map(|lists| lists.zeroed.as_deref());
            let zeroed = zeroed.iter().flatten().map(|ring| u64::from(ring.len()));
            stats.zeroed += zeroed.sum::<u64>();
            stats.limbo += u64::from(cpu.limbo.len());
            let blocks = |kept: &BlockStack| u64::from(kept.len()) << kept.order;
            stats.cached += cpu.block_stacks().map(blocks).iter().sum::<u64>();
            let counters = &cpu.counters;
            stats.allocs += counters.allocs.get();
            stats.frees += counters.frees.get();
            stats.refills += counters.refills.get();
            stats.drains += counters.drains.get();
            stats.remote_allocs += counters.remote_allocs.get();
            stats.failed += counters.failed.get();
            stats.below_low += counters.below_low.get();
            stats.bytes_zeroed += counters.bytes_zeroed.get();
            stats.bytes_copied += counters.bytes_copied.get();
            stats.waits += counters.waits.get();
            stats.zero_hits += counters.zero_hits.get();
            stats.idle_bytes_zeroed += counters.idle_zeroed.get();
        }
        stats
    }

    /// Number of zones.
    pub fn zone_count(&self) -> usize {
        self.zones.all.len()
    }

    /// What there is of one zone, numbered below
    /// [`PhysicalMemory::zone_count`]. Takes its lock.
    pub fn zone_stats(&self, zone: usize, pin: &Pin<'_>) -> ZoneStats {
        let number = zone;
        let zone = &self.zones.all[zone];
        let lists = zone.lists.lock(pin);
        let stats = ZoneStats {
            node: zone.info.node,
            zone: zone.info.zone,
            total: zone.info.total,
            free: lists.free(),
            zeroed: lists.zeroed(),
            blocks: lists.blocks(),
            min: zone.info.min,
            low: zone.info.low,
            high: zone.info.high,
        };
        drop(lists);
        match self.other_lists() {
            Some(lists) => lists.zone_stats(number, stats, pin),
            None => stats,
        }
    }

    /// Finds every frame in exactly one place: a buddy block, a CPU's list,
    /// waiting for its epoch, or handed out. Nobody may be at work on the
    /// frames meanwhile, on any CPU.
    ///
    /// # Errors
    /// The first frame that is in no place, in two, or whose record says another than the place
    /// it is in (invariant 1); and free buddies that were not merged.
    pub fn audit_frames(&self) -> Result<FrameCensus, AuditError> {
        let result = self.audit_lists().and_then(|()| self.audit_records());
        for range in self.platform.memory_map() {
            for pfn in frames_of(range) {
                self.frame(pfn).forget_audit();
            }
        }
        result
    }

    /// Walks every list and marks the frames found.
    fn audit_lists(&self) -> Result<(), AuditError> {
        let pin = self.pin();
        for (number, zone) in self.zones.all.iter().enumerate() {
            self.audit_zone(number as u16, zone, &pin)?;
        }
        if let Some(lists) = self.other_lists() {
            lists.audit(self, &pin)?;
        }
        self.audit_reservations(&pin)?;
        drop(pin);
        self.cpus.iter().try_for_each(|cpu| self.audit_cpu(cpu))
    }

    fn audit_zone(&self, number: u16, zone: &ZoneFrames, pin: &Pin<'_>) -> Result<(), AuditError> {
        let lists = zone.lists.lock(pin);
        let mut free = 0;
        for order in 0..=MAX_ORDER {
            for (first, count) in lists.lists(order) {
                let (mut pfn, mut previous) = (first, Pfn::NONE);
                for _ in 0..count {
                    if pfn.is_none() {
                        return Err(wrong(previous, "the list ends before its count does"));
                    }
                    let may_stay_apart = |a: &Frame, b: &Frame| lists.may_stay_apart(a, b);
                    self.audit_block(pfn, order, number, &may_stay_apart)?;
                    let (next, back) = self.frame(pfn).links();
                    if !previous.is_none() && back != previous {
                        return Err(wrong(pfn, "the link back is not to the block before"));
                    }
                    (pfn, previous) = (next, pfn);
                    free += 1 << order;
                }
                if !pfn.is_none() {
                    return Err(wrong(pfn, "the list goes on beyond its count"));
                }
            }
        }
        if free != lists.free() {
            return Err(AuditError {
                place: AuditPlace::Zone(usize::from(number)),
                what: "the count of free frames is not that of the lists",
            });
        }
        Ok(())
    }

    /// Checks a free block, whose buddy is not free too unless the two `may_stay_apart`.
    pub(crate) fn audit_block(
        &self,
        pfn: Pfn,
        order: u32,
        zone: u16,
        may_stay_apart: &dyn Fn(&Frame, &Frame) -> bool,
    ) -> Result<(), AuditError> {
        if !self.contains(pfn) || !self.contains(pfn.offset((1 << order) - 1)) {
            return Err(wrong(pfn, "a free block reaches out of the memory map"));
        }
        if pfn.0.trailing_zeros() < order {
            return Err(wrong(pfn, "a free block is not aligned to its size"));
        }
        let frame = self.frame(pfn);
        if !frame.is_free_block(zone, order) || frame.counts().refs() != 0 {
            return Err(wrong(pfn, "on a buddy list, but the record says otherwise"));
        }
        let buddy = self.table.get(Pfn(pfn.0 ^ 1 << order));
        let is_like =
            |buddy: &Frame| buddy.is_free_block(zone, order) && !may_stay_apart(frame, buddy);
        if order < MAX_ORDER && buddy.is_some_and(is_like) {
            return Err(wrong(pfn, "both buddies are free and not merged"));
        }
        for index in 1..1 << order {
            if !self.frame(pfn.offset(index)).is_tail() {
                return Err(wrong(pfn.offset(index), "in use inside of a free block"));
            }
        }
        mark(pfn, frame)
    }

    fn audit_cpu(&self, cpu: &CpuFrames) -> Result<(), AuditError> {
        for pfn in cpu.rings().flat_map(|ring| ring.frames()) {
            let frame = self.audited(pfn)?;
            if frame.kind() != Kind::Cached || frame.counts().refs() != 0 {
                return Err(wrong(pfn, "on a CPU's list, but the record says otherwise"));
            }
            mark(pfn, frame)?;
        }
        for kept in cpu.block_stacks() {
            for pfn in kept.blocks() {
                let frame = self.audited(pfn)?;
                if frame.cached_block() != Some(kept.order) || frame.counts().refs() != 0 {
                    return Err(wrong(pfn, "kept by a CPU, but the record says otherwise"));
                }
                mark(pfn, frame)?;
            }
        }
        let waiting = cpu.limbo.chains().into_iter();
        waiting
            .filter(|chain| !chain.is_empty())
            .try_for_each(|chain| self.audit_retired(chain))
    }

    fn audit_retired(&self, frames: Chain) -> Result<(), AuditError> {
        let mut pfn = Pfn(frames.head);
        for _ in 0..frames.count() {
            let frame = self.audited(pfn)?;
            if matches!(frame.kind(), Kind::Free | Kind::Cached | Kind::Reserved) {
                return Err(wrong(pfn, "waits for its epoch, but the record says free"));
            }
            mark(pfn, frame)?;
            pfn = frame.links().0;
        }
        if pfn.is_none() {
            Ok(())
        } else {
            Err(wrong(
                pfn,
                "the list of retired frames goes on beyond its count",
            ))
        }
    }

    pub(crate) fn audited(&self, pfn: Pfn) -> Result<&Frame, AuditError> {
        if self.contains(pfn) {
            Ok(self.frame(pfn))
        } else {
            Err(wrong(pfn, "listed, but not in the memory map"))
        }
    }

    /// Goes through the records and compares them with the marks.
    fn audit_records(&self) -> Result<FrameCensus, AuditError> {
        let mut census = FrameCensus::default();
        // The block we are in and the first frame that cannot be its tail.
        let (mut block, mut end, mut owned) = (None, 0, 0);
        for pfn in self.platform.memory_map().iter().flat_map(frames_of) {
            let frame = self.frame(pfn);
            let kind = frame.kind();
            let marked = frame.is_audited();
            if frame.is_tail() {
                if marked {
                    census.set_aside += 1;
                    continue;
                }
                match block {
                    Some(kind) if pfn.0 < end => {
                        census.kinds[kind as usize] += 1;
                        census.owned += owned;
                    }
                    _ => return Err(wrong(pfn, "in no block and not handed out")),
                }
                continue;
            }
            if frame.is_withdrawn() {
                census.withdrawn += 1;
                if frame.counts().refs() != 1 || frame.counts().maps() != 0 {
                    return Err(wrong(pfn, "out of use, and in use"));
                }
            }
            let is_owned = kind == Kind::Allocated && frame.owner() == EMBEDDER;
            owned = u64::from(is_owned && !marked);
            census.owned += owned;
            match (kind, marked) {
                (Kind::Free | Kind::Cached, false) => {
                    return Err(wrong(pfn, "free by its record, but on no list"));
                }
                (Kind::Free | Kind::Cached | Kind::Reserved, _) | (_, false) => {
                    census.kinds[kind as usize] += 1;
                }
                (_, true) => census.limbo += 1,
            }
            let order = match kind {
                Kind::Free => frame.order(),
                Kind::Cached => frame.cached_block().unwrap_or(0),
                _ => pfn.0.trailing_zeros().min(MAX_ORDER),
            };
            (block, end) = (Some(kind), pfn.0.saturating_add(1 << order));
        }
        if census.withdrawn != self.withdrawn.load(Ordering::Relaxed) {
            return Err(wrong(
                Pfn::NONE,
                "more or fewer are out of use than counted",
            ));
        }
        Ok(census)
    }
}

/// Marks a frame as found, once.
pub(crate) fn mark(pfn: Pfn, frame: &Frame) -> Result<(), AuditError> {
    if frame.mark_audited() {
        Ok(())
    } else {
        Err(wrong(pfn, "found on two lists, or twice on one"))
    }
}

fn frames_of(range: &MemoryRange) -> impl Iterator<Item = Pfn> + use<> {
    (range.start.0..range.start.0 + range.frames).map(Pfn)
}
