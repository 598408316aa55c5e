//! The lists, and the batches in which pages come to them.

use alloc::boxed::Box;

use super::ages::Ages;
use super::generations::{GENERATIONS, Ring};
use super::shadows::Clock;
use super::{PageKind, To};
use crate::addr::Pfn;
use crate::design::PageAging;
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
/// Lists of a kind of page, at most.
pub(super) const OF_KIND: usize = 1 + GENERATIONS;
/// Lists of a node, at most.
const LISTS: usize = 2 * OF_KIND;
/// Instead of a page's number: there is none.
const NOBODY: u32 = u32::MAX;

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

/// Number of a list of a node, with `aging=lru`.
pub(super) fn list_of(kind: PageKind, active: bool) -> usize {
    (kind as usize) << 1 | usize::from(active)
}

/// Number of the list of pages that have come, with `aging=generations`. Those of their
/// generations follow.
pub(super) fn newcomers_of(kind: PageKind) -> usize {
    kind as usize * OF_KIND
}

/// What the lock of a node guards.
pub(super) struct NodeLists {
    pub(super) lists: [List; LISTS],
    /// Which generation of each kind is where.
    pub(super) rings: [Ring; 2],
}

/// A node's lists, and what was to be said of them when their lock was let go of last.
struct Node {
    guarded: CachePadded<SpinLock<NodeLists>>,
    published: CachePadded<Published>,
}

#[derive(Default)]
struct Published {
    lengths: [AtomicU64; LISTS],
    /// The page of each kind that has been in its oldest generation for longest.
    oldest: [AtomicU32; 2],
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
    /// With `aging=generations`.
    ages: Option<Ages>,
}

impl Lists {
    /// Empty lists for a memory.
    pub(super) fn new<P: Platform>(
        memory: MemoryView<'_, P>,
        platform: &P,
        aging: PageAging,
    ) -> Lists {
        let (first, end) = memory.span();
        let records: Box<[SideRecord]> = (first.0..end.0).map(|_| SideRecord::default()).collect();
        let nodes: Box<[Node]> = (0..platform.nodes())
            .map(|_| Node {
                guarded: CachePadded(SpinLock::new(NodeLists {
                    lists: [List::EMPTY; LISTS],
                    rings: [Ring::NEW; 2],
                })),
                published: CachePadded::default(),
            })
            .collect();
        name("side records", &[], records.as_ptr(), records.len());
        name("lists of reclaim", &[], nodes.as_ptr(), nodes.len());
        let share = memory.frame_count() / memory.cpus() / BATCH_SHARE;
        let ages = (aging == PageAging::Generations).then(|| Ages::new(records.len()));
        Lists {
            first: first.0,
            records,
            nodes,
            batches: PerCpu::new(memory.cpus(), |_| Batch::default()),
            batch: share.clamp(1, BATCH) as u32,
            node_of_zone: memory.nodes_of_zones(),
            looked_at: CachePadded::default(),
            clock: Clock::default(),
            ages,
        }
    }

