//! Vacant slots: a cache for each CPU, and the depot between them.
//!
//! Vacant slots form lists through one word of each. A CPU has two: it pushes
//! to and pops from the *active* one, and keeps one full one as a *spare*, so
//! that going to and fro over the boundary costs nothing. What is beyond that goes
//! to the depot in batches, a stack under a lock, where any CPU finds them. A batch
//! has as many slots as a frame; where those are few, a list has several batches.
//! The cache is touched by its CPU only, with plain loads and stores; the
//! depot's lock orders what one CPU wrote into a batch's slots before what the
//! next reads there.

use crate::platform::CpuId;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::limbo::{Chain, ChainCell, ChainLinks, Limbo};
use crate::sync::{Pin, SpinLock};

/// Where the words are that caches and depot live in. No slot has the number 0.
pub(crate) trait Slots: ChainLinks {
    /// The two words of place `index` of the depot. There are as many places
    /// as full batches can exist.
    fn place(&self, index: u32) -> (&AtomicU32, &AtomicU32);
}

/// One CPU's vacant slots.
#[derive(Default)]
pub(crate) struct Cache {
    active: ChainCell,
    spare: ChainCell,
    /// Slots set aside by a reservation larger than a batch.
    reserved: ChainCell,
    allocs: AtomicU64,
    frees: AtomicU64,
    limbo: Limbo,
}

impl Cache {
    /// Takes a slot; 0 if the active list is empty.
    #[inline]
    pub(crate) fn pop<S: Slots>(&self, slots: &S) -> u32 {
        let slot = self.active.head.load(Ordering::Relaxed);
        if slot != 0 {
            let next = slots.next(slot);
            let count = self.active.len();
            self.active.head.store(next, Ordering::Relaxed);
            self.active.count.store(count - 1, Ordering::Relaxed);
        }
        slot
    }

    /// Adds a slot to a list of at most `most`. Returns a full one for the depot when
    /// there is one too many.
    #[inline]
    pub(crate) fn push<S: Slots>(&self, slots: &S, slot: u32, most: u32) -> Option<Chain> {
        let full = self.active.len() >= most;
        let displaced = if full { self.rotate() } else { None };
        let head = self.active.head.load(Ordering::Relaxed);
        let count = self.active.len();
        slots.set_next(slot, head);
        if head == 0 {
            self.active.tail.store(slot, Ordering::Relaxed);
        }
        self.active.head.store(slot, Ordering::Relaxed);
        self.active.count.store(count + 1, Ordering::Relaxed);
        displaced
    }

    /// Makes the full active list the spare one; returns the spare it displaces.
    #[cold]
    fn rotate(&self) -> Option<Chain> {
        let displaced = self.take_spare();
        self.spare.set(self.take_active());
        displaced
    }

    /// Takes the whole active list.
    #[inline]
    pub(crate) fn take_active(&self) -> Chain {
        self.active.take()
    }

    /// Takes the spare batch.
    #[inline]
    pub(crate) fn take_spare(&self) -> Option<Chain> {
        (self.spare.len() > 0).then(|| self.spare.take())
    }

    /// Gives an empty cache an active list.
    #[inline]
    pub(crate) fn set_active(&self, list: Chain) {
        debug_assert!(self.active.head.load(Ordering::Relaxed) == 0);
        self.active.set(list);
    }

    /// Slots in the active list.
    #[inline]
    pub(crate) fn active_count(&self) -> u32 {
        self.active.len()
    }

    /// Slots that this CPU can hand out without a lock.
    #[inline]
    pub(crate) fn at_hand(&self) -> u32 {
        self.active.len() + self.spare.len() + self.reserved.len()
    }

    /// Slots set aside.
    #[inline]
    pub(crate) fn reserved_count(&self) -> u32 {
        self.reserved.len()
    }

    /// Sets more slots aside.
    pub(crate) fn add_reserved<S: Slots>(&self, slots: &S, list: Chain) {
        let mut reserved = self.reserved.get();
        reserved.prepend(slots, list);
        self.reserved.set(reserved);
    }

    /// Takes what is set aside.
    pub(crate) fn take_reserved(&self) -> Chain {
        self.reserved.take()
    }

    /// Takes one of the slots at hand, the active list being empty; 0 if
    /// there are none.
    #[cold]
    pub(crate) fn pop_at_hand<S: Slots>(&self, slots: &S) -> u32 {
        let mut reserved = self.reserved.get();
        let slot = reserved.pop(slots);
        self.reserved.set(reserved);
        if let Some(slot) = slot {
            return slot;
        }
        match self.take_spare() {
            Some(batch) => {
                self.set_active(batch);
                self.pop(slots)
            }
            None => 0,
        }
    }

    /// Adds a slot to those retired now. Returns older ones that had its place,
    /// whose epoch has passed.
    pub(crate) fn retire<S: Slots>(&self, slots: &S, slot: u32, pin: &Pin<'_>) -> Chain {
        self.limbo.add(slots, pin, Chain::of(slots, slot))
    }

    /// Whether it is time to move the epoch on: every `interval` retirements.
    pub(crate) fn time_to_advance(&self, interval: u32) -> bool {
        self.limbo.should_advance(1, interval)
    }

    /// Retired slots that wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.limbo.len()
    }

    /// Takes retired slots whose epoch has passed.
    pub(crate) fn take_passed(&self, pin: &Pin<'_>) -> Chain {
        self.limbo.passed(pin)
    }

    /// Takes slots that this cache's CPU, which may be another than the caller's, retired and nobody
    /// can see any more; none if that is pinned.
    pub(crate) fn passed_of(&self, cpu: CpuId, pin: &Pin<'_>) -> Chain {
        self.limbo.passed_of(cpu, pin)
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
    pub(crate) fn vacant(&self) -> [Chain; 3] {
        [self.active.get(), self.spare.get(), self.reserved.get()]
    }

    /// The lists of slots that wait for their epoch.
    pub(crate) fn retired(&self) -> [Chain; 2] {
        self.limbo.chains()
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

    /// Adds the slots of a list, in full batches.
    pub(crate) fn push<S: Slots>(&self, slots: &S, list: Chain, batch: u32, pin: &Pin<'_>) {
        debug_assert!(list.count.is_multiple_of(batch), "a batch that is not full");
        let mut rest = list;
        let mut depth = self.depth.lock(pin);
        while rest.count > 0 {
            let first = rest.take_first(slots, batch);
            let (head, tail) = slots.place(*depth);
            head.store(first.head, Ordering::Relaxed);
            tail.store(first.tail, Ordering::Relaxed);
            *depth += 1;
        }
        self.shown.store(*depth, Ordering::Relaxed);
    }

    /// Takes up to `most` batches, those added last.
    pub(crate) fn pop<S: Slots>(
        &self,
        slots: &S,
        batch: u32,
        most: u32,
        pin: &Pin<'_>,
    ) -> Option<Chain> {
        if self.depth() == 0 {
            return None;
        }
        let mut depth = self.depth.lock(pin);
        let taken = most.min(*depth);
        let mut list = Chain::EMPTY;
        for _ in 0..taken {
            *depth -= 1;
            let (head, tail) = slots.place(*depth);
            let first = Chain {
                head: head.load(Ordering::Relaxed),
                tail: tail.load(Ordering::Relaxed),
                count: batch,
            };
            list.prepend(slots, first);
        }
        self.shown.store(*depth, Ordering::Relaxed);
        (taken > 0).then_some(list)
    }
}
