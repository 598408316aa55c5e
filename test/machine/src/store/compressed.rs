//! A compressed store in memory in front of a swap area.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vellum::platform::{IoError, SlotError};
use vellum::sync::bytes::FrameBytes;
use vellum_compressed::{
    Below, Exclusive, Loaded, Pool, PutError, Refused, Scratch, SizeError, Stats, Store,
};

use super::contents::Contents;
use super::pattern::word_at;
use super::{BackingStore, DeviceUse};

type Memory = Box<[u8]>;

/// The lock of the host.
struct Shared(Mutex<Pool<Memory>>);

impl Exclusive<Pool<Memory>> for Shared {
    fn new(pool: Pool<Memory>) -> Self {
        Shared(Mutex::new(pool))
    }

    fn with<R>(&self, work: impl FnOnce(&mut Pool<Memory>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The area on the store behind, to which pages are written back.
struct Behind {
    stores: Arc<dyn BackingStore>,
    area: u64,
}

impl Below for Behind {
    fn write(&self, slot: u64, page: &[u8]) -> Result<(), Refused> {
        let written = self.stores.write_page(self.area, slot, page);
        written.map_err(|IoError| Refused)
    }
}

/// What a compressed store is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompressedArea {
    /// Which store is the swap area.
    pub area: u64,
    /// Slots of the area.
    pub slots: u64,
    /// Memory for pages and tables: the limit. A machine whose store is to take memory from
    /// itself has that much less ([`MachineConfig::ram_bytes`](crate::MachineConfig::ram_bytes)).
    pub bytes: usize,
    /// Whether pages are written back to the stores behind, and go there that do not compress.
    pub writes_back: bool,
}

/// Stores, one of which is a swap area with a compressed store in front
/// ([`vellum_compressed`]). All others are those behind, unchanged.
pub struct CompressedStore {
    stores: Arc<dyn BackingStore>,
    area: u64,
    store: Store<Shared, Memory, Behind>,
    /// Buffers of transfers, for as many as there ever were at once.
    scratch: Mutex<Vec<Scratch>>,
    contents: Option<Contents>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CompressedStore {
    /// An empty compressed store before `stores`.
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn new(stores: Arc<dyn BackingStore>, about: CompressedArea) -> Result<Self, SizeError> {
        let behind = about.writes_back.then(|| Behind {
            stores: Arc::clone(&stores),
            area: about.area,
        });
        let memory = vec![0; about.bytes].into_boxed_slice();
        let store = Store::new(memory, stores.page_bytes(), about.slots, behind)?;
        Ok(CompressedStore {
            stores,
            area: about.area,
            store,
            scratch: Mutex::default(),
            contents: None,
        })
    }

    /// The same, for programs that put little into their pages: what is compressed, and written
    /// back, is each page mixed with one of [`Contents`].
    #[must_use]
    pub fn with_contents(mut self, contents: Contents) -> Self {
        self.contents = Some(contents);
        self
    }

    /// What it holds and has done.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }

    /// Checks its counts and lists, while nobody transfers pages.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit(&self) -> Result<(), &'static str> {
        self.store.audit()
    }

    /// Does `work` with buffers that nobody else has.
    fn with_scratch<R>(&self, work: impl FnOnce(&mut Scratch) -> R) -> R {
        let kept = lock(&self.scratch).pop();
        let mut scratch = kept.unwrap_or_else(|| Scratch::new(self.page_bytes()));
        let result = work(&mut scratch);
        lock(&self.scratch).push(scratch);
        result
    }

    /// Mixes what a page holds with what is assumed of its slot, or undoes that.
    fn mix(&self, slot: u64, page: &mut [u8]) {
        if let Some(contents) = &self.contents {
            contents.mix(slot, page);
        }
    }

    /// Reads a page of the area.
    fn read_slot(&self, slot: u64, bytes: FrameBytes<'_>) -> Result<(), IoError> {
        let is_below = self.with_scratch(|scratch| match self.store.get(slot, scratch) {
            Ok(Loaded::Below) => Ok(true),
            Ok(Loaded::Same(word)) if self.contents.is_none() => {
                bytes.fill(u64::from_ne_bytes(word.to_le_bytes()));
                Ok(false)
            }
            Ok(Loaded::Same(word)) => {
                let mut page = word
                    .to_le_bytes()
                    .repeat(self.page_bytes() / size_of::<u64>());
                self.mix(slot, &mut page);
                bytes.write(0, &page);
                Ok(false)
            }
            Ok(Loaded::Page(page)) if self.contents.is_none() => {
                bytes.write(0, page);
                Ok(false)
            }
            Ok(Loaded::Page(page)) => {
                let mut page = page.to_vec();
                self.mix(slot, &mut page);
                bytes.write(0, &page);
                Ok(false)
            }
            Err(_) => Err(IoError),
        })?;
        if is_below {
            self.stores.read_page(self.area, slot, bytes)?;
            if self.contents.is_some() {
                let mut page = vec![0; self.page_bytes()];
                bytes.read(0, &mut page);
                self.mix(slot, &mut page);
                bytes.write(0, &page);
            }
        }
        Ok(())
    }
}

impl BackingStore for CompressedStore {
    fn page_bytes(&self) -> usize {
        self.stores.page_bytes()
    }

    fn read_page(&self, store: u64, index: u64, bytes: FrameBytes<'_>) -> Result<(), IoError> {
        match store == self.area {
            true => self.read_slot(index, bytes),
            false => self.stores.read_page(store, index, bytes),
        }
    }

    fn write_page(&self, store: u64, index: u64, bytes: &[u8]) -> Result<(), IoError> {
        match store == self.area {
            true => self.write_slot(store, index, bytes).map_err(|_| IoError),
            false => self.stores.write_page(store, index, bytes),
        }
    }

    fn write_slot(&self, store: u64, slot: u64, bytes: &[u8]) -> Result<(), SlotError> {
        if store != self.area {
            return self.stores.write_slot(store, slot, bytes);
        }
        let put = |page: &[u8]| self.with_scratch(|scratch| self.store.put(slot, page, scratch));
        let done = match self.contents {
            None => put(bytes),
            Some(_) => {
                let mut page = bytes.to_vec();
                self.mix(slot, &mut page);
                put(&page)
            }
        };
        done.map_err(|error| match error {
            PutError::Full => SlotError::NoRoom,
            PutError::Refused | PutError::Invalid => SlotError::Io,
        })
    }

    fn write_speed(&self, store: u64) -> Option<u64> {
        self.stores.write_speed(store)
    }

    fn has_swap_room(&self, store: u64) -> bool {
        match store == self.area {
            true => self.store.has_room(),
            false => self.stores.has_swap_room(store),
        }
    }

    fn slot_freed(&self, store: u64, slot: u64) {
        match store == self.area {
            true => self.store.free(slot),
            false => self.stores.slot_freed(store, slot),
        }
    }

    fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError> {
        if store == self.area {
            let end = pages.end.min(self.store.slots());
            (pages.start..end).for_each(|slot| self.store.free(slot));
        }
        self.stores.discard_pages(store, pages)
    }

    fn find_page(&self, store: u64, index: u64, stored: bool) -> Option<u64> {
        self.stores.find_page(store, index, stored)
    }

    fn flush(&self) -> Result<(), IoError> {
        self.stores.flush()
    }

    fn stored_word(&self, store: u64, offset: u64) -> Option<u64> {
        if store != self.area {
            return self.stores.stored_word(store, offset);
        }
        let page_bytes = self.page_bytes() as u64;
        let (slot, within) = (offset / page_bytes, (offset % page_bytes) as usize);
        let mixed = |word: u64| {
            let mut page = word.to_ne_bytes().repeat(page_bytes as usize / 8);
            self.mix(slot, &mut page);
            word_at(&page, within)
        };
        let found = self.with_scratch(|scratch| match self.store.get(slot, scratch) {
            _ if !offset.is_multiple_of(8) => None,
            Ok(Loaded::Same(word)) => Some(u64::from_ne_bytes(word.to_le_bytes())),
            Ok(Loaded::Page(page)) => Some(word_at(page, within)),
            Ok(Loaded::Below) => self.stores.stored_word(store, offset),
            Err(_) => None,
        });
        found.map(mixed)
    }

    fn discard(&self, store: u64) {
        if store == self.area {
            self.store.clear();
        }
        self.stores.discard(store);
    }

    fn used(&self) -> Option<DeviceUse> {
        self.stores.used()
    }

    fn compressed(&self) -> Option<Stats> {
        Some(self.stats())
    }
}
