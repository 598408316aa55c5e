//! What the group of a space is charged for as records of the space's regions (`groups=all`).
//!
//! In whole pages for each space, so that the first region takes one. A call charges for what it may
//! add before it changes anything, where it can be refused; when the lock is released, what is charged
//! becomes what there is. What only gives memory back is not refused.

use core::mem::size_of;

use super::account::RegionCounts;
use super::locked::LockedSpace;
use super::manager::Vm;
use super::region::Region;
use super::spaces::Live;
use super::tract::Tract;
use crate::frame::{Groups, NoPage};
use crate::platform::{GroupId, Platform};
use crate::rmap::ReverseMap;
use crate::sync::Pin;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Pages that the records of so many regions take; those of a tract may be fewer than none.
    const fn pages_of_records(regions: u64) -> u64 {
        let bytes = match (regions as i64) < 0 {
            true => 0,
            false => regions * size_of::<Region<R>>() as u64,
        };
        bytes.div_ceil(1 << F::FRAME_SHIFT)
    }

    /// The groups, if that of a space is charged for its records.
    #[inline]
    fn groups_of_records(&self, space: Live<'_, R>) -> Option<&Groups> {
        let groups = self.memory.groups()?;
        (groups.charge_kernel() && space.group() != GroupId::ROOT).then_some(groups)
    }

    /// Charges the group of a space for so many regions more than `counts` counts, which are some
    /// of the space's.
    ///
    /// # Errors
    /// [`NoPage::GroupLimit`].
    #[inline]
    pub(in crate::space) fn charge_regions(
        &self,
        space: LockedSpace<'_, R>,
        counts: &RegionCounts,
        more: u64,
    ) -> Result<(), NoPage> {
        match self.groups_of_records(*space) {
            Some(groups) => self.charge_regions_to(groups, space, counts, more),
            None => Ok(()),
        }
    }

    #[inline(never)]
    fn charge_regions_to(
        &self,
        groups: &Groups,
        space: LockedSpace<'_, R>,
        counts: &RegionCounts,
        more: u64,
    ) -> Result<(), NoPage> {
        let needed = Self::pages_of_records(counts.regions.get().wrapping_add(more));
        let more = needed.saturating_sub(counts.records.get());
        if more > 0 {
            let charged = groups.charge_records(&self.pin(), space.group(), more);
            charged.map_err(NoPage::GroupLimit)?;
            counts.records.add(more);
        }
        Ok(())
    }

    /// Has what is charged for the regions of a space, or one tract of it, be what there is. The
    /// caller has its lock.
    #[inline]
    pub(in crate::space) fn settle_records(&self, space: Live<'_, R>, tract: Option<&Tract>) {
        if let Some(groups) = self.groups_of_records(space) {
            let counts = Self::counts_of(space, tract);
            let needed = Self::pages_of_records(counts.regions.get());
            let more = needed.wrapping_sub(counts.records.get());
            if more != 0 {
                counts.records.add(more);
                groups.change_records(&self.pin(), space.group(), more);
            }
        }
    }

    /// For the audit: pages that somebody is charged for as records of a space's regions, and as many
    /// as there should be, at least in a space in tracts.
    pub(crate) fn records_of(&self, handle: u32) -> (u64, u64) {
        let space = self.live_at(handle);
        let counts = self.region_counts(space);
        let needed = match self.groups_of_records(space) {
            Some(_) => Self::pages_of_records(counts.regions.get()),
            None => 0,
        };
        let charged = counts.records.get();
        match space.is_divided() {
            true => (charged.min(needed), needed),
            false => (charged, needed),
        }
    }

    /// Nobody is charged for the regions of a space any more, which is about to go to another group.
    pub(in crate::space) fn uncharge_regions(&self, pin: &Pin<'_>, space: LockedSpace<'_, R>) {
        if let Some(groups) = self.groups_of_records(*space) {
            let had = space.account.counts.records.take();
            groups.change_records(pin, space.group(), had.wrapping_neg());
        }
    }
}
