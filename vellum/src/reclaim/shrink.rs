//! Scanning the lists of a node.

use super::lists::list_of;
use super::{ALL, Cooled, Evictor, PageKind, Reclaim, Rule, Taken, To};
use crate::addr::Pfn;

/// Pages taken off a list at once.
pub(super) const LOT: usize = 32;
/// The first pass looks at one in `1 << PASSES` pages, each pass at twice as many as the one
/// before, and the last at all of them.
const PASSES: u32 = 12;
/// Rounds in which a reclaimer that has found nothing waits for others, who hold pages that they
/// look at.
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
    /// Has up to about `want` pages of a node leave memory; returns how many have. The last pass
    /// looks at every page and takes used ones, too: if there is a page that can leave, and
    /// nobody else has taken it, this is not 0.
    pub(crate) fn shrink(&self, evictor: &dyn Evictor, node: usize, want: u64) -> u64 {
        self.lists.settle(&evictor.pin());
        self.walk_if_due(evictor);
        let has_ages = self.lists.ages().is_some();
        let mut freed = 0;
        for shift in (0..=PASSES).rev() {
            for (kind, share) in self.shares(evictor) {
                if share == 0 {
                    continue;
                }
                let listed = self.lists.listed(node, kind);
                if listed == 0 {
                    continue;
                }
                let count = (listed >> shift).max(LOT as u64);
                let most = match shift {
                    0 => want - freed,
                    _ => ((want - freed) * share).div_ceil(u64::from(ALL)),
                };
                let forced = shift == 0;
                freed += match has_ages {
                    false => self.scan(evictor, (node, kind), count, most, forced),
                    true => self.scan_generations(evictor, (node, kind), count, most, forced),
                };
                if freed >= want {
                    return freed;
                }
            }
        }
        freed
    }

    /// [`Reclaim::shrink`] of every node, that of `first` before the others.
    pub(crate) fn shrink_all(&self, evictor: &dyn Evictor, first: usize, want: u64) -> u64 {
        let nodes = self.lists.nodes();
        let before = self.counts.reclaimed.get();
        let mut freed = 0;
        for turn in 0..PATIENCE {
            for step in 0..nodes {
                freed += self.shrink(evictor, (first + step) % nodes, want - freed);
                if freed >= want {
                    return freed;
                }
            }
            // What others have freed meanwhile may do as well, and what they look at may be all
            // that there is.
            if freed > 0 || self.counts.reclaimed.get() != before {
                return freed.max(1);
            }
            if self.lists.looked_at() == 0 {
                break;
            }
            evictor.relax(turn);
        }
        freed
    }

    /// Looks at up to `count` inactive pages, the oldest first, until `want` have left.
    fn scan(
        &self,
        evictor: &dyn Evictor,
        (node, kind): (usize, PageKind),
        count: u64,
        want: u64,
        forced: bool,
    ) -> u64 {
        let mut done = Lot::default();
        while done.scanned < count && done.freed < want {
            let inactive = self.lists.length(node, kind, false);
            if self.lists.length(node, kind, true) > inactive {
                self.deactivate(evictor, (node, kind));
            }
            let most = LOT.min((count - done.scanned) as usize);
            if !self.scan_lot(evictor, (node, kind), most, forced, &mut done) {
                break;
            }
        }
        self.count_lot(&done);
        done.freed
    }

    /// Counts what was done.
    pub(super) fn count_lot(&self, done: &Lot) {
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
        evictor: &dyn Evictor,
        (node, kind): (usize, PageKind),
        most: usize,
        forced: bool,
        done: &mut Lot,
    ) -> bool {
        let mut pages = [Pfn::NONE; LOT];
        let list = list_of(kind, false);
        let count = self
            .lists
            .take_oldest(&evictor.pin(), node, list, &mut pages[..most]);
        let rule = match forced {
            true => Rule::Forced,
            false => Rule::Inactive,
        };
        let mut back = [(Pfn::NONE, To::List(0)); LOT];
        let mut stay = 0;
        for &page in &pages[..count] {
            done.scanned += 1;
            let to = match evictor.take(page, kind, rule) {
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
            .put_back(&evictor.pin(), node, count, &back[..stay]);
        count > 0
    }

    /// Has the oldest active pages become inactive, those aside that calls have used again.
    fn deactivate(&self, evictor: &dyn Evictor, (node, kind): (usize, PageKind)) {
        let mut pages = [Pfn::NONE; LOT];
        let active = list_of(kind, true);
        let count = self
            .lists
            .take_oldest(&evictor.pin(), node, active, &mut pages);
        let mut back = [(Pfn::NONE, To::List(0)); LOT];
        let mut stay = 0;
        let mut deactivated = 0;
        for &page in &pages[..count] {
            let to = match evictor.cool(page, kind) {
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
            .put_back(&evictor.pin(), node, count, &back[..stay]);
    }
}
