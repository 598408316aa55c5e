//! What backs memory beside private pages: files and shared memory.
//!
//! An object is a row of pages, some of them in frames (the page cache), and
//! the set of regions that map parts of it. Private anonymous pages belong to
//! no object: their frames belong to the space that made them.
//!
//! Locking. A page's content is changed as a whole (filled, truncated, written
//! back) under its page lock, a bit in its frame record on which tasks sleep.
//! The object's spin lock guards its radix tree; another guards its tree of
//! regions. Writes and truncations of the same pages exclude each other by a lock on
//! ranges of the object, which is held over the whole of them. Order: that, page lock,
//! the lock of the tree of regions, table locks, the lock of the radix tree.
//!
//! # Under `read` and `write`
//! A kernel's file system in memory is a mount, with a limit in pages, and objects in it.
//! What a descriptor means is the kernel's own: a position, and an
//! [`OpenFile`](crate::space::OpenFile).
//!
//! ```
//! # use core::ptr::NonNull;
//! # use vellum::addr::Pfn;
//! # use vellum::platform::*;
//! # use vellum::rmap::Family;
//! # use vellum::table::X86_64;
//! # use vellum::Design;
//! use vellum::Vm;
//! use vellum::space::{FileError, FileRequest, OpenFile, ReadRequest, WriteRequest};
//! # struct Board { ram: NonNull<u8>, map: [MemoryRange; 1] }
//! # unsafe impl Sync for Board {}
//! # unsafe impl Machine for Board {
//! #     fn cpus(&self) -> usize { 1 }
//! #     fn memory_map(&self) -> &[MemoryRange] { &self.map }
//! #     fn pin(&self) -> CpuId { CpuId(0) }
//! #     fn unpin(&self, _: CpuId) {}
//! #     fn frame(&self, frame: Pfn) -> NonNull<u8> { unsafe { self.ram.add(frame.index() << 12) } }
//! #     fn flush(&self, _: CpuId, _: CpuSet<'_>, _: &Flush) {}
//! # }
//! # impl Sleep for Board {
//! #     fn current_task(&self) -> TaskToken { TaskToken(0) }
//! #     fn park(&self) {}
//! #     fn unpark(&self, _: TaskToken) {}
//! # }
//! # impl Store for Board {}
//! # impl Policy for Board {}
//! # let layout = std::alloc::Layout::from_size_align(16 << 20, 4096)?;
//! # let ram = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or("no memory")?;
//! # let range = MemoryRange::new(Pfn(0), 4096);
//! # type Kernel = Vm<Board, X86_64, Family>;
//! # let vm: Kernel = Vm::new(Board { ram, map: [range] }, Design::default())?;
//!
//! /// What a descriptor leads to.
//! struct Descriptor { file: OpenFile, position: u64, appends: bool }
//!
//! fn sys_write(vm: &Kernel, to: &mut Descriptor, bytes: &[u8]) -> Result<usize, FileError> {
//!     let file = to.file.on(vm);
//!     if to.appends {
//!         let (place, count) = file.write(WriteRequest::append(&[bytes]))?;
//!         to.position = place + count as u64;
//!         return Ok(count);
//!     }
//!     let count = file.write(WriteRequest::bytes(to.position, &[bytes]))?;
//!     to.position += count as u64;
//!     Ok(count)
//! }
//!
//! fn sys_read(vm: &Kernel, from: &mut Descriptor, bytes: &mut [u8]) -> Result<usize, FileError> {
//!     let count = from.file.on(vm).read(ReadRequest::bytes(from.position, &mut [bytes]))?;
//!     from.position += count as u64;
//!     Ok(count)
//! }
//!
//! let mount = vm.create_mount(100)?; // pages
//! // open(O_CREAT): the directory keeps `file.id()`
//! let file = vm.create_file(FileRequest::in_mount(mount.id()))?;
//! let mut log = Descriptor { file: file.open()?, position: 0, appends: true };
//! sys_write(&vm, &mut log, b"one, ")?;
//! sys_write(&vm, &mut log, b"two")?;
//!
//! let mut reader = Descriptor { file: file.open()?, position: 5, appends: false };
//! let mut bytes = [0; 100];
//! assert_eq!(sys_read(&vm, &mut reader, &mut bytes)?, 3);
//! assert_eq!(&bytes[..3], b"two");
//!
//! // Three pages with data, of which one is a hole again; a fault could map any of them.
//! file.write(WriteRequest::bytes(20 * 4096, &[&[7; 4096], &[8; 4096]]))?;
//! file.punch_hole(20 * 4096, 4096)?;
//! assert_eq!(file.seek_data(4096), Ok(21 * 4096));
//! assert_eq!(mount.stats()?.used, 2);
//! let more = WriteRequest::bytes(0, &[&[1; 200 * 4096]]);
//! assert_eq!(file.write(more), Ok(100 * 4096)); // the mount is full
//! assert_eq!(sys_write(&vm, &mut log, b"more"), Err(FileError::Full));
//!
//! for open in [log.file, reader.file] {
//!     assert!(vm.close(open).is_ok(), "of another manager");
//! }
//! file.release()?; // unlink
//! mount.release()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod errors;
mod growth;
pub(crate) mod links;
mod lru;
mod marks;
mod mount;
mod page_lock;
mod radix;
mod region_set;
mod regions;
mod runs;
mod seals;
mod spread;
mod swapped;

