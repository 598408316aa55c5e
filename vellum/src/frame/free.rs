//! Taking back: freed frames go to the CPU's own lists, retired ones wait for their
//! epoch first.

use super::MAX_ORDER;
use super::memory::PhysicalMemory;
use super::record::{Frame, FreeFlags, Kind};
use super::ring::Ring;
use super::zeroed::FreedTables;
use crate::addr::Pfn;
use crate::platform::Machine;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::sync::limbo::Chain;

/// Most frames of a row that goes to a CPU's list at once.
const MAX_ROW: u32 = 16;

impl<P: Machine> PhysicalMemory<P> {
    /// Makes the frames of a block of `1 << order` into blocks of one frame,
    /// each with one reference. The caller is the block's only user.
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
    /// the first are tails. A larger block marked [`FreeFlags::ZEROED`] is believed; of a
    /// single frame [`PhysicalMemory::free_zeroed`] says so.
    #[inline]
    pub(crate) fn free(&self, pin: &Pin<'_>, pfn: Pfn, order: u32) {
        self.free_with(pin, self.frame(pfn), pfn, order);
    }

    /// [`PhysicalMemory::free`] for a caller that has the record.
    #[inline]
    pub(super) fn free_with(&self, pin: &Pin<'_>, frame: &Frame, pfn: Pfn, order: u32) {
        debug_assert!(frame.counts().refs() == 0, "{pfn:?} freed while in use");
        debug_assert!(
            !matches!(frame.kind(), Kind::Free | Kind::Cached | Kind::Reserved),
            "{pfn:?} freed twice"
        );
        if !self.is_own_pin(pin) {
            return self.free_pinned_anew(pfn, order);
        }
        self.uncharge(pin, pfn, order);
        let cpu = self.cpus.get(pin);
        cpu.counters.frees.bump();
        if order == 0 {
            if cpu.low.covers(pfn) {
                frame.set_cached_in(cpu.low.zone, false);
                self.keep(pin, &cpu.low.frames, pfn);
            } else {
                self.keep_elsewhere(pin, pfn);
            }
        } else {
            self.free_block(pin, pfn, order);
        }
    }

    #[cold]
    #[inline(never)]
    fn free_pinned_anew(&self, pfn: Pfn, order: u32) {
        self.free(&self.pin(), pfn, order);
    }

    /// Puts a frame that is marked as cached on one of the CPU's lists.
    #[inline]
    pub(super) fn keep(&self, pin: &Pin<'_>, ring: &Ring, pfn: Pfn) {
        if ring.len() >= ring.high && !self.make_room_for(pin, ring, pfn) {
            return;
        }
        ring.push(pfn);
    }

    /// Marks a frame as cached and puts it on the list of the zone that its record
    /// names. Not inlined, so that which list it is does not wait for the record in
    /// `free`.
    #[inline(never)]
    fn keep_elsewhere(&self, pin: &Pin<'_>, pfn: Pfn) {
        let cpu = self.cpus.get(pin);
        let frame = self.frame(pfn);
        let zone = frame.zone() as u16;
        frame.set_cached_in(zone, false);
        let lists = cpu.lists_of(zone);
        let ring = lists.map_or(&cpu.remote, |lists| &lists.frames);
        self.keep(pin, ring, pfn);
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
        let lists = self.cpus.get(pin).lists_of(frame.zone() as u16);
        let kept = lists.and_then(|lists| lists.blocks());
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
        let zeroed = frame.unused().has(FreeFlags::ZEROED);
        let zone = self.zones.get(frame.set_cached());
        if let Some(lists) = self.other_lists() {
            return lists.give_block(self, pin, pfn, order);
        }
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
        if !self.is_own_pin(pin) {
            return self.retire(&self.pin(), pfn, zeroed);
        }
        debug_assert!(
            !frame.unused().has(FreeFlags::ZEROED),
            "{pfn:?} in use and said to be zero"
        );
        if zeroed {
            // Stale readers may take the frame's bit locks meanwhile.
            frame.unused().set(FreeFlags::ZEROED);
        }
        self.uncharge(pin, pfn, 0);
        self.retire_chain(pin, Chain::of(&self.table, pfn.0));
    }

