//! Dirty tracking: which pages of a range have been written since the last time.
//!
//! The dirty mark of an entry says that its page was written. The call clears it under the lock of the
//! table, and flushes the CPUs before it reports the page: a store that comes later sets a mark again.
//! Other code that clears marks leaves a trace (invariant 19). Write-back sets another bit of the entry
//! ([`Format::SOFT_DIRTY`]). The entry of a page that goes to swap says if the page was clean. Code that
//! clears an entry, or drops content that has none, notes that the region has lost something
//! ([`Region::lose`]): the next call reports all of the region.
//!
//! In a region that a call has looked at ([`Traits::TRACKED`]), pages without an entry are unwritten.
//! What is mapped anew has not been looked at.
//!
//! Devices store to pinned pages without setting a mark. So a pinned page is reported, and its entry
//! keeps a mark for the call after the pin has ended. Where no entry can, its region keeps what it has
//! lost.
//!
//! A private page that its owner freed is in use again if its mark is cleared here (invariant 15). The
//! mark of a page of an object goes to the page's record, and once more after the flush, until which
//! CPUs store without setting any.

use core::convert::Infallible;

use super::limits::Change;
use crate::addr::{PageRange, Vpn};
use crate::frame::{Kind, PageFlags, PrivateFlags};
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Slot};
use crate::space::locks::lock::{Beside, Goal};
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{NewWord, Region, Traits};
use crate::space::state::spaces::{LOST, Live, SpaceId, TRACKED};
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, Unpinned};
use crate::table::{Format, Gather, LockedTable, Marks, Span, Swapped, Users};

/// What [`Space::take_dirty`](crate::space::Space::take_dirty) does to entries, besides clearing their
/// marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TakeDirty {
    /// Entries of pages that were written lose the right to store, so that the next store faults: for
    /// processors that do not set marks.
    pub write_protects: bool,
    /// Superpages are made single pages, as far as there is memory for tables.
    pub splits: bool,
}

/// Most ranges that are reported after one flush.
const TOGETHER: usize = 32;

/// Pages that were written, ascending, whose CPUs are still to be flushed.
#[derive(Default)]
struct Written {
    ranges: [PageRange; TOGETHER],
    used: usize,
}

