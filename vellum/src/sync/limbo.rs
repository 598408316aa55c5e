//! What waits until nobody can still see it: chains of items, and the limbo that
//! one CPU keeps its retired items in.
//!
//! Frames, page tables and slots of arenas are retired in one way. A thread that
//! unlinked an item links it into a chain, through a word of the item that no
//! reader interprets, and [`Limbo`] keeps the chain until its epoch has passed.
//! What an item is and where its word lies is said by [`ChainLinks`].
//!
//! A limbo is touched by its CPU only, with plain loads and stores; the words are
//! atomics for statistics and the audit. With one exception: a CPU that is not pinned
//! may be idle for long, and what waits there is wanted elsewhere when memory is short.
//! Another CPU then marks the limbo and looks, after a fence, whether its owner is
//! pinned, as the owner announces its pin and looks, after a fence, at the mark. So
//! one of them sees the other. The owner looks only when it takes items itself, not
//! when it adds some: what has passed is not where it adds.

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use super::{EpochStamp, Epochs, Pin};
use crate::platform::CpuId;

/// Where the items of a [`Chain`], which are named by numbers, have the number of
/// the next one.
pub(crate) trait ChainLinks {
    /// The number that no item has, after the last one of a chain.
    const END: u32;
    /// The item after `item`.
    fn next(&self, item: u32) -> u32;
    /// Sets the item after `item`.
    fn set_next(&self, item: u32, next: u32);
}

/// Items that nobody else can find, each linked to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// Where it begins. Means nothing if there are no items.
    pub(crate) head: u32,
    /// Where it ends, likewise.
    pub(crate) tail: u32,
    pub(crate) count: u32,
}

impl Chain {
    /// No items.
    pub const EMPTY: Chain = Chain {
        head: 0,
        tail: 0,
        count: 0,
    };

    /// Number of items.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One item.
    #[inline]
    pub(crate) fn of<L: ChainLinks>(links: &L, item: u32) -> Chain {
        let mut chain = Chain::EMPTY;
        chain.push(links, item);
        chain
    }

    /// Adds an item in front.
    #[inline]
    pub(crate) fn push<L: ChainLinks>(&mut self, links: &L, item: u32) {
        if self.count == 0 {
            links.set_next(item, L::END);
            self.tail = item;
        } else {
            links.set_next(item, self.head);
        }
        self.head = item;
        self.count += 1;
    }

    /// Adds an item at the end.
    #[inline]
    pub(crate) fn append<L: ChainLinks>(&mut self, links: &L, item: u32) {
        links.set_next(item, L::END);
        if self.count == 0 {
            self.head = item;
        } else {
            links.set_next(self.tail, item);
        }
        self.tail = item;
        self.count += 1;
    }

    /// Takes the item in front.
    #[inline]
    pub(crate) fn pop<L: ChainLinks>(&mut self, links: &L) -> Option<u32> {
        let left = self.count.checked_sub(1)?;
        let item = self.head;
        self.head = links.next(item);
        self.count = left;
        Some(item)
    }

    /// Takes the first `count` items, of which there are no fewer.
    pub(crate) fn take_first<L: ChainLinks>(&mut self, links: &L, count: u32) -> Chain {
        debug_assert!(0 < count && count <= self.count);
        if count == self.count {
            return core::mem::take(self);
        }
        let mut tail = self.head;
        for _ in 1..count {
            tail = links.next(tail);
        }
        let first = Chain {
            head: self.head,
            tail,
            count,
        };
        self.head = links.next(tail);
        self.count -= count;
        links.set_next(tail, L::END);
        first
    }

    /// Puts another chain in front of this one.
    #[inline]
    pub(crate) fn prepend<L: ChainLinks>(&mut self, links: &L, other: Chain) {
        if self.count == 0 {
            *self = other;
        } else if other.count > 0 {
            links.set_next(other.tail, self.head);
            self.head = other.head;
            self.count += other.count;
        }
    }
}

/// A [`Chain`] in words that others may read for statistics.
#[derive(Default)]
pub(crate) struct ChainCell {
    pub(crate) head: AtomicU32,
    pub(crate) tail: AtomicU32,
    pub(crate) count: AtomicU32,
}

impl ChainCell {
    #[inline]
    pub(crate) fn get(&self) -> Chain {
        Chain {
            head: self.head.load(Ordering::Relaxed),
            tail: self.tail.load(Ordering::Relaxed),
            count: self.len(),
        }
    }

