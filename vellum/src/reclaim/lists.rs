//! The lists, and the batches in which pages come to them.

use alloc::boxed::Box;

use super::PageKind;
use super::shadows::Clock;
use crate::addr::Pfn;
use crate::frame::{AuditError, AuditPlace, MemoryView};
use crate::object::AgedPage;
use crate::object::links::{self, Linked, Links, List};
use crate::platform::Platform;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::report::name;
use crate::sync::{CachePadded, PerCpu, Pin, SpinGuard, SpinLock};

/// Most new pages that a CPU collects.
const BATCH: usize = 32;
/// One in so many frames of a CPU's share may wait in its batch, so that on a small machine most
/// pages are on lists.
const BATCH_SHARE: usize = 64;
/// Lists of a node: inactive and active ones of each kind of page.
const LISTS: usize = 4;

/// Beside the frame of a page that waits in a batch.
const ACTIVE: u64 = 1 << 32;
const SWAP_BACKED: u64 = 1 << 33;
const NODE_SHIFT: u32 = 48;

/// What reclaim keeps for a frame, beside its record, which has no room left. Faults never
/// read it.
#[derive(Default)]
pub(super) struct SideRecord {
    links: Links,
    /// A place of the table of shadows; the page it is of has nothing to do with the frame.
    pub(super) shadow: AtomicU64,
}

#[cfg(not(vellum_loom))]
const _: () = assert!(size_of::<SideRecord>() == 16);

impl Linked for SideRecord {
    #[inline]
    fn links(&self) -> &Links {
        &self.links
    }
}

/// Number of a list of a node.
pub(super) fn list_of(kind: PageKind, active: bool) -> usize {
    (kind as usize) << 1 | usize::from(active)
}

type NodeLists = [List; LISTS];

/// A node's lists, and how long they were when their lock was let go of last.
struct Node {
    lists: CachePadded<SpinLock<NodeLists>>,
    published: CachePadded<[AtomicU64; LISTS]>,
}

/// Pages that wait on a CPU to be listed.
#[derive(Default)]
struct Batch {
    count: AtomicU32,
    pages: [AtomicU64; BATCH],
}

/// The lists of every node.
pub(crate) struct Lists {
    first: u32,
    records: Box<[SideRecord]>,
    nodes: Box<[Node]>,
    batches: PerCpu<Batch>,
    batch: u32,
    node_of_zone: Box<[u16]>,
    /// Pages that were taken off a list and not put back yet.
    looked_at: CachePadded<AtomicU32>,
    clock: Clock,
}

