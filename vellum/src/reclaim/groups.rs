//! Pages by who is charged for them.
//!
//! Each group has lists of its own on each node, all under the node's lock. A page is put on those
//! of the group that is charged for it at that moment. Since a frame stays listed when its page is
//! gone, a byte beside it says on whose lists it is, which changes under the lock.

use super::lists::{LISTS, Lists, OF_KIND, newcomers_of};
use super::stats::GroupCounts;
use super::{Evictor, PageKind, Reclaim, Scope, Set};
use crate::addr::Pfn;
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, Unpinned};

/// Whose page is in a frame that was on lists of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// That group's, as far as can be told.
    Own,
    /// Another group's: the frame was used anew and is about to be listed there, or the group has
    /// ended.
    Others,
    /// There is none.
    Nobodys,
}

impl Lists {
    /// Places of groups.
    pub(super) fn groups(&self) -> usize {
        self.groups_per_node
    }

    /// The place of the group that is charged for a frame.
    #[inline]
    pub(super) fn group_of(&self, number: u32) -> usize {
        (self.groups.as_ref()).map_or(0, |groups| groups.of_frame(number))
    }

    /// The place of the group on whose lists a listed frame is.
    pub(super) fn listed_for(&self, number: u32) -> usize {
        let place = self.listed_for.get(number as usize);
        place.map_or(0, |place| usize::from(place.load(Ordering::Relaxed)))
    }

    /// Says on whose lists a frame is. Under the lock of the node.
    pub(super) fn set_listed_for(&self, number: u32, group: usize) {
        if let Some(place) = self.listed_for.get(number as usize) {
            place.store(group as u8, Ordering::Relaxed);
        }
    }

    /// Puts the frames on a group's lists of a node on the root's, as old as they are.
    fn give_to_root(&self, pin: &Pin<'_>, node: usize, group: usize) {
        let set = Set { node, group };
        let root = Set { node, group: 0 };
        let mut guarded = self.lock(pin, node);
        for list in 0..LISTS {
            while let Some(number) = guarded.groups[group].lists[list].oldest() {
                self.unlink(&mut guarded, number);
                let to = match self.ages() {
                    None => list,
                    Some(ages) => {
                        ages.move_to_root(number, group);
                        match list % OF_KIND {
                            0 => list,
                            _ => {
                                let kind = PageKind::ALL[list / OF_KIND];
                                debug_assert!(list > newcomers_of(kind));
                                let last_use = ages.last_use(number, 0);
                                guarded.groups[0].rings[kind as usize].list(kind, last_use)
                            }
                        }
                    }
                };
                self.link(&mut guarded, number, 0, to);
            }
        }
        self.publish(set, &mut guarded);
        self.publish(root, &mut guarded);
    }
}

impl Reclaim {
    /// The group in a place begins.
    pub(crate) fn begin_group(&self, group: usize) {
        self.of_groups[group].reset();
    }

    /// What was done with the pages of the group in a place.
    pub(crate) fn group_counts(&self, group: usize) -> &GroupCounts {
        &self.of_groups[group]
    }

    /// The group in a place has ended, and nothing is charged to it any more: the root has what is
    /// on its lists.
    pub(crate) fn give_to_root(&self, unpinned: Unpinned<'_>, evictor: &dyn Evictor, group: usize) {
        for node in 0..self.lists.nodes() {
            self.lists
                .give_to_root(&evictor.pin_by(&unpinned), node, group);
        }
    }

    /// Whose page is in a frame that was taken from the lists of a set.
    pub(super) fn whose(&self, evictor: &dyn Evictor, set: Set, page: Pfn) -> Whose {
        let group = self.lists.group_of(self.lists.number(page));
        if group == set.group {
            Whose::Own
        } else if group == 0 && evictor.is_unused(page) {
            Whose::Nobodys
        } else {
            Whose::Others
        }
    }

    /// The groups of a scope, by place.
    pub(super) fn groups_in(&self, scope: Scope) -> core::ops::Range<usize> {
        match scope {
            Scope::All | Scope::Files => 0..self.lists.groups(),
            Scope::Group(place) => place..place + 1,
        }
    }

    /// Pages of a kind that a scope has listed on a node, with those that are gone.
    pub(super) fn listed_in(&self, scope: Scope, node: usize, kind: PageKind) -> u64 {
        let groups = self.groups_in(scope);
        let sets = groups.map(|group| Set { node, group });
        sets.map(|set| self.lists.listed(set, kind)).sum()
    }

    /// Pages of a scope that have left so far.
    pub(super) fn reclaimed_in(&self, scope: Scope) -> u64 {
        match scope {
            Scope::All | Scope::Files => self.counts.reclaimed.get(),
            Scope::Group(place) => self.of_groups[place].reclaimed.get(),
        }
    }
}
