//! Entries, the pages that they come in, and their names.
//!
//! A chunk is one frame: a header of 64 bytes and 168 entries of 24. It belongs to one
//! address space, so an entry need not say to which. Nothing else refers to a chunk by
//! its address: an entry is named by its frame and its place there, and a name is
//! followed only
//!
//! * in the list of a page, under the page's lock: an entry leaves that list before it
//!   is free, and a chunk with an entry in use stays a chunk;
//! * by whoever took the entry out of the chunk and has not put it back;
//! * for a chunk in a list of its space, under the lock of the space; for one in the list
//!   of its node, under the lock of that list. A chunk leaves both before its frame goes.

use core::ptr::NonNull;

use crate::addr::{Pfn, Vpn};
use crate::frame::{PhysicalMemory, Relief, Site};
use crate::platform::Platform;
use crate::slab::Item;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::list::{Link, Links};

/// Entries in a chunk.
pub(super) const ENTRIES_PER_CHUNK: usize = 168;

/// Bits of the last word of the bitmap that stand for entries.
const LAST_WORD: u64 = (1 << (ENTRIES_PER_CHUNK - 128)) - 1;

/// One mapping of one frame: where, and its neighbours in the list of the frame.
#[derive(Debug)]
#[repr(C)]
pub(super) struct PvEntry {
    page: AtomicU64,
    next: AtomicU64,
    previous: AtomicU64,
}

impl PvEntry {
    const fn vacant() -> PvEntry {
        PvEntry {
            page: AtomicU64::new(0),
            next: AtomicU64::new(0),
            previous: AtomicU64::new(0),
        }
    }

