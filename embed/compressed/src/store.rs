//! The store: pages in, pages out, and those that make room.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::blocks::u64_at;
use crate::pool::{Full, Kept, MOST_BYTES, Pool, Stats};
use crate::scratch::Scratch;

/// A page is compressed if that saves at least one part in so many.
const LEAST_GAIN: usize = 8;
/// Pages that are written back at most to make room for one, by the one who needs it: others
/// may take what it gains.
const PATIENCE: u32 = 64;

/// A lock around a value, as the embedder has it. In a kernel, one that may be taken with
/// preemption off.
pub trait Exclusive<T>: Sync {
    /// An unlocked value.
    fn new(value: T) -> Self;

    /// Does `work` with the value, while nobody else has it. `work` is short, takes no other
    /// lock, and does not panic.
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R;
}

/// A store with the same slots, to which pages go that are not kept.
pub trait Below: Sync {
    /// Writes a page. Called without the lock; may wait for a device.
    ///
    /// # Errors
    /// [`Refused`] if the page was not taken.
    fn write(&self, slot: u64, page: &[u8]) -> Result<(), Refused>;
}

/// The store below did not take a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// No store below.
#[derive(Clone, Copy, Debug)]
pub enum Nowhere {}

impl Below for Nowhere {
    fn write(&self, _slot: u64, _page: &[u8]) -> Result<(), Refused> {
        match *self {}
    }
}

/// Why there is no such store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeError {
    /// Pages are no multiple of 8 bytes, or have 16 MiB and more.
    Page,
    /// There are no slots, or 2^32 - 1 and more.
    Slots,
    /// The memory has no room for a page beside the table of slots, or has 512 GiB and more.
    Memory,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SizeError::Page => "a page has a multiple of 8 bytes, and less than 16 MiB",
            SizeError::Slots => "a compressed store has 1 to 2^32 - 2 slots",
            SizeError::Memory => {
                "the memory of a compressed store has room for a page and half a byte for each \
                 slot, and less than 512 GiB"
            }
        })
    }
}

impl core::error::Error for SizeError {}

/// Why a page was not taken. What the slot had before is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutError {
    /// There is no room for it, and nothing wrong with the slot.
    Full,
    /// The store below did not take it.
    Refused,
    /// There is no such slot, or the page has another size.
    Invalid,
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PutError::Full => "the compressed store is full",
            PutError::Refused => "the store below did not take the page",
            PutError::Invalid => "there is no such slot, or the page has another size",
        })
    }
}

impl core::error::Error for PutError {}

/// Why there is no page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GetError {
    /// Nothing is kept for the slot, and no store is below.
    Missing,
    /// What is kept is no page: the memory of the store was changed by somebody else.
    Damaged,
    /// There is no such slot, or the buffers are for pages of another size.
    Invalid,
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GetError::Missing => "nothing is kept for the slot",
            GetError::Damaged => "what is kept for the slot is no page",
            GetError::Invalid => "there is no such slot, or the buffers have another size",
        })
    }
}

impl core::error::Error for GetError {}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loaded<'s> {
    /// Here; every word of it is this one.
    Same(u64),
    /// Here.
    Page(&'s [u8]),
    /// In the store below, if anywhere.
    Below,
}

/// A compressed store. `L` is the embedder's lock, `M` its memory, `B` what is below.
pub struct Store<L, M, B> {
    pool: L,
    below: Option<B>,
    page_bytes: usize,
    slots: u32,
    /// A copy of what the pool says, for those who only ask.
    has_room: AtomicBool,
    memory: PhantomData<fn(M)>,
}

