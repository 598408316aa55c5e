//! The lists, and the batches in which pages come to them.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::ages::Ages;
use super::generations::{GENERATIONS, GenerationRing};
use super::rest::Rests;
use super::shadows::EvictionClock;
use super::{PageKind, Set, To};
use crate::addr::Pfn;
use crate::design::PageAging;
use crate::frame::{AuditError, AuditPlace, Groups, MemoryView};
use crate::object::AgedPage;
use crate::object::links::{self, Linked, PageLinks, PageList};
use crate::platform::{GroupId, Platform};
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::bytes;
use crate::sync::report::name;
use crate::sync::{CachePadded, PerCpu, Pin, SpinGuard, SpinLock};

/// Most new pages that a CPU collects.
const BATCH: usize = 32;
/// One in so many frames of a CPU's share may wait in its batch, so that on a small machine most
/// pages are on lists.
const BATCH_SHARE: usize = 64;
/// Lists of a kind of page, at most.
pub(super) const OF_KIND: usize = 1 + GENERATIONS;
/// Lists of a group on a node, at most.
pub(super) const LISTS: usize = 2 * OF_KIND;
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
    links: PageLinks,
    /// A place of the table of shadows; the page it is of has nothing to do with the frame.
    pub(super) shadow: AtomicU64,
}

#[cfg(not(vellum_loom))]
const _: () = assert!(size_of::<SideRecord>() == 16);

