//! The record that every page frame has.
//!
//! 32 bytes, two to a cache line, the same for every design. What a word means, and each state
//! bit, depends on the frame's [`Kind`]: a view of the record ([`PageFrame`], [`TableFrame`],
//! [`FreeFrame`]) has what is true of its kind alone. All words are atomics, because stale
//! readers may look at a frame at any time: they verify what they find.

// The model checker compiles these files by their paths.
#[path = "record/counts.rs"]
mod counts;
#[path = "record/flags.rs"]
mod flags;
#[path = "record/free.rs"]
mod free;
#[path = "record/tables.rs"]
mod tables;

pub use self::counts::{Counts, MAX_MAPPINGS, MAX_PINS, MappingsCounted};
pub use self::flags::{
    Flags, FreeFlags, ObjectFlags, PageFlags, PageFrame, PrivateFlags, Role, TableFlags,
    TableFrame, View, role,
};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::report::Kind::LockTaken;
use crate::sync::report::report_lock;

/// Where a frame is. Every frame is in exactly one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// A frame with a reference is kept by the manager for good
    /// (the shared zero page). One without is a hole in the memory map, or lies
    /// inside a block of several frames, whose first frame's record says where
    /// the block is (`Frame::is_tail`). An all-zero record means this.
    Reserved = 0,
    /// First frame of a block in the buddy lists.
    Free = 1,
    /// In a CPU's list of single frames, or waiting there for its epoch.
    Cached = 2,
    /// Handed out, and not one of the kinds below.
    Allocated = 3,
    /// A page table.
    Table = 4,
    /// Holds the manager's own nodes.
    Slab = 5,
    /// A page of a file or shared-memory object.
    Object = 6,
    /// A private page of some address space.
    Anonymous = 7,
}

impl Kind {
    fn from_bits(bits: u32) -> Kind {
        match bits & 7 {
            0 => Kind::Reserved,
            1 => Kind::Free,
            2 => Kind::Cached,
            3 => Kind::Allocated,
            4 => Kind::Table,
            5 => Kind::Slab,
            6 => Kind::Object,
            _ => Kind::Anonymous,
        }
    }
}

/// State bit of every kind, set while the audit is at work and never otherwise.
const AUDITED: u32 = 1 << 12;
const KIND_SHIFT: u32 = 13;
const KIND_MASK: u32 = 7 << KIND_SHIFT;
const ZONE_SHIFT: u32 = 16;
const STATE_MASK: u32 = (1 << KIND_SHIFT) - 1;

const INDEX_MASK: u64 = (1 << 48) - 1;
const ORDER_SHIFT: u32 = 48;
/// Bit of the index word: see [`Frame::came_in_run`].
const CAME_IN_RUN: u64 = 1 << 63;
/// Bit of the index word: see [`Frame::came_in_folio`].
const CAME_IN_FOLIO: u64 = 1 << 62;

/// What is known about one page frame.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Frame {
    counts: AtomicU64,
    flags: AtomicU32,
    owner: AtomicU32,
    index: AtomicU64,
    rmap: AtomicU64,
}

const _: () = assert!(cfg!(vellum_loom) || size_of::<Frame>() == 32);

/// Kind, zone and flags.
impl Frame {
    /// Offset of the word that the page lock is in, for who looks at reports of it.
    pub const PAGE_LOCK_AT: usize = core::mem::offset_of!(Frame, flags);

