//! The lock of a space: held by whoever changes its regions.

use super::error::MapError;
use super::manager::Vm;
use super::spaces::{Live, SpaceId};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::sync::Pin;
use crate::table::Format;

/// Who else may be at work in a space whose lock is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nobody but faults and visitors, who take no lock of the space.
    Nobody,
    /// Those who unmap a region, too. They have closed its gate and then let go of the
    /// lock ([`Vm::unmap`]). The region stays as it is until they take the lock again to
    /// take it out of the tree; its entries go meanwhile.
    Unmappings,
}

impl Beside {
    #[inline]
    fn allows<R: ReverseMap>(self, space: Live<'_, R>) -> bool {
        self == Beside::Unmappings || space.unmappings.is_none()
    }
}

/// Holds a space's lock until dropped.
pub(super) struct SpaceGuard<'a, P: Platform, F: Format, R: ReverseMap> {
    vm: &'a Vm<P, F, R>,
    space: Live<'a, R>,
}

impl<'a, P: Platform, F: Format, R: ReverseMap> SpaceGuard<'a, P, F, R> {
    /// The locked space.
    pub(super) fn space(&self) -> Live<'a, R> {
        self.space
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Drop for SpaceGuard<'_, P, F, R> {
    #[inline]
    fn drop(&mut self) {
        let vm = self.vm;
        let platform = vm.memory.platform();
        self.space.lock.unlock(&vm.waits, platform, || vm.pin());
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Takes the lock of a space, unpinned.
    fn lock_space<'a>(&'a self, space: Live<'a, R>, whom: Beside) -> SpaceGuard<'a, P, F, R> {
        let (lock, platform) = (&space.get().lock, self.memory.platform());
        lock.lock(&self.waits, platform, || self.pin());
        if !whom.allows(space) {
            self.wait_until_alone(space);
        }
        SpaceGuard { vm: self, space }
    }

    /// Waits until nothing of a space, whose lock is ours, is being unmapped without it.
    #[cold]
    #[inline(never)]
    fn wait_until_alone(&self, space: Live<'_, R>) {
        let (space, platform) = (space.get(), self.memory.platform());
        space.unmappings.await_end(true);
        while !space.unmappings.is_none() {
            space.lock.unlock(&self.waits, platform, || self.pin());
            space.unmappings.wait(&self.waits, platform, || self.pin());
            space.lock.lock(&self.waits, platform, || self.pin());
        }
        space.unmappings.await_end(false);
    }

    /// The space with this name, locked. The caller is not pinned.
    pub(super) fn lock_named(&self, id: SpaceId) -> Result<SpaceGuard<'_, P, F, R>, MapError> {
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        let guard = self.lock_space(space, Beside::Nobody);
        // It may have ended while we waited.
        self.find_space(id).ok_or(MapError::NoSpace)?;
        Ok(guard)
    }

    /// Does `work` with a space locked, pinned. If the lock is free, taking it is
    /// the fence of the pin as well.
    #[inline]
    pub(super) fn with_space_locked<'a, T>(
        &'a self,
        space: Live<'a, R>,
        whom: Beside,
        work: impl FnOnce(&Pin<'a>) -> T,
    ) -> T {
        let (mut pin, taken) = self.memory.pin_and_try(&space.get().lock);
        if !taken || !whom.allows(space) {
            pin = self.wait_and_pin(pin, taken, space, whom);
        }
        // Released before the pin ends.
        let _guard = SpaceGuard { vm: self, space };
        work(&pin)
    }

    /// Does `work` with a space locked, pinned, if nobody has it locked and none of its
    /// regions is being unmapped. The caller is not pinned.
    pub(super) fn try_with_space_locked<'a, T>(
        &'a self,
        space: Live<'a, R>,
        work: impl FnOnce(&Pin<'a>) -> T,
    ) -> Option<T> {
        let (pin, taken) = self.memory.pin_and_try(&space.get().lock);
        if !taken {
            return None;
        }
        // Released before the pin ends.
        let _guard = SpaceGuard { vm: self, space };
        Beside::Nobody.allows(space).then(|| work(&pin))
    }

    #[cold]
    #[inline(never)]
    fn wait_and_pin<'a>(
        &'a self,
        pin: Pin<'a>,
        taken: bool,
        space: Live<'a, R>,
        whom: Beside,
    ) -> Pin<'a> {
        drop(pin);
        if taken {
            self.wait_until_alone(space);
        } else {
            core::mem::forget(self.lock_space(space, whom));
        }
        let pin = self.pin();
        // Whoever had the lock has probably changed it.
        self.tree(space).fetch_root();
        pin
    }

    /// Does `work` with the space of this name locked, pinned.
    #[inline]
    pub(super) fn with_locked<'a, T>(
        &'a self,
        id: SpaceId,
        work: impl FnOnce(&Pin<'a>, Live<'a, R>) -> Result<T, MapError>,
    ) -> Result<T, MapError> {
        self.with_locked_beside(id, Beside::Nobody, work)
    }

    /// The same beside others.
    #[inline]
    pub(super) fn with_locked_beside<'a, T>(
        &'a self,
        id: SpaceId,
        whom: Beside,
        work: impl FnOnce(&Pin<'a>, Live<'a, R>) -> Result<T, MapError>,
    ) -> Result<T, MapError> {
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        self.with_space_locked(space, whom, |pin| {
            // It may have ended before we had the lock.
            space.named(id).ok_or(MapError::NoSpace)?;
            work(pin, space)
        })
    }
}
