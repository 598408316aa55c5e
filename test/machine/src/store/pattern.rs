//! A store of files whose unwritten pages hold a pattern instead of bytes.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use vellum::platform::IoError;
use vellum::sync::bytes::FrameBytes;

use super::fault::{FaultPlan, Transfer};
use super::holes::Holes;
use super::{BackingStore, shard_of};

/// The word that every word of a page holds until the page is written, by
/// store number and page index.
pub type Pattern = fn(store: u64, page: u64) -> u64;

const SHARDS: usize = 64;

/// A page that was written.
enum Page {
    /// Every word is this one.
    Uniform(u64),
    /// Any contents.
    Bytes(Box<[u8]>),
}

/// By store and page. A cut of one store looks at no other's pages.
type Shard = HashMap<u64, BTreeMap<u64, Page>>;

/// A store in the host's memory. Pages never written read as a repeated word
/// and take no memory.
pub struct PatternStore {
    page_bytes: usize,
    pattern: Pattern,
    shards: Box<[Mutex<Shard>]>,
    holes: RwLock<Holes>,
    faults: FaultPlan,
}

impl PatternStore {
    /// An empty store of pages of `page_bytes` bytes, a multiple of 8.
    pub fn new(page_bytes: usize, pattern: Pattern) -> PatternStore {
        assert!(
            page_bytes > 0 && page_bytes.is_multiple_of(8),
            "a page of {page_bytes} bytes does not consist of 8-byte words"
        );
        PatternStore {
            page_bytes,
            pattern,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            holes: RwLock::default(),
            faults: FaultPlan::default(),
        }
    }

    /// What is to go wrong. Failing ranges are of page indices, in any store.
    pub fn faults(&self) -> &FaultPlan {
        &self.faults
    }

    /// Number of pages written.
    pub fn written_pages(&self) -> usize {
        let written = |shard: &Mutex<Shard>| lock(shard).values().map(BTreeMap::len).sum::<usize>();
        self.shards.iter().map(written).sum()
    }

    /// The word of a page that has not been written since it was discarded, if it was.
    fn unwritten(&self, store: u64, index: u64) -> u64 {
        let holes = self.holes.read().unwrap_or_else(PoisonError::into_inner);
        match holes.has(store, index) {
            true => 0,
            false => (self.pattern)(store, index),
        }
    }

    fn shard(&self, store: u64, index: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[shard_of(store, index, SHARDS)])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A page that was written.
fn page_of(shard: &Shard, store: u64, index: u64) -> Option<&Page> {
    shard.get(&store)?.get(&index)
}

impl BackingStore for PatternStore {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn read_page(&self, store: u64, index: u64, bytes: FrameBytes<'_>) -> Result<(), IoError> {
        self.faults.transfer(Transfer::Read, index)?;
        let shard = self.shard(store, index);
        let word = match page_of(&shard, store, index) {
            Some(Page::Bytes(page)) => {
                bytes.write(0, page);
                return Ok(());
            }
            Some(Page::Uniform(word)) => *word,
            None => {
                // Who looks for holes takes the locks in the other order.
                drop(shard);
                self.unwritten(store, index)
            }
        };
        bytes.fill(word);
        Ok(())
    }

    fn write_page(&self, store: u64, index: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.faults.transfer(Transfer::Write, index)?;
        assert_eq!(bytes.len(), self.page_bytes, "a write is one page");
        let page = match uniform_word(bytes) {
            Some(word) => Page::Uniform(word),
            None => Page::Bytes(bytes.into()),
        };
        let mut shard = self.shard(store, index);
        shard.entry(store).or_default().insert(index, page);
        Ok(())
    }

    fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError> {
        {
            let mut holes = self.holes.write().unwrap_or_else(PoisonError::into_inner);
            holes.add(store, pages.clone());
        }
        for shard in &self.shards {
            if let Some(written) = lock(shard).get_mut(&store) {
                written.retain(|index, _| !pages.contains(index));
            }
        }
        Ok(())
    }

    fn find_page(&self, store: u64, index: u64, stored: bool) -> Option<u64> {
        let holes = self.holes.read().unwrap_or_else(PoisonError::into_inner);
        holes.find(store, index, stored, |pages| {
            let first = |shard: &Mutex<Shard>| {
                let shard = lock(shard);
                let (index, _) = shard.get(&store)?.range(pages.clone()).next()?;
                Some(*index)
            };
            self.shards.iter().filter_map(first).min()
        })
    }

    fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }

    fn stored_word(&self, store: u64, offset: u64) -> Option<u64> {
        if !offset.is_multiple_of(8) {
            return None;
        }
        let index = offset / self.page_bytes as u64;
        let within = (offset % self.page_bytes as u64) as usize;
        let shard = self.shard(store, index);
        Some(match page_of(&shard, store, index) {
            Some(Page::Bytes(page)) => word_at(page, within),
            Some(Page::Uniform(word)) => *word,
            None => {
                drop(shard);
                self.unwritten(store, index)
            }
        })
    }

    fn discard(&self, store: u64) {
        for shard in &self.shards {
            lock(shard).remove(&store);
        }
        let mut holes = self.holes.write().unwrap_or_else(PoisonError::into_inner);
        holes.forget(store);
    }
}

/// The word at byte `offset`, which is within the page and a multiple of 8.
pub(super) fn word_at(page: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&page[offset..offset + 8]);
    u64::from_ne_bytes(word)
}

/// The word that the whole page repeats, if it does.
fn uniform_word(bytes: &[u8]) -> Option<u64> {
    let is_uniform = bytes[8..] == bytes[..bytes.len() - 8];
    is_uniform.then(|| word_at(bytes, 0))
}
