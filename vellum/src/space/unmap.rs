//! munmap.

use super::error::MapError;
use super::manager::{Live, SpaceId, Vm};
use super::regions::RegionHandle;
use crate::addr::{PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::slab::Handle;
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, SeqWrite};
use crate::table::{Format, Users};

/// Objects that lost their last user, threaded through their own records.
#[derive(Default)]
pub(super) struct DeadObjects(u32);

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Unmaps `pages` pages from `start` on. Holes in the range are no error.
    ///
    /// # Errors
    /// [`MapError::BadRange`], [`MapError::NoSpace`], and
    /// [`MapError::OutOfMemory`] if a region would have to be cut and cannot.
    pub fn unmap(&self, id: SpaceId, start: Vpn, pages: u64) -> Result<(), MapError> {
        let (guard, range) = self.begin_change(id, start, pages)?;
        let mut dead = DeadObjects::default();
        let result = {
            let pin = self.pin();
            self.events(&pin).unmaps.bump();
            self.unmap_locked(&pin, guard.space(), range, &mut dead)
        };
        drop(guard);
        self.destroy_objects(dead);
        result
    }

    /// [`Vm::unmap`] for the holder of the space's lock.
    pub(super) fn unmap_locked(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        range: PageRange,
        dead: &mut DeadObjects,
    ) -> Result<(), MapError> {
        if self.is_free(space, range) {
            return Ok(());
        }
        self.unmap_and(pin, space, range, dead, |_| ())
    }

    /// Unmaps a range that is not free, and lets `link` put something in its
    /// place: faults see the old regions or what is there then, and no hole.
    pub(super) fn unmap_and(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        range: PageRange,
        dead: &mut DeadObjects,
        link: impl FnOnce(&SeqWrite<'_>),
    ) -> Result<(), MapError> {
        // Mostly the range is that of one region: then nothing is cut, and
        // nothing else has to be looked for.
        let whole = self.region_with(space, range);
        if whole.is_none() {
            // The cuts stay: nothing can fail any more.
            let _ = self.isolate(pin, space, range)?;
            self.close_gates(pin, space, range);
        } else {
            self.region(whole).gate.close();
            self.wait_out_region(pin, space, whole.raw());
        }
        let mut gather = self.gather(pin, space);
        self.for_whole_regions(space, range, whole, |handle| {
            let region = self.region(handle);
            let pages = region.range();
            self.zap(pin, space, region, pages, Users::Hardware, &mut gather);
        });
        // Flushed before anybody can fault in what comes next.
        drop(gather);
        let write = space.seq.write(pin);
        self.for_whole_regions(space, range, whole, |handle| {
            if let Some(object) = self.unlink_region(pin, space, &write, handle) {
                self.defer_destroy(dead, object);
            }
        });
        link(&write);
        Ok(())
    }

    /// The region with exactly this range, or none.
    fn region_with(&self, space: Live<'_, R>, range: PageRange) -> RegionHandle<R> {
        self.found_from(space, range.start)
            .filter(|found| (found.start, found.end) == (range.start.0, range.end.0))
            .map_or(Handle::NONE, |found| found.item.handle())
    }

    /// Calls `each` for the regions in `range`, of which no part lies outside of
    /// it: for `whole`, unless that is none. `each` may take the region out of
    /// the space.
    fn for_whole_regions(
        &self,
        space: Live<'_, R>,
        range: PageRange,
        whole: RegionHandle<R>,
        mut each: impl FnMut(RegionHandle<R>),
    ) {
        if !whole.is_none() {
            return each(whole);
        }
        let mut next = range.start;
        while let Some(found) = self.found_from(space, next)
            && found.start < range.end.0
        {
            next = Vpn(found.end);
            each(found.item.handle());
        }
    }

    /// Lists an object that lost its last user.
    pub(super) fn defer_destroy(&self, dead: &mut DeadObjects, object: u32) {
        // Nobody else can name the object, so the word is ours.
        self.objects
            .get(object)
            .free_link()
            .store(dead.0, Ordering::Relaxed);
        dead.0 = object;
    }

    /// Ends the objects on the list. Unpinned, no lock held: pages may have to
    /// be waited for and written.
    pub(super) fn destroy_objects(&self, dead: DeadObjects) {
        let mut object = dead.0;
        while object != 0 {
            let next = self.objects.get(object).free_link().load(Ordering::Relaxed);
            self.destroy_object(object);
            object = next;
        }
    }
}
