//! The heap (brk) and stack growth.

use super::limits::Change;
use super::map_request::{MapRequest, Placement};
use super::unmap::DeadObjects;
use crate::addr::{PageRange, Prot, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::{FaultError, MapError};
use crate::space::state::locked::{HoldsSpace, UndividedSpace};
use crate::space::state::manager::Vm;
use crate::space::state::region::Traits;
use crate::space::state::spaces::{Live, SpaceId};
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, Unpinned};
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::set_heap_start`](crate::space::Space::set_heap_start).
    pub(crate) fn set_heap_start(&self, id: SpaceId, start: Vpn) -> Result<(), MapError> {
        let unpinned = Unpinned::at_door();
        if start >= F::USER_END {
            return Err(MapError::BadRange);
        }
        let guard = self.lock_named(unpinned, id)?;
        let space = guard.locked();
        if start < space.layout.lowest() {
            return Err(MapError::BadRange);
        }
        space.heap_start.store(start.0, Ordering::Relaxed);
        space.heap_end.store(start.0, Ordering::Relaxed);
        Ok(())
    }

    /// [`Space::heap`](crate::space::Space::heap).
    pub(crate) fn heap(&self, id: SpaceId) -> Option<PageRange> {
        let space = self.find_space(id)?;
        Some(PageRange {
            start: Vpn(space.heap_start.load(Ordering::Relaxed)),
            end: Vpn(space.heap_end.load(Ordering::Relaxed)),
        })
    }

    /// [`Space::set_heap_end`](crate::space::Space::set_heap_end).
    pub(crate) fn set_heap_end(&self, id: SpaceId, end: Vpn) -> Result<(), MapError> {
        let unpinned = Unpinned::at_door();
        self.with_room(unpinned, |unpinned| {
            self.set_heap_end_once(unpinned, id, end)
        })
    }

    fn set_heap_end_once(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        end: Vpn,
    ) -> Result<(), MapError> {
        let mut dead = DeadObjects::default();
        let result = self.with_undivided(unpinned.reborrow(), id, |pin, space| {
            let start = Vpn(space.heap_start.load(Ordering::Relaxed));
            let old = Vpn(space.heap_end.load(Ordering::Relaxed));
            if end < start {
                return Err(MapError::BadRange);
            }
            if end > old {
                let growth = PageRange { start: old, end };
                let is_kept = space.layout.kept_in(growth).is_some();
                if is_kept || self.end_below_stack(*space, end) < end {
                    return Err(MapError::Occupied);
                }
                let request = MapRequest {
                    traits: Traits::HEAP,
                    ..MapRequest::anonymous(end.0 - old.0, Prot::READ_WRITE)
                }
                .at(Placement::FixedFree(old));
                self.map_locked(pin, *space, &request, (0, 0), &mut dead)?;
            } else if end < old {
                let range = PageRange {
                    start: end,
                    end: old,
                };
                self.unmap_locked(pin, *space, range, &mut dead)?;
            }
            space.heap_end.store(end.0, Ordering::Relaxed);
            Ok(())
        });
        self.after_removal(unpinned, dead);
        result
    }

    /// Whether the region next above `page` is a stack that may grow to it.
    /// Looks without locks; [`Vm::grow_stack`] looks again.
    pub(in crate::space) fn is_below_stack(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        page: Vpn,
    ) -> bool {
        let may_grow = self.look(pin, space, page, |tree| {
            match tree.first_ending_after(page.0) {
                // Another thread's fault may have grown the stack since we looked.
                Some(found) => {
                    found.start <= page.0 || found.item.view().traits.has(Traits::GROWS_DOWN)
                }
                // It may be in the next tract.
                None => space.is_divided() && space.has_stack.load(Ordering::Relaxed) != 0,
            }
        });
        may_grow.unwrap_or(true)
    }

    /// Whether a stack that begins at `page`, which is free, is `gap` pages away
    /// from what is mapped below. Another stack, and what nobody can access
    /// anyway, may be closer: programs put such a mapping there as a guard.
    fn keeps_gap(&self, space: UndividedSpace<'_, R>, page: Vpn, gap: u64) -> bool {
        let Some(below) = self.own_tree(space).last_at_most(page.0) else {
            return true;
        };
        let view = below.view();
        let is_guard = view.traits.has(Traits::GROWS_DOWN) || view.prot == Prot::NONE;
        is_guard || page.0 - view.range.end.0 >= gap
    }

    /// Extends the stack above `page` down to it.
    pub(in crate::space) fn grow_stack(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        page: Vpn,
    ) -> Result<(), FaultError> {
        let grown = self.with_undivided(unpinned, id, |pin, space| {
            let grown = self.grow_to(pin, space, page);
            Ok(grown)
        });
        grown.unwrap_or(Err(FaultError::NoSpace))
    }

    /// [`Vm::grow_stack`] of a locked space.
    fn grow_to(
        &self,
        pin: &Pin<'_>,
        space: UndividedSpace<'_, R>,
        page: Vpn,
    ) -> Result<(), FaultError> {
        let handle = self.region_from(*space, page);
        if handle.is_none() {
            return Err(FaultError::NoRegion);
        }
        let view = self.region(handle).view();
        if view.range.contains(page) {
            return Ok(());
        }
        let range = PageRange {
            start: page,
            end: view.range.end,
        };
        let growth = view.range.start.0 - page.0;
        let more = PageRange::new(page, growth);
        let limits = space.limits.get();
        let allowed = view.traits.has(Traits::GROWS_DOWN)
            && view.object == 0
            && view.offset >= growth
            && page >= space.layout.lowest()
            && space.layout.kept_in(more).is_none()
            && range.pages() <= limits.stack_pages
            && self.keeps_gap(space, page, limits.stack_gap_pages)
            && self
                .check_limits(
                    *space,
                    page,
                    &Change::Growth((view.prot, view.traits.without(Traits::SEALED)), growth),
                )
                .is_ok();
        if !allowed {
            return Err(FaultError::NoRegion);
        }
        let write = space.seq.write(pin);
        self.resize_region(pin, *space, &write, handle, range);
        Ok(())
    }
}
