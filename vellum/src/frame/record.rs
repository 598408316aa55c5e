//! The record that every page frame has.
//!
//! 32 bytes, two to a cache line, the same for every design. What a word means
//! depends on the frame's [`Kind`]; the methods are grouped by it, counts apart. All words
//! are atomics, because stale readers may look at a frame at any time: they
//! verify what they find.

// The model checker compiles this file by its path.
#[path = "record/counts.rs"]
mod counts;

use self::counts::ONE_REF;
pub use self::counts::{Counts, MAX_MAPPINGS, MAX_PINS, MappingsCounted};
use crate::addr::{Pfn, Vpn};
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

/// State bits of a frame that change while others look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags(pub u32);

impl Flags {
    /// The page lock: held over filling, truncation and writeback.
    pub const LOCKED: Flags = Flags(1 << 0);
    /// Somebody sleeps until the page lock is free.
    pub const WAITERS: Flags = Flags(1 << 1);
    /// The spin lock of a page table.
    pub const TABLE_LOCK: Flags = Flags(1 << 2);
    /// Of the first frame of a run that a large leaf maps, which is no page table: the spin
    /// lock of the run.
    pub const RUN_LOCK: Flags = Flags(1 << 2);
    /// The page holds what its backing store holds, or newer.
    pub const UPTODATE: Flags = Flags(1 << 3);
    /// The page is newer than its backing store.
    pub const DIRTY: Flags = Flags(1 << 4);
    /// The page is being written to its backing store.
    pub const WRITEBACK: Flags = Flags(1 << 5);
    /// Of a page table, whose page is not written anywhere: it stays linked even
    /// if it is empty, because entries are about to move there.
    pub const KEPT: Flags = Flags(1 << 5);
    /// Of a page table, which reclaim does not look at: its entries are in another table
    /// now ([`Frame::moved_to`]). Set together with [`Flags::DEAD`].
    pub const MOVED: Flags = Flags(1 << 6);
    /// Of a page table: how often walks found no entry of it used, in two bits
    /// ([`Frame::idle`]). They change under the table's lock.
    pub(super) const IDLE: Flags = Flags(3 << 7);
    /// The page was used since reclaim looked last.
    pub const REFERENCED: Flags = Flags(1 << 6);
    /// The page is among those that are used often.
    pub const ACTIVE: Flags = Flags(1 << 7);
    /// The page is on an LRU list.
    pub const LRU: Flags = Flags(1 << 8);
    /// Every byte of the (free) frame is known to be zero.
    pub const ZEROED: Flags = Flags(1 << 9);
    /// Of a spare page table: its bytes may be anything.
    pub const UNZEROED: Flags = Flags(1 << 10);
    /// `madvise(FREE)`: the page may be dropped while it stays clean.
    pub const LAZY_FREE: Flags = Flags(1 << 10);
    /// The page table is unlinked and must not be edited any more.
    pub const DEAD: Flags = Flags(1 << 11);
    /// Of a private page, which is no page table: the swap cache has it, with a reference.
    pub const SWAP_CACHED: Flags = Flags(1 << 11);
    /// Of a page of an object, which is no page table: there is no backing store but
    /// memory and swap.
    pub const SWAP_BACKED: Flags = Flags(1 << 11);
    /// The bits that [`Kind`] takes, of which every page in use has one at least.
    pub const ANY_KIND: Flags = Flags(KIND_MASK);
    /// Of a frame in a CPU's list: the first of a block. Such a frame has no
    /// contents to be up to date, so the bit is free; no lock uses it.
    pub(super) const BLOCK: Flags = Flags::UPTODATE;
    /// Met by the audit at work; never set otherwise.
    pub(super) const AUDITED: Flags = Flags(1 << 12);

