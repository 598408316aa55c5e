//! Pages that move to other nodes, or to where their policies want them.
//!
//! **A private page** moves with the lock of its space held, in a region that no fault is inside of
//! (`leaves/replace.rs`); a superpage does so whole where a block of frames is to be had, and else
//! page by page. One that several spaces map stays, as with Linux's `MPOL_MF_MOVE`. **A page of an
//! object** moves as one leaves that reclaim takes (`evict.rs`): under its page lock, with its range
//! held, unmapped and flushed everywhere. Its place in the object names the copy then, where faults
//! find it. Other references and pins keep a page where it is.

use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::{NodePolicy, NodeSet, PageFlags, Payer, PolicyWord};
use crate::object::{Inserted, ObjectId, PageLock};
use crate::platform::{NodeId, Platform};
use crate::rmap::ReverseMap;
use crate::space::state::closed::Closed;
use crate::space::state::common::PageCache;
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::page::FoundPage;
use crate::space::state::region::RegionView;
use crate::space::state::spaces::SpaceId;
use crate::sync::{Pin, Unpinned};
use crate::table::{Format, Span};

/// Pages that move before the lock of the space is let go of for a moment.
const BATCH: u64 = 256;

/// What became of the pages of a range that were to lie elsewhere. Pages that are not in memory are
/// not among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PagesMoved {
    /// Pages that have moved.
    pub moved: u64,
    /// Pages that lay right.
    pub in_place: u64,
    /// Private pages that other spaces map, too.
    pub shared: u64,
    /// Pages that are pinned, locked by others, in the swap cache, or written or referred to at this
    /// moment; and of objects, those in a locked range, and those that a fault hook watches.
    pub busy: u64,
    /// Pages for which there was no frame where they were to be.
    pub no_memory: u64,
}

/// Where pages are to lie: as the first of these says that is there.
#[derive(Clone, Copy)]
struct Wish {
    /// What the call says, or else the region.
    own: PolicyWord,
    /// The space.
    space: PolicyWord,
}

/// The pages of an object that a part of a region shows.
struct Shown {
    object: ObjectId,
    first: u64,
    pages: u64,
    wish: Wish,
}

/// A part of a region whose private pages have moved.
struct Part {
    /// The page after it.
    end: Vpn,
    shown: Option<Shown>,
}