    /// Retires pages of objects that nobody has a reference to any more, all in one step.
    pub(crate) fn retire_pages(&self, pin: &Pin<'_>, pages: impl Iterator<Item = Pfn>) {
        let mut chain = Chain::EMPTY;
        for page in pages {
            let frame = self.frame(page);
            debug_assert!(frame.counts().refs() == 0, "{page:?} retired while in use");
            frame.set_kind(Kind::Allocated);
            self.uncharge(pin, page, 0);
            chain.append(&self.table, page.0);
        }
        self.retire_chain(pin, chain);
    }

    /// [`PhysicalMemory::retire`] for frames that nobody else can find, whose
    /// flags say already what is known of their bytes.
    pub(super) fn retire_chain(&self, pin: &Pin<'_>, frames: Chain) {
        let limbo = &self.cpus.get(pin).limbo;
        let passed = limbo.add(&self.table, pin, frames);
        self.release(pin, passed);
        if limbo.should_advance(frames.count(), self.advance_interval) {
            self.epochs.try_advance_alone(pin);
            self.release_passed(pin);
            self.note_waiting(limbo.len());
        }
    }

    /// Frees what this CPU retired and nobody can see any more.
    pub(super) fn release_passed(&self, pin: &Pin<'_>) {
        loop {
            let passed = self.cpus.get(pin).limbo.passed(pin);
            if passed.is_empty() {
                break;
            }
            self.release(pin, passed);
        }
    }

    /// Frees retired frames whose epoch has passed. Page tables known to be zero
    /// go to the CPU's list in rows.
    pub(super) fn release(&self, pin: &Pin<'_>, mut passed: Chain) {
        let cpu = self.cpus.get(pin);
        let notes = self.freed_tables == FreedTables::Noted;
        let low = cpu.low.zone;
        let most = cpu.low.frames.batch.min(MAX_ROW);
        let mut row = (Pfn::NONE, 0);
        while let Some(pfn) = passed.pop(&self.table).map(Pfn) {
            let frame = self.frame(pfn);
            frame.init_counts(0, 0);
            if frame.kind() != Kind::Table {
                if frame.unused().has(FreeFlags::ZEROED) {
                    self.free_zeroed(pin, pfn);
                } else {
                    self.free(pin, pfn, 0);
                }
            } else if notes && frame.zone() == usize::from(low) {
                self.check_zero(pin, pfn);
                frame.set_cached_in(low, true);
                let (first, frames) = row;
                if pfn.0 == first.0.wrapping_add(frames) && frames < most {
                    row = (first, frames + 1);
                } else {
                    self.keep_row(pin, row);
                    row = (pfn, 1);
                }
            } else {
                self.free_table(pin, pfn);
            }
        }
        self.keep_row(pin, row);
    }

    /// Puts `frames` frames in a row, of the zone of the CPU's low frames and
    /// marked as cached, on its list.
    fn keep_row(&self, pin: &Pin<'_>, row: (Pfn, u32)) {
        let (first, frames) = row;
        if frames == 0 {
            return;
        }
        let cpu = self.cpus.get(pin);
        cpu.counters.frees.add(u64::from(frames));
        let ring = &cpu.low.frames;
        if ring.len() + frames > ring.high && !self.make_room_for_row(pin, ring, row) {
            return;
        }
        ring.push_run(first, frames);
    }

    /// Gives this CPU's lists back to the buddy lists, with those retired
    /// frames whose epoch has passed. For a CPU that idles or goes offline.
    pub fn drain(&self, pin: &Pin<'_>) {
        if !self.is_own_pin(pin) {
            return self.drain(&self.pin());
        }
        self.epochs.try_advance();
        if let Some(keeper) = &self.keeper {
            keeper.give_up(self, pin);
        }
        self.release_passed(pin);
        let cpu = self.cpus.get(pin);
        if let Some(lists) = self.other_lists() {
            return lists.drain(self, pin, cpu);
        }
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
}