    /// The ages of pages, with `aging=generations`.
    #[inline]
    pub(super) fn ages(&self) -> Option<&Ages> {
        self.ages.as_ref()
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The number of a frame among those that have records here.
    pub(super) fn number(&self, page: Pfn) -> u32 {
        page.0.wrapping_sub(self.first)
    }

    /// Number of the node that a page's frame is of.
    pub(super) fn node_of(&self, page: AgedPage<'_>) -> usize {
        usize::from(self.node_of_zone[page.zone()])
    }

    /// Lists a page, sooner or later: with `aging=generations`, an active one in the youngest
    /// generation.
    #[inline]
    pub(super) fn add(&self, pin: &Pin<'_>, page: AgedPage<'_>, kind: PageKind, active: bool) {
        let node = self.node_of(page) as u64;
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
        if let Some(ages) = &self.ages {
            ages.count_arrived(count as u32);
        }
        let mut held: Option<(usize, SpinGuard<'_, NodeLists>)> = None;
        for page in &batch.pages[..count.min(BATCH)] {
            let word = page.load(Ordering::Relaxed);
            let (node, number) = ((word >> NODE_SHIFT) as usize, word as u32);
            if held.as_ref().is_none_or(|(of, _)| *of != node) {
                self.let_go(held.take());
                held = Some((node, self.nodes[node].guarded.lock(pin)));
            }
            let Some((_, guarded)) = &mut held else {
                continue;
            };
            let kind = match word & SWAP_BACKED {
                0 => PageKind::File,
                _ => PageKind::SwapBacked,
            };
            let is_active = word & ACTIVE != 0;
            let list = match &self.ages {
                None => list_of(kind, is_active),
                Some(ages) if is_active => {
                    ages.begin(number);
                    guarded.rings[kind as usize].list(kind, ages.now())
                }
                Some(ages) => {
                    ages.begin(number);
                    newcomers_of(kind)
                }
            };
            if self.records[number as usize].links.is_listed() {
                self.unlink(guarded, number);
            }
            self.link(guarded, number, list);
        }
        self.let_go(held);
    }

    /// Makes a page the youngest of a list.
    pub(super) fn link(&self, guarded: &mut NodeLists, number: u32, list: usize) {
        if let Some(ages) = &self.ages {
            ages.set_list(number, list);
        }
        links::join(&self.records, &mut guarded.lists[list], number, list);
    }

    fn unlink(&self, guarded: &mut NodeLists, number: u32) {
        let list = self.list(number);
        links::leave(&self.records, &mut guarded.lists[list], number);
    }

    /// The list that a listed page is on.
    fn list(&self, number: u32) -> usize {
        match &self.ages {
            Some(ages) => ages.list(number),
            None => self.records[number as usize].links.list(),
        }
    }

    /// Locks the lists of a node.
    pub(super) fn lock<'a>(&'a self, pin: &'a Pin<'_>, node: usize) -> SpinGuard<'a, NodeLists> {
        self.nodes[node].guarded.lock(pin)
    }

