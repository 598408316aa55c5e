//! Pages of objects leaving: truncation, and the end of an object.
//!
//! A page leaves its object under its page lock, unmapped first: the
//! reverse-mapping design finds its entries, each is cleared through the slot
//! that the visit hands out, its CPUs are flushed, and only then is the page
//! free. A fault that maps the page meanwhile counts its mapping first and
//! then looks at the page lock; we lock first and then look at the count
//! (invariant 10).
//!
//! Truncation holds no space's lock. What it reaches of a space it reaches
//! through a region that is in its object's tree, under that tree's lock, or
//! through a table that is linked, under that table's; and it stays pinned
//! until it has flushed, so that the space's record is not used anew
//! (invariant 7). No spin lock is held at a flush.

use core::ops::{ControlFlow, Range};

use crate::addr::{PageRange, Pfn};
use crate::frame::{Frame, Kind, PageFlags};
use crate::object::{ObjectId, PageLock, Pass, RUN_PAGES, run_length};
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Verdict};
use crate::space::leaves::zap::Zap;
use crate::space::locks::flush::Lost;
use crate::space::locks::stale::{Stale, StaleEntry};
use crate::space::regions::unmap::EndsObjects;
use crate::space::state::error::FileError;
use crate::space::state::manager::Vm;
use crate::space::state::region::Region;
use crate::space::state::spaces::SpaceId;
use crate::sync::{Pin, Turn, Unpinned};
use crate::table::{Entry, Format, Users};
use crate::tree::IntervalItem;

/// A page of an object, to be locked.
pub(super) enum NextPage {
    /// With a reference.
    Page(u64, PageLock),
    /// Somebody else has it; a reference comes with it.
    Busy(Pfn),
    /// Look again.
    Again,
    /// There is none left.
    End,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Removes every mapping of a page that leaves its object. The caller has a reference. If its content stays somewhere, the marks of its entries go to
    /// the page, and an entry of a locked range ends the attempt; otherwise nobody asks any more
    /// whether it is dirty.
    pub(in crate::space) fn unmap_page(&self, pin: &Pin<'_>, lock: &PageLock, content_stays: bool) {
        let page = lock.page();
        let env = self.env(pin);
        let frame = self.memory.frame(page);
        let kind = self.cache_kind(frame.owner());
        let mut stale = Stale::new();
        let mut spins = 0;
        while frame.maps_after_lock() > 0 {
            let (mut is_large, mut is_locked) = (false, false);
            let report = self.rmap.visit::<P, F>(&env, self, page, &mut |slot| {
                let space = self.live_at(slot.space());
                is_locked = content_stays && self.is_locked(space, slot.page());
                is_large = slot.is_large();
                if stale.is_full() || is_large || is_locked {
                    return Verdict::Stop;
                }
                let taken = self.take_away(space);
                let dirty = slot.clear().dirty;
                if content_stays && dirty {
                    frame.page().set_if_clear(PageFlags::DIRTY);
                }
                stale.push(StaleEntry {
                    space: slot.space(),
                    page: slot.page(),
                    emptied: slot.emptied(),
                    taken,
                });
                self.count_resident(pin, space, kind, u64::MAX);
                Verdict::Unmapped
            });
            if content_stays {
                self.count_lookups(pin, 1, &report);
            }
            self.flush_stale(pin, &mut stale);
            for _ in 0..report.unmapped {
                self.memory.put(pin, page);
            }
            if is_locked {
                break;
            }
            let cleared = is_large && self.clear_huge_of(pin, page, content_stays);
            if !cleared && report.unmapped == 0 {
                // Somebody counted a mapping and has not made the entry yet, or is clearing it.
                pin.relax(spins);
                spins += 1;
            }
        }
        self.rmap.wait_for_flushes(&env, page);
    }

    /// The first page in `range` that is cached, locked if possible.
    pub(super) fn lock_next(&self, pin: &Pin<'_>, handle: u32, range: Range<u64>) -> NextPage {
        let object = self.objects.get(handle);
        let next = self.objects.radix(pin, object).next(range.start);
        let Some((index, page)) = next.filter(|(index, _)| *index < range.end) else {
            return NextPage::End;
        };
        if !self.memory.frame(page).try_get(Turn::at(pin, page.0)) {
            return NextPage::Again;
        }
        let Some(lock) = self.objects.locks.try_lock(&self.memory, page) else {
            return NextPage::Busy(page);
        };
        let frame = self.memory.frame(page);
        if frame.kind() != Kind::Object || frame.owner() != handle || frame.index() != index {
            self.objects.locks.unlock(&self.memory, pin, lock);
            self.memory.put(pin, page);
            return NextPage::Again;
        }
        NextPage::Page(index, lock)
    }