#[cfg(test)]
mod tests;

pub(crate) use cache::HoldsPages;
pub use cache::{CacheError, CachedPage, Objects};
pub use errors::Told;
pub(crate) use errors::WriteErrors;
pub use lru::{AgedPage, Aging, Inserted};
pub use mount::{MountId, MountStats};
pub use page_lock::PageLock;
#[cfg(any(test, feature = "published"))]
pub(crate) use page_lock::PageLocks;
pub use radix::{INDEX_END, Radix, RadixNode, RadixNodes};
pub(crate) use radix::{LOST_SLOT, SLOTS_END};
pub(crate) use region_set::RegionRoots;
pub use regions::MappedBy;
pub(crate) use regions::{Interval, Pass};
pub(crate) use runs::{NewPages, NewRun, RUN_PAGES, run_length};
pub use seals::Seals;

use core::mem::offset_of;

use crate::addr::Pfn;
use crate::frame::Site;
use crate::platform::GroupId;
use crate::slab::Item;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::report::Fields;
use crate::sync::{CutCount, Length, RangeLock, SpinLock};

/// What an object's pages are made of before anything is written to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// Zeroes; gone with the last user (shared anonymous memory, tmpfs).
    SharedMemory,
    /// The backing store with this number.
    File {
        /// The store, as the platform knows it.
        store: u64,
    },
    /// Frames that the manager does not manage: a device's, or the embedder's own. The object
    /// belongs to the regions that came of one request, and no call takes its name.
    Unmanaged {
        /// The frame that its first page shows.
        first: Pfn,
        /// Whether its pages have entries from the start, and no faults.
        at_once: bool,
    },
}

/// Names an object. Stale names are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectId {
    pub(crate) handle: u32,
    pub(crate) generation: u32,
}

