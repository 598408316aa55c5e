//! Generations of pages (`aging=generations`).
//!
//! Each kind of page of a node has one list of newcomers and up to four generations. A
//! generation has the pages that were used last from one walk of the page tables on, and before
//! the first of the next generation. Walks note beside a page's frame in which interval it was
//! used (`ages.rs`), and do not move it: a page that is younger than its generation is moved
//! when it is looked at, without reverse mapping.
//!
//! A page comes as a newcomer. If it is used again before it has come to the old end, it goes to
//! the youngest generation; otherwise it leaves. Newcomers leave as long as they are more than an
//! eighth of the pages; else the oldest pages of the oldest generation do.
//!
//! **Refaults.** A page that leaves is remembered with the interval of its last use. If it comes
//! back, it is made one of the youngest generation if there are more newcomers than that eighth,
//! or if it was used, before it left, later than the page that would leave for it. So whoever
//! sweeps over more than fits keeps what fits, and a set that is used instead of another takes
//! its place. This is how LIRS (Jiang and Zhang 2002) compares distances between uses.

use super::ages::Ages;
use super::groups::Whose;
use super::lists::{GroupLists, Lists, OF_KIND, newcomers_of};
use super::shrink::{LOT, Lot};
use super::{Evictor, PageKind, Reclaim, Rule, Scope, Set, Taken, To};
use crate::addr::Pfn;
use crate::sync::{Pin, Unpinned};

/// Generations of a kind of page, at most.
pub(super) const GENERATIONS: usize = 4;
/// One in so many pages may be a newcomer; and so many pages come between two walks.
const SHARE: u64 = 8;
/// Pages that come between two walks, at least.
const LEAST: u64 = 8;
/// Intervals that a page which comes back must have been used later than the oldest one in
/// memory: uses of one interval are not told apart, nor are those on both sides of a walk.
const LATER: u32 = 1;

/// Which list has which generation of a kind of page.
#[derive(Clone, Copy)]
pub(super) struct GenerationRing {
    /// The first interval of each.
    first: [u32; GENERATIONS],
    oldest: usize,
    count: usize,
}

impl GenerationRing {
    pub(super) const NEW: GenerationRing = GenerationRing {
        first: [0; GENERATIONS],
        oldest: 0,
        count: 1,
    };

    /// Places from that of the oldest generation to that of the youngest.
    fn places(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let oldest = self.oldest;
        (0..self.count).map(move |step| (oldest + step) % GENERATIONS)
    }

    /// The list for pages that were used last in an interval.
    pub(super) fn list(&self, kind: PageKind, last_use: u32) -> usize {
        let mut places = self.places().rev();
        let place = places.find(|&place| self.first[place] <= last_use);
        newcomers_of(kind) + 1 + place.unwrap_or(self.oldest)
    }

    /// The interval from which on pages belong to a younger generation than the oldest.
    fn younger_from(&self) -> u32 {
        let second = self.places().nth(1);
        second.map_or(u32::MAX, |place| self.first[place])
    }

    /// Forgets generations that have no page, from the oldest on.
    fn forget_empty(&mut self, is_empty: impl Fn(usize) -> bool) {
        while self.count > 1 && is_empty(self.oldest) {
            self.oldest = (self.oldest + 1) % GENERATIONS;
            self.count -= 1;
        }
    }

    /// Begins a generation for pages that are used in the interval that lasts, if there is
    /// room for one: otherwise the youngest has them, too.
    fn open(&mut self, now: u32, is_empty: impl Fn(usize) -> bool) {
        self.forget_empty(&is_empty);
        let youngest = (self.oldest + self.count - 1) % GENERATIONS;
        if is_empty(youngest) {
            self.first[youngest] = now;
        } else if self.count < GENERATIONS {
            self.first[(youngest + 1) % GENERATIONS] = now;
            self.count += 1;
        }
    }
}

impl GroupLists {
    /// The list of the oldest generation that has pages, if one has.
    pub(super) fn oldest_list(&self, kind: PageKind) -> usize {
        let first = newcomers_of(kind) + 1;
        let ring = &self.rings[kind as usize];
        let mut places = ring.places();
        let place = places.find(|place| self.lists[first + place].count() > 0);
        first + place.unwrap_or(ring.oldest)
    }
}

impl Lists {
    /// Pages of a kind that there are: newcomers, and in generations.
    fn both(&self, set: Set, kind: PageKind) -> (u64, u64) {
        let newcomers = newcomers_of(kind);
        let generations = newcomers + 1..newcomers + OF_KIND;
        let aged = generations.map(|list| self.length_of(set, list)).sum();
        (self.length_of(set, newcomers), aged)
    }