    #[inline]
    pub(crate) fn set(&self, chain: Chain) {
        self.head.store(chain.head, Ordering::Relaxed);
        self.tail.store(chain.tail, Ordering::Relaxed);
        self.count.store(chain.count, Ordering::Relaxed);
    }

    /// Takes the whole chain.
    #[inline]
    pub(crate) fn take(&self) -> Chain {
        let chain = self.get();
        self.set(Chain::EMPTY);
        chain
    }

    /// Number of items.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Items retired in one epoch.
#[derive(Default)]
struct Retired {
    stamp: AtomicU64,
    items: ChainCell,
}

impl Retired {
    fn stamp(&self) -> EpochStamp {
        EpochStamp(self.stamp.load(Ordering::Relaxed))
    }
}

/// One CPU's items that wait for their epoch.
#[derive(Default)]
pub struct Limbo {
    /// Two suffice: what is in the older one has passed when the epoch that
    /// claims its place begins.
    retired: [Retired; 2],
    /// Items retired since the epoch was last pushed on.
    since_advance: AtomicU32,
    /// Not 0 while another CPU takes items.
    visited: AtomicU32,
}

impl Limbo {
    /// Lets items wait that are unlinked by now. Returns items whose epoch has
    /// passed, whose place these needed.
    pub(crate) fn add<L: ChainLinks>(&self, links: &L, pin: &Pin<'_>, items: Chain) -> Chain {
        if items.is_empty() {
            return Chain::EMPTY;
        }
        let stamp = pin.epochs().stamp();
        let place = &self.retired[stamp.0 as usize % self.retired.len()];
        let mut passed = Chain::EMPTY;
        // While this CPU is pinned, nothing passes that has the present stamp.
        if place.stamp() != stamp {
            self.wait_for_visitor(pin);
            // Two epochs older, or more: passed.
            passed = place.items.take();
            place.stamp.store(stamp.0, Ordering::Relaxed);
        }
        let mut waiting = place.items.get();
        waiting.prepend(links, items);
        place.items.set(waiting);
        passed
    }

    /// Counts retirements; whether there were `interval` since the epoch was
    /// last pushed on, and it should be now.
    pub(crate) fn should_advance(&self, count: u32, interval: u32) -> bool {
        let since = self.since_advance.load(Ordering::Relaxed) + count;
        let due = since >= interval;
        let left = if due { 0 } else { since };
        self.since_advance.store(left, Ordering::Relaxed);
        due
    }

    /// Takes items whose epoch has passed, of one of the epochs; none if there
    /// are none.
    pub(crate) fn passed(&self, pin: &Pin<'_>) -> Chain {
        self.wait_for_visitor(pin);
        self.take_passed(pin.epochs())
    }

    /// The same of the limbo of `cpu`, which may be another than the caller's; none if that is
    /// pinned, or somebody else takes items there.
    pub(crate) fn passed_of(&self, cpu: CpuId, pin: &Pin<'_>) -> Chain {
        if cpu == pin.cpu() {
            return self.passed(pin);
        }
        if self.len() == 0 || self.visited.swap(1, Ordering::Acquire) != 0 {
            return Chain::EMPTY;
        }
        // Between the mark and the look at the announcement, as `Epochs::enter` has one between
        // the announcement and all that the owner does.
        fence(Ordering::SeqCst);
        let epochs = pin.epochs();
        let passed = match epochs.is_pinned(cpu) {
            true => Chain::EMPTY,
            false => self.take_passed(epochs),
        };
        self.visited.store(0, Ordering::Release);
        passed
    }

    fn take_passed(&self, epochs: &Epochs) -> Chain {
        let has_passed = |place: &&Retired| place.items.len() > 0 && epochs.passed(place.stamp());
        match self.retired.iter().find(has_passed) {
            Some(place) => place.items.take(),
            None => Chain::EMPTY,
        }
    }

    /// Waits until no other CPU takes items; none begins to before the pin, the owner's, ends.
    #[inline]
    fn wait_for_visitor(&self, pin: &Pin<'_>) {
        let mut spins = 0;
        // Acquire: what it took is gone.
        while self.visited.load(Ordering::Acquire) != 0 {
            pin.relax(spins);
            spins += 1;
        }
    }

    /// Number of items that wait.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.retired.iter().map(|place| place.items.len()).sum()
    }

    /// The items of both epochs, for the audit.
    pub(crate) fn chains(&self) -> [Chain; 2] {
        [self.retired[0].items.get(), self.retired[1].items.get()]
    }
}
