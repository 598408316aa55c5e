//! Pages of files that change places: a range that is taken out, or made in between
//! (`FALLOC_FL_COLLAPSE_RANGE`, `FALLOC_FL_INSERT_RANGE`).
//!
//! No page becomes another one's: who found it without a reference relies on that. So bytes are
//! copied, within the pages that are there, and a page is made only where none was. All that can fail
//! comes before the first copy.
//!
//! From beginning to end nobody sees the pages from the first one on. Writes wait for the range that
//! is held, reads see that it is being cut, and faults, to which the object ends where the range begins
//! ([`Objects::begin_shift`](crate::object::Objects::begin_shift)), wait until it is over, too.

use core::ops::Range;

use super::allocate::Allocation;
use super::hold::HeldPages;
use super::truncate::NextPage;
use crate::ObjectId;
use crate::addr::Pfn;
use crate::frame::{OutOfMemory, PageFlags};
use crate::object::{HoldsPages, Inserted, NewPages, NewRun, Object, PageLock, Seals};
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::sync::{Pin, Unpinned};

/// How often pages that had to be brought back may have left before others came.
const ROUNDS: u32 = 3;

/// Pages of an object that move.
struct Shift {
    handle: u32,
    /// The first page that changes.
    first: u64,
    /// How far they move: what is taken out, or made in between.
    by: u64,
    is_up: bool,
    /// The object's pages before.
    pages: u64,
}

impl Shift {
    /// Where pages are that move.
    fn sources(&self) -> Range<u64> {
        let first = self.first + if self.is_up { 0 } else { self.by };
        first..self.pages
    }

    fn target(&self, source: u64) -> u64 {
        match self.is_up {
            true => source + self.by,
            false => source - self.by,
        }
    }

    /// Where they go.
    fn targets(&self) -> Range<u64> {
        let Range { start, end } = self.sources();
        self.target(start)..self.target(end)
    }
}

/// The first or the last page of a range that is cached.
fn find(find_next: impl Fn(u64) -> Option<u64>, range: Range<u64>, is_last: bool) -> Option<u64> {
    let next = |from, end| find_next(from).filter(|&index| index < end);
    if !is_last {
        return next(range.start, range.end);
    }
    let (mut end, mut width) = (range.end, 1);
    while end > range.start {
        let start = end.saturating_sub(width).max(range.start);
        if let Some(mut last) = next(start, end) {
            while let Some(later) = next(last + 1, end) {
                last = later;
            }
            return Some(last);
        }
        (end, width) = (start, width * 2);
    }
    None
}

