//! Groups of spaces, for who changes them while a workload runs.

use vellum::platform::GroupId;
use vellum::rmap::ReverseMap;
use vellum::space::GroupError;
use vellum::table::Format;

use crate::core_engine::CoreEngine;
use crate::op::{GroupName, GroupUse, Groups, SpaceSlot};

fn text(error: GroupError) -> String {
    error.to_string()
}

fn id(group: Option<GroupName>) -> GroupId {
    group.map_or(GroupId::ROOT, |GroupName(bits)| GroupId::from_bits(bits))
}

impl<F: Format, R: ReverseMap> Groups for CoreEngine<F, R> {
    fn begin(&self, limit: u64) -> Result<GroupName, String> {
        let group = self.on(0, || self.vm().create_group(limit)).map_err(text)?;
        Ok(GroupName(group.id().to_bits()))
    }

    fn end(&self, group: GroupName) -> Result<bool, String> {
        match self.on(0, || self.vm().group(id(Some(group))).end()) {
            Ok(()) => Ok(true),
            Err(GroupError::InUse) => Ok(false),
            Err(error) => Err(text(error)),
        }
    }

    fn set_limit(&self, group: GroupName, limit: u64) -> Result<u64, String> {
        self.on(0, || self.vm().group(id(Some(group))).set_limit(limit))
            .map_err(text)
    }

    fn enter(&self, space: SpaceSlot, group: Option<GroupName>) -> Result<bool, String> {
        let Ok(space) = self.space(space) else {
            return Ok(false);
        };
        let entered = self.on(0, || space.set_group(id(group)));
        entered.map(|()| true).map_err(text)
    }

    fn group_of(&self, space: SpaceSlot) -> Option<GroupName> {
        let space = self.space(space).ok()?;
        let group = self.on(0, || space.group()).ok()?.id();
        (group != GroupId::ROOT).then(|| GroupName(group.to_bits()))
    }

    fn usage(&self, group: GroupName) -> Option<GroupUse> {
        let stats = self
            .on(0, || self.vm().group(id(Some(group))).stats())
            .ok()?;
        Some(GroupUse {
            pages: stats.usage,
            limit: stats.limits.max,
            reclaimed: stats.reclaimed,
            limit_hits: stats.limit_hits,
        })
    }
}
