//! What has been promised (`commit=`): recounted from the regions, objects and mounts.

use super::{AuditFailure, same, wrong};
use crate::platform::{GroupId, Platform};
use crate::rmap::ReverseMap;
use crate::space::{RegionView, Traits, Vm};
use crate::table::Format;

/// What has been promised, in all and to each group.
struct Promised {
    all: u64,
    groups: [u64; GroupId::MOST],
}

impl Promised {
    fn add(&mut self, group: GroupId, pages: u64) {
        self.all += pages;
        self.groups[group.place()] += pages;
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    pub(super) fn audit_commit(&self) -> Result<(), AuditFailure> {
        let Some(commit) = self.memory.commit() else {
            return Ok(());
        };
        let mut promised = Promised {
            all: 0,
            groups: [0; GroupId::MOST],
        };
        let mut result = Ok(());
        self.spaces.each(|handle, space| {
            if result.is_ok() && space.users() > 0 {
                result = self.audit_space_commit(handle.raw(), &mut promised);
            }
        });
        result?;
        let mut result = Ok(());
        self.objects.arena().each(|handle, object| {
            if let (Ok(()), true, Some((group, pages))) =
                (result, object.users() > 0, object.commit())
            {
                let what = "pages that an object is charged for";
                result = same(what, u64::from(handle.raw()), object.pages(), pages);
                promised.add(commit.if_there(group), pages);
            }
        });
        result?;
        self.objects.mounts().each(|_, mount| {
            if mount.users() > 0 {
                promised.add(GroupId::ROOT, mount.used());
            }
        });
        let counted = commit.stats().committed;
        same("pages promised", 0, promised.all, counted)?;
        let Some(groups) = self.memory.groups() else {
            return Ok(());
        };
        for place in 1..GroupId::MOST {
            let counted = groups.at(place).map_or(0, |id| commit.of_group(id).0);
            let what = "pages promised to the spaces of group";
            same(what, place as u64, promised.groups[place], counted)?;
        }
        Ok(())
    }

    fn audit_space_commit(&self, handle: u32, promised: &mut Promised) -> Result<(), AuditFailure> {
        let number = u64::from(handle);
        let id = self.space_named_by(handle);
        let mut committed = 0;
        let mut result = Ok(());
        self.each_region_of(handle, |view: &RegionView| {
            let pages = view.range.pages();
            let has = view.traits.has(Traits::COMMITTED);
            if has {
                committed += pages;
            }
            let may = !view.is_shared() && !view.traits.has(Traits::NO_RESERVE);
            let must = may && view.prot.can_write();
            if must && !has || has && !may {
                result = wrong(
                    "a region is promised what it is not to be, of space",
                    number,
                );
            }
        });
        result?;
        let counted = self.promised_to(handle);
        same("committed pages of space", number, committed, counted[0])?;
        same(
            "pages that a space is charged for",
            number,
            committed,
            counted[1],
        )?;
        let group = self.group_of(id).unwrap_or(GroupId::ROOT);
        promised.add(group, committed);
        Ok(())
    }
}
