//! What the audit checks of a private page.

use super::hint::{Name, entry_of};
use super::kin::{NOBODY, Nodes};
use super::{Env, Family, FamilyCpu};
use crate::frame::{Frame, Kind};
use crate::platform::Platform;
use crate::slab::Handle;
use crate::sync::atomic::Ordering;

impl Family {
    /// Pages that name a node, while nothing else runs.
    fn pages_of(&self, node: u32) -> u64 {
        let counting = |cpu: &&FamilyCpu| cpu.counting.load(Ordering::Relaxed) == node;
        let holders = self.cpus.iter().filter(counting).count();
        let counted = self.cpus.iter().filter(counting);
        let settled = self.nodes.node(node).pages.settled(holders as u64);
        counted
            .map(|cpu| cpu.counted.load(Ordering::Relaxed))
            .fold(settled, u64::wrapping_add)
    }

    pub(super) fn check_private<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: &Frame,
    ) -> Result<(), &'static str> {
        let name = Name::of(frame);
        let in_use = self.nodes.try_get(Handle::from_raw(name.owner)).is_some()
            && self.nodes.node(name.owner).family() != NOBODY;
        if !in_use {
            return Err("the page's owner is not a node of a family");
        }
        let pages = self.pages_of(name.owner);
        if pages == 0 || pages > u64::MAX / 2 {
            return Err("the owner counts fewer pages than name it");
        }
        let Some(family) = self.families.lock(&self.nodes, name.owner, env.pin) else {
            return Err("the page's owner is in no family");
        };
        family.check(name.owner)?;
        let Some(pte) = entry_of(frame) else {
            return Ok(());
        };
        let table = env.memory.frame(pte.table);
        let mut descends = false;
        family.spaces(name.owner, name.stamp, |space| {
            descends = space == table.owner();
            !descends
        });
        if table.kind() == Kind::Table && descends {
            Ok(())
        } else {
            Err("the page's hint is not an entry of its owner or a descendant")
        }
    }
}
