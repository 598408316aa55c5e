//! One swap area: its clusters, and which slots are free.

use alloc::boxed::Box;

use super::cluster::{Cluster, SLOTS};
use crate::addr::set_bits;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Pin, SpinLock};

/// A swap area: a backing store of the platform, all of whose pages are the manager's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapArea {
    /// The store, as [`Store::read_page`](crate::platform::Store::read_page) and
    /// `write_page` know it.
    pub store: u64,
    /// Pages that it has room for.
    pub slots: u64,
    /// Areas of higher priority are filled first.
    pub priority: i32,
}

impl SwapArea {
    /// An area of priority 0.
    pub const fn new(store: u64, slots: u64) -> SwapArea {
        SwapArea {
            store,
            slots,
            priority: 0,
        }
    }
}

const NONE: u32 = u32::MAX;

/// Which slots are free.
///
/// The clusters that have any stand in a queue. Slots are taken from the first, in ascending
/// order, until it has none left, so that pages written one after another lie side by side.
/// A full cluster goes to the end when one of its slots is given up: by the time it is the
/// first, it has mostly more.
struct FreeSlots {
    /// One bit for each slot of each cluster.
    free: Box<[u64]>,
    /// The next cluster of the queue.
    next: Box<[u32]>,
    first: u32,
    last: u32,
}

/// Pages go to the area.
const IN_USE: u32 = 0;
/// None goes there any more, and those that are there come back.
const LEAVING: u32 = 1;
/// No page is there.
const OFF: u32 = 2;

/// An area at work.
pub(super) struct Area {
    store: u64,
    count: u64,
    /// A signed number, as its bits.
    priority: AtomicU32,
    /// Slots of the areas that were added before.
    base: u64,
    clusters: Box<[Cluster]>,
    slots: SpinLock<FreeSlots>,
    free: AtomicU64,
    /// Slots that are not used again, because a page could not be written there.
    bad: AtomicU64,
    /// Whether slots are taken: [`IN_USE`], [`LEAVING`] or [`OFF`].
    state: AtomicU32,
}

impl Area {
    /// An area whose slots are the first of all, until [`Area::begin_at`].
    pub(super) fn new(about: SwapArea) -> Area {
        let count = about.slots.div_ceil(SLOTS as u64) as usize;
        let mut free: Box<[u64]> = (0..count).map(|_| u64::MAX).collect();
        let beyond = about.slots % SLOTS as u64;
        if beyond != 0 {
            free[count - 1] = (1 << beyond) - 1;
        }
        let next = (1..=count as u32).map(|next| if next == count as u32 { NONE } else { next });
        Area {
            store: about.store,
            count: about.slots,
            priority: AtomicU32::new(about.priority as u32),
            base: 0,
            clusters: (0..count).map(|_| Cluster::default()).collect(),
            slots: SpinLock::new(FreeSlots {
                free,
                next: next.collect(),
                first: 0,
                last: count as u32 - 1,
            }),
            free: AtomicU64::new(about.slots),
            bad: AtomicU64::new(0),
            state: AtomicU32::new(IN_USE),
        }
    }

    /// Slots of the areas that were added before.
    pub(super) fn begin_at(&mut self, base: u64) {
        self.base = base;
    }

    pub(super) fn store(&self) -> u64 {
        self.store
    }

