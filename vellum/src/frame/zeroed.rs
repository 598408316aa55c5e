//! Free frames that are known to be zero.
//!
//! A freed page table is all zero. What the allocator makes of that is
//! [`FreedTables`]: nothing, as Linux does; a mark in the frame's record, which
//! spares the next user the zeroing if it wants zeroes and happens to get the
//! frame; or, after Jack Steiner's proposal of 2004, the frame goes to lists of
//! zero frames, which requests for zeroes are served from first and others
//! last. Zero frames are free frames: every count of free memory has them, and
//! any request can get them.

use super::cpu::{CpuFrames, TableCounters, ZoneLists};
use super::memory::PhysicalMemory;
use super::record::FreeFlags;
use super::request::Request;
use super::ring::Ring;
use crate::addr::Pfn;
use crate::platform::Machine;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::sync::limbo::Chain;

/// Log2 of the frames that idle time zeroes at once.
const IDLE_ORDER: u32 = 4;

/// What is known of a page table when it is free again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreedTables {
    /// Nothing.
    Plain,
    /// That it is zero, in its record.
    Noted,
    /// That it is zero, and it is kept apart from frames that are not.
    KeptApart,
}

impl<P: Machine> PhysicalMemory<P> {
    /// Sets what becomes of freed page tables, before there are any.
    pub(crate) fn set_freed_tables(&mut self, freed: FreedTables) {
        let freed = match freed {
            // Linked lists are not sorted by what is zero.
            FreedTables::KeptApart if self.other_lists().is_some() => FreedTables::Noted,
            freed => freed,
        };
        self.freed_tables = freed;
        if freed == FreedTables::KeptApart {
            for zone in &mut self.zones.all {
                zone.lists.0.get_mut().keep_zeroed();
            }
            for cpu in self.cpus.iter_mut() {
                cpu.keep_zeroed();
            }
        }
    }

    /// A frame known to be zero, of this CPU's list or of the zone that fills
    /// it, handed out.
    #[inline]
    pub(super) fn take_zeroed(
        &self,
        pin: &Pin<'_>,
        cpu: &CpuFrames,
        request: &Request,
    ) -> Option<Pfn> {
        let lists = cpu.lists_for(request.zone);
        let ring = lists.zeroed.as_deref()?;
        let pfn = match ring.pop_and_peek() {
            Some((pfn, next)) => {
                if let Some(next) = next {
                    self.table.prefetch(next);
                }
                pfn
            }
            None => self.refill_zeroed(pin, ring, lists.zone, request)?,
        };
        cpu.counters.allocs.bump();
        cpu.counters.zero_hits.bump();
        self.check_zero(pin, pfn);
        Some(self.hand_out(pin, pfn, request))
    }

    #[cold]
    fn refill_zeroed(
        &self,
        pin: &Pin<'_>,
        ring: &Ring,
        number: u16,
        request: &Request,
    ) -> Option<Pfn> {
        let zone = self.zones.get(number);
        if zone.published.zeroed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.fill(pin, ring, zone, request, true, ring.batch)
    }

    /// Frees a single frame whose bytes are all zero, which is remembered; else
    /// as [`PhysicalMemory::free`].
    pub(crate) fn free_zeroed(&self, pin: &Pin<'_>, pfn: Pfn) {
        if !self.is_own_pin(pin) {
            return self.free_zeroed(&self.pin(), pfn);
        }
        let frame = self.frame(pfn);
        self.check_zero(pin, pfn);
        self.uncharge(pin, pfn, 0);
        frame.set_kind_with(frame.kind(), FreeFlags::ZEROED);
        let cpu = self.cpus.get(pin);
        let lists = cpu.lists_of(frame.zone() as u16);
        cpu.counters.frees.bump();
        frame.set_cached();
        let ring = match lists {
            Some(lists) => lists.zeroed.as_deref().unwrap_or(&lists.frames),
            None => &cpu.remote,
        };
        self.keep(pin, ring, pfn);
    }

    /// Frees a page table that nobody can see any more. All its entries are zero.
    pub(crate) fn free_table(&self, pin: &Pin<'_>, table: Pfn) {
        if !self.is_home(pin, table) && !self.is_high_home(pin, table) {
            self.table_counters(pin).remote_frees.bump();
        }
        let plain = self.freed_tables == FreedTables::Plain;
        if plain && !self.frame(table).unused().has(FreeFlags::ZEROED) {
            self.free(pin, table, 0);
        } else {
            self.free_zeroed(pin, table);
        }
    }

    /// Frees page tables when nobody who is pinned at this moment can still
    /// see them: [`PhysicalMemory::retire`] for frames of kind `Table`.
    pub(crate) fn retire_tables(&self, pin: &Pin<'_>, tables: Chain) {
        self.retire_chain(pin, tables);
    }