    /// Whether a page that comes back is to stay.
    pub(super) fn is_kept(&self, ages: &Ages, set: Set, kind: PageKind, last_use: u32) -> bool {
        let (newcomers, aged) = self.both(set, kind);
        if newcomers * SHARE > newcomers + aged {
            return true;
        }
        match self.oldest(set, kind) {
            Some(oldest) => last_use > ages.last_use(oldest, set.group) + LATER,
            None => true,
        }
    }

    /// Whether a page was used again since it came.
    pub(super) fn is_used_again(&self, page: Pfn) -> bool {
        self.ages()
            .is_some_and(|ages| ages.is_used_again(self.number(page)))
    }

    /// Begins a generation of a group on each node.
    fn open_generations(&self, pin: &Pin<'_>, group: usize, now: u32) {
        for node in 0..self.nodes() {
            let mut guarded = self.lock(pin, node);
            for kind in PageKind::ALL {
                let first = newcomers_of(kind) + 1;
                let GroupLists { lists, rings, .. } = &mut guarded.groups[group];
                rings[kind as usize].open(now, |place| lists[first + place].count() == 0);
            }
            self.publish(Set { node, group }, &mut guarded);
        }
    }

    /// Takes the oldest pages of the oldest generation. Returns how many there were, and from
    /// which interval on a page is of a younger one.
    fn take_of_oldest(
        &self,
        pin: &Pin<'_>,
        (set, kind): (Set, PageKind),
        pages: &mut [Pfn],
    ) -> (usize, u32) {
        let mut guarded = self.lock(pin, set.node);
        let first = newcomers_of(kind) + 1;
        let GroupLists { lists, rings, .. } = &mut guarded.groups[set.group];
        let ring = &mut rings[kind as usize];
        ring.forget_empty(|place| lists[first + place].count() == 0);
        let (list, younger_from) = (first + ring.oldest, ring.younger_from());
        let count = self.take_from(&mut guarded.groups[set.group], list, pages);
        self.publish(set, &mut guarded);
        (count, younger_from)
    }

    /// The lists of a kind of page, from that which is looked at first on.
    fn in_order(&self, pin: &Pin<'_>, (set, kind): (Set, PageKind)) -> [usize; OF_KIND] {
        let first = newcomers_of(kind);
        let guarded = self.lock(pin, set.node);
        let oldest = guarded.groups[set.group].rings[kind as usize].oldest;
        let mut lists = [first; OF_KIND];
        for (step, list) in lists[1..].iter_mut().enumerate() {
            *list = first + 1 + (oldest + step) % GENERATIONS;
        }
        lists
    }

    /// Whether all pages of generations are in such as there are.
    pub(super) fn fit(&self, pin: &Pin<'_>, node: usize) -> bool {
        let guarded = self.lock(pin, node);
        let fits = |group: &GroupLists, kind: PageKind| {
            let first = newcomers_of(kind) + 1;
            let is_used = |place: &usize| group.lists[first + place].count() > 0;
            let used = (0..GENERATIONS).filter(is_used).count();
            let ring = &group.rings[kind as usize];
            ring.places().filter(is_used).count() == used
        };
        let mut groups = guarded.groups.iter();
        groups.all(|group| PageKind::ALL.into_iter().all(|kind| fits(group, kind)))
    }
}

/// Where pages are taken from.
#[derive(Clone, Copy)]
enum From {
    Newcomers,
    Oldest,
    /// The list of a number, whatever was used.
    All(usize),
}

impl Reclaim {
    /// Walks the page tables of each group of a scope of which as many pages have come since its
    /// last walk as newcomers may be: uses are noted, and what was used up to now is a generation
    /// of its own.
    pub(super) fn walk_if_due(
        &self,
        mut unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        scope: Scope,
    ) {
        if let Some(ages) = self.lists.ages() {
            for group in self.groups_in(scope) {
                self.walk_group_if_due(unpinned.reborrow(), evictor, ages, group);
            }
        }
    }

    fn walk_group_if_due(
        &self,
        unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        ages: &Ages,
        group: usize,
    ) {
        let scope = Scope::Only(group);
        let nodes = 0..self.lists.nodes();
        let listed = |node| PageKind::ALL.map(|kind| self.listed_in(scope, node, kind));
        let listed: u64 = nodes.flat_map(listed).sum();
        let due = (listed / SHARE).max(LEAST);
        let due = u32::try_from(due).unwrap_or(u32::MAX);
        let Some(now) = ages.begin_walk(group, due) else {
            return;
        };
        self.lists
            .open_generations(&evictor.pin_by(&unpinned), group, now);
        // A page may be charged to another group than that of the space.
        let walked = evictor.walk(unpinned, (group, now), &mut |page| {
            let number = self.lists.number(page);
            ages.note_use(number, self.lists.group_of(number));
        });
        ages.end_walk(group);
        self.counts.walks.add(1);
        self.counts.tables_walked.add(walked.tables);
        self.counts.tables_skipped.add(walked.skipped);
        self.counts.uses_walked.add(walked.used);
    }

