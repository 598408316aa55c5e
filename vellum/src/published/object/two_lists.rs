//! Two lists of pages for each zone: those that were used once, and those that were used
//! again.
//!
//! A new page goes to the inactive list. The first use marks it, the second moves it to
//! the active list (Linux's `mark_page_accessed`). So a file that is read or written
//! once, however large, leaves the active list alone, and whoever reclaims memory begins
//! with the oldest of the inactive list.
//!
//! New pages wait in a batch of their CPU until that is full, so that the lock of a zone's
//! lists is taken once for many. A page may be dropped between being found by
//! a thread and being listed for it; then its frame stays listed until it is dropped
//! again. Who takes a frame from a list takes a reference and looks what it is.

use alloc::boxed::Box;

use crate::addr::Pfn;
use crate::design::FlagUpdates;
use crate::frame::{MemoryView, PageFlags};
use crate::object::links::{self, PageLinks, PageList};
use crate::object::{AgedPage, Aging, Inserted};
use crate::platform::Platform;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{CachePadded, PerCpu, Pin, SpinGuard, SpinLock};

/// New pages that a CPU collects: as many as Linux's `pagevec` had in 2014.
const BATCH: usize = 14;

/// The inactive and the active list of a zone.
struct ZoneLists([PageList; 2]);

/// Pages that wait on a CPU to be listed, by number.
#[derive(Default)]
struct PageBatch {
    count: AtomicU32,
    pages: [AtomicU32; BATCH],
}

/// How many pages there are on the lists of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListLengths {
    /// Used once at most since they were listed.
    pub inactive: u64,
    /// Used again.
    pub active: u64,
}

/// An inactive and an active list for each zone; see the head of the file.
pub struct TwoLists {
    first: u32,
    links: Box<[PageLinks]>,
    zones: Box<[CachePadded<SpinLock<ZoneLists>>]>,
    zone_of: Box<[u16]>,
    batches: PerCpu<PageBatch>,
    updates: FlagUpdates,
}

impl TwoLists {
    /// Empty lists for a memory. How they change flags that nobody else changes is for
    /// `updates` to say.
    pub fn new<P: Platform>(memory: MemoryView<'_, P>, updates: FlagUpdates) -> TwoLists {
        let (first, end) = memory.span();
        let empty = || CachePadded(SpinLock::new(ZoneLists([PageList::EMPTY; 2])));
        TwoLists {
            first: first.0,
            links: (first.0..end.0).map(|_| PageLinks::default()).collect(),
            zones: (0..memory.zone_count()).map(|_| empty()).collect(),
            zone_of: (first.0..end.0)
                .map(|pfn| memory.zone_of(Pfn(pfn)) as u16)
                .collect(),
            batches: PerCpu::new(memory.cpus(), |_| PageBatch::default()),
            updates,
        }
    }

    /// Pages on the lists of zone number `zone`. Those that wait in a batch are on
    /// none.
    pub fn lengths(&self, pin: &Pin<'_>, zone: usize) -> ListLengths {
        let ZoneLists([inactive, active]) = &*self.zones[zone].lock(pin);
        ListLengths {
            inactive: inactive.count(),
            active: active.count(),
        }
    }

    /// The frame that has been on a list of zone number `zone` for longest.
    pub fn oldest(&self, pin: &Pin<'_>, zone: usize, active: bool) -> Option<Pfn> {
        let lists = self.zones[zone].lock(pin);
        let oldest = lists.0[usize::from(active)].oldest();
        oldest.map(|oldest| Pfn(self.first + oldest))
    }

    /// Lists the pages that wait on this CPU.
    pub fn settle(&self, pin: &Pin<'_>) {
        let batch = self.batches.get(pin);
        let count = batch.count.load(Ordering::Relaxed) as usize;
        batch.count.store(0, Ordering::Relaxed);
        let mut held = HeldLists::default();
        for page in &batch.pages[..count.min(BATCH)] {
            let page = page.load(Ordering::Relaxed);
            let lists = self.lists_of(&mut held, pin, page);
            let links = self.links(page);
            if links.is_waiting() {
                self.link(lists, page, links.list() == 1);
            }
        }
    }

    fn number(&self, page: AgedPage<'_>) -> u32 {
        page.frame().0 - self.first
    }

    fn links(&self, page: u32) -> &PageLinks {
        &self.links[page as usize]
    }

    /// Makes a page the youngest of a list.
    fn link(&self, lists: &mut ZoneLists, page: u32, active: bool) {
        links::link(&self.links, &mut lists.0, page, usize::from(active));
    }

    /// Takes a page off its list, if it is on one.
    fn unlink(&self, lists: &mut ZoneLists, page: u32) {
        links::unlink(&self.links, &mut lists.0, page);
    }

    /// The lists of a page's zone, whose lock stays held until another's is needed.
    fn lists_of<'h, 'a>(
        &'a self,
        held: &'h mut HeldLists<'a>,
        pin: &'a Pin<'_>,
        page: u32,
    ) -> &'h mut ZoneLists {
        let zone = self.zone_of[page as usize];
        if held.zone != zone {
            held.lists = None;
            held.zone = zone;
        }
        let lock = || self.zones[usize::from(zone)].lock(pin);
        held.lists.get_or_insert_with(lock)
    }
}

/// The lists of the zone whose lock is held.
#[derive(Default)]
struct HeldLists<'a> {
    zone: u16,
    lists: Option<SpinGuard<'a, ZoneLists>>,
}

impl Aging for TwoLists {
    fn inserted(&self, pin: &Pin<'_>, page: AgedPage<'_>, _kind: Inserted) {
        // Nobody else changes this flag before the page is listed.
        if self.updates == FlagUpdates::Atomic || page.has(PageFlags::ACTIVE) {
            page.clear(PageFlags::ACTIVE);
        }
        page.set(PageFlags::LRU);
        let number = self.number(page);
        if !self.links(number).begin_waiting() {
            return;
        }
        let batch = self.batches.get(pin);
        let count = batch.count.load(Ordering::Relaxed);
        batch.pages[count as usize].store(number, Ordering::Relaxed);
        batch.count.store(count + 1, Ordering::Relaxed);
        if count as usize + 1 == BATCH {
            self.settle(pin);
        }
    }

    fn touched(&self, pin: &Pin<'_>, page: AgedPage<'_>) {
        if !page.has(PageFlags::REFERENCED) {
            page.set(PageFlags::REFERENCED);
            return;
        }
        if page.has(PageFlags::ACTIVE) {
            return;
        }
        let number = self.number(page);
        let mut held = HeldLists::default();
        let lists = self.lists_of(&mut held, pin, number);
        let links = self.links(number);
        if links.is_out() {
            return;
        }
        if links.is_waiting() {
            links.wait_for(1);
        } else if links.list() == 1 {
            return;
        } else {
            self.unlink(lists, number);
            self.link(lists, number, true);
        }
        page.set(PageFlags::ACTIVE);
        drop(held);
        page.clear(PageFlags::REFERENCED);
    }

    fn removed(&self, pin: &Pin<'_>, page: AgedPage<'_>) {
        self.removed_all(pin, &mut [page].into_iter());
    }

    fn removed_all(&self, pin: &Pin<'_>, pages: &mut dyn Iterator<Item = AgedPage<'_>>) {
        let mut held = HeldLists::default();
        for page in pages {
            let number = self.number(page);
            let lists = self.lists_of(&mut held, pin, number);
            self.unlink(lists, number);
            // Else the flags go when the last reference has gone: by one store.
            if self.updates == FlagUpdates::Atomic {
                page.clear(PageFlags::ACTIVE);
            }
        }
    }
}
