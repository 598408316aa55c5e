//! Closing the gates of regions: what makes the proofs of `state/closed.rs`.

use super::lookup::region_key;
use crate::addr::{PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::closed::{Closed, ClosedRegion, Closing};
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{Region, RegionView};
use crate::space::state::spaces::Live;
use crate::sync::Pin;
use crate::table::Format;

/// The regions of a space that overlap a range, all closed. Their gates open when it is dropped.
#[must_use = "the gates open when this is dropped"]
pub(in crate::space) struct ClosedRegions<'l, P: Platform, F: Format, R: ReverseMap> {
    vm: &'l Vm<P, F, R>,
    space: LockedSpace<'l, R>,
    range: PageRange,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Closes the gate of a region and waits until no fault is inside.
    #[inline]
    pub(in crate::space) fn close_region<'l>(
        &'l self,
        pin: &Pin<'_>,
        space: LockedSpace<'l, R>,
        region: &'l Region<R>,
    ) -> ClosedRegion<'l, R> {
        self.wait_out_region(pin, *space, Closing::new(region))
    }

    /// Waits until no fault is inside a region of `space`.
    #[inline]
    pub(in crate::space) fn wait_out_region<'r>(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        closing: Closing<'r, R>,
    ) -> ClosedRegion<'r, R> {
        let region = closing.region();
        let key = region_key(space.handle(), region.handle().raw());
        let active = self.active_set(space.get());
        (self.announcements).wait_out_one(&region.gate, key, active, pin);
        ClosedRegion::waited_for(closing)
    }

    /// Closes the gates of the regions that overlap `range` and waits until no fault is inside
    /// one.
    pub(in crate::space) fn close_regions<'l>(
        &'l self,
        pin: &Pin<'_>,
        space: LockedSpace<'l, R>,
        range: PageRange,
    ) -> ClosedRegions<'l, P, F, R> {
        let mut closed = 0;
        let mut only = None;
        let _ = self.for_regions::<()>(space, range, |handle, _| {
            let region = self.region(handle);
            region.gate.close();
            only = Some(region);
            closed += 1;
            Ok(())
        });
        let active = self.active_set(space.get());
        match only {
            None => {}
            Some(only) if closed == 1 => {
                let key = region_key(space.handle(), only.handle().raw());
                (self.announcements).wait_out_one(&only.gate, key, active, pin);
            }
            Some(_) => {
                let handle = u64::from(space.handle());
                (self.announcements).wait_out(active, pin, |key| key >> 32 == handle);
            }
        }
        ClosedRegions {
            vm: self,
            space,
            range,
        }
    }
}

impl<'l, P: Platform, F: Format, R: ReverseMap> ClosedRegions<'l, P, F, R> {
    /// Calls `each` for every region, ascending, until it fails.
    ///
    /// # Errors
    /// That of `each`.
    pub(in crate::space) fn try_for_each<E>(
        &self,
        mut each: impl FnMut(Closed<'_, R>, RegionView) -> Result<(), E>,
    ) -> Result<(), E> {
        let vm = self.vm;
        vm.for_regions(self.space, self.range, |handle, view| {
            each(Closed::one_of(vm.region(handle)), view)
        })
    }

    /// Calls `each` for every region, ascending.
    pub(in crate::space) fn for_each(&self, mut each: impl FnMut(Closed<'_, R>, RegionView)) {
        let _ = self.try_for_each::<()>(|region, view| {
            each(region, view);
            Ok(())
        });
    }

    /// The one region of a range.
    pub(in crate::space) fn only(
        vm: &'l Vm<P, F, R>,
        space: LockedSpace<'l, R>,
        region: ClosedRegion<'l, R>,
    ) -> Self {
        let range = region.closed().range();
        // Its gate opens with this.
        region.left();
        ClosedRegions { vm, space, range }
    }

    /// The first region that ends after `page`, with its end.
    pub(in crate::space) fn first_after(&self, page: Vpn) -> Option<(Closed<'_, R>, Vpn)> {
        let found = self.vm.found_from(self.space, page);
        let found =
            found.filter(|found| page < self.range.end && found.start < self.range.end.0)?;
        Some((Closed::one_of(found.item), Vpn(found.end)))
    }

    /// The pages that overlap none but these.
    #[inline]
    pub(in crate::space) fn range(&self) -> PageRange {
        self.range
    }

    /// The regions have left the space.
    #[inline]
    pub(in crate::space) fn left(self) {
        core::mem::forget(self);
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Drop for ClosedRegions<'_, P, F, R> {
    fn drop(&mut self) {
        self.for_each(|region, _| region.gate.open());
    }
}
