//! What a manager has that depends neither on the format of page tables nor on the design of
//! reverse mapping, and how that asks those who know them.
//!
//! Files, swap and reclaim work on this, so that they are compiled once for a platform, however
//! many managers there are on it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;

use super::manager::{Events, VmCpu};
use super::shortage::{Lack, MakesRoom};
use crate::addr::Pfn;
use crate::design::{Design, FileIo};
use crate::frame::PhysicalMemory;
use crate::object::{Aging, Objects, PageLock};
use crate::platform::{GroupId, Platform};
use crate::reclaim::{Reclaim, Used, Walked};
use crate::swap::Swap;
use crate::sync::{PerCpu, Pin, Unpinned, WaitTable};

/// The part of a manager that knows neither format nor reverse mapping.
pub struct Common<P: Platform> {
    pub(crate) memory: PhysicalMemory<P>,
    pub(crate) design: Design,
    pub(crate) objects: Objects,
    pub(in crate::space) cpus: PerCpu<VmCpu>,
    pub(in crate::space) waits: WaitTable,
    pub(in crate::space) aging: Option<Box<dyn Aging>>,
    /// Nothing if the platform leaves swap out.
    pub(crate) swap: Option<Box<Swap>>,
    /// With `reclaim=on`; `aging` is the same then.
    pub(crate) reclaim: Option<Arc<Reclaim>>,
    /// Log2 of the pages of a superpage.
    pub(in crate::space) superpage_order: u32,
    /// Whether objects may have superpages.
    pub(in crate::space) has_huge: bool,
}

impl<P: Platform> Common<P> {
    /// The swap areas, if there are any.
    #[inline]
    pub(crate) fn swap(&self) -> Option<&Swap> {
        match P::PARTS.swap {
            true => self.swap.as_deref().filter(|swap| swap.has_areas()),
            false => None,
        }
    }

    /// The lists of pages that may leave memory, with `reclaim=on`.
    #[inline]
    pub(crate) fn reclaim(&self) -> Option<&Reclaim> {
        match P::PARTS.reclaim {
            true => self.reclaim.as_deref(),
            false => None,
        }
    }

    /// Whether there is a free swap slot, and room for its page. It may be taken at once.
    #[inline]
    pub(crate) fn can_swap(&self) -> bool {
        self.swap()
            .is_some_and(|swap| swap.can_swap(self.memory.platform()))
    }

    /// [`Vm::pin`](crate::Vm::pin).
    #[inline]
    pub(crate) fn pin(&self) -> Pin<'_> {
        self.memory.pin()
    }

    /// [`Common::pin`] in a call that may sleep, and cannot as long as the pin lives.
    #[inline]
    pub(crate) fn pin_by<'a>(&'a self, unpinned: &'a Unpinned<'_>) -> Pin<'a> {
        self.memory.pin_by(unpinned)
    }

    #[inline]
    pub(in crate::space) fn events(&self, pin: &Pin<'_>) -> &Events {
        // Events lie in per-CPU data that lives as long as the manager.
        &self.cpus.of(pin.cpu()).events
    }

    /// Whether files are read and written page by page.
    #[inline]
    pub(in crate::space) fn goes_by_page(&self) -> bool {
        P::PARTS.published && self.design.file_io == FileIo::Pages
    }

    /// Pages of a superpage.
    #[inline]
    pub(in crate::space) fn superpage(&self) -> u64 {
        1 << self.superpage_order
    }

    /// Whether the frame is one that a superpage may begin with.
    pub(in crate::space) fn begins_superpage(&self, page: Pfn) -> bool {
        u64::from(page.0) & (self.superpage() - 1) == 0
    }

    /// Whether objects may have superpages.
    #[inline]
    pub(in crate::space) fn has_huge(&self) -> bool {
        P::PARTS.superpages && self.has_huge
    }
}

/// What is asked of the spaces that map pages by those who know neither format nor reverse
/// mapping. Pages are named by frames that the caller has a reference to, or has locked.
pub(in crate::space) trait Mappings: MakesRoom {
    /// The group that is charged for what the space brings in that the CPU has loaded.
    fn group_loaded(&self, pin: &Pin<'_>) -> GroupId;

    /// Removes every mapping of a page that leaves its object. If its content stays somewhere,
    /// the marks of its entries go to the page, and an entry of a locked range ends the attempt;
    /// otherwise nobody asks any more whether it is dirty.
    fn unmap_page(&self, pin: &Pin<'_>, lock: &PageLock, content_stays: bool);

    /// Moves the dirty marks of a page's entries to the page. A store made after this sets a mark
    /// again, because the CPUs have been flushed.
    fn take_dirty_marks(&self, pin: &Pin<'_>, page: Pfn);

    /// Unmaps the private copies of an object's pages at or after `first`.
    fn zap_copies(&self, handle: u32, first: u64);

    /// How a page was used since the last time, which is forgotten, but for what the entry of a
    /// superpage says of all pages but the first.
    fn take_marks(&self, pin: &Pin<'_>, page: Pfn) -> Used;

    /// Makes entries of a private page name a swap slot, and flushes. Returns how many; those that
    /// are left map the page.
    fn swap_entries(&self, pin: &Pin<'_>, page: Pfn, slot: u64) -> u32;

    /// Drops a private page that its owner has freed, if nobody has stored to it since. The caller
    /// has no pin and no lock; its reference is the last one if the page is gone.
    fn drop_freed(&self, page: Pfn) -> bool;

    /// Demotes all mappings of the superpage whose first page this is. False if that cannot be done
    /// now.
    fn demote_all_of(&self, unpinned: Unpinned<'_>, page: Pfn) -> bool;

    /// Takes the accessed marks of single pages of a group's spaces, in its walk of this number,
    /// and tells which frames they are. The caller holds no lock.
    fn walk_tables(
        &self,
        unpinned: Unpinned<'_>,
        walk: (usize, u32),
        used: &mut dyn FnMut(Pfn),
    ) -> Walked;

    /// Has arenas give back frames that hold nothing in use; returns how many went. They are free
    /// when their epoch has passed. The caller is pinned only for this.
    fn give_back_frames(&self, pin: &Pin<'_>) -> u64;

    /// Has reverse mapping make room for its nodes; whether it did.
    fn make_room_for_nodes(&self) -> bool;

    /// Moves page tables from low to high memory if low memory was lacking, the more the more often
    /// that was done for a call; whether it did. `None` if low memory was not lacking: it may be
    /// another time.
    fn make_low_room(&self, unpinned: Unpinned<'_>, times: u32) -> Option<bool>;

    /// Asks the platform for memory, when nothing else can be done. Whether there may be some.
    fn is_rescued(&self, unpinned: Unpinned<'_>, lack: Lack) -> bool;
}

/// Page cache and swap cache: [`Common`] for calls that also need to ask who maps their pages.
pub(crate) struct PageCache<'a, P: Platform> {
    pub(in crate::space) common: &'a Common<P>,
    pub(in crate::space) mappings: &'a dyn Mappings,
}

impl<P: Platform> Deref for PageCache<'_, P> {
    type Target = Common<P>;

    #[inline]
    fn deref(&self) -> &Common<P> {
        self.common
    }
}
