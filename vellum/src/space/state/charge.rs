//! Which group (memory cgroup) is charged for a page.

use super::common::{Common, PageCache};
use crate::addr::Pfn;
use crate::frame::Payer;
use crate::platform::{GroupId, Platform};
use crate::sync::Pin;

impl<P: Platform> PageCache<'_, P> {
    /// Who is charged for what a call brings in that names no space: the group of the space
    /// that the CPU has loaded.
    #[inline]
    pub(in crate::space) fn paying_group(&self, pin: &Pin<'_>) -> GroupId {
        match self.memory.groups() {
            Some(groups) if groups.are_in_use() => self.mappings.group_loaded(pin),
            _ => GroupId::ROOT,
        }
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// The same, without a policy of nodes: what is read and written by bytes has its object's, or
    /// none.
    #[inline]
    pub(in crate::space) fn payer(&self, pin: &Pin<'_>) -> Payer {
        self.paying_group(pin).into()
    }
}

impl<P: Platform> Common<P> {
    /// The group that is charged for a frame.
    pub(in crate::space) fn group_of_frame(&self, _pin: &Pin<'_>, frame: Pfn) -> GroupId {
        let groups = self.memory.groups();
        groups.map_or(GroupId::ROOT, |groups| groups.group_of(frame))
    }
}
