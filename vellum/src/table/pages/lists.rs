//! Lists of free page tables, and the wait before a table may enter one.
//!
//! A table that is unlinked may be read by walkers until its epoch has passed.
//! Until then it is linked through its record, of which no walker reads that
//! word; only afterwards may a list thread through the table itself.
//!
//! What one CPU has is touched by that CPU only, with plain loads and stores;
//! words are atomics for statistics and the audit. A depot has a lock, which
//! orders what one CPU wrote into a batch before what the next reads there.

use crate::addr::Pfn;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{EpochStamp, Epochs, Pin, SpinLock};

/// Where tables and their records are.
pub(crate) trait TableFrames {
    /// The word of a table's record that is free to use once it is unlinked.
    fn link(&self, table: Pfn) -> &AtomicU64;
    /// The first entry of a table.
    fn first_entry(&self, table: Pfn) -> &AtomicU64;
}

/// The number of a table as a word that is 0 for [`Pfn::NONE`].
fn to_word(table: Pfn) -> u64 {
    u64::from(table.0.wrapping_add(1))
}

fn from_word(word: u64) -> Pfn {
    Pfn((word as u32).wrapping_sub(1))
}

/// Unlinked tables, each linked to the next through its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    first: Pfn,
    last: Pfn,
    count: u32,
}

impl Chain {
    /// No tables.
    pub const EMPTY: Chain = Chain {
        first: Pfn::NONE,
        last: Pfn::NONE,
        count: 0,
    };

    /// The table in front, or [`Pfn::NONE`].
    #[inline]
    pub fn first(&self) -> Pfn {
        self.first
    }

    /// Number of tables.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One table.
    pub(crate) fn of(frames: &impl TableFrames, table: Pfn) -> Chain {
        let mut chain = Chain::EMPTY;
        chain.push(frames, table);
        chain
    }

    /// Adds a table in front.
    #[inline]
    pub(crate) fn push(&mut self, frames: &impl TableFrames, table: Pfn) {
        let link = frames.link(table);
        link.store(u64::from(self.first.0), Ordering::Relaxed);
        if self.count == 0 {
            self.last = table;
        }
        self.first = table;
        self.count += 1;
    }

    /// Takes the table in front.
    #[inline]
    pub(crate) fn pop(&mut self, frames: &impl TableFrames) -> Option<Pfn> {
        if self.count == 0 {
            return None;
        }
        let table = self.first;
        self.first = Pfn(frames.link(table).load(Ordering::Relaxed) as u32);
        self.count -= 1;
        Some(table)
    }
}

/// Tables retired in one epoch.
struct Epoch {
    stamp: AtomicU64,
    first: AtomicU32,
    last: AtomicU32,
    count: AtomicU32,
}

impl Epoch {
    fn new() -> Epoch {
        Epoch {
            stamp: AtomicU64::new(0),
            first: AtomicU32::new(Pfn::NONE.0),
            last: AtomicU32::new(Pfn::NONE.0),
            count: AtomicU32::new(0),
        }
    }

    fn stamp(&self) -> EpochStamp {
        EpochStamp(self.stamp.load(Ordering::Relaxed))
    }

    fn chain(&self) -> Chain {
        Chain {
            first: Pfn(self.first.load(Ordering::Relaxed)),
            last: Pfn(self.last.load(Ordering::Relaxed)),
            count: self.count.load(Ordering::Relaxed),
        }
    }

    fn set_chain(&self, chain: Chain) {
        self.first.store(chain.first.0, Ordering::Relaxed);
        self.last.store(chain.last.0, Ordering::Relaxed);
        self.count.store(chain.count, Ordering::Relaxed);
    }
}

/// One CPU's tables that wait for their epoch.
pub(crate) struct LimboTables {
    /// Two suffice: what is in the older one has passed when the epoch that
    /// claims its place begins.
    epochs: [Epoch; 2],
    /// Tables retired since the epoch was last pushed on.
    since_advance: AtomicU32,
}

impl LimboTables {
    pub(crate) fn new() -> LimboTables {
        LimboTables {
            epochs: [Epoch::new(), Epoch::new()],
            since_advance: AtomicU32::new(0),
        }
    }

    /// Lets tables wait that are unlinked by now. Returns tables whose epoch
    /// has passed, whose place these needed.
    pub(crate) fn add(&self, frames: &impl TableFrames, epochs: &Epochs, tables: Chain) -> Chain {
        if tables.is_empty() {
            return Chain::EMPTY;
        }
        let stamp = epochs.stamp();
        let place = &self.epochs[stamp.0 as usize % 2];
        let before = place.chain();
        if place.stamp() != stamp {
            place.stamp.store(stamp.0, Ordering::Relaxed);
            place.set_chain(tables);
            return before;
        }
        if before.is_empty() {
            place.set_chain(tables);
        } else {
            let link = frames.link(tables.last);
            link.store(u64::from(before.first.0), Ordering::Relaxed);
            place.set_chain(Chain {
                first: tables.first,
                last: before.last,
                count: before.count + tables.count,
            });
        }
        Chain::EMPTY
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

    /// Takes tables whose epoch has passed; no tables if there are none.
    pub(crate) fn passed(&self, epochs: &Epochs) -> Chain {
        for place in &self.epochs {
            let chain = place.chain();
            if !chain.is_empty() && epochs.passed(place.stamp()) {
                place.set_chain(Chain::EMPTY);
                return chain;
            }
        }
        Chain::EMPTY
    }

    /// Number of tables that wait.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        let counts = self.epochs.iter().map(|epoch| &epoch.count);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The tables of both epochs, for the audit.
    pub(crate) fn chains(&self) -> [Chain; 2] {
        [self.epochs[0].chain(), self.epochs[1].chain()]
    }
}

/// A list of all-zero tables through their own first words, last in first out.
pub(crate) struct WordList {
    first: AtomicU32,
    count: AtomicU32,
}

impl WordList {
    pub(crate) fn new() -> WordList {
        WordList {
            first: AtomicU32::new(Pfn::NONE.0),
            count: AtomicU32::new(0),
        }
    }

