//! Runs of frames that large leaves map.
//!
//! A run is a block from the allocator: `1 << order` frames, aligned to their size. It is in
//! one of two states, and stays a run as long as a large leaf maps it.
//!
//! * **Whole**: the first frame's record has the order and counts what maps and refers to
//!   the run. The others are tails, as in any block. So a superpage that is mapped, forked
//!   and unmapped whole costs one record each time, and goes back as one block.
//! * **Divided**: every frame has a record of its own, with order 0, that counts all entries
//!   that map the frame, large or small. So it is when a large leaf has taken the place of
//!   single pages, until [`PhysicalMemory::unite_records`], and when a mapping was split.
//!
//! The state changes under the run's lock, a bit in the first frame's record. Whoever counts
//! a reference to a whole run up or down holds it, but for reclaim, which knows a frame by its
//! number alone, and must not lock what may be no run by now. So the counts themselves say that
//! they are a whole run's ([`Counts::is_whole`](super::Counts::is_whole)): division takes that
//! away in the step in which it reads the counts that it copies to all frames, and who takes a
//! reference knows from the counts before whether it is one of those. A reference taken to a
//! whole run is dropped by [`PhysicalMemory::put_run`], which finds out what became of the run.
//! A reference to a frame alone keeps the run from being made whole. The lock comes after those
//! of tables, and before those of reverse mapping.

use super::memory::PhysicalMemory;
use super::record::{Counts, Frame, Kind, PageFlags};
use crate::addr::Pfn;
use crate::platform::Machine;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::bytes::prefetch;
use crate::sync::{BitGuard, BitLock, Pin};

/// A run whose state does not change while this exists.
pub(crate) struct LockedRun<'a> {
    head: &'a Frame,
    order: u32,
    _guard: BitGuard<'a, AtomicU32>,
}

impl LockedRun<'_> {
    /// Whether the frames of the run have one record.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.head.order() == self.order
    }

    /// The first frame's record.
    #[inline]
    pub fn head(&self) -> &Frame {
        self.head
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Locks the run of `1 << order` frames from `first` on, which an entry of a table that
    /// the caller has locked, or a reference of the caller, keeps from ending.
    #[inline]
    pub(crate) fn lock_run<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        first: Pfn,
        order: u32,
    ) -> LockedRun<'a> {
        let head = self.frame(first);
        debug_assert!(head.kind() == Kind::Anonymous && order > 0);
        LockedRun {
            head,
            order,
            _guard: head.flag_word().lock_bit(PageFlags::RUN_LOCK.bit(), pin),
        }
    }

    /// The records of all frames of a run but the first.
    #[inline]
    fn parts(&self, run: &LockedRun<'_>, first: Pfn) -> &[Frame] {
        &self.frames(first, 1 << run.order)[1..]
    }

    /// Asks for the records of the frames of a block that each get one of their own next.
    #[inline]
    pub(crate) fn prefetch_parts(&self, first: Pfn, order: u32) {
        for pair in self.frames(first, 1 << order).chunks(2) {
            prefetch(&pair[0]);
        }
    }

    /// Gives every frame of a whole run but the first a record of its own, with the first's
    /// owner and the index that follows from the first's. The run stays whole, and the records
    /// have no counts, until [`PhysicalMemory::set_divided`]: so nobody looks at them before
    /// reverse mapping has completed them. Returns the counts that they are to have.
    pub(crate) fn divide_records(&self, run: &LockedRun<'_>, first: Pfn) -> Counts {
        let head = run.head;
        let (zone, owner, index) = (head.zone() as u16, head.owner(), head.index());
        let counts = head.end_whole();
        debug_assert!(counts.is_whole(), "{first:?} divided twice");
        for (step, frame) in (1..).zip(self.parts(run, first)) {
            frame.set_part(zone);
            frame.set_owner(owner);
            frame.set_part_index(index + step);
        }
        counts
    }

    /// Makes the frames of a block that the caller has had handed out private pages of
    /// `owner`, from `index` on, each with a record of its own and mapped once: the pages of a
    /// folio, of which that at `used` was stored to.
    pub(crate) fn divide_block(&self, block: (Pfn, u32), owner: u32, index: u64, used: usize) {
        let (first, order) = block;
        let zone = self.frame(first).zone() as u16;
        let records = self.frames(first, 1 << order);
        for (at, frame) in (index..).zip(records) {
            frame.set_part(zone);
            frame.set_owner(owner);
            frame.set_folio_index(at);
            // The word of a tail is what its frame's last use left.
            frame.rmap().store(0, Ordering::Relaxed);
            frame.init_counts(1, 1);
        }
        records[used].set_index(index + used as u64, 0);
    }

    /// Makes single frames, which the caller has like any that it was handed out, of a block
    /// that it was handed out.
    pub(crate) fn split_block(&self, first: Pfn, order: u32) {
        let zone = self.frame(first).zone() as u16;
        let frames = 1 << order;
        for step in 0..frames {
            let frame = self.frame(first.offset(step));
            let word = frame.rmap();
            frame.set_part(zone);
            frame.set_kind(Kind::Allocated);
            frame.set_index(0, 0);
            // The word of a tail is what its frame's last use left.
            word.store(0, Ordering::Relaxed);
            frame.init_counts(1, 0);
        }
    }

    /// Takes the count of every frame of a divided run but the first, whose count stands for
    /// all from then on, if each has one mapping and no other reference. Whoever would take a
    /// reference to one of the others without a lock finds none from then on.
    ///
    /// # Errors
    /// One is shared. All counts are as before, but the first so many of the others were without
    /// for a moment.
    pub(crate) fn take_parts(&self, run: &LockedRun<'_>, first: Pfn) -> Result<(), usize> {
        let parts = self.parts(run, first);
        let shared = parts.iter().position(|part| !part.take_last());
        if shared.is_none() && run.head.begin_whole() {
            return Ok(());
        }
        let taken = shared.unwrap_or(parts.len());
        for part in &parts[..taken] {
            part.init_counts(1, 1);
        }
        Err(taken)
    }

    /// Makes a divided run whole, after [`PhysicalMemory::take_parts`]: the first frame's
    /// record stands for all.
    pub(crate) fn unite_records(&self, run: &LockedRun<'_>, first: Pfn) {
        let head = run.head;
        let mut in_folio = head.came_in_folio();
        for frame in self.parts(run, first) {
            in_folio |= frame.came_in_folio();
            frame.set_tail(head.zone() as u16);
        }
        head.set_index(head.index(), run.order);
        if in_folio {
            head.set_came_in_folio();
        }
    }

    /// Ends the division that [`PhysicalMemory::divide_records`] began.
    pub(crate) fn set_divided(&self, run: &LockedRun<'_>, first: Pfn, counts: Counts) {
        for frame in self.parts(run, first) {
            frame.init_counts(counts.refs(), counts.maps());
        }
        run.head.set_part_index(run.head.index());
    }

    /// Drops a reference to a run that was taken while it was whole, by the first frame's
    /// record. Frees the run, or those of its frames, that nobody else has a reference to.
    pub(crate) fn put_run(&self, pin: &Pin<'_>, first: Pfn, order: u32) {
        let run = self.lock_run(pin, first, order);
        if run.is_whole() {
            let was_last = run.head.put();
            if was_last {
                run.head.init_counts(0, 0);
            }
            drop(run);
            if was_last {
                self.free(pin, first, order);
            }
            return;
        }
        drop(run);
        for step in 0..1 << order {
            self.put(pin, first.offset(step));
        }
    }
}
