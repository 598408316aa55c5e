//! The lock of a space: held by whoever changes its regions.
//!
//! A space that is divided has further ones, for its tracts (`tract.rs`).

use crate::addr::{PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::MapError;
use crate::space::state::locked::{HoldsSpace, LockedSpace, WholeSpace};
use crate::space::state::manager::Vm;
use crate::space::state::spaces::{Live, SpaceId};
use crate::space::state::tract::Tract;
use crate::sync::atomic::Ordering;
use crate::sync::{MaybePinned, Pin, SleepHost, Unpinned};
use crate::table::Format;

/// Times that a call tries anew before it sleeps until nothing is being unmapped.
const TRIES: u32 = 32;

/// Who else may be at work in a space whose lock is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::space) enum Beside {
    /// Nobody but faults and visitors, who take no lock of the space.
    Nobody,
    /// Those who unmap a region, too. They have closed its gate and then let go of the
    /// lock ([`Space::unmap`](crate::space::Space::unmap)). The region stays as it is until they take the lock again to
    /// take it out of the tree; its entries go meanwhile.
    Unmappings,
}

/// Which pages of a space a change concerns.
#[derive(Clone, Copy)]
pub(in crate::space) enum Goal {
    /// These.
    Range(PageRange),
    /// Free ones that are still to be found, in the tract of this page, or of the one that this CPU
    /// has mapped last.
    Anywhere(Option<Vpn>),
}

impl Beside {
    #[inline]
    fn allows<R: ReverseMap>(self, space: Live<'_, R>) -> bool {
        self == Beside::Unmappings || space.unmappings.is_none()
    }
}

/// Holds a space's lock, or that of one of its tracts, until dropped.
pub(in crate::space) struct SpaceGuard<'a, P: Platform, F: Format, R: ReverseMap> {
    vm: &'a Vm<P, F, R>,
    space: Live<'a, R>,
    tract: Option<&'a Tract>,
}

