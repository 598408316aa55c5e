//! Scanning the lists of a node.

use super::groups::{Low, Whose};
use super::lists::list_of;
use super::{ALL, Cooled, Evictor, PageKind, Reclaim, Rule, Scope, Set, Taken, To};
use crate::addr::Pfn;
use crate::sync::Unpinned;

/// Pages taken off a list at once.
pub(super) const LOT: usize = 32;
/// One in so many pages of a group beside the root are looked at together, at most.
const LOT_SHARE: usize = 8;
/// As many as are looked at together, if there are so many.
const LEAST_LOT: usize = 4;
/// The first pass looks at one in `1 << PASSES` pages, each pass at twice as many as the one
/// before, and the last at all of them.
const PASSES: u32 = 12;
/// Times that a reclaimer that has found nothing waits for another one.
const PATIENCE: u32 = 64;

/// What a pass over a list did.
#[derive(Default)]
pub(super) struct Lot {
    pub(super) scanned: u64,
    pub(super) freed: u64,
    pub(super) activated: u64,
    pub(super) kept: u64,
    pub(super) stale: u64,
    pub(super) sorted: u64,
}

impl Reclaim {
    /// Has up to about `want` pages of a node leave memory, and waits until their frames are free;
    /// returns how many have left.
    pub(crate) fn shrink_node(
        &self,
        mut unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        node: usize,
        want: u64,
    ) -> u64 {
        self.reclaimers.begin();
        let mut low = Low::default();
        let scope = Scope::All;
        let mut freed = self.shrink(unpinned.reborrow(), evictor, (scope, &mut low), node, want);
        if freed == 0 && low.take() {
            freed = self.shrink(unpinned.reborrow(), evictor, (scope, &mut low), node, want);
        }
        if freed > 0 {
            evictor.wait_for_frames(unpinned);
        }
        evictor.reclaim_ended();
        freed
    }

    /// Has up to about `want` pages of a scope on a node leave memory; returns how many have. The
    /// last pass looks at every page and takes used ones, too: if there is a page that can leave,
    /// and nobody else has taken it, this is not 0. (Protected ones cannot; `low` is told of those
    /// that could at last.)
    fn shrink(
        &self,
        mut unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        (scope, low): (Scope, &mut Low),
        node: usize,
        want: u64,
    ) -> u64 {
        let rest = self.lists.rests.of(node);
        let (_disturbed, was_at_rest) = rest.disturb(|| evictor.wait_for_pins(unpinned.reborrow()));
        if was_at_rest {
            self.lists.count_unseen(node);
        }
        self.lists.settle(&evictor.pin_by(&unpinned));
        self.walk_if_due(unpinned.reborrow(), evictor, scope);
        let mut freed = 0;
        for shift in (0..=PASSES).rev() {
            for (kind, share) in self.shares(evictor, scope) {
                if share == 0 {
                    continue;
                }
                let all = self.listed_in(scope, node, kind);
                let most = match shift {
                    0 => want - freed,
                    _ => ((want - freed) * share).div_ceil(u64::from(ALL)),
                };
                for group in self.groups_in(scope) {
                    let set = Set { node, group };
                    let listed = self.lists.listed(set, kind);
                    if listed == 0 {
                        continue;
                    }
                    let open = self.open(scope, group, low);
                    if open.most() == 0 {
                        continue;
                    }
                    let most = most.min(open.most());
                    let listed = if shift > 0 { open.of(listed) } else { listed };
                    // Groups are looked at, and give, in proportion to what they have.
                    let most = match shift {
                        0 => (want - freed).min(open.most()),
                        _ => (most * listed).div_ceil(all.max(listed)).min(want - freed),
                    };
                    let least = (LOT as u64 * listed).div_ceil(all.max(listed));
                    let count = (listed >> shift).max(least);
                    freed += self.scan_set(
                        unpinned.reborrow(),
                        evictor,
                        (set, kind),
                        count,
                        most,
                        shift == 0,
                    );
                    if freed >= want {
                        return freed;
                    }
                }
            }
        }
        freed
    }

    /// Pages of a set to be looked at together, for `want` to leave: of a small group not all of
    /// them, and of one that may be protected no more than those.
    pub(super) fn lot(&self, set: Set, kind: PageKind, want: u64) -> usize {
        let lot = match set.group {
            0 => LOT,
            _ => (self.lists.listed(set, kind) as usize / LOT_SHARE).clamp(LEAST_LOT, LOT),
        };
        match self.lists.protected_groups() {
            None => lot,
            Some(_) => lot.min(usize::try_from(want).unwrap_or(LOT)),
        }
    }

    /// Looks at up to `count` pages of a group until `want` have left.
    fn scan_set(
        &self,
        unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        of: (Set, PageKind),
        count: u64,
        want: u64,
        forced: bool,
    ) -> u64 {
        match self.lists.ages() {
            None => self.scan(unpinned, evictor, of, count, want, forced),
            Some(_) => self.scan_generations(unpinned, evictor, of, count, want, forced),
        }
    }

