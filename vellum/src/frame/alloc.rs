//! Handing out: from the CPU's own lists, or from a zone.

use super::MAX_ORDER;
use super::buddy::FreeLists;
use super::cpu::CpuFrames;
use super::memory::PhysicalMemory;
use super::request::{OutOfMemory, Request};
use super::ring::Ring;
use super::site::Site;
use super::zones::ZoneFrames;
use crate::addr::Pfn;
use crate::platform::{Machine, NodeId, Zone};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

/// Runs of which it is remembered that their records have to be marked.
const RUNS_TO_MARK: usize = 8;
/// Frames to fetch at once from a zone that is not the list's own.
const FOREIGN_BATCH: u32 = 16;

impl<P: Machine> PhysicalMemory<P> {
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
    /// A pin of another memory says nothing about this one's CPUs, whose lists
    /// somebody else may be using. As every call here that takes frames from a
    /// CPU's lists or puts some there, this one then takes a pin of its own.
    // Always: what is asked for is mostly known where the call stands, and little is
    // left of the choices below.
    #[inline(always)]
    pub fn alloc(&self, pin: &Pin<'_>, request: Request) -> Result<Pfn, OutOfMemory> {
        self.alloc_for(pin, request, 0)
    }

    /// [`PhysicalMemory::alloc`] with an owner in the record.
    #[inline(always)]
    pub(super) fn alloc_for(
        &self,
        pin: &Pin<'_>,
        request: Request,
        owner: u32,
    ) -> Result<Pfn, OutOfMemory> {
        if !self.is_own_pin(pin) {
            return self.alloc_pinned_anew(request, owner);
        }
        if self.injection.fail_now(request.site) {
            return Err(OutOfMemory);
        }
        let cpu = self.cpus.get(pin);
        let lists = cpu.lists_for(request.zone);
        if Self::is_simple(cpu, &request)
            && !(request.zeroed && lists.zeroed.is_some())
            && let Some((pfn, next)) = lists.frames.pop_and_peek()
        {
            if let Some(next) = next {
                self.table.prefetch(next);
            }
            cpu.counters.allocs.bump();
            if !request.zeroed && lists.covers(pfn) {
                self.frame(pfn).hand_out_in(lists.zone, 0, owner);
                return Ok(pfn);
            }
            return Ok(self.hand_out_to(pin, pfn, &request, owner));
        }
        let pfn = self.alloc_elsewhere(pin, &request)?;
        if owner != 0 {
            self.frame(pfn).set_owner(owner);
        }
        Ok(pfn)
    }

