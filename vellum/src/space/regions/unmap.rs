//! munmap.

use super::limits::{Change, MayCut};
use crate::addr::{PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::leaves::zap::Zap;
use crate::space::locks::closed::ClosedRegions;
use crate::space::locks::lock::{Beside, Goal};
use crate::space::state::closed::Closing;
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::{Live, SpaceId};
use crate::space::state::tree::RegionSpot;
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, SeqWrite, Unpinned};
use crate::table::{Format, Users};

/// Objects that lost their last user, threaded through their own records.
#[derive(Default)]
pub(in crate::space) struct DeadObjects(u32);

/// How far an unmapping has come.
enum Begun<'a, R: ReverseMap> {
    /// It is done.
    AndEnded,
    /// The region closes. Its space does not end before the unmapping has.
    Of(Closing<'a, R>),
    /// It has to be done with nobody else at work in the space.
    NotYet,
}

/// The unmapping of a range that is not free.
pub(in crate::space) struct Unmapping<'a, P: Platform, F: Format, R: ReverseMap> {
    pub(in crate::space) vm: &'a Vm<P, F, R>,
    pub(in crate::space) pin: &'a Pin<'a>,
    pub(in crate::space) space: LockedSpace<'a, R>,
    pub(in crate::space) range: PageRange,
    /// What the limits say to it, if they have been asked already.
    pub(in crate::space) may_cut: Option<MayCut>,
}

impl<'a, P: Platform, F: Format, R: ReverseMap> Unmapping<'a, P, F, R> {
    /// Unmaps the range, and lets `link` put something in its place: faults see
    /// the old regions or what is there then, and no hole. The spot is where the
    /// range begins.
    pub(in crate::space) fn run(
        &self,
        spot: RegionSpot<'_, R>,
        dead: &mut DeadObjects,
        link: impl FnOnce(&SeqWrite<'_>),
    ) -> Result<(), MapError> {
        let Unmapping {
            vm,
            pin,
            space,
            range,
            ..
        } = *self;
        // Mostly the range is that of one region: then nothing is cut, and
        // nothing else has to be looked for.
        let Some(region) = spot.exactly_to(range.end.0) else {
            link(&self.unlink(self.prepare()?, dead));
            return Ok(());
        };
        let closed = vm.close_region(pin, space, region);
        // Nobody fills an entry of the region any more. If none is filled, there is
        // nothing to clear, to flush or to free.
        if vm.has_something_to_clear(pin, *space, range) {
            let closed = ClosedRegions::only(vm, space, closed);
            link(&self.unlink(closed, dead));
            return Ok(());
        }
        let write = vm.seq_at(space, range.start).write(pin);
        spot.remove(pin);
        if let Some(object) = vm.retire_region(pin, space, closed.closed()) {
            vm.defer_destroy(dead, object);
        }
        closed.left();
        link(&write);
        Ok(())
    }

    /// Makes whole regions of the range, and closes them.
    #[inline(never)]
    fn prepare(&self) -> Result<ClosedRegions<'a, P, F, R>, MapError> {
        let Unmapping {
            vm,
            pin,
            space,
            range,
            ref may_cut,
        } = *self;
        let asked;
        let may_cut = match may_cut {
            Some(may_cut) => may_cut,
            None => {
                asked = vm.check_limits(space, range.start, &Change::Unmapping(range))?;
                &asked
            }
        };
        // The cuts stay: nothing can fail any more.
        let _ = vm.isolate(pin, space, range, may_cut)?;
        Ok(vm.close_regions(pin, space, range))
    }