    /// Takes every page of `range` out of an object, whose range the caller holds or
    /// which has no user.
    pub(super) fn drop_pages(&self, mut unpinned: Unpinned<'_>, handle: u32, range: Range<u64>) {
        if self.has_huge() {
            (self.objects).end_run(&self.memory, &self.pin_by(&unpinned), handle, &range);
        }
        loop {
            // First: a page whose slot is gone cannot come back meanwhile.
            self.drop_slots(handle, range.clone());
            self.drop_cached(unpinned.reborrow(), handle, range.clone());
            // If the range is not held, reclaim may have had a page leave.
            let object = self.objects.get(handle);
            let slot = self
                .objects
                .next_slot(&self.pin_by(&unpinned), object, range.start);
            if slot.is_none_or(|index| index >= range.end) {
                return;
            }
        }
    }

    /// [`Vm::drop_pages`] of those in memory.
    fn drop_cached(&self, mut unpinned: Unpinned<'_>, handle: u32, mut range: Range<u64>) {
        let mut spins = 0;
        loop {
            self.memory.heed_crowd(unpinned.reborrow());
            let pin = self.pin_by(&unpinned);
            let next = self.drop_free_pages(&pin, handle, range.clone());
            if next > range.start {
                range.start = next;
                continue;
            }
            match self.lock_next(&pin, handle, range.clone()) {
                NextPage::End => return,
                NextPage::Again => {
                    pin.relax(spins);
                    spins += 1;
                }
                NextPage::Busy(page) => {
                    drop(pin);
                    self.wait_for_page(unpinned.reborrow(), page);
                }
                NextPage::Page(index, lock) => {
                    let page = lock.page();
                    self.unmap_page(&pin, &lock, false);
                    let object = self.objects.get(handle);
                    self.objects
                        .detach(&self.memory, &pin, object, index, &lock);
                    self.objects.locks.unlock(&self.memory, &pin, lock);
                    self.note_removed(&pin, page);
                    // Ours and the cache's.
                    self.memory.put(&pin, page);
                    self.memory.put(&pin, page);
                }
            }
        }
    }

    /// Takes the first cached pages of `range` out of an object as long as their page
    /// locks are free, those of one node of its tree at most. Returns the index to go
    /// on from.
    fn drop_free_pages(&self, pin: &Pin<'_>, handle: u32, range: Range<u64>) -> u64 {
        let object = self.objects.get(handle);
        let Some((first, _)) = self.objects.radix(pin, object).next(range.start) else {
            return range.start;
        };
        if first >= range.end {
            return range.start;
        }
        let end = first + run_length(first, range.end - first);
        let mut locked = [Pfn::NONE; RUN_PAGES];
        let (mut count, mut done) = (0, end);
        self.objects
            .radix(pin, object)
            .each_in(first..end, |index, page| {
                if index > done {
                    return;
                }
                // Needs no reference: nobody else takes it out, but whoever could not fill it,
                // and then its frame is not used anew while we are pinned.
                let frame = self.memory.frame(page);
                let Some(lock) = self.objects.locks.try_lock(&self.memory, page) else {
                    done = index;
                    return;
                };
                if frame.owner() != handle {
                    self.objects.locks.unlock(&self.memory, pin, lock);
                    done = index;
                } else {
                    locked[count] = lock.page();
                    count += 1;
                }
            });
        if count == 0 {
            return first;
        }
        let locked = &locked[..count];
        Frame::fence_after_locks();
        for &page in locked {
            if self.memory.frame(page).counts().maps() > 0 {
                self.unmap_page(pin, &PageLock::held(page), false);
            }
        }
        #[cfg(feature = "published")]
        if self.goes_by_page() {
            self.drop_one_by_one(pin, object, locked);
            return done;
        }
        self.objects
            .detach_run(&self.memory, pin, object, first..done, locked);
        self.note_removed_all(pin, locked);
        self.objects.let_go_run(&self.memory, pin, locked);
        done
    }

    /// Unmaps the private copies of an object's pages at or after `first`.
    pub(super) fn zap_copies(&self, handle: u32, first: u64) {
        let pin = self.pin();
        let regions = self.objects.regions(&self.regions, handle);
        let mut pass = Pass::default();
        loop {
            // What one region lost. It is dropped, and so flushed and freed,
            // when the lock of the regions has been let go of.
            let delayed = self.delay_flush(&pin);
            let mut lost: Option<Lost<'_, P>> = None;
            let done = regions.pass_by_age(&pin, (first, u64::MAX), &mut pass, |_, region| {
                self.zap_copies_in(&pin, region, first, &mut lost)
            });
            drop(lost);
            drop(delayed);
            if done {
                return;
            }
        }
    }

