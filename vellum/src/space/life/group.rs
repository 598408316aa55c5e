//! Groups of spaces, each with a limit of the pages that it is charged for.

use core::fmt;

use crate::frame::{CommitPolicy, GroupLimits};
use crate::platform::{GroupId, Platform};
use crate::reclaim::GroupCounts;
use crate::rmap::ReverseMap;
use crate::space::leaving::pressure::MOST_TRIES;
use crate::space::state::common::PageCache;
use crate::space::state::error::MapError;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::{Live, SpaceId, SpaceRecord};
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, Unpinned};
use crate::table::Format;

/// Pages that leave at a time when a group's limit is lowered.
const LOT: u64 = 128;

/// Why something about groups was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupError {
    /// The manager has no groups (`groups=off`).
    Off,
    /// No such group, or it is the root, which has no limit and does not end.
    NoGroup,
    /// No such space.
    NoSpace,
    /// There are as many groups as can be ([`Vm::MAX_GROUPS`]).
    TooMany,
    /// Spaces belong to the group, or groups lie within it.
    InUse,
    /// The manager does not count what is promised (`commit=off`).
    NotCounted,
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GroupError::Off => "the manager was made without groups (groups=off)",
            GroupError::NoGroup => "no such group",
            GroupError::NoSpace => "no such address space",
            GroupError::TooMany => "there are as many groups as can be",
            GroupError::InUse => "address spaces belong to the group, or groups lie within it",
            GroupError::NotCounted => "the manager does not count what is promised (commit=off)",
        })
    }
}

impl core::error::Error for GroupError {}

/// What a group has with those within it, may have, and what reclaim did with their pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct GroupStats {
    /// Pages that it is charged for. Approximate while CPUs charge it.
    pub usage: u64,
    /// Of these, page tables (`groups=all`).
    pub tables: u64,
    /// Of these, records of the regions of its spaces, in whole pages for each space
    /// (`groups=all`).
    pub records: u64,
    /// Of what the limit allows, pages that CPUs have taken for it and not used yet.
    pub stocked: u64,
    /// The largest usage since the group was made, with what was in stock.
    pub peak: u64,
    /// What it may have, and how far it is protected.
    pub limits: GroupLimits,
    /// Pages of files, of those that it is charged for, that calls have written and that are newer
    /// than their stores.
    pub dirty: u64,
    /// Spaces that belong to it itself.
    pub spaces: u32,
    /// Pages of it that reclaim looked at.
    pub scanned: u64,
    /// Of these, pages that left memory.
    pub reclaimed: u64,
    /// Pages that came back after they had left: of files; with `aging=generations` also private
    /// ones and those of shared memory.
    pub refaults: u64,
    /// Times that the limit was reached and pages of the group had to leave.
    pub limit_hits: u64,
    /// Calls that failed because nothing of it could leave.
    pub failures: u64,
    /// Times that a call was about to take it above its `high` and had pages of it leave first.
    pub high_events: u64,
    /// Times that reclaim looked at its pages although it had no more than its protected ones,
    /// since nothing else could leave.
    pub low_events: u64,
    /// With `commit=`, pages that its spaces are promised, and shared memory that was made for it.
    pub committed: u64,
    /// Most of that.
    pub commit_limit: u64,
}

