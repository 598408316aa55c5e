//! Physical memory as one object: allocate, free, retire, give back.
//!
//! A single frame comes from and goes to the CPU's own list with plain loads
//! and stores. Only when that is empty or full is a zone's lock taken, and then
//! a batch of frames moves. Locks: at most one zone's at a time, and nothing
//! else is taken under it.

use alloc::sync::Arc;

use super::MAX_ORDER;
use super::buddy::FreeLists;
use super::cpu::{CpuFrames, Ring};
use super::inject::Injection;
use super::keeper::Keeper;
use super::record::{Flags, Frame, Kind};
use super::report::SetupError;
use super::request::{FailAt, OutOfMemory, Request};
use super::site::Site;
use super::table::FrameTable;
use super::zeroed::FreedTables;
use super::zones::{self, ZoneFrames, Zones};
use crate::addr::Pfn;
use crate::platform::{CpuId, NodeId, Platform, Zone};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::limbo::{Chain, Links};
use crate::sync::{CachePadded, Epochs, PerCpu, Pin, PinHost, SleepLock, bytes};

/// Frames to fetch at once from a zone that is not the list's own.
const FOREIGN_BATCH: u32 = 16;
/// Most frames of a row that goes to a CPU's list at once.
const MAX_ROW: u32 = 16;
/// Retirements of one CPU after which it tries to move the epoch on, at least.
const ADVANCE_INTERVAL: u32 = 32;

#[cold]
#[inline(never)]
fn foreign_pin() -> ! {
    panic!("the pin is another memory's");
}

/// All frames of a machine: who has them and who may get them.
pub struct PhysicalMemory<P: Platform> {
    pub(super) platform: P,
    pub(super) table: FrameTable,
    pub(super) zones: Zones,
    pub(super) cpus: PerCpu<CpuFrames>,
    pub(super) frame_shift: u32,
    advance_interval: u32,
    injection: Injection,
    pub(super) epochs: Epochs,
    /// What is known of a freed page table.
    pub(super) freed_tables: FreedTables,
    /// Who else keeps free frames.
    keeper: Option<Arc<dyn Keeper<P>>>,
    /// Counts failures. A CPU that has not seen the last one gives its lists
    /// back the next time it takes a lock for them.
    shortage: CachePadded<AtomicU32>,
}

impl<P: Platform> PinHost for PhysicalMemory<P> {
    #[inline]
    fn unpin(&self, cpu: CpuId) {
        self.platform.unpin(cpu);
    }

    #[inline]
    fn relax(&self, cpu: CpuId, spins: u32) {
        if spins == 0 {
            self.cpus.of(cpu).counters.waits.bump();
        }
        self.platform.relax(spins);
    }
}

/// Page tables that are free or retired, by their frames.
impl<P: Platform> Links for PhysicalMemory<P> {
    const END: u32 = FrameTable::END;

    #[inline]
    fn next(&self, frame: u32) -> u32 {
        self.table.next(frame)
    }

    #[inline]
    fn set_next(&self, frame: u32, next: u32) {
        self.table.set_next(frame, next);
    }
}

impl<P: Platform> PhysicalMemory<P> {
    /// Takes over the memory of a platform, every frame free. This and the
    /// other constructors are where the global allocator is used.
    ///
    /// # Errors
    /// What cannot be right about the platform's CPUs, nodes or memory map.
    pub fn new(platform: P) -> Result<Self, SetupError> {
        zones::check(&platform)?;
        let (table, zones) = zones::build(&platform)?;
        let cpus = zones::cpu_lists(&platform, &zones);
        Ok(PhysicalMemory {
            frame_shift: platform.frame_shift(),
            advance_interval: ADVANCE_INTERVAL.max(platform.cpus() as u32),
            injection: Injection::new(),
            epochs: Epochs::new(platform.cpus()),
            freed_tables: FreedTables::Plain,
            keeper: None,
            shortage: CachePadded(AtomicU32::new(0)),
            platform,
            table,
            zones,
            cpus,
        })
    }