impl Lists {
    /// Empty lists for a memory.
    pub(super) fn new<P: Platform>(memory: MemoryView<'_, P>, platform: &P) -> Lists {
        let (first, end) = memory.span();
        let records: Box<[SideRecord]> = (first.0..end.0).map(|_| SideRecord::default()).collect();
        let nodes: Box<[Node]> = (0..platform.nodes())
            .map(|_| Node {
                lists: CachePadded(SpinLock::new([List::EMPTY; LISTS])),
                published: CachePadded::default(),
            })
            .collect();
        name("side records", &[], records.as_ptr(), records.len());
        name("lists of reclaim", &[], nodes.as_ptr(), nodes.len());
        let share = memory.frame_count() / memory.cpus() / BATCH_SHARE;
        Lists {
            first: first.0,
            records,
            nodes,
            batches: PerCpu::new(memory.cpus(), |_| Batch::default()),
            batch: share.clamp(1, BATCH) as u32,
            node_of_zone: memory.nodes_of_zones(),
            looked_at: CachePadded::default(),
            clock: Clock::default(),
        }
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn number(&self, page: Pfn) -> u32 {
        page.0 - self.first
    }

    /// Lists a page, sooner or later.
    #[inline]
    pub(super) fn add(&self, pin: &Pin<'_>, page: AgedPage<'_>, kind: PageKind, active: bool) {
        let node = u64::from(self.node_of_zone[page.zone()]);
        let mut word = u64::from(self.number(page.frame())) | node << NODE_SHIFT;
        if kind == PageKind::SwapBacked {
            word |= SWAP_BACKED;
        }
        if active {
            word |= ACTIVE;
        }
        let batch = self.batches.get(pin);
        let count = batch.count.load(Ordering::Relaxed);
        batch.pages[count as usize % BATCH].store(word, Ordering::Relaxed);
        batch.count.store(count + 1, Ordering::Relaxed);
        if count + 1 >= self.batch {
            self.settle(pin);
        }
    }

    /// Lists the pages that wait on this CPU, each as the youngest of its list, where it may
    /// have been in an earlier life.
    #[cold]
    pub(crate) fn settle(&self, pin: &Pin<'_>) {
        let batch = self.batches.get(pin);
        let count = batch.count.load(Ordering::Relaxed) as usize;
        batch.count.store(0, Ordering::Relaxed);
        let mut held: Option<(usize, SpinGuard<'_, NodeLists>)> = None;
        for page in &batch.pages[..count.min(BATCH)] {
            let word = page.load(Ordering::Relaxed);
            let (node, number) = ((word >> NODE_SHIFT) as usize, word as u32);
            if held.as_ref().is_none_or(|(of, _)| *of != node) {
                self.let_go(held.take());
                held = Some((node, self.nodes[node].lists.lock(pin)));
            }
            let Some((_, lists)) = &mut held else {
                continue;
            };
            let kind = match word & SWAP_BACKED {
                0 => PageKind::File,
                _ => PageKind::SwapBacked,
            };
            let list = list_of(kind, word & ACTIVE != 0);
            if self.records[number as usize].links.is_listed() {
                links::unlink(&self.records, &mut lists[..], number);
            }
            links::link(&self.records, &mut lists[..], number, list);
        }
        self.let_go(held);
    }

    fn let_go(&self, held: Option<(usize, SpinGuard<'_, NodeLists>)>) {
        if let Some((node, lists)) = held {
            for (length, list) in self.nodes[node].published.iter().zip(lists.iter()) {
                length.store(list.count(), Ordering::Relaxed);
            }
        }
    }

    /// Pages on a list of a node, as published last; places of pages that are gone count.
    pub(crate) fn length(&self, node: usize, kind: PageKind, active: bool) -> u64 {
        self.nodes[node].published[list_of(kind, active)].load(Ordering::Relaxed)
    }

    /// Takes the oldest pages off a list of a node, as many as `pages` has room for. Returns how
    /// many there were.
    pub(super) fn take_oldest(
        &self,
        pin: &Pin<'_>,
        node: usize,
        list: usize,
        pages: &mut [Pfn],
    ) -> usize {
        let mut lists = self.nodes[node].lists.lock(pin);
        let mut count = 0;
        for place in pages {
            let Some(oldest) = lists[list].oldest() else {
                break;
            };
            links::unlink(&self.records, &mut lists[..], oldest);
            *place = Pfn(self.first + oldest);
            count += 1;
        }
        self.looked_at.fetch_add(count as u32, Ordering::Relaxed);
        self.let_go(Some((node, lists)));
        count
    }

    /// Pages that somebody has taken off a list to look at them.
    pub(super) fn looked_at(&self) -> u32 {
        self.looked_at.load(Ordering::Relaxed)
    }

    /// Of `taken` pages that were taken off a list, puts `pages` on the lists that come with
    /// them, unless they were listed meanwhile.
    pub(super) fn put_back(
        &self,
        pin: &Pin<'_>,
        node: usize,
        taken: usize,
        pages: &[(Pfn, usize)],
    ) {
        if taken == 0 {
            return;
        }
        let mut lists = self.nodes[node].lists.lock(pin);
        for &(page, list) in pages {
            let number = self.number(page);
            if !self.records[number as usize].links.is_listed() {
                links::link(&self.records, &mut lists[..], number, list);
            }
        }
        self.looked_at.fetch_sub(taken as u32, Ordering::Relaxed);
        self.let_go(Some((node, lists)));
    }

    /// A page of an object leaves for its store.
    pub(super) fn leave_shadow(&self, owner: u32, index: u64) {
        self.clock.leave(&self.records, owner, index);
    }

    /// A page of an object comes: whether it was there before, and then whether it would have
    /// stayed if it had been active.
    pub(super) fn returns(&self, owner: u32, index: u64) -> Option<bool> {
        let distance = self.clock.returns(&self.records, owner, index)?;
        let active: u64 = (0..self.nodes.len())
            .map(|node| self.length(node, PageKind::File, true))
            .sum();
        Some(u64::from(distance) <= active)
    }

    /// Checks the lists while nothing else runs: links lead back, and as many frames are on each
    /// list as it says. Returns which frames are on one or in a batch.
    pub(super) fn audit(&self) -> Result<Box<[bool]>, AuditError> {
        let wrong = |(what, number): (&'static str, u32)| AuditError {
            what,
            place: AuditPlace::Frame(Pfn(self.first + number)),
        };
        let counts = links::check(&self.records).map_err(wrong)?;
        for (list, count) in counts.into_iter().enumerate() {
            let published = |node: &Node| node.published[list].load(Ordering::Relaxed);
            if self.nodes.iter().map(published).sum::<u64>() != count {
                return Err(wrong(("the length of a list of reclaim is wrong", 0)));
            }
        }
        let is_listed = |record: &SideRecord| record.links.is_listed();
        let mut seen: Box<[bool]> = self.records.iter().map(is_listed).collect();
        for batch in self.batches.iter() {
            let count = batch.count.load(Ordering::Relaxed) as usize;
            for page in &batch.pages[..count.min(BATCH)] {
                seen[page.load(Ordering::Relaxed) as u32 as usize] = true;
            }
        }
        Ok(seen)
    }
}
