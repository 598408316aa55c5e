//! What groups have, and the audit of it.

use super::tree::Places;
use super::{CLOSED, GROUPS, Group, GroupLimits, Groups, SPARE_SHARE, pages_in, place_in};
use crate::platform::GroupId;
use crate::sync::atomic::Ordering;

/// What a group has and had, with those within it but for `members`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    /// Pages that it is charged for: frames of pages and of page tables, and records.
    pub(crate) used: u64,
    /// Of these, page tables.
    pub(crate) tables: u64,
    /// Of these, records of regions.
    pub(crate) records: u64,
    /// Pages that lie in stocks of CPUs.
    pub(crate) stocked: u64,
    pub(crate) peak: u64,
    pub(crate) limits: GroupLimits,
    pub(crate) members: u32,
}

impl Groups {
    fn stocked(&self, places: Places) -> u64 {
        let stocks = self
            .stocks
            .iter()
            .map(|stock| stock.0.load(Ordering::Relaxed));
        let own = stocks.filter(|&word| places.has(place_in(word)));
        own.map(pages_in).sum()
    }

    /// What a group is charged for; approximate while CPUs charge it.
    pub(crate) fn usage(&self, id: GroupId) -> Option<Usage> {
        let group = self.find(id)?;
        let within = self.within(id.place());
        let stocked = self.stocked(within);
        let (tables, records) = self.kernel_of(within);
        Some(Usage {
            used: self.charged(id.place()).saturating_sub(stocked),
            tables,
            records,
            stocked,
            peak: group.charged.peak.load(Ordering::Relaxed),
            limits: group.limits(),
            members: group.members.load(Ordering::Relaxed),
        })
    }

    /// What the group of a place and those within it are charged for, with what lies in stocks.
    pub(in crate::frame) fn charged(&self, place: usize) -> u64 {
        (self.groups[place].charged.usage).load(Ordering::Relaxed)
    }

    /// The same without what lies in stocks.
    pub(in crate::frame) fn in_frames(&self, place: usize) -> u64 {
        let stocked = self.stocked(self.within(place));
        self.charged(place).saturating_sub(stocked)
    }

    /// The groups that have a limit of those that a group is in, itself among them: their places
    /// and limits.
    pub(crate) fn limits_around(&self, id: GroupId) -> impl Iterator<Item = (usize, u64)> {
        self.way_up(id.place()).filter_map(|place| {
            let limit = self.groups[place].limit.load(Ordering::Relaxed);
            (limit != u64::MAX).then_some((place, limit))
        })
    }

    /// Whether a group, or one around it, is so near its limit that its calls are about to have
    /// pages leave.
    pub(crate) fn is_short(&self, id: GroupId) -> bool {
        self.way_up(id.place()).any(|place| {
            let group = &self.groups[place];
            let limit = group.limit.load(Ordering::Relaxed);
            let limit = limit.min(group.high.load(Ordering::Relaxed));
            let used = self.in_frames(place);
            limit != u64::MAX && used.saturating_add(limit / SPARE_SHARE) > limit
        })
    }

    /// Pages that a group has above its limit.
    pub(crate) fn excess(&self, id: GroupId) -> u64 {
        self.find(id).map_or(0, |group| {
            let limit = group.limit.load(Ordering::Relaxed);
            self.charged(id.place()).saturating_sub(limit)
        })
    }

    /// Pages that a group has above its `high`.
    pub(crate) fn above_high(&self, id: GroupId) -> u64 {
        self.find(id).map_or(0, |group| {
            let high = group.high.load(Ordering::Relaxed);
            self.charged(id.place()).saturating_sub(high)
        })
    }

    /// Whether `pages` more of a group would be above its `high`, and nobody has made room for
    /// them.
    pub(crate) fn is_held_at_high(&self, id: GroupId) -> bool {
        self.find(id).is_some_and(|group| {
            let charged = self.charged(id.place());
            let has_room = charged < group.limit.load(Ordering::Relaxed);
            let is_above = charged >= group.high.load(Ordering::Relaxed);
            has_room && is_above && group.charged.allowance.load(Ordering::Relaxed) == 0
        })
    }

    /// Whether there is such a group, and it is refused another page.
    pub(crate) fn has_no_room(&self, id: GroupId) -> bool {
        let is_full =
            |group: &Group| self.charged(id.place()) >= group.limit.load(Ordering::Relaxed);
        self.find(id).is_some_and(is_full) || self.is_held_at_high(id)
    }

    /// Lets a group have so many pages above its `high`.
    pub(crate) fn allow_above_high(&self, id: GroupId, pages: u64) {
        if let Some(group) = self.find(id) {
            group.charged.allowance.store(pages, Ordering::Release);
        }
    }

    /// Checks while nothing else runs that each group is charged for as many pages as there are
    /// frames of it and of those within it, with their records and what lies in stocks, and that
    /// there is no frame of a group that is not there.
    /// Returns the place of one that is not so.
    pub(in crate::frame) fn audit(&self) -> Result<(), usize> {
        let mut frames = [0_u64; GROUPS];
        for byte in &self.of_frames {
            let place = usize::from(byte.load(Ordering::Relaxed));
            *frames.get_mut(place).ok_or(place)? += 1;
        }
        for (place, group) in self.groups.iter().enumerate().skip(1) {
            let is_there = group.members.load(Ordering::Relaxed) < CLOSED;
            let places = match is_there {
                true => self.within(place),
                false => Places::only(place),
            };
            let charged = self.charged(place);
            let of_frames: u64 = places.into_iter().map(|place| frames[place]).sum();
            let (_, records) = self.kernel_of(places);
            let fits = of_frames + records + self.stocked(places) == charged;
            if !fits || !is_there && charged != 0 {
                return Err(place);
            }
        }
        Ok(())
    }
}
