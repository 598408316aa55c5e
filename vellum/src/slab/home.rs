//! Chunks that become empty and go.
//!
//! Where an arena keeps its frames only [while somebody is pinned](super::WhilePinned), vacant slots
//! that no CPU needs can go *home*: each onto a list of its own chunk's. From there they are taken
//! again when the depot has none. A chunk all of whose slots are at home is in nobody's lists, so
//! it can go: its entry is cleared, its frame waits for its epoch, and its number is the next
//! chunk's. This is how magazines lie above slabs (Bonwick and Adams, USENIX 2001), but that slots
//! go down to the slabs only when memory is wanted.
//!
//! One lock guards it. No slot comes here on its way between the lists of CPUs and the depot.

use super::directory::{Directory, Entry, Zeroable};
use crate::addr::Pfn;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::limbo::Chain;
use crate::sync::list::{Link, Links, List, NONE};
use crate::sync::{Pin, SpinLock};

/// How handles of slots are made, and where their links are.
pub(super) trait Layout {
    /// Log2 of the handles that a chunk takes up, and the slots that it has.
    fn chunk(&self) -> (u32, u32);
    /// The link of a slot that is vacant and in no list of anybody else's.
    fn link_of(&self, slot: u32) -> &AtomicU32;
}

/// What is known of a number beside its entry in the directory.
#[repr(C)]
pub(super) struct Book {
    /// The chunk's neighbours among those with slots at home; a number's without a chunk among
    /// those that were given back.
    neighbours: Link,
    /// The chunk's frame.
    frame: AtomicU32,
    /// Slots at home: their number, and above it which is the first.
    vacant: AtomicU32,
}

// SAFETY: it is made of atomic integers.
unsafe impl Zeroable for Book {}

const COUNT_BITS: u32 = 16;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;

/// Slots that go home while the lock is held.
const MOST_AT_ONCE: u32 = 64;

/// Slots that a chunk may have to be given back.
pub(super) const MOST_SLOTS: u32 = COUNT_MASK;

impl Book {
    /// Slots at home, and the first of them within the chunk.
    fn vacant(&self) -> (u32, u32) {
        let vacant = self.vacant.load(Ordering::Relaxed);
        (vacant & COUNT_MASK, vacant >> COUNT_BITS)
    }

    fn set_vacant(&self, count: u32, first: u32) {
        self.vacant
            .store(first << COUNT_BITS | count, Ordering::Relaxed);
    }
}

impl Links for Directory<Book> {
    fn link(&self, number: u32) -> &Link {
        &self.book(number).neighbours
    }
}

impl Directory<Book> {
    fn book(&self, number: u32) -> &Book {
        let Some(book) = self.entry(number) else {
            unreachable!("a chunk's number has a book");
        };
        book
    }
}

/// Chunks by their numbers.
#[derive(Default)]
struct Chunks {
    /// With slots at home.
    partial: List,
    /// Numbers of those that were given back.
    gone: List,
}

/// The slots of an arena that are at home, and the numbers of chunks that went.
pub(super) struct Home {
    pub(super) books: Directory<Book>,
    chunks: SpinLock<Chunks>,
    /// Slots at home, for readers without the lock.
    slots: AtomicU32,
    /// Numbers without a chunk, likewise.
    numbers: AtomicU32,
    /// Chunks that were given back, ever.
    returned: AtomicU32,
}

impl Home {
    /// For chunks numbered 1 to `chunks`, in frames of `1 << frame_shift` bytes.
    pub(super) fn new(chunks: u32, frame_shift: u32) -> Home {
        Home {
            books: Directory::new(chunks, frame_shift),
            chunks: SpinLock::default(),
            slots: AtomicU32::new(0),
            numbers: AtomicU32::new(0),
            returned: AtomicU32::new(0),
        }
    }

    /// Slots at home.
    pub(super) fn slots(&self) -> u32 {
        self.slots.load(Ordering::Relaxed)
    }

    /// Numbers of chunks that went.
    pub(super) fn numbers(&self) -> u32 {
        self.numbers.load(Ordering::Relaxed)
    }

