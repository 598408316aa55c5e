//! Reservations: runs of frames set aside for a range of pages that is being filled.
//!
//! After Navarro (2002), as FreeBSD has them: the first fault in a range of a superpage's
//! size sets aside a whole run, and each page of the range gets the frame at its place in
//! the run. So pages that are all there lie as a superpage needs them, without a copy.
//!
//! A reservation belongs to the page table of its range, by that table's frame, or to a file in
//! memory that grows into the range. The run's frames are in one of two states, as a bitmap
//! says: **taken**, and then a frame like any other, which goes back to the allocator by itself;
//! or **unused**, and then nobody has it but the reservation. A reservation ends when its table
//! or file goes, when pages of its range are unmapped or cut off, when a superpage has taken all
//! of it, when the file goes on to another range, or when an allocation would fail otherwise:
//! then the oldest is **broken**. Each time the unused frames go back.
//!
//! Locks: the queue's, then a run's; of those one at a time. Both guard only themselves, and
//! neither is held while frames go back.

use alloc::boxed::Box;
use core::ops::Range;

use super::audit::{mark, wrong};
use super::memory::PhysicalMemory;
use super::record::TableFrame;
use super::report::AuditError;
use super::request::Request;
use super::site::Site;
use crate::addr::Pfn;
use crate::platform::Machine;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::list::{Link, Links, List, NONE};
use crate::sync::{CachePadded, Pin, SpinLock};

/// Log2 of the most frames that a run can have.
pub(crate) const MOST_ORDER: u32 = 9;
const WORDS: usize = 1 << (MOST_ORDER - 6);

/// Frames taken of a run after which the number of all unused frames is corrected: to count
/// each one where all CPUs do would cost a shared line for each fault.
const SETTLED: u32 = 64;

/// Whose a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// Whoever made the reservation, and has not given it to a table yet.
    Maker,
    /// A page table.
    Table(Pfn),
    /// A file in memory, for the pages from an index on.
    Object {
        /// The object's handle.
        handle: u32,
        /// The index.
        first: u64,
    },
}

/// One aligned run of physical memory.
#[derive(Default)]
struct ReservedRun {
    /// `None`: it is no reservation.
    owner: Option<Owner>,
    zone: u16,
    /// Frames taken.
    taken: u32,
    /// Which.
    map: [u64; WORDS],
}

impl ReservedRun {
    fn is_taken(&self, index: u32) -> bool {
        self.map[index as usize / 64] >> (index % 64) & 1 != 0
    }

    fn flip(&mut self, index: u32) {
        self.map[index as usize / 64] ^= 1 << (index % 64);
    }

    /// Whether one of `count` frames from `first` on is taken.
    fn any_taken(&self, first: u32, count: u32) -> bool {
        (first..first + count).any(|index| self.is_taken(index))
    }
}

/// What was counted of reservations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReservationStats {
    /// Reservations made.
    pub made: u64,
    /// Of these, those that were broken because an allocation would have failed.
    pub broken: u64,
    /// Frames that faults took from reservations.
    pub populated: u64,
    /// Frames that are set aside and unused. Off by up to 63 for each reservation while
    /// others are at work.
    pub unused: u64,
    /// The most that there were at a time, at most.
    pub most_unused: u64,
}

#[derive(Default)]
struct Queue {
    /// Those that belong to tables and objects, oldest first.
    oldest_first: List,
}

/// All runs of a machine.
pub(super) struct Reservations {
    order: u32,
    /// Number of the run that the first frame lies in.
    first: u32,
    runs: Box<[SpinLock<ReservedRun>]>,
    links: Box<[Link]>,
    queue: CachePadded<SpinLock<Queue>>,
    unused: CachePadded<AtomicU64>,
    most_unused: AtomicU64,
    made: AtomicU64,
    broken: AtomicU64,
    /// Reservations that are being broken: they are not in the queue any more, and their frames
    /// not free yet. Raised under the queue's lock.
    breaking: AtomicU64,
}

impl Links for Reservations {
    fn link(&self, name: u32) -> &Link {
        &self.links[name as usize]
    }
}

