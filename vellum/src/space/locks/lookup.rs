//! Finding a fault's region without writing a line that others share.
//!
//! The tree is read under the epoch and validated by the space's sequence
//! count; then the region is entered by announcing it, and checked again. The
//! CPU's last region is tried first and needs only the second half.

use crate::addr::Vpn;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::slab::Handle;
use crate::space::state::manager::{Vm, VmCpu};
use crate::space::state::region::Region;
use crate::space::state::spaces::Live;
use crate::space::state::tree::RegionHandle;
use crate::sync::atomic::Ordering;
use crate::sync::{Expected, Pin, SharedAccess, Unpinned};
use crate::table::Format;

/// A stay in a region, which cannot change while this exists.
pub(in crate::space) struct Inside<'a, R: ReverseMap> {
    region: &'a Region<R>,
    _access: SharedAccess<'a>,
}

/// A region that somebody is inside of.
pub(in crate::space) struct Entered<'a, R: ReverseMap> {
    /// The region; as long as this lives, its properties stay.
    pub(in crate::space) region: &'a Region<R>,
}

impl<R: ReverseMap> Clone for Entered<'_, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: ReverseMap> Copy for Entered<'_, R> {}

impl<R: ReverseMap> Inside<'_, R> {
    /// The region, as long as the stay.
    #[inline(always)]
    pub(in crate::space) fn entered(&self) -> Entered<'_, R> {
        Entered {
            region: self.region,
        }
    }
}

/// The outcome of a lookup.
pub(in crate::space) enum Lookup<'a, R: ReverseMap> {
    /// The region that holds the page.
    Found(Inside<'a, R>),
    /// No region holds it.
    Nothing,
    /// A change is under way: ask again.
    Busy,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Pins the CPU for a fault in the space with handle `space`, and announces
    /// the region of the CPU's last fault under the same fence.
    #[inline]
    pub(in crate::space) fn pin_for_fault<'a>(
        &'a self,
        _unpinned: Unpinned<'a>,
        space: u32,
    ) -> (Pin<'a>, Option<Expected<'a>>) {
        let mut expected = None;
        let pin = self.memory.pin_with(|cpu| {
            let last = self.cpus.of(cpu).last_region.load(Ordering::Relaxed);
            if last != 0 {
                expected = Some(self.announcements.expect(cpu, region_key(space, last)));
            }
        });
        (pin, expected)
    }

    /// The region of `space` that holds `page`, entered. `expected` is what
    /// [`Vm::pin_for_fault`] announced.
    #[inline]
    pub(in crate::space) fn enter_region<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        cpu: &VmCpu,
        expected: Option<Expected<'a>>,
        space: Live<'a, R>,
        page: Vpn,
    ) -> Lookup<'a, R> {
        let last = &cpu.last_region;
        let cached: RegionHandle<R> = Handle::from_raw(last.load(Ordering::Relaxed));
        // Whatever comes of it, the announcement has ended before the next one.
        if let Some(expected) = expected
            && !cached.is_none()
        {
            // SAFETY: this CPU stored the address below, together with the handle.
            let region = unsafe { self.regions.at(cpu.last_region_at.load(Ordering::Relaxed)) };
            let key = region_key(space.handle(), cached.raw());
            let opened = cpu.last_region_opened.load(Ordering::Relaxed);
            if let Some(access) = expected.enter((&region.gate, opened), key, pin)
                && let Some(entered) = check_entered(access, space, region, page)
            {
                return Lookup::Found(entered);
            }
        }
        let found = self.look(pin, space, page, |tree| {
            let found = tree.last_at_most(page.0);
            found.filter(|region| region.range().contains(page))
        });
        let found = match found {
            Some(Some(found)) => found,
            Some(None) => return Lookup::Nothing,
            None => return Lookup::Busy,
        };
        // Announced, and then checked to be open, ours, and to hold the page.
        let handle = found.handle().raw();
        let entered = (self.announcements)
            .enter(&found.gate, region_key(space.handle(), handle), pin)
            .and_then(|access| check_entered(access, space, found, page));
        match entered {
            Some(entered) => {
                let address = self.regions.address(found.handle());
                cpu.last_region_at.store(address, Ordering::Relaxed);
                let opened = &cpu.last_region_opened;
                opened.store(found.gate.opened(), Ordering::Relaxed);
                last.store(handle, Ordering::Relaxed);
                Lookup::Found(entered)
            }
            None => Lookup::Busy,
        }
    }
}

/// Checks that an announced region whose gate is open is ours and holds the
/// page.
#[inline]
fn check_entered<'a, R: ReverseMap>(
    access: SharedAccess<'a>,
    space: Live<'_, R>,
    region: &'a Region<R>,
    page: Vpn,
) -> Option<Inside<'a, R>> {
    (region.space() == space.handle() && region.range().contains(page)).then_some(Inside {
        region,
        _access: access,
    })
}

/// What CPUs announce that are inside a region.
pub(super) fn region_key(space: u32, region: u32) -> u64 {
    u64::from(space) << 32 | u64::from(region)
}
