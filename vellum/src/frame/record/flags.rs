//! What the state bits of a frame mean, by what the frame is.
//!
//! Bits have several meanings, one for each [`Role`]. Flags name the role that they belong to, and
//! only a [`View`] of the record in that role takes them.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;

use super::{Frame, KIND_MASK, Kind};
use crate::sync::atomic::Ordering;

/// What a frame can be, as types.
pub mod role {
    /// A page of memory that spaces or objects have.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Page {}
    /// A page of private memory.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Private {}
    /// A page of a file or shared memory.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Object {}
    /// A page table.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Table {}
    /// A frame that nobody uses: in the lists of the allocator, or on its way there.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Free {}
}

/// What a frame can be: the types of [`role`], and no others.
pub trait Role: Copy + sealed::Sealed {
    /// Whether frames of this role have a page lock.
    const IS_PAGE: bool;
}

mod sealed {
    /// Keeps other types from being roles.
    pub trait Sealed {}
}

macro_rules! roles {
    ($($role:ident: $is_page:literal;)*) => { $(
        impl sealed::Sealed for role::$role {}
        impl Role for role::$role {
            const IS_PAGE: bool = $is_page;
        }
    )* };
}

roles! {
    Page: true;
    Private: true;
    Object: true;
    Table: false;
    Free: false;
}

/// State bits of a frame in a role, which change while others look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags<R>(u32, PhantomData<R>);

/// State bits that every page has.
pub type PageFlags = Flags<role::Page>;
/// State bits of pages of private memory.
pub type PrivateFlags = Flags<role::Private>;
/// State bits of pages of files and shared memory.
pub type ObjectFlags = Flags<role::Object>;
/// State bits of page tables.
pub type TableFlags = Flags<role::Table>;
/// State bits of frames that nobody uses.
pub type FreeFlags = Flags<role::Free>;

impl<R> Flags<R> {
    const fn new(bits: u32) -> Self {
        Flags(bits, PhantomData)
    }

    /// The bits, for locks in the word.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// The bit's number, for bit locks.
    #[inline]
    pub(crate) const fn bit(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// Those of either.
    #[inline]
    pub(crate) const fn or(self, other: Self) -> Self {
        Self::new(self.0 | other.0)
    }

    /// Those of both.
    #[inline]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self::new(self.0 & other.0)
    }
}

impl PageFlags {
    /// The page lock: held over filling, truncation and writeback.
    pub const LOCKED: Self = Self::new(1 << 0);
    /// Somebody sleeps until the page lock is free.
    pub const WAITERS: Self = Self::new(1 << 1);
    /// Of the first frame of a run that a large leaf maps: the spin lock of the run.
    pub(crate) const RUN_LOCK: Self = Self::new(1 << 2);
    /// The page holds what its backing store holds, or newer.
    pub const UPTODATE: Self = Self::new(1 << 3);
    /// The page is newer than its backing store.
    pub const DIRTY: Self = Self::new(1 << 4);
    /// The page is being written to its backing store.
    pub const WRITEBACK: Self = Self::new(1 << 5);
    /// The page was used since reclaim looked last.
    pub const REFERENCED: Self = Self::new(1 << 6);
    /// The page is among those that are used often.
    pub const ACTIVE: Self = Self::new(1 << 7);
    /// The page is on an LRU list.
    pub const LRU: Self = Self::new(1 << 8);
    /// The bits that [`Kind`] takes, of which every page in use has one at least.
    pub(crate) const ANY_KIND: Self = Self::new(KIND_MASK);
}

impl PrivateFlags {
    /// `madvise(FREE)`: the page may be dropped while it stays clean.
    pub const LAZY_FREE: Self = Self::new(1 << 10);
    /// The swap cache has the page, with a reference.
    pub const SWAP_CACHED: Self = Self::new(1 << 11);
}

impl ObjectFlags {
    /// There is no backing store but memory and swap.
    pub const SWAP_BACKED: Self = Self::new(1 << 11);
}

impl TableFlags {
    /// The table's spin lock.
    pub(crate) const LOCK: Self = Self::new(1 << 2);
    /// The table stays linked even if it is empty, because entries are about to move there.
    pub const KEPT: Self = Self::new(1 << 5);
    /// The entries are in another table (`TableFrame::moved_to`). Set together with
    /// [`TableFlags::DEAD`].
    pub const MOVED: Self = Self::new(1 << 6);
    /// How often walks found no entry of it used, in two bits ([`TableFrame::idle`]). They change
    /// under the table's lock.
    pub(super) const IDLE: Self = Self::new(3 << 7);
    /// [`TableFlags::IDLE`] with so many times, at most 3.
    pub(super) const fn idle(times: u32) -> Self {
        Self::new(times << Self::IDLE.bit())
    }

    /// Of a spare table: its bytes may be anything.
    pub const UNZEROED: Self = Self::new(1 << 10);
    /// The table is unlinked and must not be edited any more.
    pub const DEAD: Self = Self::new(1 << 11);
}

