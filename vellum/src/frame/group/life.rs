//! How groups begin and end.

use super::tree::Places;
use super::{CLOSED, GROUPS, Group, GroupLimits, Groups, VACANT, pages_in, place_in};
use crate::platform::GroupId;
use crate::sync::atomic::Ordering;
use crate::sync::{CachePadded, Unpinned};

impl Group {
    /// What it may have.
    pub(super) fn limits(&self) -> GroupLimits {
        GroupLimits {
            max: self.limit.load(Ordering::Relaxed),
            high: self.high.load(Ordering::Relaxed),
            low: self.low.load(Ordering::Relaxed),
            min: self.min.load(Ordering::Relaxed),
        }
    }

    fn set_limits(&self, limits: GroupLimits) {
        self.limit.store(limits.max, Ordering::Relaxed);
        self.high.store(limits.high, Ordering::Relaxed);
        self.low.store(limits.low, Ordering::Relaxed);
        self.min.store(limits.min, Ordering::Relaxed);
    }
}

/// How groups begin and end, and what they may have. `wait` returns when all pins that were there
/// when it was called have ended.
impl Groups {
    /// Does `change` while nobody else changes groups.
    fn alone<T>(&self, relax: &dyn Fn(u32), change: impl FnOnce() -> T) -> T {
        let mut spins = 0;
        while self.changing.swap(1, Ordering::Acquire) != 0 {
            relax(spins);
            spins += 1;
        }
        let result = change();
        self.changing.store(0, Ordering::Release);
        result
    }

    /// A new group within another; `None` if there are as many as can be, or no such other.
    pub(in crate::frame) fn begin(
        &self,
        within: GroupId,
        limit: u64,
        relax: &dyn Fn(u32),
    ) -> Option<GroupId> {
        self.alone(relax, || {
            if within != GroupId::ROOT {
                self.find(within)?;
            }
            let is_vacant =
                |group: &CachePadded<Group>| group.members.load(Ordering::Acquire) == VACANT;
            let place = (1..GROUPS).find(|&place| is_vacant(&self.groups[place]))?;
            let group = &self.groups[place];
            let last = GroupId::from_bits(group.name.load(Ordering::Relaxed));
            let name = last.next(place);
            group.name.store(name.to_bits(), Ordering::Relaxed);
            group.set_limits(GroupLimits {
                max: limit,
                ..GroupLimits::NONE
            });
            let parent = within.place() as u32;
            group.parent.store(parent, Ordering::Relaxed);
            group.charged.peak.store(0, Ordering::Relaxed);
            group.charged.allowance.store(0, Ordering::Relaxed);
            self.in_use.store(1, Ordering::Relaxed);
            group.batch.store(self.batch_for(place), Ordering::Release);
            group.members.store(0, Ordering::Release);
            Some(name)
        })
    }

    /// Takes what CPUs have in stock of groups, and leaves those without batches.
    fn collect(&self, unpinned: Unpinned<'_>, places: Places, wait: &dyn Fn(Unpinned<'_>)) {
        for place in places {
            self.groups[place].batch.store(0, Ordering::SeqCst);
        }
        wait(unpinned);
        for stock in self.stocks.iter() {
            let word = stock.0.load(Ordering::Acquire);
            if !places.has(place_in(word)) || pages_in(word) == 0 {
                continue;
            }
            // Its CPU may be giving it up for another group.
            let taken = stock
                .0
                .compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                self.put(place_in(word), pages_in(word));
            }
        }
    }

    /// Changes what a group may have, and takes back what CPUs have in stock of it and of those
    /// within it. False if there is no such group.
    pub(in crate::frame) fn change(
        &self,
        unpinned: Unpinned<'_>,
        id: GroupId,
        relax: &dyn Fn(u32),
        wait: &dyn Fn(Unpinned<'_>),
        change: &dyn Fn(&mut GroupLimits),
    ) -> bool {
        self.alone(relax, || {
            let Some(group) = self.find(id) else {
                return false;
            };
            let mut limits = group.limits();
            change(&mut limits);
            group.set_limits(limits);
            if limits.min.max(limits.low) > 0 {
                self.are_protected.store(1, Ordering::Relaxed);
            }
            let places = self.within(id.place());
            self.collect(unpinned, places, wait);
            for place in places {
                let batch = self.batch_for(place);
                self.groups[place].batch.store(batch, Ordering::Release);
            }
            true
        })
    }

    /// One more space belongs to the group. False if there is no such group.
    pub(crate) fn join(&self, id: GroupId) -> bool {
        if id == GroupId::ROOT {
            return true;
        }
        let Some(group) = self.find(id) else {
            return false;
        };
        let mut old = group.members.load(Ordering::Acquire);
        while old < CLOSED {
            let joined = group.members.compare_exchange_weak(
                old,
                old + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match joined {
                // The place may have been another group's when it was found.
                Ok(_) if group.name.load(Ordering::Relaxed) == id.to_bits() => return true,
                Ok(_) => {
                    group.members.fetch_sub(1, Ordering::AcqRel);
                    return false;
                }
                Err(now) => old = now,
            }
        }
        false
    }

    /// A space has left the group.
    pub(crate) fn leave(&self, id: GroupId) {
        if id != GroupId::ROOT {
            let old = self.groups[id.place()]
                .members
                .fetch_sub(1, Ordering::AcqRel);
            debug_assert!(old > 0 && old < CLOSED, "a space left a group twice");
        }
    }

    /// Ends a group without spaces or groups in it; its charges are those of the group around it
    /// then. `move_pages` moves what else belongs to it, to the place that it is told, when nothing
    /// is charged to it any more. `Some(false)` if there is something in it, `None` if there is no
    /// such group.
    pub(in crate::frame) fn end(
        &self,
        mut unpinned: Unpinned<'_>,
        id: GroupId,
        relax: &dyn Fn(u32),
        wait: &dyn Fn(Unpinned<'_>),
        move_pages: impl FnOnce(Unpinned<'_>, usize),
    ) -> Option<bool> {
        self.alone(relax, || {
            let group = self.find(id)?;
            let (place, parent) = (id.place(), self.parent_of(id.place()));
            if self.within(place) != Places::only(place) {
                return Some(false);
            }
            let closed =
                group
                    .members
                    .compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed);
            if closed.is_err() {
                return Some(false);
            }
            self.collect(unpinned.reborrow(), Places::only(place), wait);
            let (from, to) = (place as u8, parent as u8);
            for byte in &self.of_frames {
                if byte.load(Ordering::Relaxed) == from
                    && byte
                        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    // Those around it stay charged.
                    group.put(1);
                }
            }
            // Whoever freed a frame meanwhile has uncharged it, too.
            wait(unpinned.reborrow());
            let usage = group.charged.usage.load(Ordering::Acquire);
            debug_assert!(usage == 0, "a group that has ended is charged for {usage}");
            move_pages(unpinned, parent);
            group.members.store(VACANT, Ordering::Release);
            Some(true)
        })
    }
}
