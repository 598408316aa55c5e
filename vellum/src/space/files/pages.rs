//! Writing and reading page by page, as Linux 3.15 did (`fileio=pages`), to be compared
//! with runs.
//!
//! Each page is found with a reference, locked, marked as used and dirty, unlocked, and
//! let go of. What the patches of 2014 changed about that are options:
//! `pagelock`, `accessed`, `flags`. The range of pages that the caller holds stands for
//! the lock of the inode, and is taken once a call, as that was.

use super::ahead::Readahead;
use super::parts::FilePart;
use super::read;
use super::write::{self, Written};
use crate::addr::Pfn;
use crate::design::AccessMarks;
use crate::frame::PageFlags;
use crate::object::{Inserted, Object, PageLock};
use crate::platform::Platform;
use crate::published::object::LockedPage;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::space::state::page::PageBytes;
use crate::sync::{Pin, Unpinned};

/// A page that is locked for a write.
struct Begun {
    lock: PageLock,
    /// Nobody has seen it unlocked.
    is_new: bool,
}

/// How far one page was read.
enum PageRead {
    /// So many bytes, and whether the read is over.
    Done(usize, bool),
    /// Somebody holds the page's lock.
    Busy,
    /// It has to be read from its store first.
    Absent,
}

/// A page that a read asked for.
enum PageStep {
    /// Up to date, with a reference.
    Page(Pfn),
    /// Locked by somebody else.
    Busy,
    /// In swap.
    Swapped,
    /// Not there, or not read yet.
    Absent,
}