impl<P: Platform> PageCache<'_, P> {
    /// [`Allocation::Collapse`] and [`Allocation::Insert`].
    pub(super) fn shift(
        &self,
        mut unpinned: Unpinned<'_>,
        id: ObjectId,
        how: Allocation,
        (offset, len): (u64, u64),
    ) -> Result<(), FileError> {
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        let is_up = how == Allocation::Insert;
        let is_whole = self.within_page(offset) == 0 && self.within_page(len) == 0;
        if len == 0 || !is_whole || object.is_file() {
            return Err(FileError::WrongKind);
        }
        let first = self.page_of(offset);
        let held = self.hold_pages(unpinned.reborrow(), object, first..u64::MAX);
        let size = object.size();
        let past = if is_up {
            Some(offset)
        } else {
            offset.checked_add(len)
        };
        if past.is_none_or(|past| past >= size) {
            return Err(FileError::WrongKind);
        }
        let seal = if is_up { Seals::GROW } else { Seals::SHRINK };
        if object.seals().has(seal) || object.seals().refuse_writes() {
            return Err(FileError::Sealed);
        }
        let new_size = match is_up {
            true => size
                .checked_add(len)
                .filter(|&new| new <= self.most_bytes()),
            false => Some(size - len),
        };
        let new_size = new_size.ok_or(FileError::TooLarge)?;
        let shift = Shift {
            handle: id.handle,
            first,
            by: self.page_of(len),
            is_up,
            pages: self.pages_for(size),
        };
        if is_up {
            self.recommit(&self.pin_by(&unpinned), object, self.pages_for(new_size))?;
        }
        let done = self.shift_held(unpinned.reborrow(), &held, &shift, (size, new_size));
        self.settle_size(unpinned, object);
        done
    }

    /// The same of pages that are held, from the first one that changes on.
    fn shift_held(
        &self,
        mut unpinned: Unpinned<'_>,
        held: &HeldPages<'_, P>,
        shift: &Shift,
        (size, new_size): (u64, u64),
    ) -> Result<(), FileError> {
        let object = held.object();
        let _cut = object.cuts.cut();
        self.objects.begin_shift(held, shift.first, || {
            self.unmap_from(unpinned.reborrow(), shift);
        });
        // Who has found a page before that and copies it for a private mapping does not make it that
        // of the mapping afterwards.
        self.memory.wait_for_pins(unpinned.reborrow());
        let prepared = self.prepare_shift(unpinned.reborrow(), held, shift);
        if prepared.is_err() {
            self.drop_places(&self.pin_by(&unpinned), object, shift);
            self.objects.end_shift(held, (size, shift.pages));
            return prepared;
        }
        self.mappings.zap_copies(shift.handle, shift.first);
        self.move_pages(unpinned.reborrow(), held, shift);
        let gone = match shift.is_up {
            true => shift.first..shift.first + shift.by,
            false => shift.pages - shift.by..u64::MAX,
        };
        self.drop_pages(unpinned, held, shift.handle, gone);
        self.objects
            .end_shift(held, (new_size, self.pages_for(new_size)));
        Ok(())
    }

    /// Takes the entries of all pages away from the first one on that changes.
    fn unmap_from(&self, mut unpinned: Unpinned<'_>, shift: &Shift) {
        let all = shift.first..u64::MAX;
        if self.has_huge() {
            (self.objects).end_run(&self.memory, &self.pin_by(&unpinned), shift.handle, &all);
        }
        let (mut next, mut spins) = (all.start, 0);
        loop {
            let pin = self.pin_by(&unpinned);
            match self.lock_next(&pin, shift.handle, next..all.end) {
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
                    self.mappings.unmap_page(&pin, &lock, false);
                    // What was stored by an entry is newer than what swap has.
                    self.memory
                        .frame(page)
                        .page()
                        .set_if_clear(PageFlags::DIRTY);
                    self.objects.locks.unlock(&self.memory, &pin, lock);
                    self.memory.put(&pin, page);
                    next = index + 1;
                }
            }
        }
    }

    /// Brings back what is in swap, and makes a page for each that will be where none is: locked,
    /// and not up to date, which tells it from others.
    fn prepare_shift(
        &self,
        mut unpinned: Unpinned<'_>,
        held: &HeldPages<'_, P>,
        shift: &Shift,
    ) -> Result<(), FileError> {
        let object = held.object();
        for _ in 0..ROUNDS {
            let mut is_ready = true;
            let mut next = shift.first;
            loop {
                let slot = (self.objects).next_slot(&self.pin_by(&unpinned), object, next);
                let Some(index) = slot.filter(|&index| index < shift.pages) else {
                    break;
                };
                let page = self.with_room_beside(unpinned.reborrow(), held, |unpinned| {
                    self.get_page(unpinned, shift.handle, index)
                })?;
                self.memory.put(&self.pin_by(&unpinned), page);
                (next, is_ready) = (index + 1, false);
            }
            next = shift.sources().start;
            loop {
                let target = {
                    let pin = self.pin_by(&unpinned);
                    let cached = self.objects.radix(&pin, object).next(next);
                    let Some((source, page)) = cached.filter(|at| at.0 < shift.pages) else {
                        break;
                    };
                    next = source + 1;
                    let target = shift.target(source);
                    let is_made = !self.memory.frame(page).page().has(PageFlags::UPTODATE)
                        || self.objects.peek(&pin, object, target).is_some();
                    if is_made { None } else { Some(target) }
                };
                if let Some(target) = target {
                    self.with_room_beside(unpinned.reborrow(), held, |unpinned| {
                        self.make_place(&self.pin_by(&unpinned), (shift.handle, target))
                    })?;
                    is_ready = false;
                }
            }
            if is_ready {
                return Ok(());
            }
        }
        Err(OutOfMemory.into())
    }

    /// Makes a page, locked, with a reference for the caller.
    fn make_place(&self, pin: &Pin<'_>, (handle, first): (u32, u64)) -> Result<(), FileError> {
        let mut frames = [Pfn::NONE];
        let new = (NewPages::ToFill, self.payer(pin));
        (self.objects).alloc_run(&self.memory, pin, (handle, first), new, &mut frames)?;
        let run = NewRun {
            object: handle,
            first,
            frames: &frames,
            pages: NewPages::ToFill,
        };
        self.objects.insert_run(&self.memory, pin, &run)?;
        Ok(())
    }

    /// Takes back what was made.
    fn drop_places(&self, pin: &Pin<'_>, object: &Object, shift: &Shift) {
        let mut next = shift.first;
        while let Some((index, page)) = self.objects.radix(pin, object).next(next) {
            if !self.memory.frame(page).page().has(PageFlags::UPTODATE) {
                let lock = PageLock::held(page);
                self.objects.fill_failed(&self.memory, pin, lock);
            }
            next = index + 1;
        }
    }

    /// Moves the bytes of each page; where one comes from no page, there is none afterwards.
    fn move_pages(&self, mut unpinned: Unpinned<'_>, held: &HeldPages<'_, P>, shift: &Shift) {
        let (object, mut left) = (held.object(), shift.targets());
        loop {
            let pin = self.pin_by(&unpinned);
            let next = |from| Some(self.objects.radix(&pin, object).next(from)?.0);
            let sources = match shift.is_up {
                true => left.start - shift.by..left.end - shift.by,
                false => left.start + shift.by..left.end + shift.by,
            };
            let coming = find(next, sources, shift.is_up).map(|source| shift.target(source));
            let there = find(next, left.clone(), shift.is_up);
            let at = match (coming, there) {
                (Some(coming), Some(there)) if shift.is_up => coming.max(there),
                (Some(coming), Some(there)) => coming.min(there),
                (one, other) => match one.or(other) {
                    Some(at) => at,
                    None => return,
                },
            };
            match shift.is_up {
                true => left.end = at,
                false => left.start = at + 1,
            }
            if !self.move_page(&pin, object, shift, at) {
                drop(pin);
                self.drop_pages(unpinned.reborrow(), held, shift.handle, at..at + 1);
            }
        }
    }

    /// Moves the bytes of the page that comes to `target`. False if none does.
    fn move_page(&self, pin: &Pin<'_>, object: &Object, shift: &Shift, target: u64) -> bool {
        let source = match shift.is_up {
            true => target - shift.by,
            false => target + shift.by,
        };
        let is_filled = |&page: &Pfn| self.memory.frame(page).page().has(PageFlags::UPTODATE);
        let source = self.objects.peek(pin, object, source).filter(is_filled);
        let Some(source) = source else {
            return false;
        };
        let Some(page) = self.objects.peek(pin, object, target) else {
            debug_assert!(false, "a page moves to where none was made");
            return true;
        };
        self.memory.copy(pin, source, page);
        self.memory
            .frame(page)
            .page()
            .set_if_clear(PageFlags::DIRTY);
        if !is_filled(&page) {
            let lock = PageLock::held(page);
            self.objects.filled(&self.memory, pin, lock);
            self.note_inserted(pin, page, Inserted::Cache);
            self.memory.put(pin, page);
        }
        true
    }
}