    /// [`Vm::zap_copies`] of one region, the lock of the object's regions held.
    /// Breaks if there was something to clear, which is in `lost` then: there
    /// may be more.
    fn zap_copies_in<'p>(
        &'p self,
        pin: &'p Pin<'p>,
        region: &Region<R>,
        first: u64,
        lost: &mut Option<Lost<'p, P>>,
    ) -> ControlFlow<()> {
        let view = region.view();
        if view.is_shared() {
            return ControlFlow::Continue(());
        }
        let space = self.live_at(region.space());
        let skipped = first.saturating_sub(region.first_index());
        let range = PageRange {
            start: view.range.start.offset(skipped),
            end: view.range.end,
        };
        let is_copy = |entry| match entry {
            Entry::Leaf(pfn) => {
                pfn != self.zero_page && self.memory.frame(pfn).kind() == Kind::Anonymous
            }
            // Private pages only go to swap.
            Entry::Swap(_) => true,
            Entry::Empty | Entry::Table(_) => false,
        };
        let zap = Zap {
            vm: self,
            pin,
            space,
            region,
            users: Users::Hardware,
        };
        let tables = self.tables(pin, space);
        for span in tables.spans(range) {
            let (gather, _) = lost.get_or_insert_with(|| self.lose(pin, space));
            let rest = zap.span(&span, gather, is_copy);
            tables.unlink_if_empty(span.table, gather);
            if rest.is_some() {
                break;
            }
        }
        let Some((gather, _)) = lost else {
            return ControlFlow::Continue(());
        };
        if gather.is_empty() {
            // The next region may be another space's.
            *lost = None;
            return ControlFlow::Continue(());
        }
        Self::note_move(space, gather);
        self.count_tables(pin, space, 0, gather.tables_freed());
        ControlFlow::Break(())
    }

    /// Moves the dirty marks of a page's entries to the page. A store made
    /// after this sets a mark again, because the CPUs have been flushed.
    pub(super) fn take_dirty_marks(&self, pin: &Pin<'_>, page: Pfn) {
        self.clear_dirty_marks(pin, page);
        self.rmap.wait_for_flushes(&self.env(pin), page);
    }

    fn clear_dirty_marks(&self, pin: &Pin<'_>, page: Pfn) {
        let frame = self.memory.frame(page);
        if frame.counts().maps() == 0 {
            return;
        }
        let env = self.env(pin);
        let mut stale = Stale::new();
        loop {
            let mut more = false;
            self.rmap.visit::<P, F>(&env, self, page, &mut |slot| {
                if stale.is_full() {
                    more = true;
                    return Verdict::Stop;
                }
                let taken = self.take_away(self.live_at(slot.space()));
                if slot.take_dirty() {
                    frame.page().set_if_clear(PageFlags::DIRTY);
                    stale.push(StaleEntry {
                        space: slot.space(),
                        page: slot.page(),
                        emptied: None,
                        taken,
                    });
                }
                Verdict::Keep
            });
            self.flush_stale(pin, &mut stale);
            if !more {
                return;
            }
        }
    }

    /// [`File::release`](crate::space::File::release).
    pub(crate) fn release_object(&self, id: ObjectId) -> Result<(), FileError> {
        let unpinned = self.memory.unless_pinned().ok_or(FileError::Pinned)?;
        let is_last = self.objects.release_named(&self.pin_by(&unpinned), id);
        if is_last.ok_or(FileError::NoObject)? {
            self.end_object(unpinned, id.handle);
        }
        Ok(())
    }

    /// The space a table belongs to, by handle, for reports.
    pub(crate) fn space_named_by(&self, handle: u32) -> SpaceId {
        self.live_at(handle).id()
    }
}

impl<P: Platform, F: Format, R: ReverseMap> EndsObjects for Vm<P, F, R> {
    fn end_object(&self, mut unpinned: Unpinned<'_>, handle: u32) {
        let done = self.write_back_all(unpinned.reborrow(), handle);
        if done.error.is_some() {
            self.events(&self.pin_by(&unpinned)).lost_objects.bump();
        }
        self.drop_pages(unpinned.reborrow(), handle, 0..u64::MAX);
        self.objects.retire(&self.pin_by(&unpinned), handle);
    }
}