    #[inline]
    pub fn page(&self) -> Vpn {
        Vpn(self.page.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn set_page(&self, page: Vpn) {
        self.page.store(page.0, Ordering::Relaxed);
    }

    #[inline]
    pub fn next(&self) -> EntryName {
        EntryName(self.next.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn set_next(&self, name: EntryName) {
        self.next.store(name.0, Ordering::Relaxed);
    }

    #[inline]
    pub fn previous(&self) -> EntryName {
        EntryName(self.previous.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn set_previous(&self, name: EntryName) {
        self.previous.store(name.0, Ordering::Relaxed);
    }
}

/// The name of an entry: its chunk's frame and its place there, counted from 1; or its
/// handle in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EntryName(pub u64);

impl EntryName {
    pub const NONE: EntryName = EntryName(0);

    #[inline]
    pub const fn in_chunk(chunk: Pfn, place: usize) -> EntryName {
        EntryName((chunk.0 as u64) << 8 | (place as u64 + 1))
    }

    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The chunk.
    #[inline]
    pub const fn chunk(self) -> Pfn {
        Pfn((self.0 >> 8) as u32)
    }

    /// The place in the chunk.
    #[inline]
    const fn place(self) -> usize {
        (self.0 & 0xff) as usize - 1
    }
}

/// An entry of the arena.
#[derive(Debug)]
#[repr(C)]
pub(super) struct SlabEntry {
    pub entry: PvEntry,
    /// What a chunk says of all its entries: whose it is.
    pub owner: AtomicU32,
    link: AtomicU32,
}

impl Item for SlabEntry {
    const SITE: Site = Site::PvEntry;
    const SHARE: usize = 8;
    const RELIEF: Relief = Relief::Memory;

    fn vacant() -> Self {
        SlabEntry {
            entry: PvEntry::vacant(),
            owner: AtomicU32::new(0),
            link: AtomicU32::new(0),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// A page of entries.
#[repr(C, align(64))]
pub(super) struct Chunk {
    /// Whose it is: a handle of what pv entries keep of spaces. 0 once it leaves.
    owner: AtomicU32,
    /// Entries in use.
    used: AtomicU32,
    /// In one of the lists of its space.
    of_space: Link,
    /// In the list of its node.
    of_node: Link,
    /// Set bits are free entries.
    free: [AtomicU64; 3],
    reserved: [AtomicU64; 2],
    entries: [PvEntry; ENTRIES_PER_CHUNK],
}

const _: () = assert!(cfg!(vellum_instrumented) || size_of::<PvEntry>() == 24);
const _: () = assert!(size_of::<Chunk>() == 4096);

impl Chunk {
    /// The chunk in a frame.
    ///
    /// The frame is a chunk's, and stays one for as long as the reference is used: see
    /// the head of this file. Names come from chunks alone, which [`Chunk::make`] made.
    #[inline]
    pub fn at<P: Platform>(memory: &PhysicalMemory<P>, frame: Pfn) -> &Chunk {
        let place: NonNull<Chunk> = memory.direct(frame).cast();
        // SAFETY: the frame has at least 4096 bytes at an address aligned to its size
        // (conditions 1 and 2 of `Platform`), which lie there as long as the platform
        // lives. It holds a chunk, which is made of atomic words alone, for as long as
        // the caller uses the reference.
        unsafe { place.as_ref() }
    }

    /// Makes a frame of the caller's own a chunk without used entries.
    pub fn make<P: Platform>(memory: &PhysicalMemory<P>, frame: Pfn, owner: u32) -> &Chunk {
        const { assert!(size_of::<Chunk>() <= 4096) };
        // All words of the header are set; entries are written when they are taken.
        // Whatever their bytes are is a value of them.
        let chunk = Chunk::at(memory, frame);
        chunk.owner.store(owner, Ordering::Relaxed);
        chunk.used.store(0, Ordering::Relaxed);
        for (word, all) in chunk.free.iter().zip([u64::MAX, u64::MAX, LAST_WORD]) {
            word.store(all, Ordering::Relaxed);
        }
        chunk
    }

    #[inline]
    pub fn owner(&self) -> u32 {
        self.owner.load(Ordering::Relaxed)
    }

    /// The chunk has no used entry and leaves its space. Under the lock of the space.
    pub fn leave(&self) {
        self.owner.store(0, Ordering::Relaxed);
    }

    #[inline]
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.used() as usize == ENTRIES_PER_CHUNK
    }

    /// Takes a free entry, the first. Under the lock of the space.
    #[inline]
    pub fn take(&self) -> Option<usize> {
        for (number, word) in self.free.iter().enumerate() {
            let free = word.load(Ordering::Relaxed);
            if free != 0 {
                word.store(free & (free - 1), Ordering::Relaxed);
                self.used.store(self.used() + 1, Ordering::Relaxed);
                return Some(number * 64 + free.trailing_zeros() as usize);
            }
        }
        None
    }

    /// Takes an entry back. Under the lock of the space.
    #[inline]
    pub fn give(&self, name: EntryName) {
        let (word, bit) = (&self.free[name.place() / 64], 1 << (name.place() % 64));
        let free = word.load(Ordering::Relaxed);
        debug_assert!(free & bit == 0, "an entry is freed twice");
        word.store(free | bit, Ordering::Relaxed);
        self.used.store(self.used() - 1, Ordering::Relaxed);
    }

    /// Whether an entry is in use.
    pub fn has(&self, name: EntryName) -> bool {
        let free = self.free[name.place() / 64].load(Ordering::Relaxed);
        free & (1 << (name.place() % 64)) == 0
    }

    /// The entry of that name.
    #[inline]
    pub fn entry(&self, name: EntryName) -> &PvEntry {
        &self.entries[name.place()]
    }

    /// The pages of the used entries. Those that are taken and not in a list yet say
    /// something older. Under the lock of the space.
    pub fn pages(&self, pages: &mut [Vpn; ENTRIES_PER_CHUNK]) -> usize {
        let mut count = 0;
        for (number, word) in self.free.iter().enumerate() {
            let all = if number == 2 { LAST_WORD } else { u64::MAX };
            for bit in crate::addr::set_bits(!word.load(Ordering::Relaxed) & all) {
                pages[count] = self.entries[number * 64 + bit as usize].page();
                count += 1;
            }
        }
        count
    }

    /// Where the chunk is in the list of its node.
    pub fn of_node(&self) -> &Link {
        &self.of_node
    }
}

/// The links of chunks in lists of their space, by frame.
pub(super) struct OfSpace<'a, P: Platform>(pub &'a PhysicalMemory<P>);

impl<P: Platform> Links for OfSpace<'_, P> {
    #[inline]
    fn link(&self, name: u32) -> &Link {
        &Chunk::at(self.0, Pfn(name)).of_space
    }
}