    /// The platform.
    #[inline]
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// The epochs that pins announce themselves in.
    #[inline]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Binds the caller to its CPU.
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        let cpu = self.platform.pin();
        // SAFETY: the platform bound the caller to the CPU and to nobody else's
        // (condition 3 of `Platform`), until the pin calls `unpin`.
        unsafe { self.epochs.enter(self, cpu) }
    }

    /// The same, with something else announced under the pin's fence; see
    /// [`Epochs::enter_with`].
    #[inline]
    pub(crate) fn pin_with(&self, announce: impl FnOnce(CpuId)) -> Pin<'_> {
        let cpu = self.platform.pin();
        // SAFETY: as in `pin`.
        unsafe { self.epochs.enter_with(self, cpu, || announce(cpu)) }
    }

    /// The same, together with a try of a lock whose waiters sleep. Returns whether
    /// the lock was taken, which it is not under a nested pin.
    #[inline]
    pub(crate) fn pin_and_try(&self, lock: &SleepLock) -> (Pin<'_>, bool) {
        let cpu = self.platform.pin();
        let mut taken = false;
        // SAFETY: as in `pin`. The try is an atomic exchange.
        let pin = unsafe {
            self.epochs
                .enter_by_exchange(self, cpu, || taken = lock.try_lock())
        };
        (pin, taken)
    }

    /// Refuses a pin of another memory: its CPU may be one that somebody else is
    /// pinned to here, who then uses the same lists.
    ///
    /// # Panics
    /// If it is one.
    #[inline]
    pub(crate) fn check_pin(&self, pin: &Pin<'_>) {
        if !pin.is_of(&self.epochs) {
            foreign_pin();
        }
    }

    /// The record of a frame. Panics if `pfn` lies outside of the lowest to
    /// highest frame of the memory map; a hole's record is `Reserved`.
    #[inline]
    pub(crate) fn frame(&self, pfn: Pfn) -> &Frame {
        self.table.frame(pfn)
    }

    /// Whether the memory map has the frame.
    pub fn contains(&self, pfn: Pfn) -> bool {
        let map = self.platform.memory_map();
        let after = map.partition_point(|range| range.start <= pfn);
        after > 0 && pfn.0 - map[after - 1].start.0 < map[after - 1].frames
    }

    /// Frames of the memory map, holes not counted.
    pub fn frame_count(&self) -> usize {
        let frames = |zone: &ZoneFrames| zone.info.total as usize;
        self.zones.all.iter().map(frames).sum()
    }

    /// Bytes in a frame.
    #[inline]
    pub fn frame_size(&self) -> usize {
        1 << self.frame_shift
    }

    /// Log2 of the bytes in a frame.
    #[inline]
    pub fn frame_shift(&self) -> u32 {
        self.frame_shift
    }

    /// Hands out a block of `1 << request.order` frames, aligned to its size:
    /// kind `Allocated`, one reference, owner, index and rmap word 0, the order
    /// in the record. Of a larger block that is the record of the first frame;
    /// the others are tails. The frames are taken until somebody who answers for
    /// that gives them back: [`OwnedBlock::from_raw`](super::OwnedBlock::from_raw).
    ///
    /// # Errors
    /// [`OutOfMemory`] if no zone that the request allows has such a block, or
    /// the failure was planned.
    ///
    /// # Panics
    /// If the pin is another memory's. So does every call here that takes frames
    /// from a CPU's lists or puts some there.
    #[inline]
    pub fn alloc(&self, pin: &Pin<'_>, request: Request) -> Result<Pfn, OutOfMemory> {
        self.check_pin(pin);
        if self.injection.fail_now(request.site) {
            return Err(OutOfMemory);
        }
        let cpu = self.cpus.get(pin);
        if Self::is_simple(cpu, &request) && !(request.zeroed && cpu.zeroed.is_some()) {
            let ring = Self::ring_for(cpu, request.zone);
            if let Some(pfn) = ring.pop() {
                if let Some(next) = ring.peek() {
                    bytes::prefetch(self.frame(next));
                }
                cpu.counters.allocs.bump();
                return Ok(self.hand_out(pin, pfn, &request));
            }
        }
        self.alloc_elsewhere(pin, &request)
    }

    /// [`PhysicalMemory::alloc`] of what is not in the CPU's list of single frames.
    /// Not inlined, for `alloc` to stay small enough to be.
    #[inline(never)]
    fn alloc_elsewhere(&self, pin: &Pin<'_>, request: &Request) -> Result<Pfn, OutOfMemory> {
        let cpu = self.cpus.get(pin);
        let kept = if request.order > 0 {
            self.take_kept_block(pin, cpu, request)
        } else if request.zeroed && Self::is_simple(cpu, request) {
            self.take_zeroed(pin, cpu, request)
        } else {
            None
        };
        match kept {
            Some(pfn) => Ok(pfn),
            None => self.alloc_slow(pin, request),
        }
    }

    /// Makes `keeper` give up its frames when memory is short, and when a CPU
    /// gives back its lists.
    pub fn set_keeper(&mut self, keeper: Arc<dyn Keeper<P>>) {
        self.keeper = Some(keeper);
    }

    /// Whether the CPU's own list may serve the request.
    #[inline]
    fn is_simple(cpu: &CpuFrames, request: &Request) -> bool {
        request.order == 0
            && !request.exact_node
            && request.node.is_none_or(|node| node == cpu.node)
    }

    /// The list that serves single frames of `zone`.
    #[inline]
    fn ring_for(cpu: &CpuFrames, zone: Zone) -> &Ring {
        if zone == Zone::High && cpu.high_zone != u16::MAX {
            &cpu.high
        } else {
            &cpu.low
        }
    }

    #[inline]
    pub(super) fn hand_out(&self, pin: &Pin<'_>, pfn: Pfn, request: &Request) -> Pfn {
        let zeroed = self.frame(pfn).hand_out(request.order);
        if request.zeroed {
            self.make_zero(pin, pfn, request.order, zeroed);
        }
        pfn
    }

    /// Zeroes a block, unless it is `known` to be zero. Not inlined, for `alloc`
    /// to stay small enough to be.
    #[inline(never)]
    fn make_zero(&self, pin: &Pin<'_>, pfn: Pfn, order: u32, known: bool) {
        if known {
            self.check_zero(pin, pfn);
            return;
        }
        for index in 0..1 << order {
            self.zero(pin, pfn.offset(index));
        }
    }

    /// A block that this CPU keeps, if it fits the request, handed out.
    #[inline]
    fn take_kept_block(&self, pin: &Pin<'_>, cpu: &CpuFrames, request: &Request) -> Option<Pfn> {
        let wants_another_node =
            request.exact_node || request.node.is_some_and(|node| node != cpu.node);
        let blocks = cpu.blocks_for(request.zone)?;
        if request.order != blocks.order || wants_another_node {
            return None;
        }
        let pfn = blocks.pop()?;
        cpu.counters.allocs.bump();
        Some(self.hand_out(pin, pfn, request))
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, pin: &Pin<'_>, request: &Request) -> Result<Pfn, OutOfMemory> {
        let counters = &self.cpus.get(pin).counters;
        if request.order > MAX_ORDER {
            counters.failed.bump();
            return Err(OutOfMemory);
        }
        self.heed_shortage(pin);
        let found = self.try_zones(pin, request).or_else(|| {
            self.drain(pin);
            self.try_zones(pin, request)
        });
        let Some(pfn) = found else {
            self.shortage.fetch_add(1, Ordering::Relaxed);
            counters.failed.bump();
            return Err(OutOfMemory);
        };
        counters.allocs.bump();
        let pfn = self.hand_out(pin, pfn, request);
        if let Some(keeper) = &self.keeper
            && self.is_short(pin)
        {
            keeper.give_up(self, pin);
        }
        Ok(pfn)
    }

    /// Tries every zone the request allows, in its node's order.
    fn try_zones(&self, pin: &Pin<'_>, request: &Request) -> Option<Pfn> {
        let node = request.node.unwrap_or(self.cpus.get(pin).node);
        let order = self.zones.fallback(node).iter();
        order.copied().find_map(|number| {
            let zone = self.zones.get(number);
            let allowed = (request.zone == Zone::High || zone.info.zone == Zone::Low)
                && (!request.exact_node || zone.info.node == node);
            if !allowed {
                None
            } else if Self::is_simple(self.cpus.get(pin), request) {
                self.refill(pin, number, request)
            } else {
                self.take_block(pin, zone, node, request)
            }
        })
    }

    /// Fills this CPU's list from a zone and takes one frame of it.
    fn refill(&self, pin: &Pin<'_>, number: u16, request: &Request) -> Option<Pfn> {
        let cpu = self.cpus.get(pin);
        let zone = self.zones.get(number);
        // Low frames never get into the list for high ones, nor the reverse.
        let ring = if zone.info.zone == Zone::High && cpu.high_zone != u16::MAX {
            &cpu.high
        } else if zone.info.zone == Zone::High {
            return self.take_block(pin, zone, cpu.node, request);
        } else {
            &cpu.low
        };
        if let Some(pfn) = ring.pop() {
            return Some(pfn);
        }
        let at_home = number == cpu.low_zone || number == cpu.high_zone;
        let batch = if at_home {
            ring.batch
        } else {
            ring.batch.min(FOREIGN_BATCH)
        };
        let floor = zone.floor(request.zone, request.urgent, self.zones.any_high);
        let mut lists = zone.lists.lock(pin);
        let spare = lists.free().saturating_sub(floor).min(u64::from(batch));
        let taken = lists.take_frames(&self.table, spare as u32, false, |first, frames| {
            ring.push_run(first, frames);
        });
        self.note_taken(pin, zone, &lists, u64::from(taken), cpu.node);
        drop(lists);
        if taken > 0 {
            cpu.counters.refills.bump();
        }
        ring.pop()
    }

    /// Takes one block straight from a zone.
    fn take_block(
        &self,
        pin: &Pin<'_>,
        zone: &ZoneFrames,
        node: NodeId,
        request: &Request,
    ) -> Option<Pfn> {
        let floor = zone.floor(request.zone, request.urgent, self.zones.any_high);
        let mut lists = zone.lists.lock(pin);
        if lists.free() < floor + (1 << request.order) {
            return None;
        }
        let pfn = lists.take(&self.table, request.order, request.zeroed)?;
        self.note_taken(pin, zone, &lists, 1, node);
        Some(pfn)
    }

    pub(super) fn note_taken(
        &self,
        pin: &Pin<'_>,
        zone: &ZoneFrames,
        lists: &FreeLists,
        blocks: u64,
        wanted: NodeId,
    ) {
        let counters = &self.cpus.get(pin).counters;
        zone.publish(lists);
        if zone.info.node != wanted {
            counters.remote_allocs.add(blocks);
        }
        if lists.free() < zone.info.low {
            counters.below_low.bump();
        }
    }

    /// Makes the frames of a block of `1 << order` into blocks of one frame,
    /// each with one reference. The caller is the block's only user.
    #[cfg(test)]
    pub(crate) fn split(&self, pfn: Pfn, order: u32) {
        let head = self.frame(pfn);
        let zone = head.zone() as u16;
        head.set_index(head.index(), 0);
        for index in 1..1 << order {
            let frame = self.frame(pfn.offset(index));
            frame.set_tail(zone);
            frame.hand_out(0);
        }
    }

    /// Gives back a block of `1 << order` frames that the caller is the only
    /// user of: no reference is left, and of a larger block the frames after
    /// the first are tails. A block marked [`Flags::ZEROED`] is believed.
    #[inline]
    pub(crate) fn free(&self, pin: &Pin<'_>, pfn: Pfn, order: u32) {
        let frame = self.frame(pfn);
        debug_assert!(frame.counts().refs() == 0, "{pfn:?} freed while in use");
        debug_assert!(
            !matches!(frame.kind(), Kind::Free | Kind::Cached | Kind::Reserved),
            "{pfn:?} freed twice"
        );
        self.check_pin(pin);
        let cpu = self.cpus.get(pin);
        cpu.counters.frees.bump();
        if order == 0 {
            let zone = frame.set_cached();
            if zone == cpu.low_zone {
                self.keep(pin, &cpu.low, pfn);
            } else {
                self.keep_elsewhere(pin, zone, pfn);
            }
        } else {
            self.free_block(pin, pfn, order);
        }
    }

    #[inline]
    fn keep(&self, pin: &Pin<'_>, ring: &Ring, pfn: Pfn) {
        if ring.len() >= ring.high {
            self.make_room(pin, ring);
        }
        ring.push(pfn);
    }

    #[inline(never)]
    fn keep_elsewhere(&self, pin: &Pin<'_>, zone: u16, pfn: Pfn) {
        self.keep(pin, self.cpus.get(pin).ring_of(zone), pfn);
    }

    #[inline(never)]
    fn free_block(&self, pin: &Pin<'_>, pfn: Pfn, order: u32) {
        let frame = self.frame(pfn);
        let tails = 1..1u32 << order;
        debug_assert!(
            order <= MAX_ORDER && pfn.0.trailing_zeros() >= order,
            "{pfn:?} is not a block of order {order}"
        );
        debug_assert!(
            tails
                .into_iter()
                .all(|index| self.frame(pfn.offset(index)).is_tail()),
            "{pfn:?} freed as a block, but its frames are in use one by one"
        );
        let kept = self.cpus.get(pin).blocks_of(frame.zone() as u16);
        if kept.is_some_and(|blocks| blocks.order == order && blocks.push(pfn)) {
            frame.set_cached_block(order);
        } else {
            self.give_block(pin, pfn, order);
        }
    }

    /// Puts a block on its zone's lists.
    #[cold]
    fn give_block(&self, pin: &Pin<'_>, pfn: Pfn, order: u32) {
        let frame = self.frame(pfn);
        let zeroed = frame.has(Flags::ZEROED);
        let zone = self.zones.get(frame.set_cached());
        let mut lists = zone.lists.lock(pin);
        lists.give(&self.table, pfn, order, zeroed);
        zone.publish(&lists);
    }

    /// Drops a reference to a single frame or a block, and frees it if that
    /// was the last.
    #[inline]
    pub(crate) fn put(&self, pin: &Pin<'_>, pfn: Pfn) {
        self.put_order(pin, pfn, 0);
    }

    /// [`PhysicalMemory::put`] for a block of `1 << order` frames, counted in
    /// the record of the first.
    #[inline]
    pub(crate) fn put_order(&self, pin: &Pin<'_>, pfn: Pfn, order: u32) {
        if self.frame(pfn).put() {
            self.free_unreferenced(pin, pfn, order);
        }
    }

    /// Frees a block whose last reference the caller dropped. A page of an
    /// object is retired: somebody who found it in the page cache without a
    /// lock may still try to take a reference, which must fail and must not
    /// hit a frame in its next life, whose counts are set by plain stores.
    #[inline]
    pub(crate) fn free_unreferenced(&self, pin: &Pin<'_>, pfn: Pfn, order: u32) {
        let frame = self.frame(pfn);
        if order == 0 && frame.kind() == Kind::Object {
            frame.set_kind(Kind::Allocated);
            self.retire(pin, pfn, false);
        } else {
            self.free(pin, pfn, order);
        }
    }

    /// Gives this CPU's lists back if some CPU ran out of memory since it did so last.
    pub(super) fn heed_shortage(&self, pin: &Pin<'_>) {
        let cpu = self.cpus.get(pin);
        let shortage = self.shortage.load(Ordering::Relaxed);
        if cpu.seen_shortage.load(Ordering::Relaxed) != shortage {
            cpu.seen_shortage.store(shortage, Ordering::Relaxed);
            self.drain(pin);
        }
    }

    /// Frees a single frame as soon as nobody who is pinned at this moment can
    /// still see it. Until then its record stays as it is but for the rmap
    /// word; whatever references it counts are void. `zeroed` promises that
    /// every byte is zero and stays so.
    pub(crate) fn retire(&self, pin: &Pin<'_>, pfn: Pfn, zeroed: bool) {
        let frame = self.frame(pfn);
        debug_assert!(
            !matches!(frame.kind(), Kind::Free | Kind::Cached | Kind::Reserved),
            "{pfn:?} retired while free"
        );
        self.check_pin(pin);
        if zeroed {
            // Stale readers may take the frame's bit locks meanwhile.
            frame.set(Flags::ZEROED);
        } else {
            frame.clear(Flags::ZEROED);
        }
        self.retire_chain(pin, Chain::of(&self.table, pfn.0));
    }

    /// [`PhysicalMemory::retire`] for frames that nobody else can find, whose
    /// flags say already what is known of their bytes.
    pub(super) fn retire_chain(&self, pin: &Pin<'_>, frames: Chain) {
        let limbo = &self.cpus.get(pin).limbo;
        let passed = limbo.add(&self.table, &self.epochs, frames);
        self.release(pin, passed);
        if limbo.should_advance(frames.count(), self.advance_interval) {
            self.epochs.try_advance();
            self.release_passed(pin);
        }
    }

    /// Frees what this CPU retired and nobody can see any more.
    pub(super) fn release_passed(&self, pin: &Pin<'_>) {
        loop {
            let passed = self.cpus.get(pin).limbo.passed(&self.epochs);
            if passed.is_empty() {
                break;
            }
            self.release(pin, passed);
        }
    }

    /// Frees retired frames whose epoch has passed. Page tables known to be zero
    /// go to the CPU's list in rows.
    fn release(&self, pin: &Pin<'_>, mut passed: Chain) {
        let cpu = self.cpus.get(pin);
        let notes = self.freed_tables == FreedTables::Noted;
        let most = cpu.low.batch.min(MAX_ROW);
        let mut row = (Pfn::NONE, 0);
        while let Some(pfn) = passed.pop(&self.table).map(Pfn) {
            let frame = self.frame(pfn);
            frame.init_counts(0, 0);
            if frame.kind() != Kind::Table {
                if frame.has(Flags::ZEROED) {
                    self.free_zeroed(pin, pfn);
                } else {
                    self.free(pin, pfn, 0);
                }
            } else if notes && frame.zone() == usize::from(cpu.low_zone) {
                self.check_zero(pin, pfn);
                frame.set_cached_in(cpu.low_zone, true);
                let (first, frames) = row;
                if pfn.0 == first.0.wrapping_add(frames) && frames < most {
                    row = (first, frames + 1);
                } else {
                    self.keep_row(pin, first, frames);
                    row = (pfn, 1);
                }
            } else {
                self.free_table(pin, pfn);
            }
        }
        self.keep_row(pin, row.0, row.1);
    }

    /// Puts `frames` frames in a row, of the zone of the CPU's low frames and
    /// marked as cached, on its list.
    fn keep_row(&self, pin: &Pin<'_>, first: Pfn, frames: u32) {
        if frames == 0 {
            return;
        }
        let cpu = self.cpus.get(pin);
        cpu.counters.frees.add(u64::from(frames));
        while cpu.low.len() > 0 && cpu.low.len() + frames > cpu.low.high {
            self.make_room(pin, &cpu.low);
        }
        cpu.low.push_run(first, frames);
    }

    /// Gives this CPU's lists back to the buddy lists, with those retired
    /// frames whose epoch has passed. For a CPU that idles or goes offline.
    pub fn drain(&self, pin: &Pin<'_>) {
        self.check_pin(pin);
        self.epochs.try_advance();
        if let Some(keeper) = &self.keeper {
            keeper.give_up(self, pin);
        }
        self.release_passed(pin);
        let cpu = self.cpus.get(pin);
        for ring in cpu.rings() {
            if ring.len() > 0 {
                cpu.counters.drains.bump();
                self.give_back(pin, ring, ring.len());
            }
        }
        for blocks in cpu.block_stacks() {
            while let Some(pfn) = blocks.pop() {
                cpu.counters.drains.bump();
                self.give_block(pin, pfn, blocks.order);
            }
        }
    }

    /// Whether a zone of the CPU's node is below its low watermark: time to
    /// reclaim.
    pub fn is_short(&self, pin: &Pin<'_>) -> bool {
        let cpu = self.cpus.get(pin);
        [cpu.low_zone, cpu.high_zone].iter().any(|&number| {
            number != u16::MAX && {
                let zone = self.zones.get(number);
                zone.free.load(Ordering::Relaxed) < zone.info.low
            }
        })
    }

    /// Installs a planned failure and starts counting how often each site is
    /// reached, or removes the plan. A plan with `after: u32::MAX` only counts.
    pub fn inject(&self, plan: Option<FailAt>) {
        self.injection.set(plan);
    }

    /// Allocations at `site` since a plan was last installed.
    pub fn reached(&self, site: Site) -> u64 {
        self.injection.reached(site)
    }

    /// Counts an allocation at `site` under the plan, if there is one, and
    /// says whether it has to fail.
    #[inline]
    pub fn fail_now(&self, site: Site) -> bool {
        self.injection.fail_now(site)
    }
}
