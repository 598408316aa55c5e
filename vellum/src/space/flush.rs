//! Whom to flush when entries of a space change, and with what.

use super::manager::{Live, Space, Vm};
use crate::addr::{PageRange, Vpn};
use crate::platform::{CpuSet, Flush, Platform, SpaceTag};
use crate::rmap::ReverseMap;
use crate::sync::{ActiveSet, CpuRoom, Pin};
use crate::table::{FlushTarget, Format, Gather};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Who must be flushed when translations of `space` go.
    pub(super) fn flush_target<'r>(
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
    pub(super) fn flush_page(&self, pin: &Pin<'_>, space: Live<'_, R>, page: Vpn) {
        self.flush_range(pin, space, Some(PageRange::new(page, 1)));
    }

    /// The same for a range, or for all of the space.
    pub(super) fn flush_range(&self, pin: &Pin<'_>, space: Live<'_, R>, range: Option<PageRange>) {
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
    pub(super) fn flush_locked_page(&self, pin: &Pin<'_>, space: Live<'_, R>, page: Vpn) {
        let mut room = CpuRoom::new();
        let target = self.flush_target(space, &mut room);
        if !target.cpus.is_empty() {
            let request = Flush {
                space: target.tag,
                range: Some(PageRange::new(page, 1)),
                tables: false,
            };
            (self.memory).flush_under_table_lock(pin, target.cpus, &request, 1);
        }
    }

    /// Makes every CPU forget a table and the pages that it covers, for the holder of its
    /// lock and that of the table above.
    pub(super) fn flush_locked_table(&self, pin: &Pin<'_>, space: Live<'_, R>, range: PageRange) {
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
    pub(super) fn active<'r>(&self, space: Live<'_, R>, room: &'r mut CpuRoom) -> CpuSet<'r> {
        self.active_set(space.get()).after_change(room)
    }

    /// Who has entered `space`, to be asked later.
    #[inline]
    pub(super) fn active_set<'a>(&self, space: &'a Space<R>) -> ActiveSet<'a> {
        ActiveSet::new(
            &space.active,
            self.has_many_cpus.then_some(&space.many_active),
        )
    }

    #[inline]
    pub(super) fn gather<'a>(&'a self, pin: &'a Pin<'a>, space: Live<'a, R>) -> Gather<'a, P> {
        let nobody = FlushTarget {
            tag: SpaceTag(space.handle()),
            cpus: CpuSet::EMPTY,
        };
        self.gather_for(pin, nobody)
            .following(self.active_set(space.get()))
    }

    #[inline]
    pub(super) fn gather_for<'a>(
        &'a self,
        pin: &'a Pin<'a>,
        target: FlushTarget<'a>,
    ) -> Gather<'a, P> {
        // SAFETY: the core puts in references that entries held, and tables that
        // `unlink_if_empty` unlinked; callers name the CPUs of the space (invariant 6).
        unsafe { Gather::new(&self.memory, &*self.table_pages, pin, target) }
    }
}