    /// Looks at up to `count` pages of a kind until `want` have left: newcomers as long as there
    /// are many, else the oldest of the oldest generation. If pages are `forced` to leave, it
    /// looks at all.
    pub(super) fn scan_generations(
        &self,
        mut unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        (set, kind): (Set, PageKind),
        count: u64,
        want: u64,
        forced: bool,
    ) -> u64 {
        let mut done = Lot::default();
        if forced {
            let lists = self.lists.in_order(&evictor.pin_by(&unpinned), (set, kind));
            for list in lists {
                let end = done.scanned + self.lists.length_of(set, list);
                while done.scanned < end && done.freed < want {
                    let lot = self.lot(set, kind, want - done.freed);
                    let most = lot.min((end - done.scanned) as usize);
                    if !self.scan_aged(
                        unpinned.reborrow(),
                        evictor,
                        (set, kind),
                        From::All(list),
                        most,
                        &mut done,
                    ) {
                        break;
                    }
                }
            }
        }
        // Whether the oldest generation has just been looked at in vain.
        let mut in_vain = false;
        while !forced && done.scanned < count && done.freed < want {
            let (newcomers, aged) = self.lists.both(set, kind);
            let are_few = newcomers * SHARE <= newcomers + aged && !in_vain;
            let from = match newcomers == 0 || are_few && aged > 0 {
                true => From::Oldest,
                false => From::Newcomers,
            };
            let before = done.freed;
            let lot = self.lot(set, kind, want - done.freed);
            let most = lot.min((count - done.scanned) as usize);
            if !self.scan_aged(
                unpinned.reborrow(),
                evictor,
                (set, kind),
                from,
                most,
                &mut done,
            ) {
                break;
            }
            in_vain = matches!(from, From::Oldest) && done.freed == before;
        }
        self.count_lot(set, &done);
        done.freed
    }

    /// Looks at the oldest `most` pages of one list. False if there was none.
    fn scan_aged(
        &self,
        mut unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        (set, kind): (Set, PageKind),
        from: From,
        most: usize,
        done: &mut Lot,
    ) -> bool {
        let Some(ages) = self.lists.ages() else {
            return false;
        };
        let mut pages = [Pfn::NONE; LOT];
        let (count, younger_from) = {
            let (pin, pages) = (evictor.pin_by(&unpinned), &mut pages[..most]);
            let newcomers = newcomers_of(kind);
            match from {
                From::Newcomers => {
                    let count = self.lists.take_oldest(&pin, set, newcomers, pages);
                    (count, u32::MAX)
                }
                From::Oldest => self.lists.take_of_oldest(&pin, (set, kind), pages),
                From::All(list) => {
                    let count = self.lists.take_oldest(&pin, set, list, pages);
                    (count, u32::MAX)
                }
            }
        };
        let mut back = [(Pfn::NONE, To::List(0)); LOT];
        let mut stay = 0;
        for &page in &pages[..count] {
            done.scanned += 1;
            let number = self.lists.number(page);
            let last_use = ages.last_use(number, set.group);
            let is_younger = match from {
                From::Newcomers => ages.is_used_again(number),
                From::Oldest => last_use >= younger_from,
                From::All(_) => false,
            };
            let rule = match from {
                From::All(_) => Rule::Forced,
                From::Newcomers if ages.is_new(number) => Rule::Newcomer,
                _ => Rule::Aged,
            };
            let kept = match from {
                From::Newcomers => To::List(newcomers_of(kind)),
                From::All(list) if list == newcomers_of(kind) => To::List(list),
                _ => To::Generation(kind, last_use),
            };
            let to = if is_younger {
                done.sorted += 1;
                To::Generation(kind, last_use)
            } else {
                let taken = match self.whose(evictor, set, page) {
                    Whose::Own => evictor.take(unpinned.reborrow(), page, kind, rule),
                    Whose::Others => Taken::Kept,
                    Whose::Nobodys => Taken::Gone,
                };
                match taken {
                    Taken::Freed => {
                        done.freed += 1;
                        continue;
                    }
                    Taken::Gone => {
                        done.stale += 1;
                        continue;
                    }
                    Taken::Active => {
                        done.activated += 1;
                        To::Generation(kind, ages.now(set.group))
                    }
                    Taken::Kept => {
                        done.kept += 1;
                        kept
                    }
                    Taken::SwapBacked => To::List(newcomers_of(PageKind::SwapBacked)),
                }
            };
            back[stay] = (page, to);
            stay += 1;
        }
        self.lists
            .put_back(&evictor.pin_by(&unpinned), set, count, &back[..stay]);
        count > 0
    }
}
