//! Groups that the spaces of a sequence are in (`groups=on`): spaces move, limits change, and
//! groups end, which no operation of the model sees unless a limit is reached.

use vellum::design::GroupMode;
use vellum::platform::GroupId;
use vellum::rmap::ReverseMap;
use vellum::space::{Group, GroupError};
use vellum::table::Format;
use vellum::{SpaceId, Vm};
use vellum_machine::Machine;

use super::drive::Check;

/// Groups at a time.
const COUNT: usize = 3;

/// The groups of a manager; none if it has none.
pub struct Groups {
    groups: Vec<GroupId>,
    /// Pages that a group may have.
    limit: u64,
    turn: usize,
}

fn text(error: GroupError) -> String {
    error.to_string()
}

impl Groups {
    /// Groups that may have a third of the frames each if memory is `tight`, else whatever there
    /// is.
    pub fn new<F: Format, R: ReverseMap>(vm: &Vm<Machine, F, R>, tight: bool) -> Groups {
        let limit = match tight {
            true => vm.memory().frame_count() as u64 / 3,
            false => u64::MAX,
        };
        let count = if vm.design().groups != GroupMode::Off {
            COUNT
        } else {
            0
        };
        let groups =
            (0..count).map(|_| vm.create_group(limit).expect("there is room for some").id());
        Groups {
            groups: groups.collect(),
            limit,
            turn: 0,
        }
    }

    /// Puts a new space into one of the groups.
    pub fn enter<F: Format, R: ReverseMap>(
        &mut self,
        vm: &Vm<Machine, F, R>,
        space: SpaceId,
    ) -> Check {
        self.turn += 1;
        match self.groups.get(self.turn % (COUNT + 1)) {
            Some(&group) => vm.space(space).set_group(group).map_err(text),
            None => Ok(()),
        }
    }

    /// Moves spaces, gives one group another limit, and has one end and another begin.
    pub fn change<F: Format, R: ReverseMap>(
        &mut self,
        vm: &Vm<Machine, F, R>,
        spaces: impl Iterator<Item = SpaceId>,
    ) -> Check {
        if self.groups.is_empty() {
            return Ok(());
        }
        self.turn += 1;
        let place = self.turn % COUNT;
        let (gone, next) = (self.groups[place], self.groups[(place + 1) % COUNT]);
        for space in spaces {
            if vm.space(space).group().map(Group::id) == Ok(gone) {
                if vm.group(gone).end() != Err(GroupError::InUse) {
                    return Err("a group has ended that a space belongs to".into());
                }
                vm.space(space).set_group(next).map_err(text)?;
            }
        }
        vm.group(gone).end().map_err(text)?;
        self.groups[place] = vm.create_group(self.limit).map_err(text)?.id();
        if self.limit != u64::MAX {
            vm.group(next).set_limit(self.limit / 2).map_err(text)?;
            vm.group(next).set_limit(self.limit).map_err(text)?;
        }
        Ok(())
    }

    /// Whether each group is charged for no more than it may be.
    pub fn check<F: Format, R: ReverseMap>(&self, vm: &Vm<Machine, F, R>) -> Check {
        for &group in &self.groups {
            let stats = vm.group(group).stats().map_err(text)?;
            if stats.usage > stats.limits.max {
                return Err(format!("a group is above its limit: {stats:?}"));
            }
        }
        Ok(())
    }
}