impl FreeFlags {
    /// Of a frame in a CPU's list: the first of a block.
    pub(super) const BLOCK: Self = Self::new(1 << 3);
    /// Of a reserved frame: it is out of use, because its memory fails or is taken away.
    pub const WITHDRAWN: Self = Self::new(1 << 4);
    /// Every byte of the frame is known to be zero.
    pub const ZEROED: Self = Self::new(1 << 9);
}

/// A frame's record in a role.
pub struct View<'a, R> {
    frame: &'a Frame,
    role: PhantomData<R>,
}

/// The record of a page.
pub type PageFrame<'a> = View<'a, role::Page>;
/// The record of a page of private memory.
pub type PrivateFrame<'a> = View<'a, role::Private>;
/// The record of a page of a file or shared memory.
pub type ObjectFrame<'a> = View<'a, role::Object>;
/// The record of a page table.
pub type TableFrame<'a> = View<'a, role::Table>;
/// The record of a frame that nobody uses.
pub type FreeFrame<'a> = View<'a, role::Free>;

impl<R> Clone for View<'_, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for View<'_, R> {}

impl<R> fmt::Debug for View<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.frame, f)
    }
}

/// What frames have whatever they are.
impl<R> Deref for View<'_, R> {
    type Target = Frame;
    #[inline]
    fn deref(&self) -> &Frame {
        self.frame
    }
}

impl<R: Role> View<'_, R> {
    /// Whether all of `flags` are set.
    #[inline]
    pub(crate) fn has(self, flags: Flags<R>) -> bool {
        self.flags.load(Ordering::Acquire) & flags.0 == flags.0
    }

    /// Whether any of `flags` is set.
    #[inline]
    pub(crate) fn has_any(self, flags: Flags<R>) -> bool {
        self.flags.load(Ordering::Acquire) & flags.0 != 0
    }

    /// Sets flags by a store. Nobody else may change any flag of the frame meanwhile:
    /// what they set would be lost. So this is for a frame before others can find it.
    #[inline]
    pub(crate) fn set_unshared(self, flags: Flags<R>) {
        debug_assert!(
            self.counts().refs() <= 1,
            "flags of a frame that others can find, changed by a store"
        );
        let word = self.flags.load(Ordering::Relaxed);
        self.flags.store(word | flags.0, Ordering::Relaxed);
    }

    /// Sets flags; returns whether any was clear.
    #[inline]
    pub(crate) fn set(self, flags: Flags<R>) -> bool {
        self.flags.fetch_or(flags.0, Ordering::AcqRel) & flags.0 != flags.0
    }

    /// Sets flags unless all are set already, and then writes nothing.
    #[inline]
    pub(crate) fn set_if_clear(self, flags: Flags<R>) -> bool {
        !self.has(flags) && self.set(flags)
    }

    /// Clears flags if all are set, and otherwise writes nothing; returns whether it did.
    #[inline]
    pub(crate) fn clear_if_set(self, flags: Flags<R>) -> bool {
        self.has(flags) && self.clear(flags)
    }

    /// Clears flags; returns whether any was set.
    #[inline]
    pub(crate) fn clear(self, flags: Flags<R>) -> bool {
        self.flags.fetch_and(!flags.0, Ordering::AcqRel) & flags.0 != 0
    }
}

/// The record in a role. Code that names one without asking has a reference to the page, has found
/// the table or entry that leads there under a pin or lock, or verifies afterwards what it has
/// read.
impl Frame {
    #[inline]
    fn seen_as<R: Role>(&self) -> View<'_, R> {
        View {
            frame: self,
            role: PhantomData,
        }
    }

    /// Of a page.
    #[inline]
    pub(crate) fn page(&self) -> PageFrame<'_> {
        self.seen_as()
    }

    /// Of a page of private memory.
    #[inline]
    pub(crate) fn private(&self) -> PrivateFrame<'_> {
        self.seen_as()
    }

    /// Of a page of an object.
    #[inline]
    pub(crate) fn object(&self) -> ObjectFrame<'_> {
        self.seen_as()
    }

    /// Of a page table. It is one until its epoch has passed after it was unlinked.
    #[inline]
    pub(crate) fn table(&self) -> TableFrame<'_> {
        debug_assert!(self.kind() == Kind::Table, "no page table: {self:?}");
        self.seen_as()
    }

    /// Of a frame that nobody uses.
    #[inline]
    pub(crate) fn unused(&self) -> FreeFrame<'_> {
        self.seen_as()
    }

    /// The record of a page of private memory, if it is that of one.
    #[inline]
    pub(crate) fn as_private(&self) -> Option<PrivateFrame<'_>> {
        (self.kind() == Kind::Anonymous).then(|| self.private())
    }

    /// The record of a page table, if it is that of one.
    #[inline]
    pub(crate) fn as_table(&self) -> Option<TableFrame<'_>> {
        (self.kind() == Kind::Table).then(|| self.table())
    }
}
