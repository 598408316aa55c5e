//! What spaces and objects are charged for that they have been promised (`commit=`).
//!
//! What a space is charged for is what its regions say ([`Traits::COMMITTED`]). A call charges what
//! it adds before it changes anything, and whoever lets go of the lock gives back what there is no
//! region for: what the call has unmapped, or all that it had charged if it failed.
//!
//! [`Traits::COMMITTED`]: super::region::Traits::COMMITTED

use super::account::RegionCounts;
use super::common::Common;
use super::locked::LockedSpace;
use super::manager::Vm;
use super::spaces::Live;
use super::tract::Tract;
use crate::frame::Committer;
use crate::object::Object;
use crate::platform::{GroupId, Platform};
use crate::rmap::ReverseMap;
use crate::sync::Pin;
use crate::table::Format;

/// No more memory may be promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::space) struct NotCommitted;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Who is charged for what a space is promised.
    fn committer(&self, space: Live<'_, R>) -> Committer {
        let is_admin = space.limits.get().is_admin;
        let pages = || self.region_counts(space).pages.get();
        Committer {
            group: space.group(),
            reserve: (self.memory.commit()).map_or(0, |commit| commit.reserve(is_admin, pages)),
        }
    }

    /// Charges what `counts` counts for as many pages as a change needs that adds so many committed
    /// ones (or, wrapping, takes some away); it is the space's change, if not of its own regions.
    /// Nothing is charged twice by a call that asks twice.
    ///
    /// # Errors
    /// [`NotCommitted`].
    pub(in crate::space) fn commit_pages(
        &self,
        space: LockedSpace<'_, R>,
        counts: &RegionCounts,
        pages: u64,
    ) -> Result<(), NotCommitted> {
        let Some(commit) = self.memory.commit() else {
            return Ok(());
        };
        let charged = counts.charged.get();
        let more = (counts.committed.get().wrapping_add(pages)).wrapping_sub(charged);
        if more as i64 <= 0 {
            return Ok(());
        }
        match commit.charge(&self.pin(), self.committer(*space), more) {
            true => {
                counts.charged.add(more);
                Ok(())
            }
            false => Err(NotCommitted),
        }
    }

    /// Gives back what a space, or one tract of it, is charged for and has no region for. The caller
    /// has its lock.
    #[inline]
    pub(in crate::space) fn settle_commit(&self, space: Live<'_, R>, tract: Option<&Tract>) {
        if let Some(commit) = self.memory.commit() {
            let counts = Self::counts_of(space, tract);
            let committed = counts.committed.get();
            let more = counts.charged.get().wrapping_sub(committed);
            if more != 0 {
                debug_assert!(more as i64 > 0, "a space is charged for less than it has");
                counts.charged.sub(more);
                commit.uncharge(&self.pin(), space.group(), more);
            }
        }
    }

    /// A space whose lock is ours goes to another group; both are there.
    pub(in crate::space) fn move_commit(
        &self,
        space: LockedSpace<'_, R>,
        from: GroupId,
        to: GroupId,
    ) {
        if let Some(commit) = self.memory.commit() {
            commit.move_charge(from, to, space.account.counts.charged.get());
        }
    }

    /// Charges the group of a space for an object of its own.
    ///
    /// # Errors
    /// [`NotCommitted`].
    pub(in crate::space) fn commit_object_of(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        handle: u32,
    ) -> Result<(), NotCommitted> {
        self.commit_object(pin, handle, self.committer(space))
    }
}

impl<P: Platform> Common<P> {
    /// Charges somebody for an object of shared memory, by its length, for as long as there is the
    /// object.
    ///
    /// # Errors
    /// [`NotCommitted`].
    pub(in crate::space) fn commit_object(
        &self,
        pin: &Pin<'_>,
        handle: u32,
        who: Committer,
    ) -> Result<(), NotCommitted> {
        let Some(commit) = self.memory.commit() else {
            return Ok(());
        };
        let object = self.objects.get(handle);
        let pages = object.pages();
        if !commit.charge(pin, who, pages) {
            return Err(NotCommitted);
        }
        object.begin_commit(who.group, pages);
        Ok(())
    }

    /// Who is charged for an object that no space asks for.
    pub(in crate::space) fn committer_of(&self, group: GroupId) -> Committer {
        let commit = self.memory.commit();
        Committer {
            group,
            reserve: commit.map_or(0, |commit| commit.reserve(false, || 0)),
        }
    }

    /// Whether somebody is charged for the object.
    #[inline]
    pub(in crate::space) fn is_committed(&self, object: &Object) -> bool {
        self.memory.commit().is_some() && object.commit().is_some()
    }

    /// Charges for an object of so many pages what it was charged for before, or gives back what is
    /// more. The caller may change the length.
    ///
    /// # Errors
    /// [`NotCommitted`], if it is longer.
    pub(in crate::space) fn recommit(
        &self,
        pin: &Pin<'_>,
        object: &Object,
        pages: u64,
    ) -> Result<(), NotCommitted> {
        let Some(commit) = self.memory.commit() else {
            return Ok(());
        };
        let Some((group, old)) = object.commit() else {
            return Ok(());
        };
        if pages > old {
            // A group that has ended is charged for nothing any more.
            let group = commit.if_there(group);
            let charged = commit.charge(pin, self.committer_of(group), pages - old);
            charged.then_some(()).ok_or(NotCommitted)?;
        } else {
            commit.put(group, old - pages);
        }
        object.set_committed(pages);
        Ok(())
    }

    /// The object ends.
    pub(in crate::space) fn uncommit(&self, object: &Object) {
        if let Some(commit) = self.memory.commit()
            && let Some((group, pages)) = object.commit()
        {
            object.end_commit();
            commit.put(group, pages);
        }
    }
}
