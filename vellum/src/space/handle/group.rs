//! A group of spaces as an embedder holds it.

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

    /// Gives the group another limit. If it has more, pages of it leave until it has not, or none
    /// can leave any more; what is left above the limit is returned, and until it is gone
    /// everything is refused that would be charged to the group.
    ///
    /// # Errors
    /// [`GroupError::NoGroup`], [`GroupError::Off`].
    #[inline]
    pub fn set_limit(self, limit: u64) -> Result<u64, GroupError> {
        self.vm.page_cache().set_group_limit(self.id, limit)
    }

    /// What there is of the group.
    ///
    /// # Errors
    /// [`GroupError::NoGroup`], also of the root; [`GroupError::Off`].
    #[inline]
    pub fn stats(self) -> Result<GroupStats, GroupError> {
        self.vm.page_cache().group_stats(self.id)
    }

    /// The space of the group whose end would free most ([`Vm::choose_victim`]).
    #[inline]
    pub fn choose_victim(self) -> Option<Victim> {
        self.vm.choose_victim_of(self.id)
    }

    /// Ends the group, which no space belongs to. What it is charged for is the root's then.
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
