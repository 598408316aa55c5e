//! Guards: pages of a region that nobody may access (`MADV_GUARD_INSTALL`, Linux 6.13).
//!
//! A guard is an entry of a page table that is not mapped and names a slot that no swap area has
//! ([`Entry::Guard`](crate::table::Entry::Guard)). So the region stays one, and a fault meets the
//! guard where it would look for a page in swap. Such an entry goes with its region to other
//! places and to children, and away with the region; nothing else but its removal ends it. A
//! region that has had one says so ([`Traits::GUARDED`]), so that fork looks for them.

use crate::addr::PageRange;
use crate::frame::OutOfMemory;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::leaves::zap::Zap;
use crate::space::state::closed::Closed;
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::Traits;
use crate::space::state::spaces::SpaceId;
use crate::sync::{Pin, Unpinned};
use crate::table::{Format, Gather, LockedTable, Swapped, Users};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Advice::InstallGuards`](crate::space::Advice::InstallGuards).
    pub(in crate::space) fn install_guards(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
    ) -> Result<(), MapError> {
        self.with_covered(unpinned, id, range, |pin, space| {
            self.for_regions(space, range, |_, view| match view.traits {
                traits if traits.has(Traits::LOCKED) => Err(MapError::Locked),
                _ if view.is_unmanaged() => Err(MapError::WrongKind),
                _ if view.loses_if_sealed() => Err(MapError::Sealed),
                _ => Ok(()),
            })?;
            self.forget_tracked(pin, space, range);
            let closed = self.close_regions(pin, space, range);
            let mut gather = self.gather(pin, *space);
            let made = closed.try_for_each(|region, view| {
                let part = view.range.intersection(range);
                self.make_tables_for_guards(pin, space, region, part)
            });
            if made.is_ok() {
                closed.for_each(|region, view| {
                    let zap = Zap {
                        vm: self,
                        pin,
                        space: *space,
                        region: &region,
                        users: Users::Hardware,
                    };
                    zap.pages(view.range.intersection(range), &mut gather);
                    region.note_guards();
                });
            }
            // The tables that were kept stay if they have guards, and go if there are none.
            let tables = self.tables(pin, *space);
            let freed_before = gather.tables_freed();
            for span in tables.spans(range).filter(|span| span.table.level() == 1) {
                if made.is_ok() {
                    Self::fill_with_guards(&span.table, span.first..span.first + span.count);
                }
                span.table.release();
                tables.unlink_if_empty(span.table, &mut gather);
            }
            let freed = gather.tables_freed() - freed_before;
            self.count_tables(pin, *space, 0, freed);
            Ok(made?)
        })
    }

    /// Makes the tables of single pages for a part of a region, and keeps them linked. What it
    /// made when it failed is for the caller to release.
    fn make_tables_for_guards(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        region: Closed<'_, R>,
        part: PageRange,
    ) -> Result<(), OutOfMemory> {
        let tables = self.tables(pin, *space);
        let mut made = 0;
        let mut result = Ok(());
        let mut page = part.start;
        while page < part.end && result.is_ok() {
            result = match tables.lock_or_make(page, &mut made) {
                Ok(table) if table.level() == 1 => {
                    table.keep();
                    page = F::table_base(page, 1).offset(F::ENTRIES as u64);
                    Ok(())
                }
                Ok(table) => {
                    drop(table);
                    self.demote(pin, *space, &region, page)
                }
                Err(error) => Err(error),
            };
        }
        self.count_tables(pin, *space, made, 0);
        result
    }

    /// Makes guards of those entries of a table that are empty.
    fn fill_with_guards(table: &LockedTable<'_, F>, entries: core::ops::Range<usize>) {
        let mut made = 0;
        for index in entries {
            if table.load(index) == 0 {
                table.fill(index, F::swap(Swapped::GUARD));
                made += 1;
            }
        }
        table.count_made(made);
    }

    /// [`Advice::RemoveGuards`](crate::space::Advice::RemoveGuards).
    pub(in crate::space) fn remove_guards(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
    ) -> Result<(), MapError> {
        self.with_covered(unpinned, id, range, |pin, space| {
            self.forget_tracked(pin, space, range);
            // A fault that looks for a page in swap must not find that the guard is gone.
            let closed = self.close_regions(pin, space, range);
            let mut gather = self.gather(pin, *space);
            closed.for_each(|_, view| {
                if view.traits.has(Traits::GUARDED) {
                    self.clear_guards(pin, space, view.range.intersection(range), &mut gather);
                }
            });
            Ok(())
        })
    }

    /// Empties the entries of a range that are guards.
    fn clear_guards(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        let tables = self.tables(pin, *space);
        let freed_before = gather.tables_freed();
        for span in tables.spans(range).filter(|span| span.table.level() == 1) {
            let mut cleared = 0;
            for index in span.first..span.first + span.count {
                if F::is_guard(span.table.load(index)) {
                    span.table.clear(index, Users::None);
                    cleared += 1;
                }
            }
            span.table.count_cleared(cleared);
            tables.unlink_if_empty(span.table, gather);
        }
        let freed = gather.tables_freed() - freed_before;
        self.count_tables(pin, *space, 0, freed);
    }
}