    /// The bit's number, for bit locks.
    #[inline]
    pub const fn bit(self) -> u32 {
        self.0.trailing_zeros()
    }
}

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
    pub(crate) fn set_kind_with(&self, kind: Kind, flags: Flags) {
        if flags.0 & Flags::LOCKED.0 != 0 {
            report_lock(LockTaken, self.lock_word());
        }
        let zone = self.flags.load(Ordering::Relaxed) & !(KIND_MASK | STATE_MASK);
        self.flags.store(
            zone | (kind as u32) << KIND_SHIFT | flags.0,
            Ordering::Relaxed,
        );
    }

    /// Makes a page of the swap cache, which others may know of, one of an object, up to date.
    pub(crate) fn become_object(&self) {
        debug_assert!(self.kind() == Kind::Anonymous);
        let other = (Kind::Anonymous as u32 ^ Kind::Object as u32) << KIND_SHIFT;
        self.flags.fetch_or(Flags::UPTODATE.0, Ordering::Relaxed);
        self.flags.fetch_and(!other, Ordering::AcqRel);
    }

    /// The word that the page lock is in, for reports.
    #[inline]
    pub(crate) fn lock_word(&self) -> &AtomicU32 {
        &self.flags
    }

    /// Number of the zone the frame belongs to.
    #[inline]
    pub fn zone(&self) -> usize {
        (self.flags.load(Ordering::Relaxed) >> ZONE_SHIFT) as usize
    }

    /// Whether all of `flags` are set.
    #[inline]
    pub fn has(&self, flags: Flags) -> bool {
        self.flags.load(Ordering::Acquire) & flags.0 == flags.0
    }

    /// Whether any of `flags` is set.
    #[inline]
    pub(crate) fn has_any(&self, flags: Flags) -> bool {
        self.flags.load(Ordering::Acquire) & flags.0 != 0
    }

    /// Sets flags by a store. Nobody else may change any flag of the frame meanwhile:
    /// what they set would be lost. So this is for a page before others can find it.
    #[inline]
    pub fn set_unshared(&self, flags: Flags) {
        debug_assert!(
            self.counts().refs() <= 1,
            "flags of a page that others can find, changed by a store"
        );
        let word = self.flags.load(Ordering::Relaxed);
        self.flags.store(word | flags.0, Ordering::Relaxed);
    }

    /// Sets flags; returns whether any was clear.
    #[inline]
    pub fn set(&self, flags: Flags) -> bool {
        self.flags.fetch_or(flags.0, Ordering::AcqRel) & flags.0 != flags.0
    }

    /// Sets flags unless all are set already, and then writes nothing.
    #[inline]
    pub(crate) fn set_if_clear(&self, flags: Flags) -> bool {
        !self.has(flags) && self.set(flags)
    }

    /// Clears flags; returns whether any was set.
    #[inline]
    pub fn clear(&self, flags: Flags) -> bool {
        self.flags.fetch_and(!flags.0, Ordering::AcqRel) & flags.0 != 0
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
    #[inline]
    pub fn came_in_run(&self) -> bool {
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

/// Bit of a table's rmap word where its spare tables begin; below it are the live entries.
const SPARE_SHIFT: u32 = 32;

/// Page tables: live entries, level, owner, first page, spare tables. The lock is
/// [`Flags::TABLE_LOCK`].
impl Frame {
    /// Makes a private frame the record of a page table of the space with
    /// handle `owner`, at `level` (1 holds leaves of one page), for pages from
    /// `base` on, with `live` entries that are not empty.
    #[inline]
    pub fn init_table(&self, owner: u32, level: u32, base: Vpn, live: u32) {
        self.set_kind(Kind::Table);
        self.counts.store(ONE_REF, Ordering::Relaxed);
        self.owner.store(owner, Ordering::Relaxed);
        self.index.store(
            base.0 & INDEX_MASK | u64::from(level) << ORDER_SHIFT,
            Ordering::Relaxed,
        );
        self.rmap.store(u64::from(live), Ordering::Release);
    }

    /// How many walks in a row found no entry of the table used: 3 at most.
    pub(crate) fn idle(&self) -> u32 {
        let flags = self.flags.load(Ordering::Relaxed);
        (flags & Flags::IDLE.0) >> Flags::IDLE.bit()
    }

    /// Changes what [`Frame::idle`] says. The table is locked.
    pub(crate) fn set_idle(&self, times: u32) {
        self.clear(Flags::IDLE);
        self.set(Flags(times.min(3) << Flags::IDLE.bit()));
    }

    /// The table's level.
    #[inline]
    pub fn level(&self) -> u32 {
        self.order()
    }

    /// First page the table covers.
    #[inline]
    pub fn base(&self) -> Vpn {
        Vpn(self.index())
    }

    /// Entries that are not empty. Exact under the table's lock.
    #[inline]
    pub fn live(&self) -> u32 {
        self.rmap.load(Ordering::Relaxed) as u32
    }

    /// Adds to the live count; returns the new count. Under the table's lock.
    #[inline]
    pub(crate) fn add_live(&self, count: u32) -> u32 {
        let word = self.rmap.load(Ordering::Relaxed) + u64::from(count);
        self.rmap.store(word, Ordering::Relaxed);
        word as u32
    }

    /// The first of the table's spare tables, which are linked by this too: one for each
    /// large leaf in it. Under the table's lock.
    #[inline]
    pub fn spare(&self) -> Option<Pfn> {
        let next = (self.rmap.load(Ordering::Relaxed) >> SPARE_SHIFT) as u32;
        next.checked_sub(1).map(Pfn)
    }

    /// Sets it. Under the table's lock.
    #[inline]
    pub(crate) fn set_spare(&self, table: Option<Pfn>) {
        let next = table.map_or(0, |table| u64::from(table.0) + 1);
        let live = u64::from(self.live());
        self.rmap
            .store(live | next << SPARE_SHIFT, Ordering::Relaxed);
    }

    /// Of a table of level 1, which has no large leaves: the first frame of the run that was
    /// set aside for its pages. The run may be another's by now.
    #[inline]
    pub(crate) fn reserved(&self) -> Option<Pfn> {
        self.spare()
    }

    /// Sets it. Under the table's lock.
    #[inline]
    pub(crate) fn set_reserved(&self, first: Option<Pfn>) {
        self.set_spare(first);
    }

    /// Says where the entries of a table went that is empty now. Under its lock.
    #[inline]
    pub(crate) fn set_moved_to(&self, table: Pfn) {
        // The table has no owner any more; its other words link the list that it gets on.
        self.owner.store(table.0, Ordering::Relaxed);
    }

    /// Where the entries went, of a table with [`Flags::MOVED`].
    #[inline]
    pub fn moved_to(&self) -> Pfn {
        Pfn(self.owner.load(Ordering::Relaxed))
    }

    /// Subtracts from the live count; returns the new count. Under the table's lock.
    #[inline]
    pub(crate) fn sub_live(&self, count: u32) -> u32 {
        debug_assert!(self.live() >= count, "more entries cleared than were live");
        let word = self.rmap.load(Ordering::Relaxed) - u64::from(count);
        self.rmap.store(word, Ordering::Relaxed);
        word as u32
    }
}

/// Free frames: links of the list they are on.
impl Frame {
    /// The next and previous frame of a list.
    #[inline]
    pub(crate) fn links(&self) -> (Pfn, Pfn) {
        let word = self.rmap.load(Ordering::Relaxed);
        (Pfn(word as u32), Pfn((word >> 32) as u32))
    }

    /// Sets the links. Under the list's lock.
    #[inline]
    pub fn set_links(&self, next: Pfn, previous: Pfn) {
        self.rmap.store(
            u64::from(next.0) | u64::from(previous.0) << 32,
            Ordering::Relaxed,
        );
    }

    /// Sets only the next frame of a singly linked list.
    #[inline]
    pub fn set_next(&self, next: Pfn) {
        self.rmap.store(u64::from(next.0), Ordering::Relaxed);
    }
}

/// Steps between the allocator's places. The caller is the frame's only user,
/// or holds its zone's lock.
impl Frame {
    /// Whether the frame is inside a block and not its first.
    #[inline]
    pub(crate) fn is_tail(&self) -> bool {
        self.kind() == Kind::Reserved && self.counts.load(Ordering::Relaxed) == 0
    }

    /// Puts the frame inside a block.
    #[inline]
    pub(crate) fn set_tail(&self, zone: u16) {
        self.flags
            .store(u32::from(zone) << ZONE_SHIFT, Ordering::Relaxed);
    }

    /// Makes a frame inside of a block a private page. Its zone may never have been written.
    #[inline]
    pub(super) fn set_part(&self, zone: u16) {
        self.flags.store(
            u32::from(zone) << ZONE_SHIFT | (Kind::Anonymous as u32) << KIND_SHIFT,
            Ordering::Relaxed,
        );
    }

    /// Makes the frame the first of a free block.
    #[inline]
    pub(crate) fn set_free(&self, zone: u16, order: u32, zeroed: bool) {
        let state = if zeroed { Flags::ZEROED.0 } else { 0 };
        self.flags.store(
            u32::from(zone) << ZONE_SHIFT | (Kind::Free as u32) << KIND_SHIFT | state,
            Ordering::Relaxed,
        );
        self.set_index(0, order);
    }

    /// Whether the frame is the first of a free block of this zone and order.
    #[inline]
    pub(super) fn is_free_block(&self, zone: u16, order: u32) -> bool {
        let word = self.flags.load(Ordering::Relaxed) & !STATE_MASK;
        word == u32::from(zone) << ZONE_SHIFT | (Kind::Free as u32) << KIND_SHIFT
            && self.order() == order
    }

    /// Puts the frame into a CPU's list; returns its zone. Only
    /// [`Flags::ZEROED`] survives.
    #[inline]
    pub(super) fn set_cached(&self) -> u16 {
        let word = self.flags.load(Ordering::Relaxed);
        let keep = word & !(STATE_MASK | KIND_MASK) | word & Flags::ZEROED.0;
        self.flags.store(
            keep | (Kind::Cached as u32) << KIND_SHIFT,
            Ordering::Relaxed,
        );
        (word >> ZONE_SHIFT) as u16
    }

    /// [`Frame::set_cached`] for the first frame of a block.
    #[inline]
    pub(super) fn set_cached_block(&self, order: u32) {
        self.set_cached();
        let word = self.flags.load(Ordering::Relaxed);
        self.flags.store(word | Flags::BLOCK.0, Ordering::Relaxed);
        self.set_index(0, order);
    }

    /// The order of the block in a CPU's list whose first frame this is.
    pub(crate) fn cached_block(&self) -> Option<u32> {
        (self.kind() == Kind::Cached && self.has(Flags::BLOCK)).then(|| self.order())
    }

    /// [`Frame::set_cached`] for a frame whose zone is known, such as one out of a
    /// block, whose record may never have been written. Reads nothing.
    #[inline]
    pub(crate) fn set_cached_in(&self, zone: u16, zeroed: bool) {
        let state = if zeroed { Flags::ZEROED.0 } else { 0 };
        self.flags.store(
            u32::from(zone) << ZONE_SHIFT | (Kind::Cached as u32) << KIND_SHIFT | state,
            Ordering::Relaxed,
        );
    }

    /// Hands the frame out, as the first of a block: one reference, nothing
    /// else. Returns whether its bytes are known to be zero.
    #[inline]
    pub(super) fn hand_out(&self, order: u32) -> bool {
        let word = self.flags.load(Ordering::Relaxed);
        self.hand_out_in((word >> ZONE_SHIFT) as u16, order, 0);
        word & Flags::ZEROED.0 != 0
    }

    /// [`Frame::hand_out`] with an owner, for a frame whose zone is known and whose
    /// bytes may be anything. Reads nothing: a record that is in no cache then holds
    /// up no instruction.
    #[inline]
    pub(super) fn hand_out_in(&self, zone: u16, order: u32, owner: u32) {
        self.flags.store(
            u32::from(zone) << ZONE_SHIFT | (Kind::Allocated as u32) << KIND_SHIFT,
            Ordering::Relaxed,
        );
        self.owner.store(owner, Ordering::Relaxed);
        self.set_index(0, order);
        self.rmap.store(0, Ordering::Relaxed);
        self.counts.store(ONE_REF, Ordering::Release);
    }
}
