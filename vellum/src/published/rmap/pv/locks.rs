//! Which lock guards the list of a page (`pvlock=`), and where the list begins.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::entry::EntryName;
use crate::addr::Pfn;
use crate::design::PvLock;
use crate::published::sync::{Bucket, ByteLock, RawLock, Waited};
use crate::slab::ArenaMaker;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::report::name;
use crate::sync::{Pin, bytes};

/// Log2 of the frames that have a lock together: 2 MiB of 4 KiB frames.
pub(super) const NEIGHBOURS: u32 = 9;
/// Locks of `pvlock=hashed`: `NPV_LIST_LOCKS`, which is the most CPUs of a kernel.
const HASHED: usize = 256;

/// Where the list of a page's entries begins.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub(super) struct PageHead {
    first: AtomicU64,
    /// Advances with every change of the list.
    generation: AtomicU32,
    /// The page's own lock, with `pvlock=byte` and `byte-shared`. It lies beside what it guards, as
    /// in FreeBSD's `md_page`.
    lock: ByteLock,
}

const _: () = assert!(size_of::<PageHead>() == 16);

impl PageHead {
    #[inline]
    pub fn first(&self) -> EntryName {
        EntryName(self.first.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn set_first(&self, name: EntryName) {
        self.first.store(name.0, Ordering::Relaxed);
    }

    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The list is another. Under its lock.
    #[inline]
    pub fn advance(&self) {
        let next = self.generation().wrapping_add(1);
        self.generation.store(next, Ordering::Relaxed);
    }
}

/// One of the locks of `pvlock=hashed`, of the size of FreeBSD's: two on a line.
#[derive(Debug, Default)]
#[repr(align(32))]
struct HashedLock(RawLock);

/// What the pages of 2 MiB have together: their lock with `pvlock=superpage`, and where
/// those park who wait for a page's.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Neighbourhood {
    lock: RawLock,
    bucket: Bucket,
}

/// One of the locks: a number among those of its kind, and above it whether it is the
/// lock of a superpage's list where that has one of its own (locks of one byte).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LockName(u64);

impl LockName {
    const LARGE: u64 = 1 << 32;

    #[inline]
    const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Of a page's own lock, that of the page `count` further on.
    #[inline]
    pub const fn of_page_after(self, count: u32) -> LockName {
        LockName(self.0 + count as u64)
    }

    #[inline]
    const fn is_large(self) -> bool {
        self.0 & LockName::LARGE != 0
    }
}

/// When entries were taken from pages that have a lock together, or their locks in one
/// place (FreeBSD: `pv_invl_gen`).
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stamp(AtomicU64);

/// The heads of all lists, and their locks.
pub(super) struct PvListLocks {
    kind: PvLock,
    first: Pfn,
    heads: Box<[PageHead]>,
    /// Heads of the lists of superpages, by 2 MiB (FreeBSD: `pv_table`).
    large: Box<[PageHead]>,
    hashed: Box<[HashedLock]>,
    neighbourhoods: Box<[Neighbourhood]>,
    /// None if nobody waits for flushes.
    stamps: Box<[Stamp]>,
}

fn many<T: Default>(what: &'static str, count: usize) -> Box<[T]> {
    let all: Vec<T> = (0..count).map(|_| T::default()).collect();
    let all = all.into_boxed_slice();
    name(what, &[], all.as_ptr(), count);
    all
}

impl PvListLocks {
    pub fn new(kind: PvLock, has_stamps: bool, arenas: &ArenaMaker) -> PvListLocks {
        let (first, end) = arenas.span();
        let frames = (end.0 - first.0) as usize;
        let large = (end.0.div_ceil(1 << NEIGHBOURS) - (first.0 >> NEIGHBOURS)) as usize;
        let (hashed, own) = match kind {
            PvLock::Hashed => (HASHED, 0),
            PvLock::Superpage | PvLock::Byte | PvLock::ByteShared => (0, large),
        };
        PvListLocks {
            kind,
            first,
            heads: many("pv list heads", frames),
            hashed: many("pv list locks", hashed),
            large: many("pv list heads of 2 MiB", large),
            neighbourhoods: many("pv locks of 2 MiB", own),
            stamps: many("pv stamps", if has_stamps { hashed.max(own) } else { 0 }),
        }
    }

    /// The head of a page's list.
    #[inline]
    pub fn head(&self, frame: Pfn) -> &PageHead {
        &self.heads[frame.0.wrapping_sub(self.first.0) as usize]
    }

    /// The head of the list of a superpage, of which `frame` is one.
    #[inline]
    pub fn large_head(&self, frame: Pfn) -> &PageHead {
        &self.large[((frame.0 >> NEIGHBOURS) - (self.first.0 >> NEIGHBOURS)) as usize]
    }

    fn stamp_of(&self, frame: Pfn) -> &AtomicU64 {
        let place = match self.kind {
            PvLock::Hashed => (frame.0 >> NEIGHBOURS) as usize % HASHED,
            _ => ((frame.0 >> NEIGHBOURS) - (self.first.0 >> NEIGHBOURS)) as usize,
        };
        &self.stamps[place].0
    }