    /// In debug builds, proves that a frame said to be zero is.
    pub(crate) fn check_zero(&self, pin: &Pin<'_>, pfn: Pfn) {
        if cfg!(debug_assertions) {
            let is_zero = self.with_bytes(pin, pfn, |frame| frame.is_zero());
            debug_assert!(is_zero, "{pfn:?} is said to be zero and is not");
        }
    }

    /// Whether a low frame is of the zone that this CPU's low frames come from:
    /// of its node, or the nearest node with low memory.
    #[inline]
    pub(crate) fn is_home(&self, pin: &Pin<'_>, pfn: Pfn) -> bool {
        self.frame(pfn).zone() == usize::from(self.cpus.get(pin).low.zone)
    }

    /// The same for a high frame.
    #[cold]
    fn is_high_home(&self, pin: &Pin<'_>, pfn: Pfn) -> bool {
        let high = &self.cpus.get(pin).high;
        high.exist() && self.frame(pfn).zone() == usize::from(high.zone)
    }

    /// The zone that a CPU's low frames come from, by number.
    #[cfg(feature = "published")]
    pub(crate) fn home_zone_of(&self, cpu: crate::platform::CpuId) -> usize {
        usize::from(self.cpus.of(cpu).low.zone)
    }

    /// Frames free in that zone, those in CPUs' lists not counted.
    #[inline]
    pub(crate) fn home_free(&self, pin: &Pin<'_>) -> u64 {
        let zone = self.zones.get(self.cpus.get(pin).low.zone);
        zone.published.free.load(Ordering::Relaxed)
    }

    /// Counts of what sources of page tables do on this CPU.
    #[inline]
    pub(crate) fn table_counters<'a>(&'a self, pin: &'a Pin<'_>) -> &'a TableCounters {
        &self.cpus.get(pin).counters.tables
    }

    /// The same of every CPU.
    pub(crate) fn all_table_counters(&self) -> impl Iterator<Item = &TableCounters> {
        self.cpus.iter().map(|cpu| &cpu.counters.tables)
    }

    /// Bytes that this CPU has zeroed so far for who asked for zeroes.
    #[inline]
    pub(crate) fn bytes_zeroed(&self, pin: &Pin<'_>) -> u64 {
        self.cpus.get(pin).counters.bytes_zeroed.get()
    }

    /// For a CPU that idles: moves the epoch on, frees what has passed, and
    /// gives frames that were freed on this CPU and belong to other nodes back
    /// to them.
    pub(crate) fn send_home(&self, pin: &Pin<'_>) {
        if !self.is_own_pin(pin) {
            return self.send_home(&self.pin());
        }
        self.epochs.try_advance();
        self.release_passed(pin);
        let remote = &self.cpus.get(pin).remote;
        if remote.len() > 0 {
            self.give_back(pin, remote, remote.len());
        }
    }

    /// For a CPU that idles: zeroes up to `budget` free frames of its node,
    /// around the caches, until half of the free memory is zero. Does nothing
    /// where zero frames are not kept apart. Returns the frames zeroed.
    pub fn zero_idle(&self, pin: &Pin<'_>, budget: u32) -> u32 {
        if !self.is_own_pin(pin) {
            return self.zero_idle(&self.pin(), budget);
        }
        let cpu = self.cpus.get(pin);
        let keeps_zeroed = |lists: &&&ZoneLists| lists.exist() && lists.zeroed.is_some();
        let mut left = budget;
        for lists in [&cpu.high, &cpu.low].iter().filter(keeps_zeroed) {
            while left > 0 {
                let zeroed = self.zero_block(pin, lists.zone, left);
                if zeroed == 0 {
                    break;
                }
                left -= zeroed;
            }
        }
        budget - left
    }

    /// Zeroes one free block of at most `most` frames; 0 if there is none that
    /// should be.
    fn zero_block(&self, pin: &Pin<'_>, number: u16, most: u32) -> u32 {
        let zone = self.zones.get(number);
        let mut lists = zone.lists.lock(pin);
        if lists.free() <= zone.info.high || lists.zeroed() * 2 >= lists.free() {
            return 0;
        }
        let order = most.ilog2().min(IDLE_ORDER);
        let Some((block, order)) = lists.take_plain(&self.table, order) else {
            return 0;
        };
        zone.publish(&lists);
        drop(lists);
        let size = self.frame_size();
        for index in 0..1 << order {
            // Out of the free lists, it has no other user.
            let frame = block.offset(index);
            self.with_bytes(pin, frame, |frame| frame.zero_around_caches());
        }
        let counters = &self.cpus.get(pin).counters;
        counters.idle_zeroed.add((size as u64) << order);
        let mut lists = zone.lists.lock(pin);
        lists.give(&self.table, block, order, true);
        zone.publish(&lists);
        1 << order
    }
}