impl Written {
    /// Adds pages after those that are there. There is room.
    fn push(&mut self, pages: PageRange) {
        match self.ranges[..self.used].last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => {
                self.ranges[self.used] = pages;
                self.used += 1;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.used == TOGETHER
    }
}

/// A walk of the entries of a range.
struct Taking<'t, 'a, P: Platform, F: Format, R: ReverseMap> {
    vm: &'a Vm<P, F, R>,
    pin: &'a Pin<'a>,
    space: LockedSpace<'a, R>,
    how: TakeDirty,
    written: Written,
    /// Of the region at hand: a page is pinned, and its entry cannot keep a mark.
    has_unmarked_pin: bool,
    each: &'t mut dyn FnMut(PageRange),
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::take_dirty`](crate::space::Space::take_dirty).
    pub(crate) fn take_dirty(
        &self,
        id: SpaceId,
        range: PageRange,
        how: TakeDirty,
        each: &mut dyn FnMut(PageRange),
    ) -> Result<(), MapError> {
        let unpinned = Unpinned::at_door();
        let range = Self::checked(range)?;
        self.with_room(unpinned, |mut unpinned| {
            let goal = Goal::Range(range);
            let (lent, beside) = (unpinned.reborrow(), Beside::Nobody);
            let here = self.with_range_locked(lent, id, goal, beside, |pin, space, _| {
                // Each region has lost something, also those of other tracts.
                if space.is_in_tracts() && Self::has_lost_somewhere(*space) {
                    return Ok(None);
                }
                self.take_locked(pin, space, (range, how), each).map(Some)
            })?;
            match here.flatten() {
                Some(()) => Ok(()),
                None => self.with_undivided(unpinned, id, |pin, space| {
                    self.take_locked(pin, *space, (range, how), each)
                }),
            }
        })
    }

    fn take_locked(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        (range, how): (PageRange, TakeDirty),
        each: &mut dyn FnMut(PageRange),
    ) -> Result<(), MapError> {
        self.begin_tracking(pin, space, range)?;
        let mut taking = Taking {
            vm: self,
            pin,
            space,
            how,
            written: Written::default(),
            has_unmarked_pin: false,
            each,
        };
        let mut gather = self.gather(pin, *space);
        let result = self.for_regions(space, range, |handle, view| {
            if !view.is_unmanaged() {
                let is_whole = range.start <= view.range.start && view.range.end <= range.end;
                let part = view.range.intersection(range);
                taking.region(self.region(handle), (part, is_whole), &mut gather);
            }
            Ok::<(), Infallible>(())
        });
        let Ok(()) = result;
        taking.report(&mut gather);
        drop(gather);
        if Self::has_lost_somewhere(*space) {
            // Since the call began. Which region it was, the next call finds out.
            let Ok(()) = self.for_regions(space, range, |_, view| {
                if !view.is_unmanaged() {
                    (taking.each)(view.range.intersection(range));
                }
                Ok::<(), Infallible>(())
            });
        }
        self.merge_range(pin, space, range);
        Ok(())
    }

    /// Whether a region has lost something, and nobody knows which.
    fn has_lost_somewhere(space: Live<'_, R>) -> bool {
        space.tracked.load(Ordering::Acquire) & LOST != 0
    }

    /// Cuts the regions that reach over the edges of `range`, if any in it has not been looked at or
    /// has lost something: such regions are reported whole. Superpages at the edges are split.
    ///
    /// # Errors
    /// Those of a cut; nothing changed.
    fn begin_tracking(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
    ) -> Result<(), MapError> {
        let before = space.tracked.fetch_or(TRACKED, Ordering::AcqRel);
        if before & LOST != 0 && !space.is_in_tracts() {
            space.tracked.fetch_and(!LOST, Ordering::AcqRel);
            self.lose_all(space, Self::all_pages());
        }
        for edge in [range.start, range.end] {
            let region = self.region_from(space, edge);
            if !region.is_none() && self.region(region).range().contains(edge) {
                self.demote_across(pin, *space, self.region(region), edge)?;
            }
        }
        let knows_all = self.for_regions(space, range, |handle, view| {
            let is_known = view.traits.has(Traits::TRACKED) && !self.region(handle).has_lost();
            (is_known || view.is_unmanaged()).then_some(()).ok_or(())
        });
        if knows_all.is_ok() {
            return Ok(());
        }
        let word = NewWord::traits(Traits::NONE, Traits::TRACKED);
        let may_cut = self.check_limits(space, range.start, &Change::Word(range, &word))?;
        // The cuts stay: nothing can fail any more.
        let _ = self.isolate(pin, space, range, &may_cut)?;
        let closed = self.close_regions(pin, space, range);
        closed.for_each(|region, view| {
            if !view.traits.has(Traits::TRACKED) {
                region.lose();
                let (prot, traits) = word.of(&view);
                region.set_word(prot, traits);
            }
        });
        Ok(())
    }

    /// Notes that the regions of a range have lost something.
    fn lose_all(&self, space: LockedSpace<'_, R>, range: PageRange) {
        let Ok(()) = self.for_regions(space, range, |handle, _| {
            self.region(handle).lose();
            Ok::<(), Infallible>(())
        });
    }

    /// The content of a range is about to go without a store to it: the next call reports the range.
    pub(in crate::space) fn forget_tracked(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
    ) {
        if !space.is_tracked() {
            return;
        }
        let is_tracked = self.for_regions(space, range, |_, view| {
            (!view.traits.has(Traits::TRACKED)).then_some(()).ok_or(())
        });
        if is_tracked.is_ok() {
            return;
        }
        let word = NewWord::traits(Traits::TRACKED, Traits::NONE);
        if self.change_traits(pin, space, range, &word).is_err() {
            // All of the regions then.
            self.lose_all(space, range);
        }
    }

    /// Clears an entry that maps a page of an object, and notes if dirty tracking would have seen
    /// something there; `content_stays`: what the page holds stays somewhere. Returns whether it was
    /// marked dirty. The caller holds no lock of the space.
    pub(in crate::space) fn clear_noted(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        slot: &Slot<'_, F>,
        content_stays: bool,
    ) -> bool {
        let soft = slot.entry() & F::SOFT_DIRTY != 0;
        let dirty = slot.clear().dirty;
        if dirty || soft || !content_stays {
            self.note_lost(pin, space, slot.page());
        }
        dirty
    }

    /// The entry of a page was cleared, or its mark, and with it what dirty tracking would have seen.
    /// The caller holds the lock of the entry's table, and no lock of the space.
    #[inline]
    pub(in crate::space) fn note_lost(&self, pin: &Pin<'_>, space: Live<'_, R>, page: Vpn) {
        if space.is_tracked() {
            self.note_lost_in(pin, space, page);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_lost_in(&self, pin: &Pin<'_>, space: Live<'_, R>, page: Vpn) {
        let find = || {
            let found = self.look(pin, space, page, |tree| {
                let region = tree.last_at_most(page.0);
                region.filter(|region| region.range().contains(page))
            });
            found.flatten()
        };
        // If the region is cut meanwhile, or becomes one with another, nobody may carry that over
        // ([`Region::inherit_lost`]).
        let is_noted = find().is_some_and(|region| {
            let now = region.lose_then(find);
            now.is_some_and(|now| core::ptr::eq(region, now))
        });
        if !is_noted {
            space.tracked.fetch_or(LOST, Ordering::AcqRel);
        }
    }
}

impl<'a, P: Platform, F: Format, R: ReverseMap> Taking<'_, 'a, P, F, R> {
    /// Flushes, and reports what was found.
    fn report(&mut self, gather: &mut Gather<'_, P>) {
        gather.flush();
        for &pages in &self.written.ranges[..self.written.used] {
            (self.each)(pages);
        }
        self.written.used = 0;
    }

    /// Takes the marks of `part`, which is all of a region or not.
    fn region(
        &mut self,
        region: &Region<R>,
        (part, is_whole): (PageRange, bool),
        gather: &mut Gather<'_, P>,
    ) {
        let takes_lost = || match is_whole {
            true => region.take_lost(),
            false => region.has_lost(),
        };
        self.has_unmarked_pin = false;
        let mut is_lost = takes_lost();
        let reports = !is_lost;
        self.entries(region, part, reports, gather);
        // Reclaim may have cleared entries whose CPUs are still to be flushed.
        Vm::<P, F, R>::note_unflushed(*self.space, part, gather);
        // And while this was at work: it notes that before it lets go of the table.
        is_lost |= takes_lost();
        if self.has_unmarked_pin || is_lost && self.has_hidden_pin(region) {
            region.lose();
        }
        if !is_lost {
            return;
        }
        if reports || self.written.is_full() {
            self.report(gather);
        }
        self.written.push(part);
    }

    /// Whether a page that the region shows of an object is pinned and has no entry here. Only entries
    /// that were cleared leave such pages, so this is asked when something was lost.
    fn has_hidden_pin(&self, region: &Region<R>) -> bool {
        let Taking { vm, pin, space, .. } = *self;
        let view = region.view();
        if view.object == 0 || !view.is_shared() {
            return false;
        }
        let radix = vm.objects.radix(pin, vm.objects.get(view.object));
        let tables = vm.tables(pin, *space);
        let end = view.index_of(view.range.end);
        let mut next = radix.next(view.offset);
        while let Some((index, frame)) = next.filter(|&(index, _)| index < end) {
            let page = view.range.start.offset(index - view.offset);
            let is_pinned = vm.memory.frame(frame).counts().pins() > 0;
            if is_pinned && !F::is_mapped(tables.peek_settled(page).0) {
                return true;
            }
            next = radix.next(index + 1);
        }
        false
    }

    /// Takes the marks of entries. `reports`: also reports their pages, because the region is not
    /// reported whole.
    fn entries(
        &mut self,
        region: &Region<R>,
        part: PageRange,
        reports: bool,
        gather: &mut Gather<'_, P>,
    ) {
        let Taking { vm, pin, space, .. } = *self;
        let tables = vm.tables(pin, *space);
        let mut spans = tables.spans(part);
        while let Some(span) = spans.next() {
            if span.table.level() > 1 {
                let page = span.table.page(span.first);
                self.large(&span, reports, gather);
                drop(span);
                if self.how.splits {
                    // Without memory for a table it stays one.
                    let _ = vm.demote(pin, *space, region, page);
                }
            } else if let Some(page) = self.table(&span, reports, gather) {
                drop(span);
                self.report(gather);
                spans.rewind(page);
                continue;
            }
            if self.written.is_full() {
                self.report(gather);
            }
        }
    }

    /// Takes the mark of a large leaf.
    #[cold]
    fn large(&mut self, span: &Span<'_, F>, reports: bool, gather: &mut Gather<'_, P>) {
        let (vm, table, index) = (self.vm, &span.table, span.first);
        let (entry, level) = (table.load(index), table.level());
        let pages = PageRange::new(table.page(index), F::pages_at(level));
        let first = F::frame(entry, level);
        let Some(head) = vm.managed(first) else {
            return;
        };
        let frames = || {
            let steps = 0..pages.pages() as u32;
            steps.map(move |step| vm.memory.frame(first.offset(step)))
        };
        let is_pinned = frames().any(|frame| !frame.is_tail() && frame.counts().pins() > 0);
        let is_dirty = F::marks(entry).dirty;
        if is_pinned {
            self.keep_mark(table, index, head.kind());
        } else if is_dirty && head.kind() == Kind::Object {
            // Each is a page of the object. None of them leaves it under this lock, so that the flush
            // comes here as well.
            let mark = || {
                frames().for_each(|frame| _ = frame.page().set_if_clear(PageFlags::DIRTY));
            };
            mark();
            self.take(table, index);
            let whole = PageRange::new(pages.start, 1);
            vm.flush_locked(self.pin, *self.space, whole);
            mark();
        } else if is_dirty {
            self.take(table, index);
            gather.stale_leaf(pages.start, pages.pages());
        }
        if reports && (is_dirty || is_pinned) {
            self.written.push(pages);
        }
    }

    /// Takes the marks of entries of single pages. Returns the page to go on with if others have to be
    /// reported first.
    fn table(
        &mut self,
        span: &Span<'_, F>,
        reports: bool,
        gather: &mut Gather<'_, P>,
    ) -> Option<Vpn> {
        let vm = self.vm;
        let entries = span.first..span.first + span.count;
        vm.end_runs(self.pin, *self.space, &span.table, entries.clone());
        for index in entries {
            let (table, entry) = (&span.table, span.table.load(index));
            let page = table.page(index);
            if entry == 0 || F::is_of_no_page(entry) {
                continue;
            }
            if self.written.is_full() || gather.room() == 0 {
                return Some(page);
            }
            let is_written = match F::is_mapped(entry) {
                true => self.single(table, index, entry, gather),
                false => Self::in_swap(table, index, entry),
            };
            if reports && is_written {
                self.written.push(PageRange::new(page, 1));
            }
        }
        None
    }

    /// Takes the mark of a page in swap; whether it was written.
    fn in_swap(table: &LockedTable<'_, F>, index: usize, entry: u64) -> bool {
        let page = F::swapped(entry);
        let clean = Swapped {
            clean: true,
            ..page
        };
        table.update(index, Users::Hardware, |old| {
            F::with_watch(F::swap(clean), F::is_watched(old))
        });
        !page.clean
    }

    /// Takes the mark of one page; whether it was written.
    fn single(
        &mut self,
        table: &LockedTable<'_, F>,
        index: usize,
        entry: u64,
        gather: &mut Gather<'_, P>,
    ) -> bool {
        let pfn = F::frame(entry, 1);
        let Some(frame) = self.vm.managed(pfn) else {
            return false;
        };
        if frame.counts().pins() > 0 {
            self.keep_mark(table, index, frame.kind());
            return true;
        }
        let is_dirty = F::marks(entry).dirty;
        if !is_dirty && entry & F::SOFT_DIRTY == 0 {
            return false;
        }
        if frame.kind() == Kind::Anonymous {
            frame.private().clear_if_set(PrivateFlags::LAZY_FREE);
        } else if is_dirty {
            frame.page().set_if_clear(PageFlags::DIRTY);
            // The entry, which cannot change while its table is locked, has one.
            frame.get();
            gather.dirty_frame(pfn);
        }
        self.take(table, index);
        gather.stale(table.page(index));
        true
    }

    /// Has the entry of a pinned page keep a mark, for the call after the pin has ended.
    fn keep_mark(&mut self, table: &LockedTable<'_, F>, index: usize, kind: Kind) {
        let entry = table.load(index);
        if F::marks(entry).dirty {
            return;
        }
        // A dirty mark has a file written back, whose page may be pinned for loads alone.
        if kind == Kind::Object && F::SOFT_DIRTY != 0 && table.level() == 1 {
            table.update(index, Users::Hardware, |entry| entry | F::SOFT_DIRTY);
        } else if kind == Kind::Anonymous || F::is_writable(entry) {
            table.mark_used(index, true);
        } else {
            self.has_unmarked_pin = true;
        }
    }

    /// Takes the mark of an entry.
    fn take(&self, table: &LockedTable<'_, F>, index: usize) {
        let protects = self.how.write_protects;
        table.update(index, Users::Hardware, |entry| {
            let marks = Marks {
                dirty: false,
                ..F::marks(entry)
            };
            let entry = F::with_marks(entry, marks) & !F::SOFT_DIRTY;
            match protects {
                true => F::write_protect(entry),
                false => entry,
            }
        });
    }
}
