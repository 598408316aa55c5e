//! What swap holds, and the audit of it.

use alloc::vec::Vec;

use super::{Area, Swap};
use crate::addr::Pfn;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

/// What a swap area holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapAreaStats {
    /// Its store.
    pub store: u64,
    /// Its priority.
    pub priority: i32,
    /// Slots it has.
    pub slots: u64,
    /// Those that are free.
    pub free: u64,
    /// Those that are not used any more, because a page could not be written there.
    pub bad: u64,
    /// Whether it takes no page any more.
    pub is_off: bool,
}

/// What happened since the first area was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwapStats {
    /// Pages written.
    pub outs: u64,
    /// Pages read.
    pub ins: u64,
    /// Pages that could not be written and were copied for an entry.
    pub copies: u64,
    /// Pages read because a neighbour was wanted.
    pub ahead: u64,
    /// Those of them that were wanted then.
    pub ahead_used: u64,
    /// Pages that could not be written.
    pub write_errors: u64,
    /// Pages for which the store of an area turned out to have no room.
    pub no_room: u64,
    /// Pages that could not be read.
    pub read_errors: u64,
    /// Slots of all areas.
    pub slots: u64,
    /// Those that are free.
    pub free: u64,
    /// Those that are not used any more.
    pub bad: u64,
}

/// Sums over slots or over entries, which must be alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// Entries that name slots.
    pub(crate) entries: u64,
    /// A number that differs if any slot has another count: the sum of a hash of each
    /// entry's slot.
    pub(crate) hash: u64,
}

impl Tally {
    /// Adds the entries of another.
    pub(crate) fn merge(&mut self, other: Tally) {
        self.entries += other.entries;
        self.hash = self.hash.wrapping_add(other.hash);
    }

    /// Adds `count` entries that name a slot.
    pub(crate) fn add(&mut self, slot: u64, count: u64) {
        let mixed = (slot + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.entries += count;
        self.hash = self
            .hash
            .wrapping_add((mixed ^ mixed >> 32).wrapping_mul(count));
    }
}

/// What an audit found in the slots.
#[derive(Default)]
pub(crate) struct SlotCensus {
    pub(crate) tally: Tally,
    /// Frames in the cache.
    pub(crate) cached: u64,
}

impl Swap {
    /// Counts and sizes.
    pub(crate) fn stats(&self) -> SwapStats {
        let sum = |of: fn(&Area) -> u64| self.areas().map(of).sum();
        SwapStats {
            outs: self.events.outs.load(Ordering::Relaxed),
            ins: self.events.ins.load(Ordering::Relaxed),
            copies: self.events.copies.load(Ordering::Relaxed),
            ahead: self.events.ahead.load(Ordering::Relaxed),
            ahead_used: self.events.ahead_used.load(Ordering::Relaxed),
            write_errors: self.events.write_errors.load(Ordering::Relaxed),
            no_room: self.events.no_room.load(Ordering::Relaxed),
            read_errors: self.events.read_errors.load(Ordering::Relaxed),
            slots: sum(Area::slots),
            free: sum(Area::free),
            bad: sum(Area::bad),
        }
    }

    /// The areas, in the order in which they are filled.
    pub(crate) fn area_stats(&self) -> Vec<SwapAreaStats> {
        let stats = self.by_priority().map(|(_, area)| SwapAreaStats {
            store: area.store(),
            priority: area.priority(),
            slots: area.slots(),
            free: area.free(),
            bad: area.bad(),
            is_off: area.is_off(),
        });
        stats.collect()
    }

    /// Entries that name a slot, while nothing else runs.
    pub(crate) fn entries_of(&self, pin: &Pin<'_>, slot: u64) -> u32 {
        self.area_of(slot).map_or(0, |(area, offset)| {
            let (cluster, index) = area.cluster(offset);
            cluster.lock(pin)[index].count()
        })
    }

    /// Checks every slot while nothing else runs. `is_cached` says whether a frame that a
    /// slot names is one of the cache.
    ///
    /// # Errors
    /// What is wrong, and of which slot.
    pub(crate) fn audit(
        &self,
        pin: &Pin<'_>,
        is_cached: impl Fn(Pfn) -> bool,
    ) -> Result<SlotCensus, (&'static str, u64)> {
        let mut census = SlotCensus::default();
        for (nth, area) in self.areas().enumerate() {
            let mut wrong = None;
            let mut bad = 0;
            area.each(pin, |offset, is_free| {
                let (cluster, index) = area.cluster(offset);
                let slot = cluster.lock(pin)[index];
                let number = Self::number(nth, offset);
                census.tally.add(number, u64::from(slot.count()));
                census.cached += u64::from(slot.frame().is_some());
                bad += u64::from(slot.is_unused() && !is_free);
                let what = if slot.is_busy() {
                    "a swap slot is busy"
                } else if is_free && !slot.is_unused() {
                    "a free swap slot is in use"
                } else if !slot.is_unused() && slot.count() == 0 {
                    "a swap slot that no entry names was not given up"
                } else if slot.count() > 0 && slot.frame().is_none() && !slot.is_stored() {
                    "a swap slot has lost its page"
                } else if slot.frame().is_some_and(|frame| !is_cached(frame)) {
                    "a swap slot names a frame that is not cached"
                } else {
                    return;
                };
                wrong.get_or_insert((what, number));
            });
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
            if bad != area.bad() || !area.queue_is_right(pin) {
                return Err((
                    "the free slots of a swap area are not counted right",
                    nth as u64,
                ));
            }
        }
        Ok(census)
    }
}
