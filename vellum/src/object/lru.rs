//! Where pages enter and leave the sight of page aging, and are used.

use alloc::sync::Arc;

use crate::addr::Pfn;
use crate::frame::{Frame, PageFlags, PageFrame};
use crate::sync::Pin;

/// What kind of page entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// A page of a file or shared memory.
    Cache,
    /// A private page.
    Anonymous,
    /// A private page that is a copy of another, in whose place a store has put it.
    Copy {
        /// The other, which may have been freed meanwhile.
        of: Pfn,
    },
}

/// Flags of a record that belong to aging.
const OF_AGING: PageFlags = PageFlags::REFERENCED
    .or(PageFlags::ACTIVE)
    .or(PageFlags::LRU);

/// A page as aging sees it: its frame, and those flags of its record that are
/// aging's own ([`PageFlags::REFERENCED`], [`PageFlags::ACTIVE`], [`PageFlags::LRU`]).
#[derive(Clone, Copy, Debug)]
pub struct AgedPage<'a> {
    frame: Pfn,
    record: PageFrame<'a>,
}

impl<'a> AgedPage<'a> {
    pub(crate) fn new(frame: Pfn, record: &'a Frame) -> Self {
        AgedPage {
            frame,
            record: record.page(),
        }
    }

    /// The frame that holds the page.
    #[inline]
    pub fn frame(self) -> Pfn {
        self.frame
    }

    /// The frame's record.
    #[inline]
    pub(crate) fn record(self) -> PageFrame<'a> {
        self.record
    }

    /// Number of the zone that the frame is of.
    #[inline]
    pub(crate) fn zone(self) -> usize {
        self.record.zone()
    }

    /// Whether all of `flags` are set, of those that are aging's.
    #[inline]
    pub fn has(self, flags: PageFlags) -> bool {
        self.record.has(flags.and(OF_AGING))
    }

    /// Forgets that calls have used the page.
    pub(crate) fn forget_uses(self) {
        self.clear(PageFlags::REFERENCED.or(PageFlags::ACTIVE));
    }

    /// Sets flags of aging's, atomically: others may change other flags of the page.
    #[inline]
    pub fn set(self, flags: PageFlags) {
        self.record.set(flags.and(OF_AGING));
    }

    /// Clears flags of aging's, atomically.
    #[inline]
    pub fn clear(self, flags: PageFlags) {
        self.record.clear(flags.and(OF_AGING));
    }
}

/// Told of every page that aging may look at. An embedder that reclaims memory keeps its
/// lists here; those of `fileio=pages` are some.
pub trait Aging: Send + Sync {
    /// A page is mapped or cached from now on. It is not locked. Threads that have found
    /// it already may have used it, and dropped it, before.
    fn inserted(&self, pin: &Pin<'_>, page: AgedPage<'_>, kind: Inserted);

    /// A page of an object was read or written by a call.
    fn touched(&self, _pin: &Pin<'_>, page: AgedPage<'_>) {
        if !page.has(PageFlags::REFERENCED) {
            page.set(PageFlags::REFERENCED);
        }
    }

    /// Whoever has a page to himself does not need it soon. If it `is_droppable`, a private page,
    /// nobody needs what it holds until it is stored to again.
    fn unwanted(&self, _pin: &Pin<'_>, page: AgedPage<'_>, _is_droppable: bool) {
        page.forget_uses();
    }

    /// A page has lost its last user and is about to be free.
    fn removed(&self, pin: &Pin<'_>, page: AgedPage<'_>);

    /// The same of several pages.
    fn removed_all(&self, pin: &Pin<'_>, pages: &mut dyn Iterator<Item = AgedPage<'_>>) {
        pages.for_each(|page| self.removed(pin, page));
    }
}

impl<A: Aging> Aging for Arc<A> {
    fn inserted(&self, pin: &Pin<'_>, page: AgedPage<'_>, kind: Inserted) {
        (**self).inserted(pin, page, kind);
    }

    fn touched(&self, pin: &Pin<'_>, page: AgedPage<'_>) {
        (**self).touched(pin, page);
    }

    fn unwanted(&self, pin: &Pin<'_>, page: AgedPage<'_>, is_droppable: bool) {
        (**self).unwanted(pin, page, is_droppable);
    }

    fn removed(&self, pin: &Pin<'_>, page: AgedPage<'_>) {
        (**self).removed(pin, page);
    }

    fn removed_all(&self, pin: &Pin<'_>, pages: &mut dyn Iterator<Item = AgedPage<'_>>) {
        (**self).removed_all(pin, pages);
    }
}
