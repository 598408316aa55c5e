//! A group of spaces as an embedder holds it.

use crate::frame::{CommitPolicy, GroupLimits};
use crate::platform::{GroupId, Platform, Victim};
use crate::rmap::ReverseMap;
use crate::space::life::group::{GroupError, GroupStats};
use crate::space::state::manager::Vm;
use crate::table::Format;

/// A group of spaces with a limit: its name, and the manager that has it. As with a
/// [`Space`](crate::space::Space), each call looks whether there is such a group.
pub struct Group<'vm, P: Platform, F: Format, R: ReverseMap> {
    pub(crate) vm: &'vm Vm<P, F, R>,
    pub(crate) id: GroupId,
}

handle!(Group, GroupId);

impl<P: Platform, F: Format, R: ReverseMap> Group<'_, P, F, R> {
    /// The name, to keep where there is no borrow of the manager ([`Vm::group`]).
    #[inline]
    pub fn id(self) -> GroupId {
        self.id
    }

    /// A new group within this one, which may be charged for so many pages: what it is charged for,
    /// this one is charged for, too ([`Vm::create_group`], which is this of the root). Groups lie
    /// in groups to any depth.
    ///
    /// # Errors
    /// [`GroupError::NoGroup`], [`GroupError::TooMany`], [`GroupError::Off`].
    #[inline]
    pub fn create_group(self, limit: u64) -> Result<Self, GroupError> {
        let id = self.vm.page_cache().new_group_in(self.id, limit)?;
        Ok(self.vm.group(id))
    }

    /// Gives the group other limits, and another protection. If it has more than `max` or `high`
    /// allow, pages leave as with [`Group::set_limit`].
    ///
    /// # Errors
    /// [`GroupError::NoGroup`], also of the root; [`GroupError::Off`].
    #[inline]
    pub fn set_limits(self, limits: GroupLimits) -> Result<u64, GroupError> {
        let change = |old: &mut GroupLimits| *old = limits;
        self.vm.page_cache().set_group_limits(self.id, &change)
    }

    /// Has up to about so many pages of the group and of those within it leave memory
    /// (`memory.reclaim`); returns how many have. Its own protection does not hold them back.
    ///
    /// # Errors
    /// [`GroupError::NoGroup`], also of the root, for which there is [`Vm::reclaim_pages`];
    /// [`GroupError::Off`].
    #[inline]
    pub fn reclaim(self, pages: u64) -> Result<u64, GroupError> {
        self.vm.page_cache().reclaim_pages_of(self.id, pages)
    }

    /// Gives the group another limit (`max`) and leaves the others as they are. If it has more, pages of it leave until it has not, or none
    /// can leave any more; what is left above the limit is returned, and until it is gone
    /// everything is refused that would be charged to the group.
    ///
    /// # Errors
    /// [`GroupError::NoGroup`], [`GroupError::Off`].
    #[inline]
    pub fn set_limit(self, limit: u64) -> Result<u64, GroupError> {
        self.vm.page_cache().set_group_limit(self.id, limit)
    }

    /// Changes what is refused when memory is promised (`vm.overcommit_memory`); of the root only,
    /// which is the whole machine. What has been promised stays so, even if it is more than the new
    /// limit.
    ///
    /// # Errors
    /// [`GroupError::NotCounted`] with `commit=off`; [`GroupError::NoGroup`] of any other group.
    #[inline]
    pub fn set_commit_policy(self, policy: CommitPolicy) -> Result<(), GroupError> {
        self.vm.page_cache().set_commit_policy(self.id, policy)
    }

    /// Gives the group a limit of what its spaces may be promised together, with the shared memory
    /// that they make. It holds with every [`CommitPolicy`], beside the machine's. A space that comes
    /// brings what it has, even if that is more.
    ///
    /// # Errors
    /// [`GroupError::NotCounted`] with `commit=off`, [`GroupError::Off`], [`GroupError::NoGroup`],
    /// also of the root.
    #[inline]
    pub fn set_commit_limit(self, pages: u64) -> Result<(), GroupError> {
        self.vm.page_cache().set_commit_limit(self.id, pages)
    }

    /// What there is of the group.
    ///
    /// # Errors
    /// [`GroupError::NoGroup`], also of the root; [`GroupError::Off`].
    #[inline]
    pub fn stats(self) -> Result<GroupStats, GroupError> {
        self.vm.page_cache().group_stats(self.id)
    }

    /// The space of the group, or of all if it is the root, whose end would free most: the one with
    /// most private pages, in memory and in swap, page tables, and frames' worth of what the manager
    /// keeps for its regions and entries together; of several with as many the one that stands first
    /// among spaces. Pages of objects do not count, since the object keeps them. A page that fork
    /// shared counts for each space that has it. `None` if no space has any. These are the rules of Linux's
    /// `oom_badness` (2.6.36), which does not count regions, without its adjustments, which are an
    /// embedder's.
    ///
    /// Looks at every space, and at every CPU for each. Spaces that begin or end meanwhile may
    /// be missed, and the space that is named may end at any time.
    #[inline]
    pub fn choose_victim(self) -> Option<Victim> {
        self.vm.choose_victim_of(self.id)
    }

    /// Ends the group, which no space belongs to and which no group lies within. What it is charged
    /// for is that of the group around it then.
    ///
    /// Looks at every frame, and waits for every CPU that is pinned.
    ///
    /// # Errors
    /// [`GroupError::InUse`], [`GroupError::NoGroup`], [`GroupError::Off`].
    #[inline]
    pub fn end(self) -> Result<(), GroupError> {
        self.vm.page_cache().end_group(self.id)
    }
}