    /// An entry of a page is cleared by somebody who flushes later. Under its lock.
    #[inline]
    pub fn stamp(&self, frame: Pfn, generation: u64) {
        let stamp = self.stamp_of(frame);
        if stamp.load(Ordering::Relaxed) >= generation {
            return;
        }
        match self.kind {
            // The locks of other pages do not keep their holders away.
            PvLock::Byte | PvLock::ByteShared => {
                stamp.fetch_max(generation, Ordering::Relaxed);
            }
            _ => stamp.store(generation, Ordering::Relaxed),
        }
    }

    /// The latest stamp of a page and those that share it. Under the page's lock or after
    /// it was held.
    pub fn stamped(&self, frame: Pfn) -> u64 {
        self.stamp_of(frame).load(Ordering::Relaxed)
    }

    /// Asks for the head.
    #[inline]
    pub fn prefetch(&self, frame: Pfn) {
        bytes::prefetch(self.head(frame));
    }

    /// The lock of a page.
    #[inline]
    pub fn of(&self, frame: Pfn) -> LockName {
        LockName(u64::from(match self.kind {
            PvLock::Hashed => (frame.0 >> NEIGHBOURS) % HASHED as u32,
            PvLock::Superpage => frame.0 >> NEIGHBOURS,
            PvLock::Byte | PvLock::ByteShared => frame.0,
        }))
    }

    /// The lock of the list of a superpage, of which `frame` is one. If it is not that of
    /// the page too, it comes after those of all pages.
    #[inline]
    pub fn of_large(&self, frame: Pfn) -> LockName {
        match self.kind {
            PvLock::Byte | PvLock::ByteShared => {
                let first = frame.0 >> NEIGHBOURS << NEIGHBOURS;
                LockName(LockName::LARGE | u64::from(first))
            }
            _ => self.of(frame),
        }
    }

    /// Whether a lock is worth keeping for the next page.
    #[inline]
    pub fn are_shared(&self) -> bool {
        matches!(self.kind, PvLock::Hashed | PvLock::Superpage)
    }

    #[inline]
    fn neighbourhood(&self, number: u32) -> &Neighbourhood {
        &self.neighbourhoods[(number - (self.first.0 >> NEIGHBOURS)) as usize]
    }

    #[inline]
    fn bucket(&self, frame: u32) -> &Bucket {
        &self.neighbourhood(frame >> NEIGHBOURS).bucket
    }

    #[inline]
    pub(crate) fn acquire(&self, lock: LockName, pin: &Pin<'_>) -> Waited {
        let number = lock.number();
        match self.kind {
            PvLock::Hashed => self.hashed[number as usize].0.acquire(pin),
            PvLock::Superpage => self.neighbourhood(number).lock.acquire(pin),
            PvLock::Byte | PvLock::ByteShared => self.byte(lock).acquire(self.bucket(number), pin),
        }
    }

    #[inline]
    fn byte(&self, lock: LockName) -> &ByteLock {
        let frame = Pfn(lock.number());
        match lock.is_large() {
            false => &self.head(frame).lock,
            true => &self.large_head(frame).lock,
        }
    }

    #[inline]
    pub fn release(&self, lock: LockName, pin: &Pin<'_>) {
        let number = lock.number();
        match self.kind {
            PvLock::Hashed => self.hashed[number as usize].0.release(pin),
            PvLock::Superpage => self.neighbourhood(number).lock.release(pin),
            PvLock::Byte | PvLock::ByteShared => {
                self.byte(lock).release(self.bucket(number), pin);
            }
        }
    }

    /// Takes a lock to look at the list only: others may, too, if the lock can be shared.
    #[inline]
    pub fn acquire_to_read(&self, lock: LockName, pin: &Pin<'_>) -> Waited {
        match self.kind {
            PvLock::ByteShared => {
                let bucket = self.bucket(lock.number());
                self.byte(lock).acquire_shared(bucket, pin)
            }
            _ => self.acquire(lock, pin),
        }
    }

    /// Ends what [`PvListLocks::acquire_to_read`] began.
    #[inline]
    pub fn release_read(&self, lock: LockName, pin: &Pin<'_>) {
        match self.kind {
            PvLock::ByteShared => {
                let bucket = self.bucket(lock.number());
                self.byte(lock).release_shared(bucket, pin);
            }
            _ => self.release(lock, pin),
        }
    }

    /// Whether who has the lock to read may change the list, until [`PvListLocks::read_on`]:
    /// no, if the lock can be shared, and others do.
    #[inline]
    pub fn try_to_change(&self, lock: LockName) -> bool {
        match self.kind {
            PvLock::ByteShared => self.byte(lock).try_upgrade(),
            _ => true,
        }
    }

    /// Who has the lock alone only looks at the list from now on.
    #[inline]
    pub fn read_on(&self, lock: LockName) {
        if self.kind == PvLock::ByteShared {
            self.byte(lock).share(self.bucket(lock.number()));
        }
    }

    /// Whether the lock of a page is held, for audits.
    pub(crate) fn is_held(&self, frame: Pfn) -> bool {
        let number = self.of(frame).number();
        match self.kind {
            PvLock::Hashed => self.hashed[number as usize].0.is_held(),
            PvLock::Superpage => self.neighbourhood(number).lock.is_held(),
            PvLock::Byte | PvLock::ByteShared => {
                self.head(frame).lock.is_held() || self.large_head(frame).lock.is_held()
            }
        }
    }
}
