//! Lists of free page tables.
//!
//! A table that is unlinked may be read by walkers until its epoch has passed.
//! Until then it is linked through its record, of which no walker reads that
//! word ([`Limbo`](crate::sync::limbo::Limbo)); only afterwards may a list thread
//! through the table itself.
//!
//! What one CPU has is touched by that CPU only, with plain loads and stores;
//! words are atomics for statistics and the audit. A depot has a lock, which
//! orders what one CPU wrote into a batch before what the next reads there.

use crate::addr::Pfn;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::limbo::{Chain, ChainLinks};
use crate::sync::{Pin, SpinLock};

/// Where tables and their records are.
pub(crate) trait TableFrames: ChainLinks {
    /// The word of a table's record through which it is linked once it is
    /// unlinked. A link takes up its lower half.
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
        let link = frames.link(Pfn(batch.head));
        let next = link.load(Ordering::Relaxed) & u64::from(u32::MAX);
        let mut first = self.first.lock(pin);
        // Beside the link within the batch, the link to the next batch.
        link.store(next | u64::from(first.0) << 32, Ordering::Relaxed);
        *first = Pfn(batch.head);
        let count = self.len() + TableDepot::BATCH;
        self.count.store(count, Ordering::Relaxed);
        self.peak.store(count.max(self.peak()), Ordering::Relaxed);
    }

    /// The batch that begins with `first`. Nobody adds to it, so its tail is not
    /// needed.
    fn batch(first: Pfn) -> Chain {
        Chain {
            head: first.0,
            tail: Pfn::NONE.0,
            count: TableDepot::BATCH,
        }
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
        Some(TableDepot::batch(batch))
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
            Some(TableDepot::batch(first))
        })
    }
}