impl<P: Platform> PageCache<'_, P> {
    /// Moves the page of an object in a frame to which the caller has a reference. As reclaim does,
    /// what is newer than its store is written first.
    fn move_cached(
        &self,
        mut unpinned: Unpinned<'_>,
        page: Pfn,
        wish: Wish,
        moved: &mut PagesMoved,
    ) {
        let first = self.try_to_move(&self.pin_by(&unpinned), page, wish, moved);
        let Some((handle, index)) = first else {
            return;
        };
        self.write_cluster(unpinned.reborrow(), handle, index);
        let pin = self.pin_by(&unpinned);
        let is_dirty = self.try_to_move(&pin, page, wish, moved).is_some();
        moved.busy += u64::from(is_dirty);
    }

    /// The same unless it has to be written: then, nothing is counted, and its object and index are
    /// returned.
    fn try_to_move(
        &self,
        pin: &Pin<'_>,
        page: Pfn,
        wish: Wish,
        moved: &mut PagesMoved,
    ) -> Option<(u32, u64)> {
        let found = self.find_cached(pin, page)?;
        let policy = wish.own.or(found.object.policy()).or(wish.space);
        let wanted = self.memory.wanted_nodes(policy, found.index);
        let is_in_place = wanted.is_none_or(|nodes| nodes.has(self.memory.node_of(page)));
        let mut is_dirty = false;
        if is_in_place {
            moved.in_place += 1;
        } else if let Some(lock) = self.objects.locks.try_lock(&self.memory, page) {
            let payer = Payer::from(self.group_of_frame(pin, page));
            let place = (policy, found.index);
            match self.memory.alloc_to_move(pin, payer, place, 0) {
                None => moved.no_memory += 1,
                Some(new) if self.replace_cached(pin, &found, &lock, new) => moved.moved += 1,
                Some(new) => {
                    self.memory.put(pin, new);
                    let object = found.object;
                    is_dirty = object.is_file() && self.is_dirty(pin, object, found.index, page);
                    moved.busy += u64::from(!is_dirty);
                }
            }
            self.objects.locks.unlock(&self.memory, pin, lock);
        } else {
            moved.busy += 1;
        }
        self.memory.put(pin, page);
        is_dirty.then_some((found.handle, found.index))
    }

    /// Has a page of an object, which is locked, be in the frame `new`: unmapped everywhere first. The
    /// caller has a reference beside that of `found`. False, and the page is where it was, if it is
    /// needed there, or newer than its store.
    pub(super) fn replace_cached(
        &self,
        pin: &Pin<'_>,
        found: &FoundPage<'_>,
        lock: &PageLock,
        new: Pfn,
    ) -> bool {
        let &FoundPage {
            page,
            object,
            handle,
            index,
        } = found;
        let frame = self.memory.frame(page);
        let is_usable = frame.page().has(PageFlags::UPTODATE) && frame.counts().pins() == 0;
        if frame.owner() != handle || !is_usable {
            return false;
        }
        let Some(held) = object.writers.try_lock(&(index..index + 1), pin) else {
            return false;
        };
        self.mappings.unmap_page(pin, lock, true);
        // The cache's, that of `found`, and the caller's.
        let is_free = frame.counts().refs() == 3
            && !(object.is_file() && self.is_dirty(pin, object, index, page));
        if is_free {
            // A read of several pages must not have this one as it was and another as it is after
            // both were written to.
            object.cuts.count_one();
            self.memory.copy(pin, page, new);
            (self.objects).move_to_other(&self.memory, pin, (handle, index), page, new);
            self.note_removed(pin, page);
            self.note_inserted(pin, new, Inserted::Cache);
            // The cache's.
            self.memory.put(pin, page);
        }
        let platform = self.memory.platform();
        object.writers.unlock(held, &self.waits, platform, pin);
        is_free
    }

    /// Does `each` with those pages of an object in a range of it that are in memory, each with a
    /// reference.
    fn each_cached(
        &self,
        mut unpinned: Unpinned<'_>,
        (id, first, pages): (ObjectId, u64, u64),
        mut each: impl FnMut(Unpinned<'_>, Pfn),
    ) {
        let mut next = first;
        loop {
            let pin = self.pin_by(&unpinned);
            let Some(object) = self.objects.find(id) else {
                return;
            };
            let found = self.objects.radix(&pin, object).next(next);
            let Some((index, _)) = found.filter(|&(index, _)| index - first < pages) else {
                return;
            };
            next = index + 1;
            let page = self.objects.lookup(&self.memory, &pin, object, index);
            drop(pin);
            if let Some(page) = page {
                each(unpinned.reborrow(), page);
                self.memory.put(&self.pin_by(&unpinned), page);
            }
        }
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::move_pages`](crate::space::Space::move_pages).
    pub(crate) fn migrate_pages(
        &self,
        id: SpaceId,
        range: PageRange,
        to: Option<NodeId>,
    ) -> Result<PagesMoved, MapError> {
        let mut unpinned = self.memory.unless_pinned().ok_or(MapError::Pinned)?;
        let range = Self::checked(range)?;
        let to = to.map(|node| NodePolicy::Bind {
            nodes: NodeSet::only(node),
            home: None,
        });
        let to = self.checked_policy(to).ok_or(MapError::BadNodes)?;
        self.with_locked(unpinned.reborrow(), id, |_, space| {
            let is_covered = self.is_covered(*space, range);
            is_covered.then_some(()).ok_or(MapError::NotMapped)
        })?;
        let mut moved = PagesMoved::default();
        let mut rest = range;
        while !rest.is_empty() {
            let part = self.with_locked(unpinned.reborrow(), id, |pin, space| {
                Ok(self.move_part(pin, *space, rest, to, &mut moved))
            });
            self.memory.heed_crowd(unpinned.reborrow());
            // The space may have ended, or what is left of the range been unmapped.
            let Ok(Some(part)) = part else {
                break;
            };
            rest.start = part.end;
            if let Some(shown) = part.shown {
                let (cache, wish) = (self.page_cache(), shown.wish);
                let pages = (shown.object, shown.first, shown.pages);
                cache.each_cached(unpinned.reborrow(), pages, |unpinned, page| {
                    cache.move_cached(unpinned, page, wish, &mut moved);
                });
            }
        }
        Ok(moved)
    }

    /// Moves private pages of the first region that has pages of a range, those from its first page
    /// on, and says which part of it is done. `None` if no region has any.
    fn move_part(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        rest: PageRange,
        to: PolicyWord,
        moved: &mut PagesMoved,
    ) -> Option<Part> {
        let found = self.found_from(space, rest.start)?;
        let region = found.item;
        let view = region.view();
        let part = view.range.intersection(rest);
        if part.is_empty() {
            return None;
        }
        let wish = Wish {
            own: to.or(region.policy()),
            space: space.policy(),
        };
        let end = match view.is_shared() || view.is_unmanaged() {
            true => part.end,
            false => {
                let closed = self.close_region(pin, space, region);
                self.move_private(pin, space, (closed.closed(), view), (part, wish), moved)
            }
        };
        let shown = (view.object != 0 && !view.is_unmanaged()).then(|| Shown {
            object: ObjectId {
                handle: view.object,
                generation: self.objects.get(view.object).generation(),
            },
            first: view.index_of(part.start),
            pages: end.0 - part.start.0,
            wish,
        });
        Some(Part { end, shown })
    }

    /// Moves the private pages of a part of a region, as many as may move at once. Returns the page
    /// to go on from.
    fn move_private(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        (region, view): (Closed<'_, R>, RegionView),
        (part, wish): (PageRange, Wish),
        moved: &mut PagesMoved,
    ) -> Vpn {
        let shown = region.region_ref_with(space.handle(), &view);
        let prepared = self.rmap.prepare_private(&self.env(pin), self, shown);
        let (policy, before) = (wish.own.or(wish.space), moved.moved);
        let tables = self.tables(pin, *space);
        let mut spans = tables.spans(part);
        while let Some(span) = spans.next() {
            let misplaced = self.first_misplaced(&span, (&view, part), policy, moved);
            drop(span);
            let Some((page, level)) = misplaced else {
                continue;
            };
            let mut next = page.offset(F::pages_at(level));
            let place = (policy, view.index_of(page));
            let order = if level > 1 { Self::ORDER } else { 0 };
            let payer = space.payer();
            let pages = PageRange {
                start: page,
                end: next,
            };
            let here = pages.intersection(part);
            let new = (prepared.is_ok() && here == pages)
                .then(|| self.memory.alloc_to_move(pin, payer, place, order))
                .flatten();
            let mut is_kept = false;
            let mut may_leave = |frame| {
                let kept = self.what_keeps(frame, moved);
                if let Some(count) = kept {
                    *count += pages.pages();
                    is_kept = true;
                }
                !is_kept
            };
            let done = new.map(|new| match level {
                1 => self.replace_private(pin, space, region, (page, new), &mut may_leave),
                _ => self.replace_superpage(pin, space, region, (page, new), &mut may_leave),
            });
            match done {
                Some(Ok(true)) => moved.moved += pages.pages(),
                // It has gone to swap meanwhile, or truncation has taken it.
                Some(Ok(false)) if level == 1 || is_kept => {}
                _ if level > 1 && self.demote(pin, *space, &region, page).is_ok() => {
                    next = here.start;
                }
                _ => moved.no_memory += here.pages(),
            }
            if moved.moved - before >= BATCH {
                return next.min(part.end);
            }
            spans.rewind(next);
        }
        part.end
    }

    /// The first page of a span, with its level, that is private and does not lie where a policy
    /// wants it. Counts those before it.
    fn first_misplaced(
        &self,
        span: &Span<'_, F>,
        (view, part): (&RegionView, PageRange),
        policy: PolicyWord,
        moved: &mut PagesMoved,
    ) -> Option<(Vpn, u32)> {
        let level = span.table.level();
        let order = if level > 1 { Self::ORDER } else { 0 };
        for index in span.first..span.first + span.count {
            let Some(frame) = self.private_frame(&span.table, index) else {
                continue;
            };
            let page = span.table.page(index);
            let wanted = (self.memory).wanted_nodes(policy, view.index_of(page) >> order);
            if wanted.is_some_and(|nodes| !nodes.has(self.memory.node_of(frame))) {
                return Some((page, level));
            }
            let pages = PageRange::new(page, F::pages_at(level));
            moved.in_place += pages.intersection(part).pages();
        }
        None
    }

    /// What keeps a private page, or superpage, where it is: where that is counted.
    fn what_keeps<'m>(&self, frame: Pfn, moved: &'m mut PagesMoved) -> Option<&'m mut u64> {
        let counts = self.memory.frame(frame).counts();
        if counts.maps() > 1 {
            Some(&mut moved.shared)
        } else if !self.is_exclusive(frame) || counts.pins() > 0 {
            Some(&mut moved.busy)
        } else {
            None
        }
    }
}
