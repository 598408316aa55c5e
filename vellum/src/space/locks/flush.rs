//! Whom to flush when entries of a space change, and with what.
//!
//! Truncation and reclaim take entries away without the space's lock, and flush afterwards.
//! Until then a CPU may use what an entry was, though the entry itself is empty or names a swap
//! slot. A call that unmaps, moves, protects or copies entries promises that no CPU goes on
//! with what they allowed. So each space counts the entries that are between the two steps
//! ([`Vm::take_away`]), and such a call flushes its range while there are any
//! ([`Vm::note_unflushed`]): it need not wait for the other.

use crate::addr::{PageRange, Vpn};
use crate::platform::{CpuSet, Flush, Platform, SpaceTag};
use crate::rmap::ReverseMap;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::Live;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{CpuRoom, Pin};
use crate::table::{FlushTarget, Format, Gather};

/// Entries of a space that are being taken away without its lock, and whose CPUs are flushed
/// before this is dropped.
pub(in crate::space) struct TakenAway<'a>(&'a AtomicU32);

/// What such entries led to. It is flushed when it is dropped, and then nothing is taken away
/// any more.
pub(in crate::space) type Lost<'a, P> = (Gather<'a, P>, TakenAway<'a>);

impl Drop for TakenAway<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// While it lives, entries are cleared whose CPUs are flushed before it is dropped.
pub(in crate::space) struct DelayedFlush<'a, P: Platform, F: Format, R: ReverseMap> {
    vm: &'a Vm<P, F, R>,
    pin: &'a Pin<'a>,
}

impl<P: Platform, F: Format, R: ReverseMap> Drop for DelayedFlush<'_, P, F, R> {
    #[inline]
    fn drop(&mut self) {
        self.vm.rmap.delay_ends(&self.vm.env(self.pin));
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Says that entries of the space are about to be taken away by a caller who does not hold
    /// its lock. Called before the first of them changes: who sees the change sees this.
    #[inline]
    pub(in crate::space) fn take_away<'a>(&'a self, space: Live<'a, R>) -> TakenAway<'a> {
        space.unflushed.fetch_add(1, Ordering::Relaxed);
        TakenAway(&space.get().unflushed)
    }

    /// What a space is about to lose, for a caller who does not hold its lock.
    pub(in crate::space) fn lose<'a>(
        &'a self,
        pin: &'a Pin<'a>,
        space: Live<'a, R>,
    ) -> Lost<'a, P> {
        let taken = self.take_away(space);
        (self.gather(pin, space), taken)
    }

    /// Whether CPUs may know entries of the space that are gone. Asked after the entries were
    /// read.
    #[inline]
    pub(in crate::space) fn has_unflushed(space: Live<'_, R>) -> bool {
        space.unflushed.load(Ordering::Acquire) != 0
    }

    /// Has the whole of a range flushed if some CPU may know entries that were gone already when
    /// the caller went through it.
    #[inline]
    pub(in crate::space) fn note_unflushed(
        space: Live<'_, R>,
        range: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        if Self::has_unflushed(space) {
            gather.stale_leaf(range.start, range.pages());
        }
    }

    /// Who must be flushed when translations of `space` go.
    pub(in crate::space) fn flush_target<'r>(
        &self,
        space: Live<'_, R>,
        room: &'r mut CpuRoom,
    ) -> FlushTarget<'r> {
        FlushTarget {
            tag: SpaceTag(space.handle()),
            cpus: self.active(space, room),
        }
    }

    /// Makes every CPU forget the translation of one page, whose entry has
    /// been changed.
    pub(in crate::space) fn flush_page(&self, pin: &Pin<'_>, space: Live<'_, R>, page: Vpn) {
        self.flush_range(pin, space, Some(PageRange::new(page, 1)));
    }

    /// The same for a range, or for all of the space.
    pub(in crate::space) fn flush_range(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        range: Option<PageRange>,
    ) {
        let mut room = CpuRoom::new();
        let target = self.flush_target(space, &mut room);
        if !target.cpus.is_empty() {
            let request = Flush {
                space: target.tag,
                range,
                tables: false,
            };
            self.memory.flush(pin, target.cpus, &request);
        }
    }

    /// [`Vm::flush_page`] for the holder of the lock of the page's table.
    pub(in crate::space) fn flush_locked_page(&self, pin: &Pin<'_>, space: Live<'_, R>, page: Vpn) {
        self.flush_locked(pin, space, PageRange::new(page, 1));
    }

    /// The same for pages of one table.
    pub(in crate::space) fn flush_locked(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        pages: PageRange,
    ) {
        let mut room = CpuRoom::new();
        let target = self.flush_target(space, &mut room);
        if !target.cpus.is_empty() {
            let request = Flush {
                space: target.tag,
                range: Some(pages),
                tables: false,
            };
            (self.memory).flush_under_table_lock(pin, target.cpus, &request, 1);
        }
    }

    /// Makes every CPU forget a table and the pages that it covers, for the holder of its
    /// lock and that of the table above.
    pub(in crate::space) fn flush_locked_table(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        range: PageRange,
    ) {
        let mut room = CpuRoom::new();
        let target = self.flush_target(space, &mut room);
        if !target.cpus.is_empty() {
            let request = Flush {
                space: target.tag,
                range: Some(range),
                tables: true,
            };
            (self.memory).flush_under_table_lock(pin, target.cpus, &request, 2);
        }
    }

    /// CPUs that may hold translations or faults of `space`, asked after what
    /// keeps others from getting any has been done.
    #[inline]
    pub(in crate::space) fn active<'r>(
        &self,
        space: Live<'_, R>,
        room: &'r mut CpuRoom,
    ) -> CpuSet<'r> {
        self.active_set(space.get()).after_change(room)
    }

    #[inline]
    pub(in crate::space) fn gather<'a>(
        &'a self,
        pin: &'a Pin<'a>,
        space: Live<'a, R>,
    ) -> Gather<'a, P> {
        let nobody = FlushTarget {
            tag: SpaceTag(space.handle()),
            cpus: CpuSet::EMPTY,
        };
        self.gather_for(pin, nobody)
            .following(self.active_set(space.get()))
    }

    #[inline]
    pub(in crate::space) fn gather_for<'a>(
        &'a self,
        pin: &'a Pin<'a>,
        target: FlushTarget<'a>,
    ) -> Gather<'a, P> {
        // SAFETY: the core puts in references that entries held, and tables that
        // `unlink_if_empty` unlinked; callers name the CPUs of the space (invariant 6).
        unsafe { Gather::new(&self.memory, &*self.table_pages, pin, target) }
    }

    /// Tells reverse mapping that entries are about to be cleared. Made before the gather
    /// that flushes, and so dropped after it.
    #[inline]
    pub(in crate::space) fn delay_flush<'a>(
        &'a self,
        pin: &'a Pin<'a>,
    ) -> DelayedFlush<'a, P, F, R> {
        self.rmap.delay_begins(&self.env(pin));
        DelayedFlush { vm: self, pin }
    }
}