impl<P: Platform> PageCache<'_, P> {
    /// Writes to one page.
    #[inline(never)]
    pub(super) fn write_one(
        &self,
        unpinned: Unpinned<'_>,
        object: &Object,
        handle: u32,
        rest: &write::Rest,
        give: &mut impl FnMut(usize, &mut super::parts::Filling<'_, P>),
    ) -> Result<Written, FileError> {
        let index = self.page_of(rest.bytes.start);
        let pin = self.pin_by(&unpinned);
        let design = &self.design;
        let (place, payer) = ((handle, index), self.payer(&pin));
        let found = self
            .objects
            .find_or_make_locked(&self.memory, &pin, design, place, payer)?;
        let mut begun = match found {
            LockedPage::Found(lock) => Begun {
                lock,
                is_new: false,
            },
            LockedPage::Made(lock) => {
                self.note_inserted(&pin, lock.page(), Inserted::Cache);
                Begun { lock, is_new: true }
            }
            LockedPage::Busy(page) => {
                drop(pin);
                self.wait_for_page(unpinned, page);
                return Ok(Written::NOTHING);
            }
            LockedPage::Swapped => {
                drop(pin);
                self.fetch_page(unpinned, handle, index)?;
                return Ok(Written::NOTHING);
            }
            LockedPage::Absent => return Ok(Written::NOTHING),
        };
        let is_ready = self
            .memory
            .frame(begun.lock.page())
            .page()
            .has(PageFlags::UPTODATE);
        if is_ready || !self.keeps_bytes(object, index, &rest.bytes) {
            match self.fill_locked(&pin, object, begun, rest, give) {
                Ok(written) => return Ok(written),
                // The store has what was not put.
                Err(unfilled) => begun = unfilled,
            }
        }
        // It has to be read before a part of it is written: it leaves the cache if it is new, and
        // is then found there read.
        self.abandon(&pin, begun);
        drop(pin);
        self.fetch_page(unpinned, handle, index)?;
        Ok(Written::NOTHING)
    }

    /// Unlocks a page that was not written. If it is not up to date it leaves the cache.
    fn abandon(&self, pin: &Pin<'_>, begun: Begun) {
        let Begun { lock, is_new } = begun;
        let page = lock.page();
        if is_new {
            self.note_removed(pin, page);
        }
        if self.memory.frame(page).page().has(PageFlags::UPTODATE) {
            self.objects.locks.unlock(&self.memory, pin, lock);
            self.memory.put(pin, page);
        } else {
            self.objects.fill_failed(&self.memory, pin, lock);
        }
    }

    /// Fills, marks and unlocks a page. Gives it back, still locked, if the source gave too
    /// little and the store has the rest.
    fn fill_locked(
        &self,
        pin: &Pin<'_>,
        object: &Object,
        begun: Begun,
        rest: &write::Rest,
        give: &mut impl FnMut(usize, &mut super::parts::Filling<'_, P>),
    ) -> Result<Written, Begun> {
        let page = begun.lock.page();
        let frame = self.memory.frame(page).page();
        self.mark_accessed_first(pin, &begun);
        let place = rest.bytes.start;
        let part = self.part_of_page(place, rest.bytes.end);
        let start = part.start;
        let mut filling = self.filling(pin, page, part);
        let room = filling.room();
        give(rest.at, &mut filling);
        let put = room - filling.room();
        let over = put < room;
        if self.design.access_marks == AccessMarks::Atomic {
            self.note_touched(pin, page);
        }
        if !frame.has(PageFlags::UPTODATE) {
            let starts_below_end = place - (start as u64) < object.size();
            if over && object.is_file() && starts_below_end {
                return Err(begun);
            }
            if put == 0 {
                self.abandon(pin, begun);
                return Ok(Written { bytes: 0, over });
            }
            filling.page.zero(0..start);
            filling.page.zero(start + put..self.memory.frame_size());
            frame.set(PageFlags::UPTODATE);
        }
        let index = self.page_of(place);
        if put == 0 {
            // As it was.
        } else if object.is_file() {
            self.objects
                .mark_dirty(&self.memory, pin, object, index..index + 1);
        } else {
            frame.set_if_clear(PageFlags::DIRTY);
        }
        debug_assert!(!begun.is_new || frame.has(PageFlags::UPTODATE));
        self.objects.locks.unlock(&self.memory, pin, begun.lock);
        self.memory.put(pin, page);
        Ok(Written { bytes: put, over })
    }

    /// With `accessed=init`, marks a page as used when it is found. One that was made
    /// has its mark since before anybody could see it.
    fn mark_accessed_first(&self, pin: &Pin<'_>, begun: &Begun) {
        if self.design.access_marks == AccessMarks::Init && !begun.is_new {
            self.note_touched(pin, begun.lock.page());
        }
    }

    /// Reads one page, and has it read from its store if need be. Returns how many bytes
    /// were read, and whether the read is over.
    #[inline(never)]
    pub(super) fn read_by_page(
        &self,
        mut unpinned: Unpinned<'_>,
        (object, handle): (&Object, u32),
        ahead: &Readahead,
        rest: read::Rest,
        each: &mut impl FnMut(usize, &FilePart<'_, P>) -> usize,
    ) -> Result<(usize, bool), FileError> {
        if let Some(begun) = object.cuts.begin() {
            let read = self.read_one(&self.pin_by(&unpinned), (object, handle), rest, each);
            if let PageRead::Done(count, over) = read
                && object.cuts.valid(begun)
            {
                return Ok((count, over));
            }
        }
        // As in runs: nobody takes the page away meanwhile.
        let index = self.page_of(rest.place());
        let end = rest.place().saturating_add(rest.left as u64);
        let _held = self.hold_pages(unpinned.reborrow(), object, index..index + 1);
        loop {
            // The pin ends before anything sleeps.
            let read = self.read_one(&self.pin_by(&unpinned), (object, handle), rest, each);
            match read {
                PageRead::Done(count, over) => return Ok((count, over)),
                PageRead::Busy => {
                    self.wait_for_page_at(unpinned.reborrow(), object, index);
                }
                PageRead::Absent => {
                    let pages = ahead.pages(index, self.pages_for(end) - index);
                    self.fetch_run(unpinned.reborrow(), object, handle, index, pages)?;
                }
            }
        }
    }

    /// Hands out the part of one page that is there, below the object's end. A page of
    /// shared memory is locked for a moment, in which it is found complete.
    fn read_one(
        &self,
        pin: &Pin<'_>,
        (object, handle): (&Object, u32),
        rest: read::Rest,
        each: &mut impl FnMut(usize, &FilePart<'_, P>) -> usize,
    ) -> PageRead {
        let (place, size) = (rest.place(), object.size());
        if place >= size {
            return PageRead::Done(0, true);
        }
        let index = self.page_of(place);
        let page = match self.page_to_read(pin, object, handle, index) {
            PageStep::Page(page) => Some(page),
            PageStep::Absent if object.is_file() => return PageRead::Absent,
            PageStep::Swapped => return PageRead::Absent,
            PageStep::Absent => None,
            PageStep::Busy => return PageRead::Busy,
        };
        let end = size.min(place.saturating_add(rest.left as u64));
        let part = self.part_of_page(place, end);
        let part = FilePart {
            page: page.map(|page| PageBytes::new(&self.memory, pin, page)),
            start: part.start,
            len: part.len(),
        };
        if let Some(page) = page {
            self.note_touched(pin, page);
        }
        let taken = each(rest.done, &part).min(part.len);
        if let Some(page) = page {
            self.memory.put(pin, page);
        }
        PageRead::Done(taken, taken < part.len)
    }

    /// A page that is up to date, with a reference.
    fn page_to_read(&self, pin: &Pin<'_>, object: &Object, handle: u32, index: u64) -> PageStep {
        if object.is_file() {
            let found = self.objects.lookup(&self.memory, pin, object, index);
            return match found {
                Some(page) if self.memory.frame(page).page().has(PageFlags::UPTODATE) => {
                    PageStep::Page(page)
                }
                Some(page) => {
                    self.memory.put(pin, page);
                    PageStep::Absent
                }
                None => PageStep::Absent,
            };
        }
        match self.objects.find_locked(&self.memory, pin, handle, index) {
            LockedPage::Found(lock) | LockedPage::Made(lock) => {
                let page = lock.page();
                self.objects.locks.unlock(&self.memory, pin, lock);
                PageStep::Page(page)
            }
            LockedPage::Busy(page) => {
                self.memory.put(pin, page);
                PageStep::Busy
            }
            LockedPage::Swapped => PageStep::Swapped,
            LockedPage::Absent => PageStep::Absent,
        }
    }

    /// Takes pages that are locked and mapped nowhere out of an object and lets go of
    /// them, each by itself but for the lists of aging.
    pub(in crate::space) fn drop_one_by_one(&self, pin: &Pin<'_>, object: &Object, locked: &[Pfn]) {
        for &page in locked {
            let (index, lock) = (self.memory.frame(page).index(), PageLock::held(page));
            self.objects.detach(&self.memory, pin, object, index, &lock);
            self.objects.locks.unlock(&self.memory, pin, lock);
        }
        self.note_removed_all(pin, locked);
        for &page in locked {
            // The cache's.
            self.memory.put(pin, page);
        }
    }
}