impl Reservations {
    /// For runs of `1 << order` frames, between the first and the last frame of a machine.
    fn new(order: u32, first: Pfn, end: Pfn) -> Reservations {
        debug_assert!(order <= MOST_ORDER);
        let first = first.0 >> order;
        let count = (end.0.div_ceil(1 << order) - first) as usize;
        Reservations {
            order,
            first,
            runs: (0..count).map(|_| SpinLock::default()).collect(),
            links: (0..count).map(|_| Link::new()).collect(),
            queue: CachePadded(SpinLock::default()),
            unused: CachePadded(AtomicU64::new(0)),
            most_unused: AtomicU64::new(0),
            made: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            breaking: AtomicU64::new(0),
        }
    }

    fn size(&self) -> u32 {
        1 << self.order
    }

    /// The name of the run that begins with a frame.
    fn name(&self, first: Pfn) -> u32 {
        (first.0 >> self.order) - self.first
    }

    fn first_of(&self, name: u32) -> Pfn {
        Pfn((self.first + name) << self.order)
    }

    fn run(&self, first: Pfn) -> &SpinLock<ReservedRun> {
        &self.runs[self.name(first) as usize]
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Lets runs of `1 << order` frames be set aside from now on.
    pub(crate) fn keep_reservations(&mut self, order: u32) {
        let map = self.platform.memory_map();
        let (first, last) = (map[0].start, &map[map.len() - 1]);
        let end = last.start.offset(last.frames);
        self.reservations = Some(Box::new(Reservations::new(order, first, end)));
    }

    /// Pages of a run, if any may be set aside.
    #[inline]
    pub(crate) fn pages_of_runs(&self) -> Option<u64> {
        self.reservations().map(|kept| u64::from(kept.size()))
    }

    /// Sets a run aside, for the caller to give to an owner ([`PhysicalMemory::grant_run`]) or
    /// to end. `None` if there is no run, or none is asked for.
    pub(crate) fn reserve_run(&self, pin: &Pin<'_>) -> Option<Pfn> {
        let kept = self.reservations()?;
        let request = Request::page(Site::Reservation).order(kept.order);
        let first = self.alloc(pin, request).ok()?;
        let head = self.frame(first);
        let zone = head.zone() as u16;
        head.init_counts(0, 0);
        head.set_tail(zone);
        let queue = kept.queue.lock(pin);
        *kept.run(first).lock(pin) = ReservedRun {
            owner: Some(Owner::Maker),
            zone,
            ..ReservedRun::default()
        };
        drop(queue);
        kept.made.fetch_add(1, Ordering::Relaxed);
        let size = u64::from(kept.size());
        let unused = kept.unused.fetch_add(size, Ordering::Relaxed) + size;
        kept.most_unused.fetch_max(unused, Ordering::Relaxed);
        Some(first)
    }

    /// Gives the run that the caller has set aside to a page table, which is locked and names
    /// the run, or to an object. It is the newest then.
    pub(crate) fn grant_run(&self, pin: &Pin<'_>, first: Pfn, owner: Owner) {
        let Some(kept) = self.reservations() else {
            return;
        };
        let mut queue = kept.queue.lock(pin);
        kept.run(first).lock(pin).owner = Some(owner);
        queue.oldest_first.push_back(kept, kept.name(first));
    }

    /// Takes the frame at a place of a run, if the run is the owner's and the frame unused.
    /// It has one reference then, and any content.
    pub(crate) fn take_reserved(
        &self,
        pin: &Pin<'_>,
        first: Pfn,
        owner: Owner,
        index: u32,
    ) -> Option<Pfn> {
        let kept = self.reservations()?;
        let mut run = kept.run(first).lock(pin);
        if run.owner != Some(owner) || run.is_taken(index) {
            return None;
        }
        run.flip(index);
        run.taken += 1;
        if run.taken % SETTLED == 0 {
            kept.unused.fetch_sub(SETTLED.into(), Ordering::Relaxed);
        }
        let zone = run.zone;
        drop(run);
        self.cpus.get(pin).counters.populated.bump();
        let pfn = first.offset(index);
        self.frame(pfn).hand_out_in(zone, 0, 0);
        Some(pfn)
    }

    /// Gives back a frame that was taken and has not been used: to its run, if that is still
    /// the owner's.
    pub(crate) fn give_back_reserved(&self, pin: &Pin<'_>, first: Pfn, owner: Owner, pfn: Pfn) {
        self.give_back_if(pin, first, pfn, |is| is == owner);
    }

    /// The same of the run that an object names, whichever range it is for: the frame may come
    /// from elsewhere, or the run belong to somebody else by now.
    pub(crate) fn give_back_to(&self, pin: &Pin<'_>, first: Pfn, handle: u32, pfn: Pfn) {
        let is_objects = |is| matches!(is, Owner::Object { handle: of, .. } if of == handle);
        self.give_back_if(pin, first, pfn, is_objects);
    }

    fn give_back_if(&self, pin: &Pin<'_>, first: Pfn, pfn: Pfn, is: impl Fn(Owner) -> bool) {
        let Some(kept) = self.reservations() else {
            return;
        };
        let mut run = kept.run(first).lock(pin);
        let is_of_run = pfn.0.wrapping_sub(first.0) < kept.size();
        if !is_of_run || !run.owner.is_some_and(is) {
            drop(run);
            self.put(pin, pfn);
            return;
        }
        // Before the run says that it is unused.
        self.uncharge(pin, pfn, 0);
        let frame = self.frame(pfn);
        frame.init_counts(0, 0);
        frame.set_tail(run.zone);
        if run.taken % SETTLED == 0 {
            kept.unused.fetch_add(SETTLED.into(), Ordering::Relaxed);
        }
        run.flip(pfn.0 - first.0);
        run.taken -= 1;
        drop(run);
        self.cpus.get(pin).counters.populated.sub(1);
    }

    /// Ends the owner's reservation of a run, if it is still the owner's. Its unused frames go
    /// back.
    pub(crate) fn end_run(&self, pin: &Pin<'_>, first: Pfn, owner: Owner) {
        self.end_if(pin, first, |run| run.owner == Some(owner));
    }

    /// The same of a run that is an object's, and for pages of which some are in `pages`.
    pub(crate) fn end_run_of(&self, pin: &Pin<'_>, first: Pfn, handle: u32, pages: &Range<u64>) {
        let size = self.pages_of_runs().unwrap_or(0);
        self.end_if(pin, first, |run| match run.owner {
            Some(Owner::Object {
                handle: of,
                first: start,
            }) => of == handle && start < pages.end && pages.start < start + size,
            _ => false,
        });
    }

    fn end_if(&self, pin: &Pin<'_>, first: Pfn, ends: impl Fn(&ReservedRun) -> bool) {
        let Some(kept) = self.reservations() else {
            return;
        };
        let mut queue = kept.queue.lock(pin);
        let mut run = kept.run(first).lock(pin);
        if !ends(&run) {
            return;
        }
        if run.owner != Some(Owner::Maker) {
            queue.oldest_first.remove(kept, kept.name(first));
        }
        let ended = Self::ended(kept, &mut run);
        drop(run);
        drop(queue);
        self.free_unused(pin, first, &ended);
    }

    /// Breaks the oldest reservation of a run that `suits`. Returns whether there was one.
    #[cold]
    pub(super) fn break_oldest(&self, pin: &Pin<'_>, suits: impl Fn(u16) -> bool) -> bool {
        let Some(kept) = self.reservations() else {
            return false;
        };
        let mut queue = kept.queue.lock(pin);
        let mut name = queue.oldest_first.first();
        while name != NONE {
            let first = kept.first_of(name);
            let mut run = kept.run(first).lock(pin);
            if suits(run.zone) {
                queue.oldest_first.remove(kept, name);
                kept.broken.fetch_add(1, Ordering::Relaxed);
                kept.breaking.fetch_add(1, Ordering::Relaxed);
                let ended = Self::ended(kept, &mut run);
                drop(run);
                drop(queue);
                self.free_unused(pin, first, &ended);
                // From the CPU's lists to where others find them.
                self.drain(pin);
                kept.breaking.fetch_sub(1, Ordering::Release);
                return true;
            }
            drop(run);
            name = kept.link(name).next();
        }
        false
    }

    /// Whether frames of a broken reservation are about to come back.
    pub(super) fn is_breaking(&self) -> bool {
        let kept = self.reservations.as_ref();
        kept.is_some_and(|kept| kept.breaking.load(Ordering::Acquire) > 0)
    }

    /// Makes a run none, and returns what it was.
    fn ended(kept: &Reservations, run: &mut ReservedRun) -> ReservedRun {
        let counted = kept.size() - run.taken / SETTLED * SETTLED;
        kept.unused.fetch_sub(counted.into(), Ordering::Relaxed);
        core::mem::take(run)
    }

    /// Gives back the frames of a run that were not taken, in blocks as large as can be.
    fn free_unused(&self, pin: &Pin<'_>, first: Pfn, run: &ReservedRun) {
        let Some(kept) = self.reservations() else {
            return;
        };
        if run.taken == kept.size() {
            return;
        }
        let mut index = 0;
        while index < kept.size() {
            let mut order = index.trailing_zeros().min(kept.order);
            while run.any_taken(index, 1 << order) && order > 0 {
                order -= 1;
            }
            if !run.is_taken(index) {
                let pfn = first.offset(index);
                let frame = self.frame(pfn);
                frame.hand_out_in(run.zone, order, 0);
                frame.init_counts(0, 0);
                self.free(pin, pfn, order);
            }
            index += 1 << order;
        }
    }

    /// What was counted of reservations.
    pub(super) fn reservation_stats(&self) -> ReservationStats {
        let Some(kept) = self.reservations() else {
            return ReservationStats::default();
        };
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        ReservationStats {
            made: count(&kept.made),
            broken: count(&kept.broken),
            populated: self.cpus.sum(|cpu| &cpu.counters.populated),
            unused: count(&kept.unused),
            most_unused: count(&kept.most_unused),
        }
    }

    /// Calls `look` for each run that is set aside for an object, with its first frame and the
    /// object's handle.
    pub(crate) fn each_run_of_objects(&self, pin: &Pin<'_>, mut look: impl FnMut(Pfn, u32)) {
        let Some(kept) = self.reservations() else {
            return;
        };
        for (name, run) in (0..).zip(&kept.runs) {
            if let Some(Owner::Object { handle, .. }) = run.lock(pin).owner {
                look(kept.first_of(name), handle);
            }
        }
    }

    /// Checks every reservation and marks its unused frames.
    pub(super) fn audit_reservations(&self, pin: &Pin<'_>) -> Result<(), AuditError> {
        let Some(kept) = self.reservations() else {
            return Ok(());
        };
        let queue = kept.queue.lock(pin);
        let mut name = queue.oldest_first.first();
        let (mut listed, mut unused) = (0, 0);
        while name != NONE {
            listed += 1;
            name = kept.link(name).next();
        }
        for (name, run) in (0..).zip(&kept.runs) {
            let run = run.lock(pin);
            let first = kept.first_of(name);
            let Some(owner) = run.owner else { continue };
            match owner {
                Owner::Maker => return Err(wrong(first, "a run is set aside for nobody")),
                Owner::Table(table) => {
                    let record = self.audited(table)?;
                    let named = record.as_table().and_then(TableFrame::reserved);
                    if named != Some(first) {
                        let what = "a run is set aside for a table that does not name it";
                        return Err(wrong(first, what));
                    }
                }
                // Who checks the objects checks that.
                Owner::Object { .. } => {}
            }
            let taken = (0..kept.size())
                .filter(|&index| run.is_taken(index))
                .count();
            if taken != run.taken as usize {
                return Err(wrong(first, "the count of a run is not that of its map"));
            }
            for index in (0..kept.size()).filter(|&index| !run.is_taken(index)) {
                let pfn = first.offset(index);
                let frame = self.audited(pfn)?;
                if !frame.is_tail() {
                    return Err(wrong(pfn, "set aside, but the record says in use"));
                }
                mark(pfn, frame)?;
                unused += 1;
            }
            listed -= 1;
            unused += u64::from(run.taken % SETTLED);
        }
        if listed != 0 || unused != kept.unused.load(Ordering::Relaxed) {
            return Err(wrong(
                Pfn::NONE,
                "the queue of reservations or their count is wrong",
            ));
        }
        Ok(())
    }
}
