//! Pages of objects leaving: truncation, and the end of an object.
//!
//! A page leaves its object under its page lock, unmapped first: the
//! reverse-mapping design finds its entries, each is cleared through the slot
//! that the visit hands out, its CPUs are flushed, and only then is the page
//! free. A fault that maps the page meanwhile counts its mapping first and
//! then looks at the page lock; we lock first and then look at the count
//! (invariant 10).

use core::ops::Range;

use super::hold::HeldPages;
use crate::addr::Pfn;
use crate::frame::{Frame, Kind};
use crate::object::{ObjectId, PageLock, RUN_PAGES, run_length};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::regions::unmap::EndsObjects;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::space::state::manager::Vm;
use crate::sync::{Pin, Turn, Unpinned};
use crate::table::Format;

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

impl<P: Platform> PageCache<'_, P> {
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

    /// Takes every page of `range`, which is held, out of an object.
    pub(super) fn drop_pages(
        &self,
        unpinned: Unpinned<'_>,
        _held: &HeldPages<'_, P>,
        handle: u32,
        range: Range<u64>,
    ) {
        self.drop_all(unpinned, handle, range);
    }

    /// The same if the range is held, or the object has no user.
    fn drop_all(&self, mut unpinned: Unpinned<'_>, handle: u32, range: Range<u64>) {
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

    /// [`PageCache::drop_all`] of those in memory.
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
                    self.mappings.unmap_page(&pin, &lock, false);
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
                self.mappings.unmap_page(pin, &PageLock::held(page), false);
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

    /// [`File::release`](crate::space::File::release).
    pub(crate) fn release_object(&self, id: ObjectId) -> Result<(), FileError> {
        let unpinned = self.memory.unless_pinned().ok_or(FileError::Pinned)?;
        let is_last = self.objects.release_named(&self.pin_by(&unpinned), id);
        if is_last.ok_or(FileError::NoObject)? {
            self.end_object(unpinned, id.handle);
        }
        Ok(())
    }

    /// [`EndsObjects::end_object`].
    pub(in crate::space) fn end_object(&self, mut unpinned: Unpinned<'_>, handle: u32) {
        let done = self.write_back_all(unpinned.reborrow(), handle);
        if done.error.is_some() {
            self.events(&self.pin_by(&unpinned)).lost_objects.bump();
        }
        self.drop_all(unpinned.reborrow(), handle, 0..u64::MAX);
        self.uncommit(self.objects.get(handle));
        self.objects.retire(&self.pin_by(&unpinned), handle);
    }
}

impl<P: Platform, F: Format, R: ReverseMap> EndsObjects for Vm<P, F, R> {
    fn end_object(&self, unpinned: Unpinned<'_>, handle: u32) {
        self.page_cache().end_object(unpinned, handle);
    }
}
