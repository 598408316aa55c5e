//! Pages by who is charged for them.
//!
//! Each group has lists of its own on each node, all under the node's lock. A page is put on those
//! of the group that is charged for it at that moment. Since a frame stays listed when its page is
//! gone, a byte beside it says on whose lists it is, which changes under the lock.

use super::lists::{LISTS, Lists, OF_KIND, newcomers_of};
use super::stats::GroupCounts;
use super::{Evictor, PageKind, Reclaim, Scope, Set};
use crate::addr::Pfn;
use crate::frame::{Groups, Places};
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

/// Pages up to the `low` of their groups.
#[derive(Clone, Copy, Default)]
pub(super) struct Low {
    /// They leave, too.
    pub(super) is_taken: bool,
    /// There are some.
    pub(super) is_met: bool,
}

impl Low {
    /// Has them leave from now on; whether there are some.
    pub(super) fn take(&mut self) -> bool {
        self.is_taken = true;
        self.is_met
    }
}

/// What of a group may leave.
#[derive(Clone, Copy)]
pub(super) struct Open {
    usage: u64,
    /// Of that, what is kept.
    kept: u64,
}

impl Open {
    const ALL: Open = Open {
        usage: u64::MAX,
        kept: 0,
    };

    /// Pages that may leave.
    pub(super) fn most(self) -> u64 {
        self.usage - self.kept
    }

    /// The part of `listed` pages that are looked at: as much as may leave of what there is.
    pub(super) fn of(self, listed: u64) -> u64 {
        let kept = u128::from(listed) * u128::from(self.kept) / (u128::from(self.usage) + 1);
        listed - kept as u64
    }
}

impl Lists {
    /// Places of groups.
    pub(super) fn groups(&self) -> usize {
        self.groups_per_node
    }

    /// The group of a place and those within it.
    fn within(&self, place: usize) -> Places {
        (self.groups.as_ref()).map_or(Places::only(place), |groups| groups.within(place))
    }

    /// The groups, if there has been one that is protected.
    pub(super) fn protected_groups(&self) -> Option<&Groups> {
        self.groups
            .as_deref()
            .filter(|groups| groups.are_protected())
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

    /// Puts the frames on a group's lists of a node on those of another, as old as they are.
    fn give_to(&self, pin: &Pin<'_>, node: usize, (group, other): (usize, usize)) {
        let set = Set { node, group };
        let mut guarded = self.lock(pin, node);
        for list in 0..LISTS {
            while let Some(number) = guarded.groups[group].lists[list].oldest() {
                self.unlink(&mut guarded, number);
                let to = match self.ages() {
                    None => list,
                    Some(ages) => {
                        ages.move_to(number, group, other);
                        match list % OF_KIND {
                            0 => list,
                            _ => {
                                let kind = PageKind::ALL[list / OF_KIND];
                                debug_assert!(list > newcomers_of(kind));
                                let last_use = ages.last_use(number, other);
                                guarded.groups[other].rings[kind as usize].list(kind, last_use)
                            }
                        }
                    }
                };
                self.link(&mut guarded, number, other, to);
            }
        }
        self.publish(set, &mut guarded);
        self.publish(Set { node, group: other }, &mut guarded);
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

    /// The group in a place has ended, and nothing is charged to it any more: another has what is
    /// on its lists, and what was done with its pages.
    pub(crate) fn give_to(
        &self,
        unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        (group, other): (usize, usize),
    ) {
        for node in 0..self.lists.nodes() {
            let pin = evictor.pin_by(&unpinned);
            self.lists.give_to(&pin, node, (group, other));
        }
        self.of_groups[other].add(&self.of_groups[group]);
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
    pub(super) fn groups_in(&self, scope: Scope) -> Places {
        match scope {
            Scope::All | Scope::Files => Places::first(self.lists.groups()),
            Scope::Group(place) => self.lists.within(place),
            Scope::Only(place) => Places::only(place),
        }
    }

    /// Pages of a group that may leave now, of so many, when a scope is short of memory: none, or
    /// all but what is protected. `protected` says whether `low` counts, and is told if it did.
    pub(super) fn open(&self, scope: Scope, group: usize, protected: &mut Low) -> Open {
        let short = match scope {
            Scope::Group(place) | Scope::Only(place) => place,
            Scope::All | Scope::Files => 0,
        };
        let Some(groups) = self.lists.protected_groups() else {
            return Open::ALL;
        };
        let (protection, usage) = groups.protection(short, group);
        let low = protection.low.max(protection.min);
        let kept = match protected.is_taken {
            true => protection.min,
            false => low,
        };
        if usage <= kept {
            protected.is_met |= usage > protection.min;
            return Open { usage, kept: usage };
        }
        if usage <= low {
            self.of_groups[group].low_events.add(1);
        }
        Open { usage, kept }
    }

    /// Pages of a kind that a scope has listed on a node, with those that are gone.
    pub(super) fn listed_in(&self, scope: Scope, node: usize, kind: PageKind) -> u64 {
        let groups = self.groups_in(scope);
        let sets = groups.into_iter().map(|group| Set { node, group });
        sets.map(|set| self.lists.listed(set, kind)).sum()
    }

    /// Pages of a scope that have left so far.
    pub(super) fn reclaimed_in(&self, scope: Scope) -> u64 {
        match scope {
            Scope::All | Scope::Files => self.counts.reclaimed.get(),
            Scope::Group(_) | Scope::Only(_) => {
                let groups = self.groups_in(scope).into_iter();
                groups
                    .map(|group| self.of_groups[group].reclaimed.get())
                    .sum()
            }
        }
    }
}
