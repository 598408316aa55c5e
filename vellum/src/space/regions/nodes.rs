//! Which policy of nodes counts where.

use crate::addr::PageRange;
use crate::frame::{NodePolicy, PolicyWord};
use crate::object::ObjectId;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::common::Common;
use crate::space::state::error::{FileError, MapError};
use crate::space::state::manager::Vm;
use crate::space::state::region::{NewWord, Traits};
use crate::space::state::spaces::SpaceId;
use crate::sync::Unpinned;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::set_node_policy`](crate::space::Space::set_node_policy).
    pub(crate) fn set_node_policy(
        &self,
        id: SpaceId,
        range: Option<PageRange>,
        policy: Option<NodePolicy>,
    ) -> Result<(), MapError> {
        let unpinned = Unpinned::at_door();
        let policy = self.checked_policy(policy).ok_or(MapError::BadNodes)?;
        let Some(range) = range else {
            return self.with_locked(unpinned, id, |_, space| {
                space.set_policy(policy);
                Ok(())
            });
        };
        let range = Self::checked(range)?;
        let word = NewWord {
            policy: Some(policy),
            ..NewWord::traits(Traits::NONE, Traits::NONE)
        };
        self.with_covered(unpinned, id, range, |pin, space| {
            // First: a fault that finds the region's policy looks for it.
            space.note_policies(policy);
            self.change_traits(pin, space, range, &word)
        })
    }
}

impl<P: Platform> Common<P> {
    /// The word of a policy, if the manager has policies and there are the nodes that it names.
    pub(in crate::space) fn checked_policy(
        &self,
        policy: Option<NodePolicy>,
    ) -> Option<PolicyWord> {
        let word = self.memory.policy_word(policy)?;
        (P::PARTS.nodes || word.is_none()).then_some(word)
    }

    /// [`File::set_node_policy`](crate::space::File::set_node_policy).
    pub(crate) fn set_file_policy(
        &self,
        id: ObjectId,
        policy: Option<NodePolicy>,
    ) -> Result<(), FileError> {
        let policy = self.checked_policy(policy).ok_or(FileError::BadNodes)?;
        // It does not become another while the caller is pinned (invariant 7).
        let _pin = self.pin();
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        object.set_policy(policy);
        Ok(())
    }
}
