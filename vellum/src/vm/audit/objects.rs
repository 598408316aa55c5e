//! Objects and the mounts that they are charged to.

use super::{AuditFailure, AuditReport, same, wrong};
use crate::frame::{Kind, PageFlags};
use crate::object::LOST_SLOT;
use crate::platform::{GroupId, Platform};
use crate::rmap::ReverseMap;
use crate::space::Vm;
use crate::swap::Tally;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Checks the objects; returns the frames in their caches. The swap slots that they name
    /// are added to `slots`.
    pub(super) fn audit_objects(
        &self,
        report: &mut AuditReport,
        slots: &mut Tally,
    ) -> Result<u64, AuditFailure> {
        let mut result = Ok(());
        let (mut objects, mut cached, mut dirty) = (0, 0, 0);
        self.objects.arena().each(|handle, object| {
            if result.is_ok() && object.users() > 0 {
                objects += 1;
                dirty += object.dirty();
                let found = self.audit_object(handle.raw(), slots);
                result = found.map(|found| cached += found);
            }
        });
        result?;
        same("live objects", 0, report.objects, objects)?;
        if let Some(counted) = self.memory.dirty_pages_of_zones() {
            same("dirty pages of zones", 0, counted, dirty)?;
        }
        self.audit_dirty_pages(dirty)?;
        self.audit_mounts()?;
        self.audit_runs()?;
        Ok(cached)
    }

    /// Checks how many dirty pages are counted, of which there are so many, and for which groups.
    fn audit_dirty_pages(&self, all: u64) -> Result<(), AuditFailure> {
        let Some(counted) = self.memory.dirty() else {
            return Ok(());
        };
        same("dirty pages", 0, counted.of(0), all)?;
        let Some(groups) = self.memory.groups() else {
            return Ok(());
        };
        let (first, _) = self.memory.view().span();
        let mut dirty = [0; GroupId::MOST];
        let pin = self.pin();
        self.objects.arena().each(|_, object| {
            let radix = self.objects.radix(&pin, object);
            let mut next = 0;
            while let Some((index, page)) = radix.next(next) {
                let place = groups.of_frame(page.0 - first.0);
                dirty[place] += u64::from(self.objects.is_marked_dirty(&pin, object, index));
                next = index + 1;
            }
        });
        for (place, &dirty) in dirty.iter().enumerate().skip(1) {
            same(
                "dirty pages of group",
                place as u64,
                counted.of(place),
                dirty,
            )?;
        }
        Ok(())
    }

    /// Checks that the runs set aside for objects are named by them.
    fn audit_runs(&self) -> Result<(), AuditFailure> {
        let mut result = Ok(());
        self.memory.each_run_of_objects(&self.pin(), |run, handle| {
            if result.is_ok() && !self.objects.has_run(handle, run) {
                let what = "a run is set aside for an object that does not name it";
                result = wrong(what, u64::from(run.0));
            }
        });
        result
    }

    /// Checks that each mount is charged with the pages of its objects.
    fn audit_mounts(&self) -> Result<(), AuditFailure> {
        let mut result = Ok(());
        self.objects.mounts().each(|handle, mount| {
            if result.is_err() || mount.users() == 0 {
                return;
            }
            let number = handle.raw();
            let mut pages = 0;
            self.objects.arena().each(|_, object| {
                if object.users() > 0 && self.objects.mount_of(object) == number {
                    pages += object.cached() + object.swapped();
                }
            });
            let what = "pages charged to mount";
            result = same(what, u64::from(number), pages, mount.used());
        });
        result
    }

    fn audit_object(&self, handle: u32, slots: &mut Tally) -> Result<u64, AuditFailure> {
        let number = u64::from(handle);
        let object = self.objects.get(handle);
        let pin = self.pin();
        let radix = self.objects.radix(&pin, object);
        if !self.memory.may_have(object.policy()) {
            return wrong("a policy of nodes that there is not, of object", number);
        }
        if object.writers.is_held() {
            return wrong("a range is held of object", number);
        }
        let mut swapped = 0;
        let mut next = 0;
        while let Some((index, slot)) = radix.next_slot(next) {
            swapped += 1;
            next = index + 1;
            if slot == LOST_SLOT && !object.is_file() {
                continue;
            }
            let Some(swap) = self.swap().filter(|_| !object.is_file()) else {
                return wrong("a page is in swap that cannot be, of object", number);
            };
            slots.add(swap.long(u64::from(slot)), 1);
        }
        same("pages in swap of object", number, object.swapped(), swapped)?;
        let mut cached = 0;
        let mut dirty = 0;
        let mut next = 0;
        while let Some((index, page)) = radix.next(next) {
            let frame = self.memory.frame(page).page();
            if frame.kind() != Kind::Object || frame.owner() != handle || frame.index() != index {
                return wrong(
                    "a cached frame's record names another page",
                    u64::from(page.0),
                );
            }
            if frame.has(PageFlags::LOCKED) || !frame.has(PageFlags::UPTODATE) {
                return wrong(
                    "a cached page is locked or was never filled",
                    u64::from(page.0),
                );
            }
            cached += 1;
            dirty += u64::from(self.objects.is_marked_dirty(&pin, object, index));
            next = index + 1;
        }
        same("cached pages of object", number, object.cached(), cached)?;
        same("dirty pages of object", number, object.dirty(), dirty)?;
        let regions = self.objects.regions(&self.regions, handle);
        regions
            .check()
            .map_or_else(|what| wrong(what, number), Ok)?;
        Ok(cached)
    }
}