impl Linked for SideRecord {
    #[inline]
    fn links(&self) -> &PageLinks {
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

/// The lists of a group on a node.
pub(super) struct GroupLists {
    pub(super) lists: [PageList; LISTS],
    /// Which generation of each kind is where.
    pub(super) rings: [GenerationRing; 2],
    /// Pages on the lists, when their lock was let go of last.
    listed: u64,
    /// Pages that have come since one was taken off a list to leave memory.
    came: u64,
}

impl GroupLists {
    const NEW: GroupLists = GroupLists {
        lists: [PageList::EMPTY; LISTS],
        rings: [GenerationRing::NEW; 2],
        listed: 0,
        came: 0,
    };

    /// Whether more pages have come than are listed, and none had to leave for them: they live in
    /// frames that others have freed. Then the order of the lists is not worth its upkeep.
    fn is_at_rest(&self) -> bool {
        self.came > self.listed
    }
}

/// What the lock of a node guards: the lists of each group, by its place.
pub(super) struct NodeLists {
    node: usize,
    pub(super) groups: Box<[GroupLists]>,
}

/// A node's lists, and what was to be said of each group's when their lock was let go of last.
struct Node {
    guarded: CachePadded<SpinLock<NodeLists>>,
    published: Box<[CachePadded<PublishedLists>]>,
}

#[derive(Default)]
struct PublishedLists {
    lengths: [AtomicU64; LISTS],
    /// The page of each kind that has been in its oldest generation for longest.
    oldest: [AtomicU32; 2],
}

/// The lists of a node, locked, and of which groups they have changed, a bit for each.
struct HeldNode<'a> {
    guarded: SpinGuard<'a, NodeLists>,
    changed: u64,
}

/// The name of a page that left, in its group: only there it has come back.
fn named_in(group: usize, (owner, index): (u32, u64)) -> (u32, u64) {
    (owner ^ (group as u32) << 24, index)
}

/// Pages that wait on a CPU to be listed.
#[derive(Default)]
struct PageBatch {
    count: AtomicU32,
    pages: [AtomicU64; BATCH],
}

/// The lists of every node.
pub(crate) struct Lists {
    first: u32,
    records: Box<[SideRecord]>,
    nodes: Box<[Node]>,
    batches: PerCpu<PageBatch>,
    batch: u32,
    node_of_zone: Box<[u16]>,
    /// For each group.
    clocks: Box<[CachePadded<EvictionClock>]>,
    /// Who is charged for frames, if there can be groups beside the root.
    pub(super) groups: Option<Arc<Groups>>,
    pub(super) groups_per_node: usize,
    /// Beside each frame, if there can be groups: on whose lists it is.
    pub(super) listed_for: Box<[AtomicU8]>,
    /// With `aging=generations`.
    ages: Option<Ages>,
    /// If there are no groups beside the root; else no node is ever at rest.
    pub(super) rests: Rests,
}

impl Lists {
    /// Empty lists for a memory.
    pub(super) fn new<P: Platform>(
        memory: MemoryView<'_, P>,
        platform: &P,
        aging: PageAging,
        groups: Option<Arc<Groups>>,
    ) -> Lists {
        let (first, end) = memory.span();
        let records: Box<[SideRecord]> = (first.0..end.0).map(|_| SideRecord::default()).collect();
        let groups_per_node = if groups.is_some() { GroupId::MOST } else { 1 };
        let nodes: Box<[Node]> = (0..platform.nodes())
            .map(|node| Node {
                guarded: CachePadded(SpinLock::new(NodeLists {
                    node,
                    groups: (0..groups_per_node).map(|_| GroupLists::NEW).collect(),
                })),
                published: (0..groups_per_node)
                    .map(|_| CachePadded::default())
                    .collect(),
            })
            .collect();
        name("side records", &[], records.as_ptr(), records.len());
        name("lists of reclaim", &[], nodes.as_ptr(), nodes.len());
        let share = memory.frame_count() / memory.cpus() / BATCH_SHARE;
        let is_by_generations = aging == PageAging::Generations;
        let ages = is_by_generations.then(|| Ages::new(records.len(), groups_per_node));
        let listed_for = match &groups {
            Some(_) => (0..records.len()).map(|_| AtomicU8::new(0)).collect(),
            None => Box::default(),
        };
        let at_rest = if groups.is_some() { 0 } else { records.len() };
        Lists {
            rests: Rests::new(at_rest, nodes.len()),
            first: first.0,
            records,
            nodes,
            batches: PerCpu::new(memory.cpus(), |_| PageBatch::default()),
            batch: share.clamp(1, BATCH) as u32,
            node_of_zone: memory.nodes_of_zones(),
            clocks: (0..groups_per_node)
                .map(|_| CachePadded::default())
                .collect(),
            groups,
            groups_per_node,
            listed_for,
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

    /// Whether a private page that has come may stay where its frame is listed, as one that is new
    /// there. The caller is pinned.
    #[inline]
    pub(super) fn stays(&self, page: Pfn) -> bool {
        let number = self.number(page);
        let stays = self.rests.hold(number);
        if stays && let Some(ages) = &self.ages {
            ages.begin(number, 0);
        }
        stays
    }

    /// The list that private pages come to.
    fn list_of_newcomers(&self) -> usize {
        match self.ages {
            None => list_of(PageKind::SwapBacked, false),
            Some(_) => newcomers_of(PageKind::SwapBacked),
        }
    }

    /// Lists a page, sooner or later: with `aging=generations`, an active one in the youngest
    /// generation.
    #[inline]
    pub(super) fn add(&self, pin: &Pin<'_>, page: AgedPage<'_>, kind: PageKind, active: bool) {
        let (node, number) = (self.node_of(page) as u64, self.number(page.frame()));
        // It is looked at when the batch is full.
        bytes::prefetch(&self.records[number as usize]);
        let mut word = u64::from(number) | node << NODE_SHIFT;
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

    /// Lists the pages that wait on this CPU, each as the youngest of its list. If its frame is
    /// on that list already, from an earlier life, and no page has had to leave for long, it stays
    /// where it is.
    #[cold]
    pub(crate) fn settle(&self, pin: &Pin<'_>) {
        let batch = self.batches.get(pin);
        let count = batch.count.load(Ordering::Relaxed) as usize;
        batch.count.store(0, Ordering::Relaxed);
        let mut held: Option<HeldNode<'_>> = None;
        // Pages in a row that are of the same group, mostly all.
        let (mut arrived_for, mut arrived) = (0, 0);
        for page in &batch.pages[..count.min(BATCH)] {
            let word = page.load(Ordering::Relaxed);
            let (node, number) = ((word >> NODE_SHIFT) as usize, word as u32);
            if held.as_ref().is_none_or(|held| held.guarded.node != node) {
                self.let_go(held.take());
                held = Some(HeldNode {
                    guarded: self.nodes[node].guarded.lock(pin),
                    changed: 0,
                });
            }
            let Some(HeldNode { guarded, changed }) = &mut held else {
                continue;
            };
            // That may be nobody any more, and the page gone.
            let group = self.group_of(number);
            let kind = match word & SWAP_BACKED {
                0 => PageKind::File,
                _ => PageKind::SwapBacked,
            };
            let is_active = word & ACTIVE != 0;
            let list = match &self.ages {
                None => list_of(kind, is_active),
                Some(ages) if is_active => {
                    ages.begin(number, group);
                    guarded.groups[group].rings[kind as usize].list(kind, ages.now(group))
                }
                Some(ages) => {
                    ages.begin(number, group);
                    newcomers_of(kind)
                }
            };
            if group != arrived_for {
                self.count_arrived(arrived_for, arrived);
                (arrived_for, arrived) = (group, 0);
            }
            arrived += 1;
            let lists = &mut guarded.groups[group];
            lists.came += 1;
            if self.records[number as usize].links.is_listed() {
                let is_there = self.list(number) == list && self.listed_for(number) == group;
                if is_there && lists.is_at_rest() {
                    continue;
                }
                *changed |= 1 << self.listed_for(number);
                self.unlink(guarded, number);
            }
            self.link(guarded, number, group, list);
            *changed |= 1 << group;
        }
        self.count_arrived(arrived_for, arrived);
        self.let_go(held);
    }

    /// A node was at rest: as many pages may have come meanwhile as there are.
    pub(super) fn count_unseen(&self, node: usize) {
        let set = Set { node, group: 0 };
        let listed = PageKind::ALL.map(|kind| self.listed(set, kind));
        let listed = listed.iter().sum::<u64>();
        self.count_arrived(0, u32::try_from(listed).unwrap_or(u32::MAX));
    }

    fn count_arrived(&self, group: usize, pages: u32) {
        if let Some(ages) = &self.ages
            && pages > 0
        {
            ages.count_arrived(group, pages);
        }
    }

    /// Makes a page the youngest of a list of a group.
    pub(super) fn link(&self, guarded: &mut NodeLists, number: u32, group: usize, list: usize) {
        if let Some(ages) = &self.ages {
            ages.set_list(number, list);
        }
        self.set_listed_for(number, group);
        let is_home = list == self.list_of_newcomers();
        self.rests.set_home(number, is_home.then_some(guarded.node));
        let lists = &mut guarded.groups[group].lists;
        links::join(&self.records, &mut lists[list], number, list);
    }

    pub(super) fn unlink(&self, guarded: &mut NodeLists, number: u32) {
        let list = self.list(number);
        let lists = &mut guarded.groups[self.listed_for(number)].lists;
        self.rests.set_home(number, None);
        links::leave(&self.records, &mut lists[list], number);
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

    fn let_go(&self, held: Option<HeldNode<'_>>) {
        let Some(HeldNode {
            mut guarded,
            mut changed,
        }) = held
        else {
            return;
        };
        let node = guarded.node;
        while changed != 0 {
            let group = changed.trailing_zeros() as usize;
            self.publish(Set { node, group }, &mut guarded);
            changed &= changed - 1;
        }
        if guarded.groups[0].is_at_rest() {
            self.rests.of(node).begin();
        }
    }

    /// Says how long the lists of a group are, whose lock is to be let go of.
    pub(super) fn publish(&self, set: Set, guarded: &mut NodeLists) {
        let published = &self.nodes[set.node].published[set.group];
        let guarded = &mut guarded.groups[set.group];
        guarded.listed = guarded.lists.iter().map(PageList::count).sum();
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

    /// Pages on a list, as published last; places of pages that are gone count.
    pub(super) fn length(&self, set: Set, kind: PageKind, active: bool) -> u64 {
        self.length_of(set, list_of(kind, active))
    }

    /// The same of the list of a number.
    pub(super) fn length_of(&self, set: Set, list: usize) -> u64 {
        let published = &self.nodes[set.node].published[set.group];
        published.lengths[list].load(Ordering::Relaxed)
    }

    /// Pages of a kind that are listed, with those that are gone.
    pub(super) fn listed(&self, set: Set, kind: PageKind) -> u64 {
        match self.ages {
            None => self.length(set, kind, false) + self.length(set, kind, true),
            Some(_) => {
                let lists = newcomers_of(kind)..newcomers_of(kind) + OF_KIND;
                lists.map(|list| self.length_of(set, list)).sum()
            }
        }
    }

    /// Number of the page of a kind that has been in its oldest generation for longest.
    pub(super) fn oldest(&self, set: Set, kind: PageKind) -> Option<u32> {
        let published = &self.nodes[set.node].published[set.group];
        let oldest = published.oldest[kind as usize].load(Ordering::Relaxed);
        (oldest != NOBODY).then_some(oldest)
    }

    /// Takes the oldest pages off a list, as many as `pages` has room for. Returns how
    /// many there were.
    pub(super) fn take_oldest(
        &self,
        pin: &Pin<'_>,
        set: Set,
        list: usize,
        pages: &mut [Pfn],
    ) -> usize {
        let mut guarded = self.lock(pin, set.node);
        let count = self.take_from(&mut guarded.groups[set.group], list, pages);
        self.publish(set, &mut guarded);
        count
    }

    /// The same under the lock of the lists.
    pub(super) fn take_from(
        &self,
        guarded: &mut GroupLists,
        list: usize,
        pages: &mut [Pfn],
    ) -> usize {
        let mut count = 0;
        guarded.came = 0;
        for place in pages {
            let Some(oldest) = guarded.lists[list].oldest() else {
                break;
            };
            self.rests.set_home(oldest, None);
            links::leave(&self.records, &mut guarded.lists[list], oldest);
            *place = Pfn(self.first + oldest);
            count += 1;
        }
        count
    }

    /// Of `taken` pages that were taken off a list, puts `pages` on the lists that come with
    /// them, unless they were listed meanwhile.
    pub(super) fn put_back(&self, pin: &Pin<'_>, set: Set, taken: usize, pages: &[(Pfn, To)]) {
        if taken == 0 {
            return;
        }
        let mut guarded = self.lock(pin, set.node);
        let mut changed = 1_u64 << set.group;
        for &(page, to) in pages {
            let number = self.number(page);
            if self.records[number as usize].links.is_listed() {
                continue;
            }
            // The group may have ended meanwhile, or the page, and its frame be another's.
            let group = self.group_of(number);
            let list = match to {
                To::List(list) => list,
                To::Generation(kind, last_use) => {
                    let last_use = match &self.ages {
                        Some(ages) if group == set.group => {
                            ages.set_last_use(number, last_use);
                            last_use
                        }
                        Some(ages) => ages.last_use(number, group),
                        None => last_use,
                    };
                    guarded.groups[group].rings[kind as usize].list(kind, last_use)
                }
            };
            self.link(&mut guarded, number, group, list);
            changed |= 1 << group;
        }
        self.let_go(Some(HeldNode { guarded, changed }));
    }

    /// A page with a name (its object and index, or what stands for them) leaves memory.
    pub(super) fn leave_shadow(&self, name: (u32, u64), page: Pfn) {
        let number = self.number(page);
        let group = self.group_of(number);
        let last_use = (self.ages.as_ref()).map(|ages| ages.last_use(number, group));
        self.clocks[group].leave(&self.records, named_in(group, name), last_use);
    }

    /// A page with a name comes: whether it was there before, and then whether it is to stay.
    /// With `aging=lru`, if it would have stayed had it been active.
    pub(super) fn returns(
        &self,
        name: (u32, u64),
        page: AgedPage<'_>,
        kind: PageKind,
    ) -> Option<bool> {
        let group = self.group_of(self.number(page.frame()));
        let shadow = self.clocks[group].returns(&self.records, named_in(group, name))?;
        if let Some(ages) = &self.ages {
            let set = Set {
                node: self.node_of(page),
                group,
            };
            return Some(self.is_kept(ages, set, kind, shadow.last_use));
        }
        let active: u64 = (0..self.nodes.len())
            .map(|node| self.length(Set { node, group }, PageKind::File, true))
            .sum();
        Some(u64::from(shadow.distance) <= active)
    }

    /// Checks the lists while nothing else runs: links lead back, and as many frames are on each
    /// list as it says.
    pub(super) fn audit(&self, pin: &Pin<'_>) -> Result<(), AuditError> {
        let wrong = |(what, number): (&'static str, u32)| AuditError {
            what,
            place: AuditPlace::Frame(Pfn(self.first + number)),
        };
        let mut counts = [0; LISTS * GroupId::MOST];
        let list_of = |number| self.listed_for(number) * LISTS + self.list(number);
        links::check(&self.records, list_of, &mut counts).map_err(wrong)?;
        for (place, &count) in counts.iter().enumerate() {
            let (group, list) = (place / LISTS, place % LISTS);
            if group >= self.groups_per_node {
                break;
            }
            let nodes = 0..self.nodes.len();
            let lengths = nodes.map(|node| self.length_of(Set { node, group }, list));
            if lengths.sum::<u64>() != count {
                return Err(wrong(("the length of a list of reclaim is wrong", 0)));
            }
        }
        if self.ages.is_some() && !(0..self.nodes.len()).all(|node| self.fit(pin, node)) {
            return Err(wrong(("pages of a generation that there is not", 0)));
        }
        Ok(())
    }

    /// Whether a page is on a list of the group that is charged for it, or waits in a batch, for
    /// the audit.
    pub(super) fn is_known(&self, page: Pfn) -> bool {
        let number = self.number(page);
        let record = &self.records[number as usize];
        if record.links.is_listed() && self.listed_for(number) == self.group_of(number) {
            return true;
        }
        self.batches.iter().any(|batch| {
            let count = batch.count.load(Ordering::Relaxed) as usize;
            let mut pages = batch.pages[..count.min(BATCH)].iter();
            pages.any(|page| page.load(Ordering::Relaxed) as u32 == number)
        })
    }
}