impl ObjectId {
    /// The name as a number that is never 0, to keep in a record elsewhere.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.handle as u64
    }

    /// From [`ObjectId::to_bits`]. A number that names no object is noticed
    /// where it is used.
    pub const fn from_bits(bits: u64) -> ObjectId {
        ObjectId {
            handle: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

const STORE_BIT: u64 = 1 << 63;
/// In a word without [`STORE_BIT`]: the object stands for frames, of which the first is in the
/// low half.
const UNMANAGED_BIT: u64 = 1 << 62;
const AT_ONCE_BIT: u64 = 1 << 61;
/// What an object was told of superpages.
const HUGE: u32 = 2;
const NOT_HUGE: u32 = 1;

/// An object.
///
/// The first line changes rarely. What a page changes that comes or goes is in the second,
/// and with it the length: who adds pages at the end takes that line from others, and no
/// other. What a region changes that begins or ends to map the object is in the third.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Object<S = ()> {
    generation: AtomicU32,
    /// [`STORE_BIT`] and the store's number, [`UNMANAGED_BIT`] and a frame's, or 0.
    store: AtomicU64,
    /// Root of the radix tree.
    cache: AtomicU64,
    /// Advances when pages or parts of them are cut off or punched out.
    pub(crate) cuts: CutCount,
    /// Handle of the mount whose limit its pages count against, or 0.
    mount: AtomicU32,
    link: AtomicU32,
    /// [`HUGE`], [`NOT_HUGE`], or 0.
    huge: AtomicU32,
    /// The group that is charged for its length, if it is (`commit=`).
    committer: AtomicU32,
    /// For how many pages, and 1; or 0.
    committed: AtomicU64,
    seals: seals::SealWord,
    /// 1 while pages change places: `pages` says then from which on.
    shifting: AtomicU32,
    second_line: NextLine,
    /// Length in pages.
    pages: Length,
    /// Length in bytes; `pages` is as many as these need.
    size: AtomicU64,
    /// Changed under `cache_lock`: frames in the radix tree.
    cached: AtomicU64,
    /// Changed under `cache_lock`: swap slots in the radix tree.
    swapped: AtomicU64,
    /// Frames in the radix tree that are marked as newer than the backing store.
    dirty: AtomicU64,
    cache_lock: SpinLock<()>,
    /// What its store refused.
    pub(crate) errors: WriteErrors,
    /// Of a file, the index where the next background write-back begins. Of shared memory, the
    /// run of frames that is set aside for its growth (`growth`), or 0.
    next: AtomicU64,
    third_line: NextLine,
    /// The regions that map it.
    regions: RegionRoots,
    /// Users: whoever opened it, and each region that maps it. 0: vacant.
    users: AtomicU32,
    /// 1 as long as whoever made it is one of the users.
    is_owned: AtomicU32,
    /// The policy of nodes of its pages ([`Object::policy`]).
    policy: AtomicU64,
    /// What whoever has the objects keeps in each; the manager keeps nothing.
    pub state: S,
    /// Ranges of pages that are being written, cut off or punched out. Who changes
    /// the length holds everything from the old end on, or the new one if that is less.
    pub(crate) writers: RangeLock,
}

/// What follows begins a line of the cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct NextLine;

impl<S: Default + Send + Sync + 'static> Item for Object<S> {
    const SITE: Site = Site::Object;
    const SHARE: usize = 16;
    const FIELDS: Fields = &[
        ("name and root", 0),
        ("length and cache", offset_of!(Object<S>, pages)),
        ("regions", offset_of!(Object<S>, regions)),
        ("writers", offset_of!(Object<S>, writers)),
        (
            "ranges of writers",
            offset_of!(Object<S>, writers) + RangeLock::RANGES_AT,
        ),
    ];

    fn vacant() -> Self {
        Object {
            generation: AtomicU32::new(0),
            store: AtomicU64::new(0),
            cache: AtomicU64::new(0),
            cuts: CutCount::default(),
            mount: AtomicU32::new(0),
            link: AtomicU32::new(0),
            huge: AtomicU32::new(0),
            committer: AtomicU32::new(0),
            committed: AtomicU64::new(0),
            seals: seals::SealWord::new(),
            shifting: AtomicU32::new(0),
            second_line: NextLine,
            pages: Length::default(),
            size: AtomicU64::new(0),
            cached: AtomicU64::new(0),
            swapped: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
            cache_lock: SpinLock::default(),
            errors: WriteErrors::default(),
            next: AtomicU64::new(0),
            third_line: NextLine,
            regions: RegionRoots::default(),
            users: AtomicU32::new(0),
            is_owned: AtomicU32::new(0),
            policy: AtomicU64::new(0),
            state: S::default(),
            writers: RangeLock::default(),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl<S> Object<S> {
    /// So many pages more in the radix tree, whose lock the caller holds.
    fn count_cached(&self, more: i64) {
        let cached = self.cached.load(Ordering::Relaxed);
        let cached = cached.wrapping_add_signed(more);
        self.cached.store(cached, Ordering::Relaxed);
    }

    /// What the pages are made of.
    pub fn kind(&self) -> ObjectKind {
        match self.store.load(Ordering::Relaxed) {
            0 => ObjectKind::SharedMemory,
            word if word & STORE_BIT != 0 => ObjectKind::File {
                store: word & !STORE_BIT,
            },
            word => ObjectKind::Unmanaged {
                first: Pfn(word as u32),
                at_once: word & AT_ONCE_BIT != 0,
            },
        }
    }

    /// Length in pages.
    #[inline]
    pub fn pages(&self) -> u64 {
        self.pages.get()
    }

    /// Whether pages that it does not seem to have change places.
    pub(crate) fn is_shifting(&self) -> bool {
        self.shifting.load(Ordering::Acquire) != 0
    }

    /// Length in bytes. What was written below it is there.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Whether its pages come from a backing store.
    #[inline]
    pub fn is_file(&self) -> bool {
        self.store.load(Ordering::Relaxed) & STORE_BIT != 0
    }

    /// Whether it stands for frames that are not managed.
    pub(crate) fn is_unmanaged(&self) -> bool {
        matches!(self.kind(), ObjectKind::Unmanaged { .. })
    }

    /// Whether its pages are to come in superpages, if it was told.
    pub(crate) fn huge(&self) -> Option<bool> {
        match self.huge.load(Ordering::Relaxed) {
            HUGE => Some(true),
            NOT_HUGE => Some(false),
            _ => None,
        }
    }

    /// Tells it.
    pub(crate) fn set_huge(&self, huge: Option<bool>) {
        let word = huge.map_or(0, |huge| if huge { HUGE } else { NOT_HUGE });
        self.huge.store(word, Ordering::Relaxed);
    }

    /// Which group is charged for its length, and for how many pages, if one is.
    pub(crate) fn commit(&self) -> Option<(GroupId, u64)> {
        let pages = self.committed.load(Ordering::Relaxed).checked_sub(1)?;
        let group = GroupId::from_bits(self.committer.load(Ordering::Relaxed));
        Some((group, pages))
    }

    /// From now on one is.
    pub(crate) fn begin_commit(&self, group: GroupId, pages: u64) {
        self.committer.store(group.to_bits(), Ordering::Relaxed);
        self.set_committed(pages);
    }

    /// It is for so many pages.
    pub(crate) fn set_committed(&self, pages: u64) {
        self.committed.store(pages + 1, Ordering::Relaxed);
    }

    /// None is any more.
    pub(crate) fn end_commit(&self) {
        self.committed.store(0, Ordering::Relaxed);
    }

    /// Pages that were written through the page cache since the backing store took
    /// them last.
    pub fn dirty(&self) -> u64 {
        // A page may be counted off before whoever marked it has counted it.
        (self.dirty.load(Ordering::Relaxed) as i64).max(0) as u64
    }

    /// Index where the next background write-back begins.
    pub(crate) fn write_back_from(&self) -> u64 {
        match self.is_file() {
            true => self.next.load(Ordering::Relaxed),
            false => 0,
        }
    }

    pub(crate) fn set_write_back_from(&self, index: u64) {
        if self.is_file() {
            self.next.store(index, Ordering::Relaxed);
        }
    }

    /// Frames in the page cache.
    pub fn cached(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }

    /// Pages that are in swap.
    pub fn swapped(&self) -> u64 {
        self.swapped.load(Ordering::Relaxed)
    }

    /// So many pages more in swap slots, under `cache_lock`.
    fn count_swapped(&self, more: i64) {
        let swapped = self.swapped.load(Ordering::Relaxed);
        let swapped = swapped.wrapping_add_signed(more);
        self.swapped.store(swapped, Ordering::Relaxed);
    }

    /// A word for the caller that took away the last user.
    pub(crate) fn free_link(&self) -> &AtomicU32 {
        &self.link
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn users(&self) -> u32 {
        self.users.load(Ordering::Acquire)
    }
}
