//! Who ends when memory has run out.

use crate::platform::{GroupId, Platform, Rescue, Victim};
use crate::rmap::ReverseMap;
use crate::space::state::manager::Vm;
use crate::space::state::region::Region;
use crate::space::state::shortage::Lack;
use crate::space::state::spaces::{SpaceId, SpaceRecord};
use crate::sync::Unpinned;
use crate::table::Format;
use crate::tree::RangeNode;

/// Regions that a node of their tree holds, about: it has room for a few more.
const NODE_REGIONS: usize = 30;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Bytes that the manager keeps for a region: it, and its part of a node of its tree.
    const REGION_BYTES: u64 =
        (size_of::<Region<R>>() + size_of::<RangeNode>() / NODE_REGIONS) as u64;

    /// The space whose end would free most, of all.
    pub(crate) fn choose_victim(&self) -> Option<Victim> {
        self.choose_among(|_| true)
    }

    /// [`Group::choose_victim`](crate::space::Group::choose_victim).
    pub(crate) fn choose_victim_of(&self, group: GroupId) -> Option<Victim> {
        if group == GroupId::ROOT {
            return self.choose_victim();
        }
        let groups = self.memory.groups()?;
        if groups.at(group.place()) != Some(group) {
            return None;
        }
        let within = groups.within(group.place());
        self.choose_among(|space| within.has(space.group().place()))
    }

    fn choose_among(&self, is_one: impl Fn(&SpaceRecord<R>) -> bool) -> Option<Victim> {
        let mut worst: Option<Victim> = None;
        self.spaces.each(|handle, space| {
            if space.users() == 0 || !is_one(space) {
                return;
            }
            let id: SpaceId = self.live_at(handle.raw()).id();
            let Some(stats) = self.space_stats(id) else {
                return;
            };
            let tables = stats.table_bytes >> F::FRAME_SHIFT;
            let regions = u64::from(stats.regions);
            let kept = regions * Self::REGION_BYTES + R::kept_bytes(regions, stats.rss.total());
            let kept = kept >> F::FRAME_SHIFT;
            let pages = stats.rss.anonymous + stats.swapped + tables + kept;
            if pages > worst.map_or(0, |worst| worst.pages) {
                let space = id.to_bits();
                worst = Some(Victim { space, pages });
            }
        });
        worst
    }

    /// Asks the platform for memory, when nothing else can be done. Whether there may be some.
    pub(super) fn is_rescued(&self, mut unpinned: Unpinned<'_>, lack: Lack) -> bool {
        let Ok(platform) = self.memory.unpinned_platform(unpinned.reborrow()) else {
            return false;
        };
        let rescue = match lack {
            Lack::Memory | Lack::OnNodes(_) => platform.out_of_memory(self.choose_victim()),
            Lack::OfGroup(group) => {
                platform.group_out_of_memory(group, self.choose_victim_of(group))
            }
        };
        match rescue {
            Rescue::Fail => false,
            Rescue::Again => {
                self.memory.wait_for_frames(unpinned);
                true
            }
        }
    }
}
