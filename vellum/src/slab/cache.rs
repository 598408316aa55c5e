//! Vacant slots: a cache for each CPU, and the depot between them.
//!
//! Vacant slots form lists through one word of each. A CPU has two: it pushes
//! to and pops from the *active* one, and keeps one full batch as a *spare*, so
//! that going to and fro over a batch boundary costs nothing. Full batches
//! beyond that go to the depot, a stack under a lock, where any CPU finds them.
//! The cache is touched by its CPU only, with plain loads and stores; the
//! depot's lock orders what one CPU wrote into a batch's slots before what the
//! next reads there.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{EpochStamp, Pin, SpinLock};

/// Where the words are that caches and depot live in.
pub(crate) trait Slots {
    /// The link word of a vacant slot.
    fn link(&self, slot: u32) -> &AtomicU32;
    /// The two words of place `index` of the depot. There are as many places
    /// as full batches can exist.
    fn place(&self, index: u32) -> (&AtomicU32, &AtomicU32);
}

/// A list of vacant slots; the last one's link is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SlotList {
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) count: u32,
}

impl SlotList {
    pub(crate) const EMPTY: SlotList = SlotList {
        head: 0,
        tail: 0,
        count: 0,
    };

    /// Adds a slot in front.
    #[inline]
    pub(crate) fn push<S: Slots>(&mut self, slots: &S, slot: u32) {
        slots.link(slot).store(self.head, Ordering::Relaxed);
        if self.head == 0 {
            self.tail = slot;
        }
        self.head = slot;
        self.count += 1;
    }

    /// Takes the slot in front; 0 if there is none.
    #[inline]
    pub(crate) fn pop<S: Slots>(&mut self, slots: &S) -> u32 {
        let slot = self.head;
        if slot != 0 {
            self.head = slots.link(slot).load(Ordering::Relaxed);
            self.count -= 1;
        }
        slot
    }

    /// Puts another list in front of this one.
    #[inline]
    pub(crate) fn prepend<S: Slots>(&mut self, slots: &S, other: SlotList) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other;
            return;
        }
        slots.link(other.tail).store(self.head, Ordering::Relaxed);
        self.head = other.head;
        self.count += other.count;
    }
}

/// A [`SlotList`] in words that others may read for statistics.
#[derive(Default)]
struct SlotListCell {
    head: AtomicU32,
    tail: AtomicU32,
    count: AtomicU32,
}

impl SlotListCell {
    #[inline]
    fn get(&self) -> SlotList {
        SlotList {
            head: self.head.load(Ordering::Relaxed),
            tail: self.tail.load(Ordering::Relaxed),
            count: self.count.load(Ordering::Relaxed),
        }
    }

    #[inline]
    fn set(&self, list: SlotList) {
        self.head.store(list.head, Ordering::Relaxed);
        self.tail.store(list.tail, Ordering::Relaxed);
        self.count.store(list.count, Ordering::Relaxed);
    }
}

/// Slots retired in one epoch.
#[derive(Default)]
struct LimboSlots {
    stamp: AtomicU64,
    list: SlotListCell,
}

/// One CPU's vacant slots.
#[derive(Default)]
pub(crate) struct Cache {
    active: SlotListCell,
    spare: SlotListCell,
    /// Slots set aside by a reservation larger than a batch.
    reserved: SlotListCell,
    allocs: AtomicU64,
    frees: AtomicU64,
    since_advance: AtomicU32,
    /// Two suffice: what is in the older one has passed when the epoch that
    /// claims its place begins.
    limbo: [LimboSlots; 2],
}

impl Cache {
    /// Takes a slot; 0 if the active list is empty.
    #[inline]
    pub(crate) fn pop<S: Slots>(&self, slots: &S) -> u32 {
        let slot = self.active.head.load(Ordering::Relaxed);
        if slot != 0 {
            let next = slots.link(slot).load(Ordering::Relaxed);
            let count = self.active.count.load(Ordering::Relaxed);
            self.active.head.store(next, Ordering::Relaxed);
            self.active.count.store(count - 1, Ordering::Relaxed);
        }
        slot
    }

    /// Adds a slot. Returns a full batch for the depot when there is one too many.
    #[inline]
    pub(crate) fn push<S: Slots>(&self, slots: &S, slot: u32, batch: u32) -> Option<SlotList> {
        let full = self.active.count.load(Ordering::Relaxed) >= batch;
        let displaced = if full { self.rotate() } else { None };
        let head = self.active.head.load(Ordering::Relaxed);
        let count = self.active.count.load(Ordering::Relaxed);
        slots.link(slot).store(head, Ordering::Relaxed);
        if head == 0 {
            self.active.tail.store(slot, Ordering::Relaxed);
        }
        self.active.head.store(slot, Ordering::Relaxed);
        self.active.count.store(count + 1, Ordering::Relaxed);
        displaced
    }

    /// Makes the full active list the spare one; returns the spare it displaces.
    #[cold]
    fn rotate(&self) -> Option<SlotList> {
        let displaced = self.take_spare();
        self.spare.set(self.take_active());
        displaced
    }

    /// Takes the whole active list.
    #[inline]
    pub(crate) fn take_active(&self) -> SlotList {
        let list = self.active.get();
        self.active.set(SlotList::EMPTY);
        list
    }

    /// Takes the spare batch.
    #[inline]
    pub(crate) fn take_spare(&self) -> Option<SlotList> {
        let list = self.spare.get();
        if list.count == 0 {
            return None;
        }
        self.spare.set(SlotList::EMPTY);
        Some(list)
    }

