//! Records of page tables: live entries, level, owner, first page, spare tables. The lock is a
//! state bit.

use super::counts::ONE_REF;
use super::{Frame, INDEX_MASK, Kind, ORDER_SHIFT, TableFlags, TableFrame};
use crate::addr::{Pfn, Vpn};
use crate::sync::atomic::Ordering;

/// Bit of a table's rmap word where its spare tables begin; below it are the live entries.
const SPARE_SHIFT: u32 = 32;

impl Frame {
    /// Makes a private frame the record of a page table of the space with
    /// handle `owner`, at `level` (1 holds leaves of one page), for pages from
    /// `base` on, with `live` entries that are not empty.
    #[inline]
    pub fn init_table(&self, owner: u32, level: u32, base: Vpn, live: u32) -> TableFrame<'_> {
        self.set_kind(Kind::Table);
        self.counts.store(ONE_REF, Ordering::Relaxed);
        self.owner.store(owner, Ordering::Relaxed);
        self.index.store(
            base.0 & INDEX_MASK | u64::from(level) << ORDER_SHIFT,
            Ordering::Relaxed,
        );
        self.rmap.store(u64::from(live), Ordering::Release);
        self.table()
    }
}

impl TableFrame<'_> {
    /// How many walks in a row found no entry of the table used: 3 at most.
    pub(crate) fn idle(self) -> u32 {
        let flags = self.flags.load(Ordering::Relaxed);
        (flags & TableFlags::IDLE.bits()) >> TableFlags::IDLE.bit()
    }

    /// Changes what [`Frame::idle`] says. The table is locked.
    pub(crate) fn set_idle(self, times: u32) {
        self.clear(TableFlags::IDLE);
        self.set(TableFlags::idle(times.min(3)));
    }

    /// The table's level.
    #[inline]
    pub(crate) fn level(self) -> u32 {
        self.order()
    }

    /// First page the table covers.
    #[inline]
    pub(crate) fn base(self) -> Vpn {
        Vpn(self.index())
    }

    /// Entries that are not empty. Exact under the table's lock.
    #[inline]
    pub(crate) fn live(self) -> u32 {
        self.rmap.load(Ordering::Relaxed) as u32
    }

    /// Adds to the live count; returns the new count. Under the table's lock.
    #[inline]
    pub(crate) fn add_live(self, count: u32) -> u32 {
        let word = self.rmap.load(Ordering::Relaxed) + u64::from(count);
        self.rmap.store(word, Ordering::Relaxed);
        word as u32
    }

    /// The first of the table's spare tables, which are linked by this too: one for each
    /// large leaf in it. Under the table's lock.
    #[inline]
    pub(crate) fn spare(self) -> Option<Pfn> {
        let next = (self.rmap.load(Ordering::Relaxed) >> SPARE_SHIFT) as u32;
        next.checked_sub(1).map(Pfn)
    }

    /// Sets it. Under the table's lock.
    #[inline]
    pub(crate) fn set_spare(self, table: Option<Pfn>) {
        let next = table.map_or(0, |table| u64::from(table.0) + 1);
        let live = u64::from(self.live());
        self.rmap
            .store(live | next << SPARE_SHIFT, Ordering::Relaxed);
    }

    /// Of a table of level 1, which has no large leaves: the first frame of the run that was
    /// set aside for its pages. The run may be another's by now.
    #[inline]
    pub(crate) fn reserved(self) -> Option<Pfn> {
        self.spare()
    }

    /// Sets it. Under the table's lock.
    #[inline]
    pub(crate) fn set_reserved(self, first: Option<Pfn>) {
        self.set_spare(first);
    }

    /// Says where the entries of a table went that is empty now. Under its lock.
    #[inline]
    pub(crate) fn set_moved_to(self, table: Pfn) {
        // The table has no owner any more; its other words link the list that it gets on.
        self.owner.store(table.0, Ordering::Relaxed);
    }

    /// Where the entries went, of a table with [`TableFlags::MOVED`].
    #[inline]
    pub(crate) fn moved_to(self) -> Pfn {
        Pfn(self.owner.load(Ordering::Relaxed))
    }

    /// Subtracts from the live count; returns the new count. Under the table's lock.
    #[inline]
    pub(crate) fn sub_live(self, count: u32) -> u32 {
        debug_assert!(self.live() >= count, "more entries cleared than were live");
        let word = self.rmap.load(Ordering::Relaxed) - u64::from(count);
        self.rmap.store(word, Ordering::Relaxed);
        word as u32
    }
}
