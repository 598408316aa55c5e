//! Groups within groups: which are around one and which within it, and how far each is protected
//! from the shortage of others.
//!
//! **Protection** is that of Linux's memory control groups of version 2 (Roman Gushchin and Chris
//! Down, Linux 4.18 and 5.7). Up to `min` pages of a group never leave because something around
//! it is short of memory; up to `low` only if nothing else can. What the children of a group ask
//! for together and it does not have itself is divided among them in proportion to what each uses
//! of its own part. What a group's own limit asks for, its own protection does not hold back, but
//! that of those within it does.

use super::Groups;
use crate::platform::GroupId;
use crate::sync::atomic::Ordering;

/// Places of groups, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Places(u64);

impl Places {
    const _FIT: () = assert!(GroupId::MOST == u64::BITS as usize);

    /// The first so many.
    pub(crate) const fn first(places: usize) -> Places {
        match places {
            0 => Places(0),
            places => Places(u64::MAX >> (GroupId::MOST - places)),
        }
    }

    /// One.
    pub(crate) const fn only(place: usize) -> Places {
        Places(1 << place)
    }

    /// Whether a place is among them.
    pub(crate) const fn has(self, place: usize) -> bool {
        self.0 >> place & 1 != 0
    }
}

impl IntoIterator for Places {
    type Item = usize;
    type IntoIter = PlacesIter;

    fn into_iter(self) -> PlacesIter {
        PlacesIter(self.0)
    }
}

/// Places, in ascending order.
pub(crate) struct PlacesIter(u64);

impl Iterator for PlacesIter {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let place = (self.0 != 0).then(|| self.0.trailing_zeros() as usize);
        self.0 &= self.0.wrapping_sub(1);
        place
    }
}

/// Pages of a group that do not leave for the shortage of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Protection {
    /// Pages that never do.
    pub(crate) min: u64,
    /// Pages that do only if nothing else can.
    pub(crate) low: u64,
}

impl Groups {
    /// The place of the group around one, 0 for the root.
    #[inline]
    pub(in crate::frame) fn parent_of(&self, place: usize) -> usize {
        self.groups[place].parent.load(Ordering::Relaxed) as usize
    }

    /// The place of a group and those of the groups around it, but for the root.
    #[inline]
    pub(in crate::frame) fn way_up(&self, place: usize) -> impl Iterator<Item = usize> + Clone {
        let is_group = |place: usize| (place != 0).then_some(place);
        core::iter::successors(is_group(place), move |&place| {
            is_group(self.parent_of(place))
        })
    }

    /// The group of a place and those within it; all for the root.
    pub(crate) fn within(&self, place: usize) -> Places {
        let all = Places::first(GroupId::MOST);
        if place == 0 {
            return all;
        }
        let is_within = |&inner: &usize| {
            self.at(inner).is_some() && self.way_up(inner).any(|around| around == place)
        };
        let inner = all.into_iter().filter(is_within);
        inner.fold(Places::only(place), |places, inner| {
            Places(places.0 | Places::only(inner).0)
        })
    }

    /// Whether a group lies within another, or is that one.
    #[cfg(test)]
    pub(crate) fn is_around(&self, around: GroupId, id: GroupId) -> bool {
        self.within(around.place()).has(id.place())
    }

    /// Whether there has been a group that is protected.
    #[inline]
    pub(crate) fn are_protected(&self) -> bool {
        self.are_protected.load(Ordering::Relaxed) != 0
    }

    /// How far the group of a place is protected when the one in `short`, around it, is short of
    /// memory, and what it is charged for. Nothing is protected from itself.
    pub(crate) fn protection(&self, short: usize, place: usize) -> (Protection, u64) {
        let usage = self.in_frames(place);
        let mut protection = Protection::default();
        // From the group below the short one on down. (A pass up for each, as there is no room on
        // small stacks to keep the way.)
        let depth = (self.way_up(place)).take_while(|&at| at != short).count();
        for depth in (0..depth).rev() {
            let Some(at) = self.way_up(place).nth(depth) else {
                break;
            };
            let parent = self.parent_of(at);
            let own = self.asked(at);
            if parent == short {
                protection = own;
                continue;
            }
            let siblings = (self.within(parent).into_iter())
                .filter(|&sibling| sibling != parent && self.parent_of(sibling) == parent);
            let mut used = Protection::default();
            for sibling in siblings {
                let part = self.used(sibling);
                used.min += part.min;
                used.low += part.low;
            }
            let part = self.used(at);
            protection = Protection {
                min: share(part.min, protection.min, used.min),
                low: share(part.low, protection.low, used.low),
            };
        }
        (protection, usage)
    }

    /// What a group asks for.
    fn asked(&self, place: usize) -> Protection {
        let group = &self.groups[place];
        Protection {
            min: group.min.load(Ordering::Relaxed),
            low: group.low.load(Ordering::Relaxed),
        }
    }

    /// What of it the group uses.
    fn used(&self, place: usize) -> Protection {
        let (asked, usage) = (self.asked(place), self.in_frames(place));
        Protection {
            min: asked.min.min(usage),
            low: asked.low.min(usage),
        }
    }
}

/// The share of a group that uses `part` of its protection, of what the group around it `has`, of
/// which all within that use `all` of theirs.
fn share(part: u64, has: u64, all: u64) -> u64 {
    match all > has {
        true => (u128::from(part) * u128::from(has) / u128::from(all)) as u64,
        false => part,
    }
}