impl<P: Platform> PageCache<'_, P> {
    /// [`Vm::create_group`](crate::Vm::create_group).
    pub(crate) fn new_group(&self, limit: u64) -> Result<GroupId, GroupError> {
        self.new_group_in(GroupId::ROOT, limit)
    }

    /// [`Group::create_group`](crate::space::Group::create_group).
    pub(crate) fn new_group_in(&self, within: GroupId, limit: u64) -> Result<GroupId, GroupError> {
        let reclaim = self.reclaim().ok_or(GroupError::Off)?;
        let groups = self.memory.groups().ok_or(GroupError::Off)?;
        if groups.at(within.place()) != Some(within) && within != GroupId::ROOT {
            return Err(GroupError::NoGroup);
        }
        let id = self.memory.begin_group(within, limit);
        let id = id.ok_or(GroupError::TooMany)?;
        reclaim.begin_group(id.place());
        if let Some(commit) = self.memory.commit() {
            commit.begin_group(id);
        }
        Ok(id)
    }

    /// [`Group::end`](crate::space::Group::end).
    pub(crate) fn end_group(&self, id: GroupId) -> Result<(), GroupError> {
        let unpinned = Unpinned::at_door();
        let reclaim = self.reclaim().ok_or(GroupError::Off)?;
        self.memory.groups().ok_or(GroupError::Off)?;
        let move_pages = |unpinned: Unpinned<'_>, around: usize| {
            if let Some(commit) = self.memory.commit() {
                commit.end_group(id);
            }
            reclaim.give_to(unpinned, self, (id.place(), around));
        };
        match self.memory.end_group(unpinned, id, move_pages) {
            Some(true) => Ok(()),
            Some(false) => Err(GroupError::InUse),
            None => Err(GroupError::NoGroup),
        }
    }

    /// [`Group::set_commit_policy`](crate::space::Group::set_commit_policy).
    pub(crate) fn set_commit_policy(
        &self,
        id: GroupId,
        policy: CommitPolicy,
    ) -> Result<(), GroupError> {
        let commit = self.memory.commit().ok_or(GroupError::NotCounted)?;
        if id != GroupId::ROOT {
            return Err(GroupError::NoGroup);
        }
        commit.set_policy(policy);
        Ok(())
    }

    /// [`Group::set_commit_limit`](crate::space::Group::set_commit_limit).
    pub(crate) fn set_commit_limit(&self, id: GroupId, limit: u64) -> Result<(), GroupError> {
        let commit = self.memory.commit().ok_or(GroupError::NotCounted)?;
        let groups = self.memory.groups().ok_or(GroupError::Off)?;
        groups.usage(id).ok_or(GroupError::NoGroup)?;
        commit.set_group_limit(id, limit);
        Ok(())
    }

    /// [`Group::set_limit`](crate::space::Group::set_limit).
    pub(crate) fn set_group_limit(&self, id: GroupId, limit: u64) -> Result<u64, GroupError> {
        let change = |group: &mut GroupLimits| group.max = limit;
        self.limit_group(Unpinned::at_door(), id, &change)
    }

    /// [`Group::set_limits`](crate::space::Group::set_limits).
    pub(crate) fn set_group_limits(
        &self,
        id: GroupId,
        change: &dyn Fn(&mut GroupLimits),
    ) -> Result<u64, GroupError> {
        self.limit_group(Unpinned::at_door(), id, change)
    }

    fn limit_group(
        &self,
        mut unpinned: Unpinned<'_>,
        id: GroupId,
        change: &dyn Fn(&mut GroupLimits),
    ) -> Result<u64, GroupError> {
        let groups = self.memory.groups().ok_or(GroupError::Off)?;
        if !(self.memory).change_group_limits(unpinned.reborrow(), id, change) {
            return Err(GroupError::NoGroup);
        }
        let excess_of = || groups.excess(id).max(groups.above_high(id));
        let mut tries = 0;
        loop {
            let excess = excess_of();
            if excess == 0 {
                return Ok(0);
            }
            let freed = self.reclaim_group(unpinned.reborrow(), id, excess.min(LOT));
            if freed.is_none() {
                // What left may lie in stocks.
                tries += 1;
                self.memory.take_stocks(unpinned.reborrow(), id);
                if tries == MOST_TRIES || excess_of() == excess {
                    return Ok(excess_of());
                }
            }
        }
    }

    /// [`Group::reclaim`](crate::space::Group::reclaim).
    pub(crate) fn reclaim_pages_of(&self, id: GroupId, pages: u64) -> Result<u64, GroupError> {
        let unpinned = Unpinned::at_door();
        let groups = self.memory.groups().ok_or(GroupError::Off)?;
        groups.usage(id).ok_or(GroupError::NoGroup)?;
        Ok(self.reclaim_group(unpinned, id, pages).unwrap_or(0))
    }

    /// [`Group::stats`](crate::space::Group::stats).
    pub(crate) fn group_stats(&self, id: GroupId) -> Result<GroupStats, GroupError> {
        let groups = self.memory.groups().ok_or(GroupError::Off)?;
        let usage = groups.usage(id).ok_or(GroupError::NoGroup)?;
        let reclaim = self.reclaim().ok_or(GroupError::Off)?;
        let within = groups.within(id.place());
        let counts = GroupCounts::default();
        for place in within {
            counts.add(reclaim.group_counts(place));
        }
        let commit = self.memory.commit();
        let (committed, commit_limit) = commit.map_or((0, u64::MAX), |commit| commit.of_group(id));
        Ok(GroupStats {
            usage: usage.used,
            tables: usage.tables,
            records: usage.records,
            stocked: usage.stocked,
            peak: usage.peak,
            limits: usage.limits,
            dirty: self.memory.dirty().map_or(0, |dirty| dirty.of_all(within)),
            spaces: usage.members,
            scanned: counts.scanned.get(),
            reclaimed: counts.reclaimed.get(),
            refaults: counts.refaults.get(),
            limit_hits: counts.limit_hits.get(),
            failures: counts.failures.get(),
            high_events: counts.high_events.get(),
            low_events: counts.low_events.get(),
            committed,
            commit_limit,
        })
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Groups that there can be at once, beside the root.
    pub const MAX_GROUPS: usize = GroupId::MOST - 1;

    /// [`Space::set_group`](crate::space::Space::set_group).
    pub(crate) fn set_group(&self, space: SpaceId, id: GroupId) -> Result<(), GroupError> {
        self.move_space(Unpinned::at_door(), space, id)
    }

    pub(super) fn move_space(
        &self,
        unpinned: Unpinned<'_>,
        space: SpaceId,
        id: GroupId,
    ) -> Result<(), GroupError> {
        let groups = self.memory.groups().ok_or(GroupError::Off)?;
        let moved = self.with_locked(unpinned, space, |pin, space| {
            let joined = groups.join(id);
            if joined {
                self.uncharge_regions(pin, *space);
                let old = space.set_group(id);
                self.move_commit(*space, old, id);
                self.memory.charge_root(pin, space.root(), id);
                groups.leave(old);
            }
            Ok::<_, MapError>(joined)
        });
        match moved {
            Ok(true) => Ok(()),
            Ok(false) => Err(GroupError::NoGroup),
            Err(_) => Err(GroupError::NoSpace),
        }
    }

    /// [`Space::group`](crate::space::Space::group).
    pub(crate) fn group_of(&self, space: SpaceId) -> Option<GroupId> {
        let _pin = self.pin();
        Some(self.find_space(space)?.group())
    }

    /// A space begins in the group of another, whose lock is ours.
    pub(super) fn inherit_group(&self, pin: &Pin<'_>, from: &SpaceRecord<R>, to: Live<'_, R>) {
        let id = from.group();
        if let Some(groups) = self.memory.groups()
            && id != GroupId::ROOT
            && groups.join(id)
        {
            to.get().set_group(id);
            self.memory.charge_root(pin, to.root(), id);
        }
    }

    /// A space has ended.
    pub(super) fn leave_group(&self, space: &SpaceRecord<R>) {
        let id = space.group();
        space.group.store(0, Ordering::Release);
        if let Some(groups) = self.memory.groups() {
            groups.leave(id);
        }
    }
}