    /// Has up to about `want` pages of a scope leave memory, those on the node `first` before the
    /// others, and waits until their frames are free. Returns how many have left: that may be
    /// none if others have made room meanwhile. None if no page can leave.
    pub(crate) fn shrink_all(
        &self,
        mut unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        scope: Scope,
        first: usize,
        want: u64,
    ) -> Option<u64> {
        let before = self.reclaimed_in(scope);
        for _ in 0..PATIENCE {
            self.reclaimers.begin();
            let mut low = Low::default();
            let mut each = |low: &mut Low| {
                self.shrink_each(unpinned.reborrow(), evictor, (scope, low), first, want)
            };
            let mut freed = each(&mut low);
            if freed == 0 && low.take() {
                freed = each(&mut low);
            }
            if freed > 0 {
                evictor.wait_for_frames(unpinned.reborrow());
            }
            let ended = evictor.reclaim_ended();
            if freed > 0 || self.reclaimed_in(scope) != before {
                return Some(freed);
            }
            if !evictor.wait_for_reclaimer(unpinned.reborrow(), ended) {
                break;
            }
        }
        None
    }

    /// [`Reclaim::shrink`] of every node.
    fn shrink_each(
        &self,
        mut unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        (scope, low): (Scope, &mut Low),
        first: usize,
        want: u64,
    ) -> u64 {
        let nodes = self.lists.nodes();
        let mut freed = 0;
        for step in 0..nodes {
            freed += self.shrink(
                unpinned.reborrow(),
                evictor,
                (scope, &mut *low),
                (first + step) % nodes,
                want - freed,
            );
            if freed >= want {
                break;
            }
        }
        freed
    }

    /// Looks at up to `count` inactive pages, the oldest first, until `want` have left.
    fn scan(
        &self,
        mut unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        (set, kind): (Set, PageKind),
        count: u64,
        want: u64,
        forced: bool,
    ) -> u64 {
        let mut done = Lot::default();
        while done.scanned < count && done.freed < want {
            let inactive = self.lists.length(set, kind, false);
            // At last every page is looked at, also if those that are inactive cannot leave.
            let active = self.lists.length(set, kind, true);
            if active > inactive || forced && active > 0 {
                self.deactivate(unpinned.reborrow(), evictor, (set, kind));
            }
            let lot = self.lot(set, kind, want - done.freed);
            let most = lot.min((count - done.scanned) as usize);
            if !self.scan_lot(
                unpinned.reborrow(),
                evictor,
                (set, kind),
                most,
                forced,
                &mut done,
            ) {
                break;
            }
        }
        self.count_lot(set, &done);
        done.freed
    }

    /// Counts what was done.
    pub(super) fn count_lot(&self, set: Set, done: &Lot) {
        let of_group = &self.of_groups[set.group];
        of_group.scanned.add(done.scanned);
        of_group.reclaimed.add(done.freed);
        self.counts.scanned.add(done.scanned);
        self.counts.reclaimed.add(done.freed);
        self.counts.activated.add(done.activated);
        self.counts.kept.add(done.kept);
        self.counts.stale.add(done.stale);
        self.counts.sorted.add(done.sorted);
    }

    /// Looks at the oldest `most` inactive pages. False if there was none.
    fn scan_lot(
        &self,
        mut unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        (set, kind): (Set, PageKind),
        most: usize,
        forced: bool,
        done: &mut Lot,
    ) -> bool {
        let mut pages = [Pfn::NONE; LOT];
        let list = list_of(kind, false);
        let count =
            self.lists
                .take_oldest(&evictor.pin_by(&unpinned), set, list, &mut pages[..most]);
        let rule = match forced {
            true => Rule::Forced,
            false => Rule::Inactive,
        };
        let mut back = [(Pfn::NONE, To::List(0)); LOT];
        let mut stay = 0;
        for &page in &pages[..count] {
            done.scanned += 1;
            let taken = match self.whose(evictor, set, page) {
                Whose::Own => evictor.take(unpinned.reborrow(), page, kind, rule),
                Whose::Others => Taken::Kept,
                Whose::Nobodys => Taken::Gone,
            };
            let to = match taken {
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
                    list_of(kind, true)
                }
                Taken::Kept => {
                    done.kept += 1;
                    list
                }
                Taken::SwapBacked => list_of(PageKind::SwapBacked, false),
            };
            back[stay] = (page, To::List(to));
            stay += 1;
        }
        self.lists
            .put_back(&evictor.pin_by(&unpinned), set, count, &back[..stay]);
        count > 0
    }

    /// Has the oldest active pages become inactive, those aside that calls have used again.
    fn deactivate(
        &self,
        unpinned: Unpinned<'_>,
        evictor: &dyn Evictor,
        (set, kind): (Set, PageKind),
    ) {
        let mut pages = [Pfn::NONE; LOT];
        let active = list_of(kind, true);
        let most = self.lot(set, kind, u64::MAX);
        let count =
            self.lists
                .take_oldest(&evictor.pin_by(&unpinned), set, active, &mut pages[..most]);
        let mut back = [(Pfn::NONE, To::List(0)); LOT];
        let mut stay = 0;
        let mut deactivated = 0;
        for &page in &pages[..count] {
            let cooled = match self.whose(evictor, set, page) {
                Whose::Own => evictor.cool(page, kind),
                Whose::Others => Cooled::Idle,
                Whose::Nobodys => Cooled::Gone,
            };
            let to = match cooled {
                Cooled::Used => active,
                Cooled::Idle => {
                    deactivated += 1;
                    list_of(kind, false)
                }
                Cooled::Gone => continue,
            };
            back[stay] = (page, To::List(to));
            stay += 1;
        }
        self.counts.deactivated.add(deactivated);
        self.counts.stale.add((count - stay) as u64);
        self.lists
            .put_back(&evictor.pin_by(&unpinned), set, count, &back[..stay]);
    }
}