    /// Gives an empty cache an active list of at most a batch.
    #[inline]
    pub(crate) fn set_active(&self, list: SlotList) {
        debug_assert!(self.active.head.load(Ordering::Relaxed) == 0);
        self.active.set(list);
    }

    /// Slots in the active list.
    #[inline]
    pub(crate) fn active_count(&self) -> u32 {
        self.active.count.load(Ordering::Relaxed)
    }

    /// Slots that this CPU can hand out without a lock.
    #[inline]
    pub(crate) fn at_hand(&self) -> u32 {
        let count = |list: &SlotListCell| list.count.load(Ordering::Relaxed);
        count(&self.active) + count(&self.spare) + count(&self.reserved)
    }

    /// Slots set aside.
    #[inline]
    pub(crate) fn reserved_count(&self) -> u32 {
        self.reserved.count.load(Ordering::Relaxed)
    }

    /// Sets more slots aside.
    pub(crate) fn add_reserved<S: Slots>(&self, slots: &S, list: SlotList) {
        let mut reserved = self.reserved.get();
        reserved.prepend(slots, list);
        self.reserved.set(reserved);
    }

    /// Takes what is set aside.
    pub(crate) fn take_reserved(&self) -> SlotList {
        let list = self.reserved.get();
        self.reserved.set(SlotList::EMPTY);
        list
    }

    /// Takes one of the slots at hand, the active list being empty; 0 if
    /// there are none.
    #[cold]
    pub(crate) fn pop_at_hand<S: Slots>(&self, slots: &S) -> u32 {
        let mut reserved = self.reserved.get();
        let slot = reserved.pop(slots);
        self.reserved.set(reserved);
        if slot == 0
            && let Some(batch) = self.take_spare()
        {
            self.set_active(batch);
            return self.pop(slots);
        }
        slot
    }

    /// Adds a slot to those retired at `stamp`. Returns an older list that
    /// had its place, whose epoch has passed.
    pub(crate) fn retire<S: Slots>(&self, slots: &S, slot: u32, stamp: EpochStamp) -> SlotList {
        let limbo = &self.limbo[stamp.0 as usize % self.limbo.len()];
        let mut list = limbo.list.get();
        let mut passed = SlotList::EMPTY;
        if limbo.stamp.load(Ordering::Relaxed) != stamp.0 {
            passed = core::mem::take(&mut list);
            limbo.stamp.store(stamp.0, Ordering::Relaxed);
        }
        list.push(slots, slot);
        limbo.list.set(list);
        passed
    }

    /// Whether it is time to move the epoch on: every `interval` retirements.
    pub(crate) fn time_to_advance(&self, interval: u32) -> bool {
        let since = self.since_advance.load(Ordering::Relaxed) + 1;
        let due = since >= interval;
        let since = if due { 0 } else { since };
        self.since_advance.store(since, Ordering::Relaxed);
        due
    }

    /// Takes a retired list whose epoch has passed.
    pub(crate) fn take_passed(&self, pin: &Pin<'_>) -> Option<SlotList> {
        let limbo = self.limbo.iter().find(|limbo| {
            let stamp = EpochStamp(limbo.stamp.load(Ordering::Relaxed));
            limbo.list.get().count > 0 && pin.epochs().passed(stamp)
        })?;
        let list = limbo.list.get();
        limbo.list.set(SlotList::EMPTY);
        Some(list)
    }

    #[inline]
    pub(crate) fn count_allocs(&self, count: u64) {
        let total = self.allocs.load(Ordering::Relaxed) + count;
        self.allocs.store(total, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn count_frees(&self, count: u64) {
        let total = self.frees.load(Ordering::Relaxed) + count;
        self.frees.store(total, Ordering::Relaxed);
    }

    /// Slots handed out and given back through this CPU, ever.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (
            self.allocs.load(Ordering::Relaxed),
            self.frees.load(Ordering::Relaxed),
        )
    }

    /// The lists of slots that can be had at once.
    pub(crate) fn vacant(&self) -> [SlotList; 3] {
        [self.active.get(), self.spare.get(), self.reserved.get()]
    }

    /// The lists of slots that wait for their epoch.
    pub(crate) fn retired(&self) -> [SlotList; 2] {
        [self.limbo[0].list.get(), self.limbo[1].list.get()]
    }
}

/// Full batches that no CPU has: a stack, in words that the arena lends.
#[derive(Default)]
pub(crate) struct SlotDepot {
    depth: SpinLock<u32>,
    /// The depth, for readers without the lock.
    shown: AtomicU32,
}

impl SlotDepot {
    /// Batches there were at some moment.
    pub(crate) fn depth(&self) -> u32 {
        self.shown.load(Ordering::Relaxed)
    }

    /// Adds a full batch.
    pub(crate) fn push<S: Slots>(&self, slots: &S, list: SlotList, pin: &Pin<'_>) {
        let mut depth = self.depth.lock(pin);
        let (head, tail) = slots.place(*depth);
        head.store(list.head, Ordering::Relaxed);
        tail.store(list.tail, Ordering::Relaxed);
        *depth += 1;
        self.shown.store(*depth, Ordering::Relaxed);
    }

    /// Takes the batch added last.
    pub(crate) fn pop<S: Slots>(&self, slots: &S, batch: u32, pin: &Pin<'_>) -> Option<SlotList> {
        if self.depth() == 0 {
            return None;
        }
        let mut depth = self.depth.lock(pin);
        *depth = depth.checked_sub(1)?;
        self.shown.store(*depth, Ordering::Relaxed);
        let (head, tail) = slots.place(*depth);
        Some(SlotList {
            head: head.load(Ordering::Relaxed),
            tail: tail.load(Ordering::Relaxed),
            count: batch,
        })
    }
}
