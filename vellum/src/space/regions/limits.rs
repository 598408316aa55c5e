//! What the limits of a space allow: asked by each call before it does anything.
//!
//! What counts is what is there in the end, as on Linux. What a mapping replaces makes room for it,
//! and a change of rights that gives one region pages of the next makes no region. In between, with
//! the lock held, there may be a few regions more. A call that adds nothing is not refused, even in
//! a space that has more than limits allow that have been lowered since.
//!
//! Mostly a space is far from its limits: if the most that any call can add fits, nobody looks at
//! what is there.

use crate::addr::{PageRange, Prot, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::account::{Left, Limits};
use crate::space::state::error::MapError;
use crate::space::state::layout::Layout;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{NewWord, RegionView, Tagged, Traits, is_data};
use crate::space::state::spaces::SpaceId;
use crate::sync::Unpinned;
use crate::table::Format;

/// The regions that a call can add: a move cuts at four places and may leave a region, and a
/// mapping cuts at two.
const MOST_REGIONS: u64 = 5;

/// What who cuts regions shows: the limits allow what comes of it.
pub(in crate::space) struct MayCut(());

/// What a call does to the regions of a space.
#[derive(Clone, Copy)]
pub(in crate::space) enum Change<'a> {
    /// A region with these rights and traits gets pages that are free.
    Growth((Prot, Traits), u64),
    /// A region comes, in place of what is mapped there.
    Mapping(&'a Tagged),
    /// What is mapped there goes.
    Unmapping(PageRange),
    /// The pages of `from` move to `to`, with more pages and regions of these rights and traits.
    Move {
        from: PageRange,
        to: PageRange,
        word: (Prot, Traits),
        more: u64,
        regions: u64,
    },
    /// What is mapped there gets another word.
    Word(PageRange, &'a NewWord),
}

impl Change<'_> {
    /// The pages that come, and their rights and traits.
    #[inline]
    fn pages(&self) -> (u64, (Prot, Traits)) {
        match *self {
            Change::Growth(word, pages) => (pages, word),
            Change::Mapping(Tagged { view, .. }) => (view.range.pages(), (view.prot, view.traits)),
            Change::Move { word, more, .. } => (more, word),
            Change::Unmapping(_) | Change::Word(..) => (0, (Prot::NONE, Traits::NONE)),
        }
    }

    /// No fewer pages than become data.
    #[inline]
    fn most_data(&self) -> u64 {
        match *self {
            // A word may make data of all of it.
            Change::Word(range, _) => range.pages(),
            _ => self.pages().0,
        }
    }

    /// What is unmapped, what becomes whole regions, and how many regions come.
    fn ranges(&self) -> (PageRange, PageRange, u64) {
        let none = PageRange::default();
        match *self {
            Change::Growth(..) => (none, none, 0),
            Change::Mapping(Tagged { view, .. }) => (view.range, view.range, 1),
            Change::Unmapping(range) => (range, range, 0),
            Change::Move {
                from, to, regions, ..
            } => (to, from, regions),
            Change::Word(range, _) => (none, range, 0),
        }
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Refuses a change that a rule forbids (`rules.rs`), and one that leaves more than the
    /// limits allow, or than may be promised, which it charges. In a space in tracts: more than the
    /// tract of `page` has left, which is that of all of the change.
    pub(in crate::space) fn check_limits(
        &self,
        space: LockedSpace<'_, R>,
        page: Vpn,
        change: &Change<'_>,
    ) -> Result<MayCut, MapError> {
        self.check_rules(space, change)?;
        let (pages, (_, traits)) = change.pages();
        let left = match space.is_in_tracts() {
            true => self.tract_at(*space, page).left(),
            false => Self::left(*space),
        };
        let is_far = pages <= left.pages
            && MOST_REGIONS <= left.regions
            && (left.data == u64::MAX || change.most_data() <= left.data);
        if !is_far || traits.has(Traits::LOCKED) {
            self.check_end(space, change, left)?;
        }
        if self.memory.commit().is_some() {
            self.commit_change(space, page, change)?;
        }
        if !matches!(change, Change::Unmapping(_)) {
            self.charge_regions(space, self.counts_at(space, page), MOST_REGIONS)?;
        }
        Ok(MayCut(()))
    }

    /// Charges what a change adds to what is promised, less what goes for it.
    #[inline(never)]
    fn commit_change(
        &self,
        space: LockedSpace<'_, R>,
        page: Vpn,
        change: &Change<'_>,
    ) -> Result<(), MapError> {
        let (pages, (_, traits)) = change.pages();
        let mut more = if traits.has(Traits::COMMITTED) {
            pages
        } else {
            0
        };
        if let Change::Word(range, word) = change {
            more = self.becoming(space, *range, word, |_, traits| {
                traits.has(Traits::COMMITTED)
            });
        }
        let (gone, ..) = change.ranges();
        let less = self.having(space, gone, &|view| view.traits.has(Traits::COMMITTED));
        let counts = self.counts_at(space, page);
        Ok(self.commit_pages(space, counts, more.wrapping_sub(less))?)
    }

    /// Pages for which a child of a space is charged: as the space, but where it inherits nothing.
    pub(in crate::space) fn inherited_commit(&self, space: LockedSpace<'_, R>) -> u64 {
        if self.memory.commit().is_none() {
            return 0;
        }
        let is_lost = Traits::COMMITTED.union(Traits::NOT_FORKED);
        let lost = self.having(space, Self::all_pages(), &|view| view.traits.has(is_lost));
        space.account.counts.committed.get() - lost
    }

    /// Pages of a range whose regions are such.
    #[inline(never)]
    fn having(
        &self,
        space: LockedSpace<'_, R>,
        range: PageRange,
        is_such: &dyn Fn(&RegionView) -> bool,
    ) -> u64 {
        let (mut pages, mut next) = (0, range.start);
        while next < range.end
            && let Some(found) = self.found_from(space, next)
            && found.start < range.end.0
        {
            let view = found.item.view();
            next = view.range.end;
            if is_such(&view) {
                pages += view.range.intersection(range).pages();
            }
        }
        pages
    }

    /// Pages of a range that become such by another word, and were not.
    fn becoming(
        &self,
        space: LockedSpace<'_, R>,
        range: PageRange,
        word: &NewWord,
        is_such: fn(Prot, Traits) -> bool,
    ) -> u64 {
        self.having(space, range, &|view| {
            let (prot, traits) = word.of(view);
            is_such(prot, traits) && !is_such(view.prot, view.traits)
        })
    }

    /// The same near the limits: by what will be there.
    #[cold]
    #[inline(never)]
    fn check_end(
        &self,
        space: LockedSpace<'_, R>,
        change: &Change<'_>,
        left: Left,
    ) -> Result<(), MapError> {
        let (pages, (prot, traits)) = change.pages();
        let (gone, cut, mut regions) = change.ranges();
        let edges = [gone.start, gone.end, cut.start, cut.end];
        for (nth, &edge) in edges.iter().enumerate() {
            let is_cut = !self.region_cut_by(space, edge).is_none();
            regions += u64::from(is_cut && !edges[..nth].contains(&edge));
        }
        let (mut less_pages, mut less_regions, mut less_locked, mut less_data) = (0, 0, 0, 0);
        let mut next = gone.start;
        while next < gone.end
            && let Some(found) = self.found_from(space, next)
            && found.start < gone.end.0
        {
            let view = found.item.view();
            next = view.range.end;
            let part = view.range.intersection(gone).pages();
            less_pages += part;
            less_regions += 1;
            if view.traits.has(Traits::LOCKED) {
                less_locked += part;
            }
            if view.is_data() {
                less_data += part;
            }
        }
        less_regions += self.joined(space, change, cut);
        let locked = if traits.has(Traits::LOCKED) { pages } else { 0 };
        let data = match change {
            Change::Word(range, word) => self.becoming(space, *range, word, is_data),
            _ if is_data(prot, traits) => pages,
            _ => 0,
        };
        let fits = pages.saturating_sub(less_pages) <= left.pages
            && regions.saturating_sub(less_regions) <= left.regions
            && data.saturating_sub(less_data) <= left.data
            && locked.saturating_sub(less_locked) <= Self::left_to_lock(space);
        fits.then_some(()).ok_or(MapError::Limit)
    }

    /// How many pairs of neighbours in a range and at its edges become one region by a change:
    /// those of which it is sure, whatever faults do until then.
    fn joined(&self, space: LockedSpace<'_, R>, change: &Change<'_>, range: PageRange) -> u64 {
        let fresh = R::Region::default();
        let after = |page| {
            let is_inside = range.contains(page);
            match change {
                Change::Mapping(tagged) if is_inside => return Some((**tagged, &fresh)),
                Change::Mapping(_) | Change::Word(..) => {}
                _ => return None,
            }
            let region = self.found_from(space, page)?.item;
            let mut tagged = region.tagged();
            let view = &mut tagged.view;
            if let Change::Word(_, word) = change
                && is_inside
            {
                (view.prot, view.traits) = word.of(view);
                tagged.policy = word.policy.unwrap_or(tagged.policy);
            }
            // Not one that is being unmapped.
            let stays = view.range.contains(page) && region.gate.is_open();
            stays.then_some((tagged, &region.rmap))
        };
        let mut joined = 0;
        let mut page = range.start;
        loop {
            let behind = after(page);
            if !self.is_boundary(space, page)
                && let Some((mut head, other)) =
                    page.0.checked_sub(1).and_then(|page| after(Vpn(page)))
                && let Some((mut tail, state)) = behind
            {
                head.view.range.end = page;
                tail.view = tail.view.part(PageRange {
                    start: page,
                    ..tail.view.range
                });
                let is_sure = tail.view.is_shared() || self.rmap.stay_mergeable(other, state);
                joined += u64::from(is_sure && Self::continues(&head, &tail));
            }
            match behind {
                Some((tail, _)) if page < range.end => page = tail.view.range.end.min(range.end),
                _ => return joined,
            }
        }
    }

    /// [`Space::set_limits`](crate::space::Space::set_limits).
    pub(crate) fn set_limits(&self, id: SpaceId, limits: Limits) -> Result<(), MapError> {
        self.limit_space(Unpinned::at_door(), id, limits)
    }

    /// [`Space::set_layout`](crate::space::Space::set_layout).
    pub(crate) fn set_layout(&self, id: SpaceId, layout: &Layout) -> Result<(), MapError> {
        let is_page = |page: Vpn| page <= F::USER_END;
        let kept = layout.kept_free.iter();
        let are_ranges = kept
            .clone()
            .all(|kept| kept.start <= kept.end && is_page(kept.end));
        if !are_ranges || !is_page(layout.lowest) || !is_page(layout.base) {
            return Err(MapError::BadRange);
        }
        self.with_locked(Unpinned::at_door(), id, |_, space| {
            space.layout.set(layout);
            Ok(())
        })
    }

    pub(in crate::space) fn limit_space(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        limits: Limits,
    ) -> Result<(), MapError> {
        self.with_locked(unpinned, id, |_, space| {
            space.limits.set(limits);
            Ok(())
        })
    }
}