impl<L, M, B> Store<L, M, B>
where
    L: Exclusive<Pool<M>>,
    M: AsRef<[u8]> + AsMut<[u8]>,
    B: Below,
{
    /// An empty store in `memory`, of pages of `page_bytes` bytes in slots from 0 to below
    /// `slots`, which is all that it will use. What the memory holds does not matter.
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn new(
        memory: M,
        page_bytes: usize,
        slots: u64,
        below: Option<B>,
    ) -> Result<Self, SizeError> {
        if page_bytes == 0 || !page_bytes.is_multiple_of(8) || page_bytes > MOST_BYTES {
            return Err(SizeError::Page);
        }
        let slots = u32::try_from(slots).map_err(|_| SizeError::Slots)?;
        if slots == 0 || slots == u32::MAX {
            return Err(SizeError::Slots);
        }
        let pool = Pool::new(memory, page_bytes, slots);
        let pool = pool.filter(Pool::has_room).ok_or(SizeError::Memory)?;
        Ok(Store {
            pool: L::new(pool),
            below,
            page_bytes,
            slots,
            has_room: AtomicBool::new(true),
            memory: PhantomData,
        })
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Slots that it has.
    pub fn slots(&self) -> u64 {
        u64::from(self.slots)
    }

    /// What is below.
    pub fn below(&self) -> Option<&B> {
        self.below.as_ref()
    }

    /// Whether a page would be taken now, whatever it holds: always, if there is a store below.
    /// Takes no lock.
    pub fn has_room(&self) -> bool {
        self.below.is_some() || self.has_room.load(Ordering::Relaxed)
    }

    fn with<R>(&self, work: impl FnOnce(&mut Pool<M>) -> R) -> R {
        self.pool.with(|pool| {
            let result = work(pool);
            let has_room = pool.has_room();
            if self.has_room.load(Ordering::Relaxed) != has_room {
                self.has_room.store(has_room, Ordering::Relaxed);
            }
            result
        })
    }

    fn slot(&self, slot: u64) -> Option<u32> {
        let slot = u32::try_from(slot).ok()?;
        (slot < self.slots).then_some(slot)
    }

    /// Takes a page for a slot, in the place of what that had. May write other pages back, and
    /// wait for the store below.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put(&self, slot: u64, page: &[u8], scratch: &mut Scratch) -> Result<(), PutError> {
        let slot = self.slot(slot).ok_or(PutError::Invalid)?;
        if page.len() != self.page_bytes || scratch.page_bytes() != self.page_bytes {
            return Err(PutError::Invalid);
        }
        if let Some(word) = repeated_word(page) {
            return self.keep(slot, page, Kept::Same(word), scratch);
        }
        let most = self.page_bytes - self.page_bytes / LEAST_GAIN;
        match scratch.compress(page).filter(|&len| len <= most) {
            Some(len) => self.keep(slot, page, Kept::Compressed(len), scratch),
            None if self.below.is_some() => self.pass_on(slot, page, true),
            None => self.keep(slot, page, Kept::Plain, scratch),
        }
    }

    /// Keeps a page, and makes room for it.
    fn keep(
        &self,
        slot: u32,
        page: &[u8],
        kept: Kept,
        scratch: &mut Scratch,
    ) -> Result<(), PutError> {
        for _ in 0..PATIENCE {
            let bytes = match kept {
                Kept::Same(_) => &[],
                Kept::Compressed(len) => scratch.packed(len),
                Kept::Plain => page,
            };
            if self.with(|pool| pool.put(slot, kept, bytes)) == Ok(()) {
                return Ok(());
            }
            if self.write_back_one(scratch) != Ok(true) {
                break;
            }
        }
        self.pass_on(slot, page, false)
    }

    /// Has a page go below.
    fn pass_on(&self, slot: u32, page: &[u8], is_incompressible: bool) -> Result<(), PutError> {
        let begun = self.with(|pool| {
            pool.remove(slot);
            // An older page of this slot must not be written after this one.
            if self.below.is_none() || pool.is_in_flight(slot) {
                pool.stats.full += 1;
                return Err(Full);
            }
            Ok(())
        });
        let (Ok(()), Some(below)) = (begun, &self.below) else {
            return Err(PutError::Full);
        };
        (below.write(u64::from(slot), page)).map_err(|Refused| PutError::Refused)?;
        self.with(|pool| {
            pool.stats.passed_on += 1;
            pool.stats.incompressible += u64::from(is_incompressible);
        });
        Ok(())
    }

    /// Writes the oldest page back. Whether there was one.
    fn write_back_one(&self, scratch: &mut Scratch) -> Result<bool, Refused> {
        let Some(below) = &self.below else {
            return Ok(false);
        };
        let Some((slot, kept)) = self.with(|pool| pool.begin_out(scratch.held())) else {
            return Ok(false);
        };
        let written = match scratch.unpack(kept) {
            Some(page) => below.write(u64::from(slot), page),
            None => Err(Refused),
        };
        self.with(|pool| pool.end_out(slot, written.is_ok()));
        written.map(|()| true)
    }

    /// Writes up to `pages` of the oldest pages back, for an embedder's task that does so ahead
    /// of need. Returns how many.
    ///
    /// # Errors
    /// [`Refused`] if the store below did not take one, which stays, as the youngest.
    pub fn write_back(&self, pages: u64, scratch: &mut Scratch) -> Result<u64, Refused> {
        if scratch.page_bytes() != self.page_bytes {
            return Ok(0);
        }
        for done in 0..pages {
            if !self.write_back_one(scratch)? {
                return Ok(done);
            }
        }
        Ok(pages)
    }

    /// The page of a slot, or where it is.
    ///
    /// # Errors
    /// [`GetError`].
    pub fn get<'s>(&self, slot: u64, scratch: &'s mut Scratch) -> Result<Loaded<'s>, GetError> {
        let slot = self.slot(slot).ok_or(GetError::Invalid)?;
        if scratch.page_bytes() != self.page_bytes {
            return Err(GetError::Invalid);
        }
        match self.with(|pool| pool.get(slot, scratch.held())) {
            Some(Kept::Same(word)) => Ok(Loaded::Same(word)),
            Some(kept) => {
                let page = scratch.unpack(kept);
                page.map(Loaded::Page).ok_or(GetError::Damaged)
            }
            None if self.below.is_some() => Ok(Loaded::Below),
            None => Err(GetError::Missing),
        }
    }

    /// Gives up what is kept for a slot. Only takes the lock.
    pub fn free(&self, slot: u64) {
        if let Some(slot) = self.slot(slot) {
            self.with(|pool| pool.remove(slot));
        }
    }

    /// Gives up everything.
    pub fn clear(&self) {
        for slot in 0..self.slots {
            self.with(|pool| pool.remove(slot));
        }
    }

    /// What it holds and has done.
    pub fn stats(&self) -> Stats {
        self.with(|pool| pool.stats)
    }

    /// Checks counts and lists, while no page is being written back.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit(&self) -> Result<(), &'static str> {
        self.with(|pool| pool.audit())
    }
}

/// The word that a whole page repeats, if it does.
fn repeated_word(page: &[u8]) -> Option<u64> {
    let word = size_of::<u64>();
    let is_repeated = page[word..] == page[..page.len() - word];
    is_repeated.then(|| u64_at(page, 0))
}