    /// Where the frame is.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::from_bits(self.flags.load(Ordering::Relaxed) >> KIND_SHIFT)
    }

    /// Moves the frame to another place and clears its state flags. The caller
    /// is the only user of the frame.
    #[inline]
    pub fn set_kind(&self, kind: Kind) {
        let zone = self.flags.load(Ordering::Relaxed) & !(KIND_MASK | STATE_MASK);
        self.flags
            .store(zone | (kind as u32) << KIND_SHIFT, Ordering::Relaxed);
    }

    /// [`Frame::set_kind`] with state flags.
    #[inline]
    pub(crate) fn set_kind_with<R: Role>(&self, kind: Kind, flags: Flags<R>) {
        if R::IS_PAGE && flags.bits() & PageFlags::LOCKED.bits() != 0 {
            report_lock(LockTaken, self.lock_word());
        }
        let zone = self.flags.load(Ordering::Relaxed) & !(KIND_MASK | STATE_MASK);
        self.flags.store(
            zone | (kind as u32) << KIND_SHIFT | flags.bits(),
            Ordering::Relaxed,
        );
    }

    /// Makes a page of the swap cache, which others may know of, one of an object, up to date.
    pub(crate) fn become_object(&self) {
        debug_assert!(self.kind() == Kind::Anonymous);
        let other = (Kind::Anonymous as u32 ^ Kind::Object as u32) << KIND_SHIFT;
        let up_to_date = PageFlags::UPTODATE.bits();
        self.flags.fetch_or(up_to_date, Ordering::Relaxed);
        self.flags.fetch_and(!other, Ordering::AcqRel);
    }

    /// Says that the audit has met the frame; returns whether it had not before.
    pub(super) fn mark_audited(&self) -> bool {
        self.flags.fetch_or(AUDITED, Ordering::AcqRel) & AUDITED == 0
    }

    /// Whether the audit has met the frame.
    pub(super) fn is_audited(&self) -> bool {
        self.flags.load(Ordering::Acquire) & AUDITED != 0
    }

    /// Forgets that it has.
    pub(super) fn forget_audit(&self) {
        if self.is_audited() {
            self.flags.fetch_and(!AUDITED, Ordering::AcqRel);
        }
    }

    /// The word that the page lock is in, for reports.
    #[inline]
    pub(crate) fn lock_word(&self) -> &AtomicU32 {
        &self.flags
    }

    /// Number of the zone the frame belongs to.
    #[inline]
    pub(crate) fn zone(&self) -> usize {
        (self.flags.load(Ordering::Relaxed) >> ZONE_SHIFT) as usize
    }

    /// The flag word, for locks in it.
    #[inline]
    pub(crate) fn flag_word(&self) -> &AtomicU32 {
        &self.flags
    }
}

/// What the frame belongs to.
impl Frame {
    /// Handle of the object or space; meaning depends on the kind and design.
    #[inline]
    pub fn owner(&self) -> u32 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Sets the owner. Private frames, or under the page lock.
    #[inline]
    pub fn set_owner(&self, owner: u32) {
        self.owner.store(owner, Ordering::Relaxed);
    }

    /// Index in the object, in frames (48 bits), or as the design defines it.
    #[inline]
    pub fn index(&self) -> u64 {
        self.index.load(Ordering::Relaxed) & INDEX_MASK
    }

    /// Order of the block whose first frame this is.
    #[inline]
    pub fn order(&self) -> u32 {
        (self.index.load(Ordering::Relaxed) >> ORDER_SHIFT) as u32 & 0xff
    }

    /// Sets index and order. Private frames, or under the page lock.
    #[inline]
    pub(crate) fn set_index(&self, index: u64, order: u32) {
        self.index.store(
            index & INDEX_MASK | u64::from(order) << ORDER_SHIFT,
            Ordering::Relaxed,
        );
    }

    /// Sets the index of a page that moves: what else the word says stays.
    #[inline]
    pub(crate) fn set_place(&self, index: u64) {
        let word = self.index.load(Ordering::Relaxed) & !INDEX_MASK;
        self.index
            .store(word | index & INDEX_MASK, Ordering::Relaxed);
    }

    /// Whether the private page became one as a part of a superpage, which was split since.
    #[cfg(any(test, feature = "probe"))]
    #[inline]
    pub(crate) fn came_in_run(&self) -> bool {
        self.index.load(Ordering::Relaxed) & CAME_IN_RUN != 0
    }

    /// Whether the private page became one because another of its folio was stored to; of the
    /// first page of a superpage made of single pages, whether any of them did.
    #[inline]
    pub fn came_in_folio(&self) -> bool {
        self.index.load(Ordering::Relaxed) & CAME_IN_FOLIO != 0
    }

    /// Says that it did. What sets index and order forgets it.
    #[inline]
    pub(super) fn set_came_in_folio(&self) {
        let word = self.index.load(Ordering::Relaxed);
        self.index.store(word | CAME_IN_FOLIO, Ordering::Relaxed);
    }

    /// Sets the index of a page that became one because another of its folio was stored to.
    #[inline]
    pub(super) fn set_folio_index(&self, index: u64) {
        self.index
            .store(index & INDEX_MASK | CAME_IN_FOLIO, Ordering::Relaxed);
    }

    /// Sets the index of a page that a superpage is split into.
    #[inline]
    pub(super) fn set_part_index(&self, index: u64) {
        self.index
            .store(index & INDEX_MASK | CAME_IN_RUN, Ordering::Relaxed);
    }

    /// The reverse-mapping design's word.
    #[inline]
    pub fn rmap(&self) -> &AtomicU64 {
        &self.rmap
    }
}
