//! How many pages of files are newer than their stores: in all, and of what each group is charged
//! for.
//!
//! They are counted where calls mark them in their object's tree and where the marks are taken
//! away, by CPUs for themselves ([`BatchedCounts`]), and only with `reclaim=on`, whose throttling
//! of writers asks. (Zones of `framelists=linked` count theirs beside it, see `published/frame/dirty.rs`.)
//!
//! A group that has ended leaves dirty pages behind, which are not counted for it when they become
//! clean, as the root is charged for them then. So its place begins with a count that is not 0,
//! and what the next group there has is the difference to that.

use alloc::boxed::Box;

use super::group::Places;
use super::memory::PhysicalMemory;
use crate::addr::Pfn;
use crate::platform::{GroupId, Machine};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{BatchedCounts, Pin};

/// What a CPU keeps to itself.
const BATCH: u32 = 32;

/// The counts, by the places of groups. That of the root has the pages of all.
pub(crate) struct DirtyPages {
    counts: BatchedCounts,
    /// What each count was when its place began to be used.
    begun: Box<[AtomicU64]>,
}

impl DirtyPages {
    fn new(places: usize, cpus: usize) -> DirtyPages {
        DirtyPages {
            counts: BatchedCounts::new(places, cpus, BATCH),
            begun: (0..places).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The dirty pages of a place; approximate while calls mark some.
    pub(crate) fn of(&self, place: usize) -> u64 {
        let begun = self.begun[place].load(Ordering::Relaxed);
        let dirty = self.counts.sum(place).wrapping_sub(begun) as i64;
        dirty.max(0) as u64
    }

    /// The same if they may be more than `few`; something that is not more if they are not.
    /// Where they are far from that, no other CPU's line is looked at.
    pub(crate) fn if_more(&self, places: Places, few: u64) -> u64 {
        let most = |place: usize| {
            let begun = self.begun[place].load(Ordering::Relaxed) as i64;
            let told = self.counts.told(place) as i64;
            told.wrapping_sub(begun).max(0) as u64 + self.counts.untold()
        };
        match places.into_iter().map(most).sum::<u64>() > few {
            true => self.of_all(places),
            false => 0,
        }
    }

    /// The dirty pages of several places.
    pub(crate) fn of_all(&self, places: Places) -> u64 {
        places.into_iter().map(|place| self.of(place)).sum()
    }

    /// The group of a place has ended, and nobody counts pages of it any more: what is left are
    /// those of the one around it.
    fn end(&self, pin: &Pin<'_>, place: usize, around: usize) {
        let sum = self.counts.sum(place);
        let begun = self.begun[place].swap(sum, Ordering::Relaxed);
        if around != 0 {
            // (That of the root has them all.)
            let left = sum.wrapping_sub(begun) as i64 as i32;
            self.counts.add(pin, around, left);
        }
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Counts dirty pages from now on, of which there are none. Groups are kept already, if they
    /// will be.
    pub(crate) fn keep_dirty_pages(&mut self) {
        let places = match self.groups {
            Some(_) => GroupId::MOST,
            None => 1,
        };
        let counts = DirtyPages::new(places, self.platform.cpus());
        self.dirty = Some(Box::new(counts));
        self.counts_dirty = true;
    }

    /// The counts of dirty pages, if they are kept.
    #[inline]
    pub(crate) fn dirty(&self) -> Option<&DirtyPages> {
        match P::PARTS.reclaim {
            true => self.dirty.as_deref(),
            false => None,
        }
    }

    /// Whether somebody counts dirty pages.
    #[inline]
    pub(crate) fn counts_dirty_pages(&self) -> bool {
        (P::PARTS.published || P::PARTS.reclaim) && self.counts_dirty
    }

    /// Counts `count` pages of a file that became newer than their store, or that are not any
    /// more.
    #[inline(never)]
    pub(crate) fn count_dirty_pages(
        &self,
        pin: &Pin<'_>,
        (pages, count): (impl Iterator<Item = Pfn>, usize),
        are_dirty: bool,
    ) {
        let change = if are_dirty { 1 } else { -1 };
        let dirty = self.dirty();
        if let Some(dirty) = dirty {
            dirty.counts.add(pin, 0, change * count as i32);
        }
        let groups = self.groups().filter(|groups| groups.are_in_use());
        let groups = dirty.zip(groups);
        let lists = self.other_lists();
        if groups.is_none() && lists.is_none() {
            return;
        }
        let (first, _) = self.view().span();
        for pfn in pages {
            if let Some((dirty, groups)) = groups {
                match groups.of_frame(pfn.0 - first.0) {
                    0 => {}
                    place => dirty.counts.add(pin, place, change),
                }
            }
            if let Some(lists) = lists {
                lists.note_dirty(pin, self.frame(pfn).zone(), change);
            }
        }
    }

    /// The dirty pages of all zones, if zones count them.
    pub(crate) fn dirty_pages_of_zones(&self) -> Option<u64> {
        self.other_lists().map(|lists| lists.dirty())
    }

    /// Nothing is charged to the group of a place any more, and nobody counts dirty pages of it.
    pub(super) fn end_dirty_pages(&self, pin: &Pin<'_>, place: usize, around: usize) {
        if let Some(dirty) = self.dirty() {
            dirty.end(pin, place, around);
        }
    }
}