    fn let_go(&self, held: Option<(usize, SpinGuard<'_, NodeLists>)>) {
        if let Some((node, guarded)) = held {
            self.unlock(node, guarded);
        }
    }

    /// Says how long the lists of a node are, whose lock is let go of.
    pub(super) fn unlock(&self, node: usize, guarded: SpinGuard<'_, NodeLists>) {
        let published = &self.nodes[node].published;
        for (length, list) in published.lengths.iter().zip(&guarded.lists) {
            length.store(list.count(), Ordering::Relaxed);
        }
        if self.ages.is_some() {
            for kind in PageKind::ALL {
                let list = guarded.oldest_list(kind);
                let oldest = guarded.lists[list].oldest().unwrap_or(NOBODY);
                published.oldest[kind as usize].store(oldest, Ordering::Relaxed);
            }
        }
    }

    /// Pages on a list of a node, as published last; places of pages that are gone count.
    pub(crate) fn length(&self, node: usize, kind: PageKind, active: bool) -> u64 {
        self.length_of(node, list_of(kind, active))
    }

    /// The same of the list of a number.
    pub(super) fn length_of(&self, node: usize, list: usize) -> u64 {
        self.nodes[node].published.lengths[list].load(Ordering::Relaxed)
    }

    /// Pages of a kind that a node has listed, with those that are gone.
    pub(super) fn listed(&self, node: usize, kind: PageKind) -> u64 {
        match self.ages {
            None => self.length(node, kind, false) + self.length(node, kind, true),
            Some(_) => {
                let lists = newcomers_of(kind)..newcomers_of(kind) + OF_KIND;
                lists.map(|list| self.length_of(node, list)).sum()
            }
        }
    }

    /// Number of the page of a kind that has been in its oldest generation for longest.
    pub(super) fn oldest(&self, node: usize, kind: PageKind) -> Option<u32> {
        let oldest = self.nodes[node].published.oldest[kind as usize].load(Ordering::Relaxed);
        (oldest != NOBODY).then_some(oldest)
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
        let mut guarded = self.lock(pin, node);
        let count = self.take_from(&mut guarded, list, pages);
        self.unlock(node, guarded);
        count
    }

    /// The same under the lock of the lists.
    pub(super) fn take_from(
        &self,
        guarded: &mut NodeLists,
        list: usize,
        pages: &mut [Pfn],
    ) -> usize {
        let mut count = 0;
        for place in pages {
            let Some(oldest) = guarded.lists[list].oldest() else {
                break;
            };
            links::leave(&self.records, &mut guarded.lists[list], oldest);
            *place = Pfn(self.first + oldest);
            count += 1;
        }
        self.looked_at.fetch_add(count as u32, Ordering::Relaxed);
        count
    }

    /// Pages that somebody has taken off a list to look at them.
    pub(super) fn looked_at(&self) -> u32 {
        self.looked_at.load(Ordering::Relaxed)
    }

    /// Of `taken` pages that were taken off a list, puts `pages` on the lists that come with
    /// them, unless they were listed meanwhile.
    pub(super) fn put_back(&self, pin: &Pin<'_>, node: usize, taken: usize, pages: &[(Pfn, To)]) {
        if taken == 0 {
            return;
        }
        let mut guarded = self.lock(pin, node);
        for &(page, to) in pages {
            let number = self.number(page);
            if self.records[number as usize].links.is_listed() {
                continue;
            }
            let list = match to {
                To::List(list) => list,
                To::Generation(kind, last_use) => {
                    if let Some(ages) = &self.ages {
                        ages.set_last_use(number, last_use);
                    }
                    guarded.rings[kind as usize].list(kind, last_use)
                }
            };
            self.link(&mut guarded, number, list);
        }
        self.looked_at.fetch_sub(taken as u32, Ordering::Relaxed);
        self.unlock(node, guarded);
    }

    /// A page with a name (its object and index, or what stands for them) leaves memory.
    pub(super) fn leave_shadow(&self, name: (u32, u64), page: Pfn) {
        let last_use = (self.ages.as_ref()).map(|ages| ages.last_use(self.number(page)));
        self.clock.leave(&self.records, name, last_use);
    }

    /// A page with a name comes: whether it was there before, and then whether it is to stay.
    /// With `aging=lru`, if it would have stayed had it been active.
    pub(super) fn returns(
        &self,
        name: (u32, u64),
        page: AgedPage<'_>,
        kind: PageKind,
    ) -> Option<bool> {
        let shadow = self.clock.returns(&self.records, name)?;
        if let Some(ages) = &self.ages {
            return Some(self.is_kept(ages, page, kind, shadow.last_use));
        }
        let active: u64 = (0..self.nodes.len())
            .map(|node| self.length(node, PageKind::File, true))
            .sum();
        Some(u64::from(shadow.distance) <= active)
    }

    /// Checks the lists while nothing else runs: links lead back, and as many frames are on each
    /// list as it says. Returns which frames are on one or in a batch.
    pub(super) fn audit(&self, pin: &Pin<'_>) -> Result<Box<[bool]>, AuditError> {
        let wrong = |(what, number): (&'static str, u32)| AuditError {
            what,
            place: AuditPlace::Frame(Pfn(self.first + number)),
        };
        let mut counts = [0; LISTS];
        links::check(&self.records, |number| self.list(number), &mut counts).map_err(wrong)?;
        for (list, count) in counts.into_iter().enumerate() {
            let nodes = 0..self.nodes.len();
            if nodes.map(|node| self.length_of(node, list)).sum::<u64>() != count {
                return Err(wrong(("the length of a list of reclaim is wrong", 0)));
            }
        }
        if self.ages.is_some() && !(0..self.nodes.len()).all(|node| self.fit(pin, node)) {
            return Err(wrong(("pages of a generation that there is not", 0)));
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
