//! Finding a fault's region without writing a line that others share.
//!
//! The tree is read under the epoch and validated by the space's sequence
//! count; then the region is entered by announcing it, and checked again. The
//! CPU's last region is tried first and needs only the second half.

use super::manager::{Live, Vm};
use super::region::{Region, RegionView};
use super::regions::RegionHandle;
use crate::addr::Vpn;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::slab::Handle;
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, SharedAccess};
use crate::table::Format;

/// A region that cannot change while this exists.
pub(super) struct Entered<'a, R: ReverseMap> {
    /// Its name.
    pub(super) handle: RegionHandle<R>,
    /// The region.
    pub(super) region: &'a Region<R>,
    /// Its properties.
    pub(super) view: RegionView,
    _access: SharedAccess<'a>,
}

/// The outcome of a lookup.
pub(super) enum Lookup<'a, R: ReverseMap> {
    /// The region that holds the page.
    Found(Entered<'a, R>),
    /// No region holds it.
    Nothing,
    /// A change is under way: ask again.
    Busy,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// The region of `space` that holds `page`, entered.
    #[inline]
    pub(super) fn enter_region<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        space: Live<'_, R>,
        page: Vpn,
    ) -> Lookup<'a, R> {
        let last = &self.cpus.get(pin).last_region;
        let cached: RegionHandle<R> = Handle::from_raw(last.load(Ordering::Relaxed));
        if !cached.is_none()
            && self.region(cached).range().contains(page)
            && let Some(entered) = self.enter(pin, space, cached, page)
        {
            return Lookup::Found(entered);
        }
        let Some(begun) = space.seq.begin() else {
            return Lookup::Busy;
        };
        let found = self.tree(space).last_at_most(page.0);
        let holds = !found.is_none() && self.region(found).range().contains(page);
        if !space.seq.valid(begun) {
            return Lookup::Busy;
        }
        if !holds {
            return Lookup::Nothing;
        }
        match self.enter(pin, space, found, page) {
            Some(entered) => {
                last.store(found.raw(), Ordering::Relaxed);
                Lookup::Found(entered)
            }
            None => Lookup::Busy,
        }
    }

    /// Announces the region and checks that it is open, ours, and holds the page.
    #[inline]
    fn enter<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        space: Live<'_, R>,
        handle: RegionHandle<R>,
        page: Vpn,
    ) -> Option<Entered<'a, R>> {
        let region = self.region(handle);
        let access = self.announcements.enter(
            &region.gate,
            region_key(space.handle(), handle.raw()),
            pin,
        )?;
        let view = region.view();
        (region.space() == space.handle() && view.range.contains(page)).then_some(Entered {
            handle,
            region,
            view,
            _access: access,
        })
    }

    /// Waits until no CPU is inside a region of `space` whose gate the caller,
    /// who holds the space's lock, has closed.
    pub(super) fn wait_out_region(&self, pin: &Pin<'_>, space: Live<'_, R>, region: u32) {
        let key = region_key(space.handle(), region);
        self.announcements
            .wait_out(self.active(space), pin, |other| other == key);
    }

    /// The same for all its regions.
    pub(super) fn wait_out_space(&self, pin: &Pin<'_>, space: Live<'_, R>) {
        let handle = u64::from(space.handle());
        self.announcements
            .wait_out(self.active(space), pin, |key| key >> 32 == handle);
    }
}

fn region_key(space: u32, region: u32) -> u64 {
    u64::from(space) << 32 | u64::from(region)
}