    /// Chunks that went, ever.
    pub(super) fn returned(&self) -> u32 {
        self.returned.load(Ordering::Relaxed)
    }

    /// The number of a chunk that went, for a new one.
    pub(super) fn take_number(&self, pin: &Pin<'_>) -> Option<u32> {
        if self.numbers() == 0 {
            return None;
        }
        let mut chunks = self.chunks.lock(pin);
        let number = chunks.gone.first();
        if number == NONE {
            return None;
        }
        chunks.gone.remove(&self.books, number);
        self.numbers.store(self.numbers() - 1, Ordering::Relaxed);
        Some(number)
    }

    /// Notes the frame of a chunk that is about to be.
    pub(super) fn note_frame(&self, number: u32, frame: Pfn) {
        let book = self.books.book(number);
        book.frame.store(frame.0, Ordering::Relaxed);
    }

    /// Sends some vacant slots home, which the caller alone has, up to the first that makes a chunk
    /// empty. Returns the frame of that, whose entry is cleared: whoever is pinned may still see it.
    pub(super) fn send(
        &self,
        directory: &Directory<Entry>,
        layout: &dyn Layout,
        list: &mut Chain,
        pin: &Pin<'_>,
    ) -> Option<Pfn> {
        let (bits, all) = layout.chunk();
        let mut chunks = self.chunks.lock(pin);
        for _ in 0..MOST_AT_ONCE {
            let left = list.count.checked_sub(1)?;
            let slot = list.head;
            let link = layout.link_of(slot);
            (list.head, list.count) = (link.load(Ordering::Relaxed), left);
            let number = slot >> bits;
            let book = self.books.book(number);
            let (count, first) = book.vacant();
            if count + 1 == all {
                if count > 0 {
                    chunks.partial.remove(&self.books, number);
                }
                book.set_vacant(0, 0);
                let entry = directory.entry(number);
                debug_assert!(entry.is_some(), "a chunk without an entry");
                entry?.clear();
                chunks.gone.push_back(&self.books, number);
                self.slots.store(self.slots() - count, Ordering::Relaxed);
                self.numbers.store(self.numbers() + 1, Ordering::Relaxed);
                let returned = self.returned() + 1;
                self.returned.store(returned, Ordering::Relaxed);
                return Some(Pfn(book.frame.load(Ordering::Relaxed)));
            }
            if count == 0 {
                chunks.partial.push_back(&self.books, number);
            }
            let next = if count == 0 {
                0
            } else {
                number << bits | first
            };
            link.store(next, Ordering::Relaxed);
            book.set_vacant(count + 1, slot & ((1 << bits) - 1));
            self.slots.store(self.slots() + 1, Ordering::Relaxed);
        }
        None
    }

    /// Takes up to `most` slots that are at home, of as few chunks as have them.
    pub(super) fn take(&self, layout: &dyn Layout, most: u32, pin: &Pin<'_>) -> Option<Chain> {
        if self.slots() == 0 {
            return None;
        }
        let (bits, _) = layout.chunk();
        let mut chunks = self.chunks.lock(pin);
        let mut taken = Chain::EMPTY;
        while taken.count < most && chunks.partial.first() != NONE {
            let number = chunks.partial.first();
            let book = self.books.book(number);
            let (count, first) = book.vacant();
            let slot = number << bits | first;
            let link = layout.link_of(slot);
            let next = link.load(Ordering::Relaxed) & ((1 << bits) - 1);
            link.store(taken.head, Ordering::Relaxed);
            if taken.count == 0 {
                taken.tail = slot;
            }
            (taken.head, taken.count) = (slot, taken.count + 1);
            book.set_vacant(count - 1, next);
            if count == 1 {
                chunks.partial.remove(&self.books, number);
            }
        }
        self.slots
            .store(self.slots() - taken.count, Ordering::Relaxed);
        (taken.count > 0).then_some(taken)
    }

    /// How many slots of a chunk are at home, and the first of them, for the audit.
    pub(super) fn vacant_of(&self, number: u32, bits: u32) -> (u32, u32) {
        let (count, first) = self.books.entry(number).map_or((0, 0), Book::vacant);
        (count, number << bits | first)
    }
}