impl<'a, P: Platform, F: Format, R: ReverseMap> HoldsSpace<'a, R> for SpaceGuard<'a, P, F, R> {
    #[inline]
    fn live(&self) -> Live<'a, R> {
        self.space
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Drop for SpaceGuard<'_, P, F, R> {
    #[inline]
    fn drop(&mut self) {
        self.vm.settle_commit(self.space, self.tract);
        self.vm.settle_records(self.space, self.tract);
        match self.tract {
            Some(tract) => self.vm.unlock_tract(tract),
            None => self.vm.unlock_space(self.space),
        }
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Takes the lock of a space, and no other.
    pub(super) fn lock_alone(&self, unpinned: Unpinned<'_>, space: Live<'_, R>) {
        (space.get().lock).lock(unpinned, &self.waits, &self.memory);
    }

    /// Lets go of the lock of a space, and of those of its tracts, if the caller has them.
    #[inline]
    fn unlock_space(&self, space: Live<'_, R>) {
        if space.is_whole() {
            self.unlock_tracts(space);
        }
        self.unlock_alone(space);
    }

    pub(super) fn unlock_alone(&self, space: Live<'_, R>) {
        let platform = self.memory.platform();
        (space.lock).unlock(&self.waits, platform, || self.pin());
    }

    /// Takes the lock of a tract.
    pub(super) fn lock_tract(&self, unpinned: Unpinned<'_>, tract: &Tract) {
        (tract.guarded.lock).lock(unpinned, &self.waits, &self.memory);
    }

    pub(in crate::space) fn unlock_tract(&self, tract: &Tract) {
        let (lock, platform) = (&tract.guarded.lock, self.memory.platform());
        lock.unlock(&self.waits, platform, || self.pin());
    }

    /// Sees to it that nobody else changes anything of a space whose lock is ours, but those
    /// whom `whom` allows.
    fn have_all(&self, mut unpinned: Unpinned<'_>, space: Live<'_, R>, whom: Beside) {
        if !whom.allows(space) {
            self.wait_until_alone(unpinned.reborrow(), space);
        }
        if space.is_divided() {
            self.lock_tracts(unpinned, space);
        }
    }

    /// Takes the locks of all tracts, for the holder of the space's.
    #[inline(never)]
    fn lock_tracts(&self, mut unpinned: Unpinned<'_>, space: Live<'_, R>) {
        self.for_tracts(space, |tract| {
            self.lock_tract(unpinned.reborrow(), tract);
            tract.guarded.counts.move_to(&space.account.counts);
        });
        space.whole.store(1, Ordering::Relaxed);
    }

    #[inline(never)]
    fn unlock_tracts(&self, space: Live<'_, R>) {
        self.deal(space);
        space.whole.store(0, Ordering::Relaxed);
        self.for_tracts(space, |tract| self.unlock_tract(tract));
    }

    /// Waits until nothing of a space, whose lock is ours, is being unmapped without it.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_until_alone(&self, mut unpinned: Unpinned<'_>, space: Live<'_, R>) {
        space.unmappings.await_end(true);
        while !space.unmappings.is_none() {
            self.unlock_alone(space);
            (space.unmappings).wait(unpinned.reborrow(), &self.waits, &self.memory);
            self.lock_alone(unpinned.reborrow(), space);
        }
        space.unmappings.await_end(false);
    }

    /// Has a call that others were in the way of, as often as `tries` says, wait for them.
    /// They are pinned, and so it is for a moment; but who unmaps a region without the lock may
    /// sleep until it has that again, and then so does the caller.
    pub(in crate::space) fn give_way(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        tries: &mut u32,
    ) {
        if *tries >= TRIES
            && let Some(space) = self.find_space(id)
            && !space.unmappings.is_none()
        {
            self.lock_alone(unpinned.reborrow(), space);
            if !space.unmappings.is_none() {
                self.wait_until_alone(unpinned, space);
            }
            self.unlock_alone(space);
            return;
        }
        self.memory.platform().relax(*tries);
        *tries = tries.saturating_add(1);
    }

    /// The space with this name, locked.
    pub(in crate::space) fn lock_named(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
    ) -> Result<SpaceGuard<'_, P, F, R>, MapError> {
        MapError::unless_ends(&self.pin_by(&unpinned))?;
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        self.lock_alone(unpinned.reborrow(), space);
        self.have_all(unpinned, space, Beside::Nobody);
        let guard = SpaceGuard {
            vm: self,
            space,
            tract: None,
        };
        // It may have ended while we waited.
        self.find_space(id).ok_or(MapError::NoSpace)?;
        Ok(guard)
    }

    /// The space, locked, but not its tracts, with nothing being unmapped.
    pub(super) fn lock_but_tracts<'a>(
        &'a self,
        mut unpinned: Unpinned<'_>,
        space: Live<'a, R>,
    ) -> SpaceGuard<'a, P, F, R> {
        self.lock_alone(unpinned.reborrow(), space);
        self.wait_until_alone(unpinned, space);
        SpaceGuard {
            vm: self,
            space,
            tract: None,
        }
    }

    /// Does `work` with a space locked, pinned. If the lock is free, taking it is
    /// the fence of the pin as well.
    ///
    /// # Errors
    /// [`MapError::Pinned`]. (Under another pin the lock is not tried.)
    #[inline]
    pub(in crate::space) fn with_space_locked<T>(
        &self,
        mut unpinned: Unpinned<'_>,
        space: Live<'_, R>,
        whom: Beside,
        work: impl FnOnce(&Pin<'_>, WholeSpace<'_, R>) -> T,
    ) -> Result<T, MapError> {
        let (mut pin, taken) = self.memory.pin_by_and_try(&unpinned, &space.get().lock);
        if !taken || !whom.allows(space) || space.is_divided() {
            MapError::unless_ends(&pin)?;
            drop(pin);
            pin = self.wait_and_pin(unpinned.reborrow(), taken, space, whom);
        }
        // Released before the pin ends.
        let guard = SpaceGuard {
            vm: self,
            space,
            tract: None,
        };
        Ok(work(&pin, WholeSpace::with_all_locks(guard.locked())))
    }

    /// Does `work` with what guards a page of a space locked, pinned, if nobody has that locked
    /// and no region of the space is being unmapped.
    pub(in crate::space) fn try_with_page_locked<T>(
        &self,
        unpinned: Unpinned<'_>,
        space: Live<'_, R>,
        page: Vpn,
        work: impl FnOnce(&Pin<'_>, LockedSpace<'_, R>) -> T,
    ) -> Option<T> {
        let tract = match space.is_divided() {
            true => Some(self.find_tract(space, page)?),
            false => None,
        };
        let lock = tract.map_or(&space.get().lock, |tract| &tract.guarded.lock);
        let (pin, taken) = self.memory.pin_by_and_try(&unpinned, lock);
        if !taken {
            return None;
        }
        // Released before the pin ends.
        let guard = SpaceGuard {
            vm: self,
            space,
            tract,
        };
        let is_right = match tract {
            Some(tract) => tract.covers(space.handle(), page),
            None => !space.is_divided() && Beside::Nobody.allows(space),
        };
        is_right.then(|| work(&pin, guard.locked()))
    }

    #[cold]
    #[inline(never)]
    fn wait_and_pin<'a>(
        &'a self,
        mut unpinned: Unpinned<'a>,
        taken: bool,
        space: Live<'_, R>,
        whom: Beside,
    ) -> Pin<'a> {
        if !taken {
            self.lock_alone(unpinned.reborrow(), space);
        }
        self.have_all(unpinned.reborrow(), space, whom);
        let pin = self.memory.pin_instead_of(unpinned);
        // Whoever had the lock has probably changed it.
        self.tree(&pin, space).fetch_root();
        pin
    }

    /// Does `work` with the space of this name locked, pinned. It may be in tracts, whose
    /// boundaries no region crosses.
    #[inline]
    pub(in crate::space) fn with_locked<T>(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        work: impl FnOnce(&Pin<'_>, WholeSpace<'_, R>) -> Result<T, MapError>,
    ) -> Result<T, MapError> {
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        self.with_space_locked(unpinned, space, Beside::Nobody, |pin, space| {
            // It may have ended before we had the lock.
            space.named(id).ok_or(MapError::NoSpace)?;
            work(pin, space)
        })?
    }

    /// Does `work` beside others with what guards a range of pages locked, pinned. It gets the
    /// pages for which it has the lock. `None` if that is not all of the range, which lies in more
    /// than one tract then, or if the tract has not as much left as the limits have.
    #[inline]
    pub(in crate::space) fn with_range_locked<T>(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        goal: Goal,
        whom: Beside,
        work: impl FnOnce(&Pin<'_>, LockedSpace<'_, R>, PageRange) -> Result<T, MapError>,
    ) -> Result<Option<T>, MapError> {
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        let (mut pin, taken) = match space.is_divided() {
            false => (self.memory).pin_by_and_try(&unpinned, &space.get().lock),
            true => (self.pin_by(&unpinned), false),
        };
        let mut tract = None;
        if !taken || !whom.allows(space) || space.is_divided() {
            MapError::unless_ends(&pin)?;
            let page = self.first_of(&pin, space, goal);
            drop(pin);
            let waits = unpinned.reborrow();
            (pin, tract) = self.wait_for_range(waits, taken, space, page, whom);
        }
        // Released before the pin ends.
        let guard = SpaceGuard {
            vm: self,
            space,
            tract,
        };
        // It may have ended before we had the lock.
        space.named(id).ok_or(MapError::NoSpace)?;
        let within = tract.map_or(Self::all_pages(), Tract::range);
        match goal {
            Goal::Range(range) if range.end > within.end => Ok(None),
            _ => match work(&pin, guard.locked(), within) {
                // There may be more in other tracts.
                Err(MapError::Limit) if tract.is_some() => Ok(None),
                done => done.map(Some),
            },
        }
    }

    /// Takes the lock of the space, or of the tract in which the goal begins; `taken`: has that of
    /// the space. Divides what it has waited for too often.
    #[cold]
    #[inline(never)]
    fn wait_for_range<'a>(
        &'a self,
        unpinned: Unpinned<'a>,
        mut taken: bool,
        space: Live<'a, R>,
        (mut page, fixed): (Vpn, bool),
        whom: Beside,
    ) -> (Pin<'a>, Option<&'a Tract>) {
        let mut caller = MaybePinned::not_yet(unpinned);
        let mut spins = 0;
        loop {
            if taken || !space.is_divided() {
                if !taken {
                    self.lock_alone(caller.unpinned(), space);
                }
                if !taken && fixed && !space.is_divided() {
                    self.divide_after_wait(caller.unpinned(), space, page);
                }
                if !whom.allows(space) {
                    self.wait_until_alone(caller.unpinned(), space);
                }
                if !space.is_divided() {
                    let pin = caller.into_pin(&self.memory);
                    // Whoever had the lock has probably changed it.
                    self.tree(&pin, space).fetch_root();
                    return (pin, None);
                }
                self.unlock_alone(space);
                taken = false;
            }
            let Some(tract) = self.find_tract(space, page) else {
                self.memory.platform().relax(spins);
                spins += 1;
                continue;
            };
            let is_ours = caller.pinned_with(self.memory.pin_and_try(&tract.guarded.lock));
            if !is_ours {
                self.lock_tract(caller.unpinned(), tract);
            }
            let pin = caller.pinned(&self.memory);
            if !is_ours
                && tract.covers(space.handle(), page)
                && let Some(cut) = self.tract_cut_after_wait(pin, tract, fixed.then_some(page))
            {
                self.try_to_divide(pin, space, tract, cut);
                if !fixed && tract.range().end == cut {
                    // What was cut off is ours to begin with.
                    page = cut;
                }
            }
            if tract.covers(space.handle(), page) {
                return (caller.into_pin(&self.memory), Some(tract));
            }
            caller.unpinned();
            self.unlock_tract(tract);
        }
    }

    /// The page in whose tract a change begins, and whether it is to be that one.
    fn first_of(&self, pin: &Pin<'_>, space: Live<'_, R>, goal: Goal) -> (Vpn, bool) {
        match goal {
            Goal::Range(range) => (range.start, true),
            Goal::Anywhere(Some(page)) => (page, false),
            Goal::Anywhere(None) => (self.last_mapped(pin, space), false),
        }
    }

    /// A page of the tract in which this CPU last mapped where it found room.
    pub(in crate::space) fn last_mapped(&self, pin: &Pin<'_>, space: Live<'_, R>) -> Vpn {
        let cpu = self.cpus.get(pin);
        match cpu.mapped_in.load(Ordering::Relaxed) == space.key() {
            true => Vpn(cpu.mapped_at.load(Ordering::Relaxed)),
            false => Self::bounds().start,
        }
    }
}
