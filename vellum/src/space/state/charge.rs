//! Which group (memory cgroup) is charged for a page.

use super::manager::Vm;
use super::spaces::SpaceId;
use crate::addr::Pfn;
use crate::platform::{GroupId, Platform};
use crate::rmap::ReverseMap;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Who is charged for what a call brings in that names no space: the group of the space
    /// that the CPU has loaded.
    #[inline]
    pub(in crate::space) fn payer(&self, pin: &Pin<'_>) -> GroupId {
        match self.memory.groups() {
            Some(groups) if groups.are_in_use() => self.group_loaded(pin),
            _ => GroupId::ROOT,
        }
    }

    /// The group that is charged for a frame.
    pub(in crate::space) fn group_of_frame(&self, _pin: &Pin<'_>, frame: Pfn) -> GroupId {
        let (first, _) = self.memory.view().span();
        let found = self.memory.groups().and_then(|groups| {
            let place = groups.of_frame(frame.0 - first.0);
            groups.at(place)
        });
        found.unwrap_or(GroupId::ROOT)
    }

    #[cold]
    fn group_loaded(&self, pin: &Pin<'_>) -> GroupId {
        let loaded = self.cpus.get(pin).delta.space.load(Ordering::Relaxed);
        let space = self.find_space(SpaceId::from_bits(loaded));
        space.map_or(GroupId::ROOT, |space| space.group())
    }
}