    /// [`Unmapping::run`] for whole regions. Faults meet the hole only when what is returned ends.
    #[inline(never)]
    fn unlink(&self, regions: ClosedRegions<'a, P, F, R>, dead: &mut DeadObjects) -> SeqWrite<'a> {
        let Unmapping { vm, pin, space, .. } = *self;
        let delayed = vm.delay_flush(pin);
        let mut gather = vm.gather(pin, *space);
        regions.for_each(|region, view| {
            let zap = Zap {
                vm,
                pin,
                space: *space,
                region: &region,
                users: Users::Hardware,
            };
            zap.range(view.range, &mut gather);
        });
        // Flushed before anybody can fault in what comes next.
        drop(gather);
        drop(delayed);
        let mut next = regions.range().start;
        let write = vm.seq_at(space, next).write(pin);
        while let Some((region, end)) = regions.first_after(next) {
            next = end;
            if let Some(object) = vm.unlink_region(pin, space, &write, region) {
                vm.defer_destroy(dead, object);
            }
        }
        regions.left();
        write
    }
}

/// Ends objects, which have pages to be written or freed (`files/truncate.rs`).
pub(in crate::space) trait EndsObjects {
    /// Ends an object without users: writes what is dirty, drops its pages.
    fn end_object(&self, unpinned: Unpinned<'_>, handle: u32);
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::unmap`](crate::space::Space::unmap).
    pub(crate) fn unmap(&self, id: SpaceId, start: Vpn, pages: u64) -> Result<(), MapError> {
        let unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages)?;
        self.with_room(unpinned, |mut unpinned| {
            let mut dead = DeadObjects::default();
            let result = self.unmap_once(unpinned.reborrow(), id, range, &mut dead);
            self.after_removal(unpinned, dead);
            result
        })
    }

    #[inline]
    fn unmap_once(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
        dead: &mut DeadObjects,
    ) -> Result<(), MapError> {
        let goal = Goal::Range(range);
        let (lent, beside) = (unpinned.reborrow(), Beside::Unmappings);
        let begun = self.with_range_locked(lent, id, goal, beside, |pin, space, _| {
            self.events(pin).unmaps.bump();
            self.check_rules(space, &Change::Unmapping(range))?;
            let is_shared = self.is_shared(pin, *space) || !space.unmappings.is_none();
            // Who else uses a tract is rare, and can wait.
            if is_shared && !space.is_divided() {
                return Ok(self.begin_unmapping(space, range));
            }
            self.unmap_locked(pin, space, range, dead)?;
            Ok(Begun::AndEnded)
        })?;
        match begun {
            Some(Begun::AndEnded) => Ok(()),
            Some(Begun::Of(region)) => {
                self.unmap_unlocked(unpinned, self.live_at(id.handle), region, dead);
                Ok(())
            }
            Some(Begun::NotYet) | None => self.with_locked(unpinned, id, |pin, space| {
                let cuts = |edge| !self.region_cut_by(*space, edge).is_none();
                if let Err(error) = self.undivide(pin, space)
                    && (cuts(range.start) || cuts(range.end))
                {
                    return Err(error.into());
                }
                self.unmap_locked(pin, *space, range, dead)
            }),
        }
    }

    /// Whether other CPUs than the caller's are or were in the space.
    #[inline]
    fn is_shared(&self, pin: &Pin<'_>, space: Live<'_, R>) -> bool {
        self.active_set(space.get()).has_others(pin.cpu())
    }

    /// Begins to unmap a region of a space that several CPUs use: what takes long goes on without
    /// the lock, so that others can map and unmap elsewhere.
    #[inline(never)]
    fn begin_unmapping(&self, space: LockedSpace<'_, R>, range: PageRange) -> Begun<'_, R> {
        let spot = self.tree(space, *space).spot(range.start.0);
        if spot.is_free_to(range.end.0) {
            return Begun::AndEnded;
        }
        let region = spot.exactly_to(range.end.0);
        // A closed gate is that of a region that somebody else is unmapping.
        match region.filter(|region| region.gate.is_open()) {
            Some(region) if !space.unmappings.is_awaited() => {
                let closing = Closing::new(self.region(region.handle()));
                space.unmappings.begin();
                Begun::Of(closing)
            }
            _ => Begun::NotYet,
        }
    }

    /// Whether a range has entries, or had some that CPUs may still know.
    #[inline]
    fn has_something_to_clear(&self, pin: &Pin<'_>, space: Live<'_, R>, range: PageRange) -> bool {
        self.tables(pin, space).has_leaves(range) || Self::has_unflushed(space)
    }

    /// The rest of it, without the lock until the region leaves the tree.
    fn unmap_unlocked(
        &self,
        unpinned: Unpinned<'_>,
        space: Live<'_, R>,
        closing: Closing<'_, R>,
        dead: &mut DeadObjects,
    ) {
        let pin = self.pin_by(&unpinned);
        let closed = self.wait_out_region(&pin, space, closing);
        let region = closed.closed();
        let range = region.range();
        if self.has_something_to_clear(&pin, space, range) {
            let zap = Zap {
                vm: self,
                pin: &pin,
                space,
                region: &region,
                users: Users::Hardware,
            };
            let delayed = self.delay_flush(&pin);
            zap.range(range, &mut self.gather(&pin, space));
            drop(delayed);
        }
        drop(pin);
        // Not under a pin of the caller's: it was asked when this began.
        let _ = self.with_space_locked(unpinned, space, Beside::Unmappings, |pin, space| {
            let write = space.seq.write(pin);
            if let Some(object) = self.unlink_region(pin, *space, &write, region) {
                self.defer_destroy(dead, object);
            }
            drop(write);
            (space.unmappings).end(&self.waits, self.memory.platform(), pin);
        });
        closed.left();
    }

    /// [`Space::unmap`](crate::space::Space::unmap) in a locked space.
    pub(in crate::space) fn unmap_locked(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
        dead: &mut DeadObjects,
    ) -> Result<(), MapError> {
        self.check_rules(space, &Change::Unmapping(range))?;
        let spot = self.tree_at(space, range.start).spot(range.start.0);
        let is_free = match space.is_whole() {
            true => self.is_free(space, range),
            false => spot.is_free_to(range.end.0),
        };
        if is_free {
            return Ok(());
        }
        let unmapping = Unmapping {
            vm: self,
            pin,
            space,
            range,
            may_cut: None,
        };
        unmapping.run(spot, dead, |_| ())
    }

    /// Lists an object that lost its last user.
    pub(in crate::space) fn defer_destroy(&self, dead: &mut DeadObjects, object: u32) {
        // Nobody else can name the object, so the word is ours.
        self.objects
            .get(object)
            .free_link()
            .store(dead.0, Ordering::Relaxed);
        dead.0 = object;
    }

    /// What a call that may have taken memory away does in the end, without a lock:
    /// it ends the objects on the list, whose pages may have to be waited for and written, and
    /// waits if too many frames wait for their epoch.
    #[inline]
    pub(in crate::space) fn after_removal(&self, mut unpinned: Unpinned<'_>, dead: DeadObjects) {
        if dead.0 != 0 {
            self.destroy_listed(unpinned.reborrow(), dead.0);
        }
        self.memory.heed_crowd(unpinned);
    }

    #[inline(never)]
    fn destroy_listed(&self, mut unpinned: Unpinned<'_>, first: u32) {
        let mut object = first;
        while object != 0 {
            let next = self.objects.get(object).free_link().load(Ordering::Relaxed);
            self.end_object(unpinned.reborrow(), object);
            object = next;
        }
    }
}
