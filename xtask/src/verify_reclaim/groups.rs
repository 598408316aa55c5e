//! Groups of spaces that change while a replay is verified: limits, members, groups that end and
//! others that begin.

use vellum_engine::{GroupName, Groups, SpaceSlot};
use vellum_lab::stats::Random;

/// Groups at a time. Some spaces are in none.
const COUNT: usize = 3;

/// Fewest pages that a group may have: one that has less cannot take what one call wants at once.
const LEAST: u64 = 64;

/// Changes between two slices of a replay.
const CHANGES: usize = 4;

/// Groups of an engine, and chance.
pub struct Changes<'e> {
    engine: &'e dyn Groups,
    groups: Vec<GroupName>,
    /// Pages that a group may have at most.
    most: u64,
    spaces: u32,
    random: Random,
    /// What groups that have ended had given.
    given: Given,
}

/// What groups gave.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Given {
    /// Pages that left because their group was short.
    pub reclaimed: u64,
    /// Times that a group had as many as it may.
    pub limit_hits: u64,
    /// Groups that there have been.
    pub groups: u64,
}

impl<'e> Changes<'e> {
    /// Groups that together may have about `pages`, for spaces in the slots below `spaces`.
    pub fn new(
        engine: &'e dyn Groups,
        pages: u64,
        spaces: u32,
        seed: u64,
    ) -> Result<Changes<'e>, String> {
        let mut changes = Changes {
            engine,
            groups: Vec::new(),
            most: (pages * 8 / 5 / COUNT as u64).max(LEAST),
            spaces,
            random: Random::seeded(seed),
            given: Given::default(),
        };
        for _ in 0..COUNT {
            changes.begin()?;
        }
        Ok(changes)
    }

    /// A limit: from a 16th of the most upwards.
    fn limit(&mut self) -> u64 {
        let least = (self.most / 16).max(LEAST);
        let range = (self.most - least).min(u64::from(u32::MAX) - 1);
        least + self.random.below(range as usize + 1) as u64
    }

    fn begin(&mut self) -> Result<(), String> {
        let limit = self.limit();
        self.groups.push(self.engine.begin(limit)?);
        self.given.groups += 1;
        Ok(())
    }

    fn any(&mut self) -> usize {
        self.random.below(self.groups.len())
    }

    /// Changes something, and checks that no group has more than it may.
    pub fn step(&mut self) -> Result<(), String> {
        for _ in 0..CHANGES {
            match self.random.below(8) {
                0..5 => self.move_one()?,
                5..7 => self.change_limit()?,
                _ => self.replace_one()?,
            }
        }
        self.check()
    }

    fn move_one(&mut self) -> Result<(), String> {
        let to = match self.random.below(3 * COUNT) {
            0 => None,
            place => Some(self.groups[place % COUNT]),
        };
        // From there on, the first slot that has a space.
        let first = self.random.below(self.spaces.max(1) as usize) as u32;
        for slot in (first..self.spaces).chain(0..first).map(SpaceSlot) {
            if self.engine.enter(slot, to)? {
                break;
            }
        }
        Ok(())
    }

    fn change_limit(&mut self) -> Result<(), String> {
        let (place, limit) = (self.any(), self.limit());
        match self.engine.set_limit(self.groups[place], limit)? {
            0 => Ok(()),
            left => Err(format!(
                "{left} pages above a limit of {limit} cannot leave"
            )),
        }
    }

    /// Has a group end, whose spaces go to another, and another begin.
    fn replace_one(&mut self) -> Result<(), String> {
        let place = self.any();
        let gone = self.groups.swap_remove(place);
        let other = self.any();
        let to = self.groups[other];
        for slot in (0..self.spaces).map(SpaceSlot) {
            if self.engine.group_of(slot) != Some(gone) {
                continue;
            }
            if self.engine.end(gone)? {
                return Err("a group has ended that a space belongs to".to_owned());
            }
            self.engine.enter(slot, Some(to))?;
        }
        self.count(gone);
        match self.engine.end(gone)? {
            true => self.begin(),
            false => Err("a group without spaces does not end".to_owned()),
        }
    }

    fn check(&self) -> Result<(), String> {
        for &group in &self.groups {
            let found = self.engine.usage(group).ok_or("a group is not there")?;
            if found.pages > found.limit {
                return Err(format!("a group is above its limit: {found:?}"));
            }
        }
        Ok(())
    }

    fn count(&mut self, group: GroupName) {
        if let Some(found) = self.engine.usage(group) {
            self.given.reclaimed += found.reclaimed;
            self.given.limit_hits += found.limit_hits;
        }
    }

    /// What all groups gave.
    pub fn finish(mut self) -> Given {
        for group in std::mem::take(&mut self.groups) {
            self.count(group);
        }
        self.given
    }
}