    /// The number of the first slot where those of all areas are counted on.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn slots(&self) -> u64 {
        self.count
    }

    pub(super) fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed) as i32
    }

    /// Whether no slot is taken any more.
    pub(super) fn is_off(&self) -> bool {
        self.state.load(Ordering::Relaxed) != IN_USE
    }

    /// Has no slot be taken any more; whether one could be.
    pub(super) fn begin_off(&self) -> bool {
        self.change(IN_USE, LEAVING)
    }

    /// What [`Area::begin_off`] began is done, or is given up and the area used on.
    pub(super) fn end_off(&self, done: bool) {
        self.change(LEAVING, if done { OFF } else { IN_USE });
    }

    fn change(&self, from: u32, to: u32) -> bool {
        let (taken, not) = (Ordering::AcqRel, Ordering::Relaxed);
        self.state.compare_exchange(from, to, taken, not).is_ok()
    }

    /// Whether it has a store, whose pages are others' as long as the area is not off.
    pub(super) fn holds(&self, store: u64) -> bool {
        self.store == store && self.state.load(Ordering::Acquire) != OFF
    }

    /// Uses an area that is off again, as `about` says. Whether it is one on the same slots.
    pub(super) fn use_again(&self, about: SwapArea) -> bool {
        let is_same = (self.store(), self.slots()) == (about.store, about.slots);
        if is_same && self.state.load(Ordering::Acquire) == OFF {
            self.priority
                .store(about.priority as u32, Ordering::Relaxed);
            return self.change(OFF, IN_USE);
        }
        false
    }

    /// Free slots. May be of a moment ago.
    pub(super) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    pub(super) fn bad(&self) -> u64 {
        self.bad.load(Ordering::Relaxed)
    }

    /// The cluster of a slot, and which of its slots that is.
    pub(super) fn cluster(&self, offset: u64) -> (&Cluster, usize) {
        let offset = offset as usize;
        (&self.clusters[offset / SLOTS], offset % SLOTS)
    }

    /// Takes a free slot, if there is any.
    pub(super) fn take(&self, pin: &Pin<'_>) -> Option<u64> {
        if self.free() == 0 || self.is_off() {
            return None;
        }
        let mut slots = self.slots.lock(pin);
        let cluster = slots.first;
        if cluster == NONE {
            return None;
        }
        let free = &mut slots.free[cluster as usize];
        let slot = free.trailing_zeros();
        *free &= *free - 1;
        if *free == 0 {
            let next = slots.next[cluster as usize];
            slots.first = next;
            if next == NONE {
                slots.last = NONE;
            }
        }
        self.free.fetch_sub(1, Ordering::Relaxed);
        Some(u64::from(cluster) * SLOTS as u64 + u64::from(slot))
    }

    /// Gives up a slot, to be taken again unless it is `bad`.
    pub(super) fn give(&self, pin: &Pin<'_>, offset: u64, bad: bool) {
        if bad {
            self.bad.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let cluster = (offset / SLOTS as u64) as u32;
        let mut slots = self.slots.lock(pin);
        let free = &mut slots.free[cluster as usize];
        let was_full = *free == 0;
        debug_assert!(
            *free >> (offset % SLOTS as u64) & 1 == 0,
            "slot given twice"
        );
        *free |= 1 << (offset % SLOTS as u64);
        if was_full {
            slots.next[cluster as usize] = NONE;
            match slots.last {
                NONE => slots.first = cluster,
                last => slots.next[last as usize] = cluster,
            }
            slots.last = cluster;
        }
        self.free.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `each` with every slot and whether it is free, while nothing else runs.
    pub(super) fn each(&self, pin: &Pin<'_>, mut each: impl FnMut(u64, bool)) {
        for cluster in 0..self.clusters.len() {
            let free = self.slots.lock(pin).free[cluster];
            let first = cluster as u64 * SLOTS as u64;
            for slot in 0..(self.slots() - first).min(SLOTS as u64) {
                each(first + slot, free >> slot & 1 != 0);
            }
        }
    }

    /// Whether the clusters in the queue are those with free slots, each once, and as many
    /// slots are free as are counted. While nothing else runs.
    pub(super) fn queue_is_right(&self, pin: &Pin<'_>) -> bool {
        let slots = self.slots.lock(pin);
        let (mut free, mut queued, mut at) = (0, 0, slots.first);
        while at != NONE && queued <= slots.free.len() {
            free += set_bits(slots.free[at as usize]).count() as u64;
            if slots.free[at as usize] == 0
                || (slots.next[at as usize] == NONE) != (at == slots.last)
            {
                return false;
            }
            queued += 1;
            at = slots.next[at as usize];
        }
        let wanted = slots.free.iter().filter(|free| **free != 0).count();
        queued == wanted && free == self.free()
    }
}
