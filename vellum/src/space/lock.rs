//! The lock of a space: held by whoever changes its regions.

use super::error::MapError;
use super::manager::{Live, SpaceId, Vm};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::sync::Pin;
use crate::table::Format;

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
    fn lock_space<'a>(&'a self, space: Live<'a, R>) -> SpaceGuard<'a, P, F, R> {
        let lock = &space.get().lock;
        lock.lock(&self.waits, self.memory.platform(), || self.pin());
        SpaceGuard { vm: self, space }
    }

    /// The space with this name, locked. The caller is not pinned.
    pub(super) fn lock_named(&self, id: SpaceId) -> Result<SpaceGuard<'_, P, F, R>, MapError> {
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        let guard = self.lock_space(space);
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
        work: impl FnOnce(&Pin<'a>) -> T,
    ) -> T {
        let (mut pin, taken) = self.memory.pin_and_try(&space.get().lock);
        if !taken {
            pin = self.wait_and_pin(pin, space);
        }
        // Released before the pin ends.
        let _guard = SpaceGuard { vm: self, space };
        work(&pin)
    }

    #[cold]
    #[inline(never)]
    fn wait_and_pin<'a>(&'a self, pin: Pin<'a>, space: Live<'a, R>) -> Pin<'a> {
        drop(pin);
        core::mem::forget(self.lock_space(space));
        self.pin()
    }

    /// Does `work` with the space of this name locked, pinned.
    #[inline]
    pub(super) fn with_locked<'a, T>(
        &'a self,
        id: SpaceId,
        work: impl FnOnce(&Pin<'a>, Live<'a, R>) -> Result<T, MapError>,
    ) -> Result<T, MapError> {
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        self.with_space_locked(space, |pin| {
            // It may have ended before we had the lock.
            space.named(id).ok_or(MapError::NoSpace)?;
            work(pin, space)
        })
    }
}
