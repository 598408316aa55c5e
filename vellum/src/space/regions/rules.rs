//! What no call may do, whatever the limits say: give a region more rights than it may ever get,
//! change one that is sealed, and make code of memory that was no code, where the space refuses that.
//!
//! Mostly a space has no such rules. Then one word of it says so, and nothing else is asked.

use super::limits::Change;
use crate::addr::{PageRange, Prot, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{NewWord, RegionView, Traits};
use crate::space::state::spaces::{Rules, SpaceId};
use crate::sync::Unpinned;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Refuses a change that a rule forbids.
    #[inline]
    pub(in crate::space) fn check_rules(
        &self,
        space: LockedSpace<'_, R>,
        change: &Change<'_>,
    ) -> Result<(), MapError> {
        match space.rules().is_empty() {
            true => Ok(()),
            false => self.check_each(space, change),
        }
    }

    #[cold]
    #[inline(never)]
    fn check_each(&self, space: LockedSpace<'_, R>, change: &Change<'_>) -> Result<(), MapError> {
        match *change {
            Change::Growth((_, traits), _) => unsealed(traits),
            Change::Mapping(tagged) => {
                let view = &tagged.view;
                if space.rules().has(Rules::NO_NEW_CODE) && is_writable_code(view.prot) {
                    return Err(MapError::Rights);
                }
                self.check_sealed(space, view.range)
            }
            Change::Unmapping(range) => self.check_sealed(space, range),
            Change::Move { from, to, .. } => {
                self.check_sealed(space, from)?;
                self.check_sealed(space, to)
            }
            Change::Word(range, word) => self.for_regions(space, range, |_, view| {
                word.prot.map_or(Ok(()), |prot| may_get(space, &view, prot))
            }),
        }
    }

    fn check_sealed(&self, space: LockedSpace<'_, R>, range: PageRange) -> Result<(), MapError> {
        self.for_regions(space, range, |_, view| unsealed(view.traits))
    }

    /// [`Space::seal`](crate::space::Space::seal).
    pub(crate) fn seal(&self, id: SpaceId, start: Vpn, pages: u64) -> Result<(), MapError> {
        let unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages)?;
        self.with_covered(unpinned, id, range, |pin, space| {
            let word = NewWord::traits(Traits::NONE, Traits::SEALED);
            self.change_traits(pin, space, range, &word)?;
            space.add_rules(Rules::OF_REGIONS);
            Ok(())
        })
    }

    /// [`Space::refuse_new_code`](crate::space::Space::refuse_new_code).
    pub(crate) fn refuse_new_code(&self, id: SpaceId) -> Result<(), MapError> {
        self.with_locked(Unpinned::at_door(), id, |_, space| {
            space.add_rules(Rules::NO_NEW_CODE);
            Ok(())
        })
    }
}

fn unsealed(traits: Traits) -> Result<(), MapError> {
    match traits.has(Traits::SEALED) {
        true => Err(MapError::Sealed),
        false => Ok(()),
    }
}

fn is_writable_code(prot: Prot) -> bool {
    prot.can_write() && prot.can_execute()
}

/// Whether a region may get these rights.
fn may_get<R: ReverseMap>(
    space: LockedSpace<'_, R>,
    view: &RegionView,
    prot: Prot,
) -> Result<(), MapError> {
    unsealed(view.traits)?;
    let is_new_code = prot.can_execute() && (prot.can_write() || !view.prot.can_execute());
    let is_refused = is_new_code && space.rules().has(Rules::NO_NEW_CODE);
    match is_refused || !view.traits.most().includes(prot) {
        true => Err(MapError::Rights),
        false => Ok(()),
    }
}