    /// Number of tables.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a table that nobody else can see. Its first word becomes the link.
    #[inline]
    pub(crate) fn push(&self, frames: &impl TableFrames, table: Pfn) {
        let before = self.first.load(Ordering::Relaxed);
        let entry = frames.first_entry(table);
        entry.store(to_word(Pfn(before)), Ordering::Relaxed);
        self.first.store(table.0, Ordering::Relaxed);
        self.count.store(self.len() + 1, Ordering::Relaxed);
    }

    /// Takes the table that came last. Its first word is cleared.
    #[inline]
    pub(crate) fn pop(&self, frames: &impl TableFrames) -> Option<Pfn> {
        let table = self.first();
        if table.is_none() {
            return None;
        }
        let entry = frames.first_entry(table);
        let next = from_word(entry.load(Ordering::Relaxed));
        entry.store(0, Ordering::Relaxed);
        self.first.store(next.0, Ordering::Relaxed);
        self.count.store(self.len() - 1, Ordering::Relaxed);
        Some(table)
    }

    /// The table that [`WordList::pop`] would take, or [`Pfn::NONE`].
    #[inline]
    pub(crate) fn first(&self) -> Pfn {
        Pfn(self.first.load(Ordering::Relaxed))
    }

    /// The table after one that is in the list, for the audit.
    pub(crate) fn after(frames: &impl TableFrames, table: Pfn) -> Pfn {
        from_word(frames.first_entry(table).load(Ordering::Relaxed))
    }
}

/// Batches of all-zero tables that go from CPU to CPU.
pub(crate) struct TableDepot {
    /// The first batch, or [`Pfn::NONE`].
    first: SpinLock<Pfn>,
    /// Tables in it.
    count: AtomicU32,
    peak: AtomicU32,
}

impl TableDepot {
    /// Tables of a batch; few where every order of steps is tried.
    pub(crate) const BATCH: u32 = if cfg!(vellum_loom) { 2 } else { 16 };

    pub(crate) fn new() -> TableDepot {
        TableDepot {
            first: SpinLock::new(Pfn::NONE),
            count: AtomicU32::new(0),
            peak: AtomicU32::new(0),
        }
    }

    /// Number of tables.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// The most tables there were.
    pub(crate) fn peak(&self) -> u32 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Adds a batch of [`TableDepot::BATCH`] tables that nobody else can see.
    pub(crate) fn push(&self, frames: &impl TableFrames, batch: Chain, pin: &Pin<'_>) {
        debug_assert!(batch.count == TableDepot::BATCH);
        let link = frames.link(batch.first);
        let next = link.load(Ordering::Relaxed) & u64::from(u32::MAX);
        let mut first = self.first.lock(pin);
        // Beside the link within the batch, the link to the next batch.
        link.store(next | u64::from(first.0) << 32, Ordering::Relaxed);
        *first = batch.first;
        let count = self.len() + TableDepot::BATCH;
        self.count.store(count, Ordering::Relaxed);
        self.peak.store(count.max(self.peak()), Ordering::Relaxed);
    }

    /// Takes the batch that came last.
    pub(crate) fn pop(&self, frames: &impl TableFrames, pin: &Pin<'_>) -> Option<Chain> {
        if self.len() == 0 {
            return None;
        }
        let mut first = self.first.lock(pin);
        let batch = *first;
        if batch.is_none() {
            return None;
        }
        let link = frames.link(batch).load(Ordering::Relaxed);
        *first = Pfn((link >> 32) as u32);
        let count = self.len() - TableDepot::BATCH;
        self.count.store(count, Ordering::Relaxed);
        Some(Chain {
            first: batch,
            last: Pfn::NONE,
            count: TableDepot::BATCH,
        })
    }

    /// Every batch, for the audit: nobody else is at work.
    pub(crate) fn batches<'a, T: TableFrames>(
        &self,
        frames: &'a T,
        pin: &Pin<'_>,
    ) -> impl Iterator<Item = Chain> + use<'a, T> {
        let mut next = *self.first.lock(pin);
        core::iter::from_fn(move || {
            let first = next;
            if first.is_none() {
                return None;
            }
            next = Pfn((frames.link(first).load(Ordering::Relaxed) >> 32) as u32);
            Some(Chain {
                first,
                last: Pfn::NONE,
                count: TableDepot::BATCH,
            })
        })
    }
}