    #[cold]
    #[inline(never)]
    fn alloc_pinned_anew(&self, request: Request, owner: u32) -> Result<Pfn, OutOfMemory> {
        self.alloc_for(&self.pin(), request, owner)
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

    /// [`PhysicalMemory::alloc`] of a block of several frames that the caller can do without:
    /// `None` unless there is one as it is, and while memory is short. Nothing is given back,
    /// broken or woken for it, and that there was none counts as no failure.
    pub(crate) fn alloc_to_spare(&self, pin: &Pin<'_>, request: Request) -> Option<Pfn> {
        debug_assert!(self.is_own_pin(pin) && request.order > 0 && request.order <= MAX_ORDER);
        if self.injection.fail_now(request.site) || self.is_short(pin) {
            return None;
        }
        let cpu = self.cpus.get(pin);
        self.take_kept_block(pin, cpu, &request).or_else(|| {
            self.heed_shortage(pin);
            let pfn = self.try_zones(pin, &request)?;
            cpu.counters.allocs.bump();
            // Who can do with less than a block has a record for each of its frames. They come
            // while it is zeroed.
            self.prefetch_parts(pfn, request.order);
            Some(self.hand_out(pin, pfn, &request))
        })
    }

    /// Whether the CPU's own list may serve the request.
    #[inline]
    fn is_simple(cpu: &CpuFrames, request: &Request) -> bool {
        request.order == 0
            && !request.exact_node
            && request.node.is_none_or(|node| node == cpu.node)
    }

    #[inline]
    pub(super) fn hand_out(&self, pin: &Pin<'_>, pfn: Pfn, request: &Request) -> Pfn {
        self.hand_out_to(pin, pfn, request, 0)
    }

    #[inline]
    fn hand_out_to(&self, pin: &Pin<'_>, pfn: Pfn, request: &Request, owner: u32) -> Pfn {
        let frame = self.frame(pfn);
        let zeroed = frame.hand_out(request.order);
        if owner != 0 {
            frame.set_owner(owner);
        }
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
        match order {
            0 => self.zero(pin, pfn),
            _ => (0..1 << order).for_each(|index| self.zero_of_block(pin, pfn.offset(index))),
        }
    }

    /// A block that this CPU keeps, if it fits the request, handed out.
    #[inline]
    fn take_kept_block(&self, pin: &Pin<'_>, cpu: &CpuFrames, request: &Request) -> Option<Pfn> {
        let wants_another_node =
            request.exact_node || request.node.is_some_and(|node| node != cpu.node);
        let blocks = cpu.lists_for(request.zone).blocks()?;
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
        let found = found.or_else(|| self.break_and_try(pin, request));
        let Some(pfn) = found else {
            self.shortage.fetch_add(1, Ordering::Relaxed);
            counters.failed.bump();
            self.wake_if_short(pin);
            if request.zone == Zone::Low {
                self.note_low_missed();
            }
            return Err(OutOfMemory);
        };
        counters.allocs.bump();
        let pfn = self.hand_out(pin, pfn, request);
        if let Some(keeper) = &self.keeper
            && self.is_short(pin)
        {
            keeper.give_up(self, pin);
        }
        self.wake_if_short(pin);
        Ok(pfn)
    }

    /// Breaks reservations, the oldest first, until the request can be met. One that is
    /// itself for a run, which nobody needs, breaks none.
    #[cold]
    pub(super) fn break_and_try(&self, pin: &Pin<'_>, request: &Request) -> Option<Pfn> {
        if self.reservations().is_none() || request.site == Site::Reservation {
            return None;
        }
        let node = request.node.unwrap_or(self.cpus.get(pin).node);
        let suits = |number: u16| Self::allows(self.zones.get(number), node, request);
        let mut spins = 0;
        loop {
            let broke = self.break_oldest(pin, suits);
            let waits = !broke && self.is_breaking();
            if waits {
                // Another CPU has taken the last, and its frames are not back yet.
                pin.relax(spins);
                spins += 1;
            }
            // After all that was broken before is back.
            let found = self.try_zones(pin, request);
            if found.is_some() || !broke && !waits {
                return found;
            }
        }
    }

    /// Whether a zone has what is asked for.
    fn allows(zone: &ZoneFrames, node: NodeId, request: &Request) -> bool {
        (request.zone == Zone::High || zone.info.zone == Zone::Low)
            && (!request.exact_node || zone.info.node == node)
    }

    /// Tries every zone the request allows, in its node's order.
    pub(super) fn try_zones(&self, pin: &Pin<'_>, request: &Request) -> Option<Pfn> {
        if let Some(lists) = self.other_lists() {
            return lists.take(self, pin, request);
        }
        let node = request.node.unwrap_or(self.cpus.get(pin).node);
        let order = self.zones.fallback(node).iter();
        order.copied().find_map(|number| {
            let zone = self.zones.get(number);
            if !Self::allows(zone, node, request) {
                None
            } else if Self::is_simple(self.cpus.get(pin), request) {
                self.refill(pin, number, request)
            } else {
                self.take_block(pin, zone, node, request)
            }
        })
    }

    /// Fills this CPU's list from a zone and takes one frame of it.
    pub(super) fn refill(&self, pin: &Pin<'_>, number: u16, request: &Request) -> Option<Pfn> {
        let cpu = self.cpus.get(pin);
        let zone = self.zones.get(number);
        // Low frames never get into the list for high ones, nor the reverse.
        let lists = match zone.info.zone {
            Zone::Low => &cpu.low,
            Zone::High if cpu.high.exist() => &cpu.high,
            Zone::High => return self.take_block(pin, zone, cpu.node, request),
        };
        let ring = &lists.frames;
        if let Some(pfn) = ring.pop() {
            return Some(pfn);
        }
        let batch = if cpu.lists_of(number).is_some() {
            ring.batch
        } else {
            ring.batch.min(FOREIGN_BATCH)
        };
        self.fill(pin, ring, zone, request, false, batch)
    }

    /// Fills a list with up to `most` frames of a zone, down to the floor of the request,
    /// and takes one of it: with frames known to be zero if `zeroed`, else with any.
    pub(super) fn fill(
        &self,
        pin: &Pin<'_>,
        ring: &Ring,
        zone: &ZoneFrames,
        request: &Request,
        zeroed: bool,
        most: u32,
    ) -> Option<Pfn> {
        let cpu = self.cpus.get(pin);
        let floor = zone.floor(request.zone, request.urgent, self.zones.any_high);
        let mut lists = zone.lists.lock(pin);
        let mut spare = lists.free().saturating_sub(floor);
        if zeroed {
            spare = spare.min(lists.zeroed());
        }
        let count = spare.min(u64::from(most)) as u32;
        let number = lists.zone();
        // Records are marked when the lock is free again, as far as there is room to
        // remember the runs: there are few unless memory is in pieces.
        let mut runs = [(Pfn::NONE, 0, false); RUNS_TO_MARK];
        let mut room = runs.iter_mut();
        let taken = lists.take_frames(&self.table, count, zeroed, |first, frames, zeroed| {
            ring.push_run(first, frames);
            match room.next() {
                Some(run) => *run = (first, frames, zeroed),
                None => self.mark_cached(number, first, frames, zeroed),
            }
        });
        self.note_taken(pin, zone, &lists, u64::from(taken), cpu.node);
        drop(lists);
        for (first, frames, zeroed) in runs {
            self.mark_cached(number, first, frames, zeroed);
        }
        if taken > 0 {
            cpu.counters.refills.bump();
        }
        ring.pop()
    }

    /// Marks the frames of a run taken from a zone, of which the first is marked.
    #[inline]
    fn mark_cached(&self, zone: u16, first: Pfn, frames: u32, zeroed: bool) {
        for index in 1..frames {
            let frame = self.frame(first.offset(index));
            frame.set_cached_in(zone, zeroed);
        }
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
}
