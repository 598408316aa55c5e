//! Pages of a file that are filled from its store.

use crate::addr::Pfn;
use crate::frame::PageFlags;
use crate::object::{
    CacheError, Inserted, NewPages, NewRun, Object, ObjectKind, PageLock, RUN_PAGES, run_length,
};
use crate::platform::{IoError, Platform};
use crate::space::state::common::{Common, PageCache};
use crate::space::state::error::FaultError;
use crate::space::state::page::PageBytes;
use crate::sync::{MaybePinned, Pin, Unpinned};

/// Most pages that are read after the one that a fault needs.
const AHEAD: u64 = RUN_PAGES as u64 / 2;

impl<P: Platform> Common<P> {
    /// Fills pages of a file in a row, the first at `first`, which are locked for us, with a
    /// reference to each, from its store, and unlocks them. Those that cannot be read leave
    /// the cache, and `failed` is told their indices.
    pub(in crate::space) fn fill_run(
        &self,
        mut unpinned: Unpinned<'_>,
        object: &Object,
        store: u64,
        (first, frames): (u64, &[Pfn]),
        mut failed: impl FnMut(u64, IoError),
    ) {
        let all = self.memory.unpinned_platform(unpinned.reborrow());
        // SAFETY: the pages are locked and not up to date, so they are mapped nowhere and
        // nobody else reads or writes them (invariant 10).
        let whole = all.and_then(|all| unsafe { all.read_pages(store, first, frames) });
        for (index, &frame) in (first..).zip(frames) {
            let read = whole.or_else(|_| {
                let platform = self.memory.unpinned_platform(unpinned.reborrow());
                // SAFETY: as above.
                unsafe { platform?.read_page(store, index, frame) }
            });
            let (pin, lock) = (self.pin_by(&unpinned), PageLock::held(frame));
            if let Err(error) = read {
                self.objects.fill_failed(&self.memory, &pin, lock);
                failed(index, error);
                continue;
            }
            self.page_is_read(&pin, object, lock);
        }
    }

    /// A page, to which the caller has a reference, holds what its store has: it can be used
    /// from now on.
    pub(in crate::space) fn page_is_read(&self, pin: &Pin<'_>, object: &Object, lock: PageLock) {
        let frame = lock.page();
        let index = self.memory.frame(frame).index();
        let size = object.size();
        let tail = self.within_page(size);
        if index == self.page_of(size) && tail != 0 {
            // The store may have what mappings stored past the end.
            PageBytes::new(&self.memory, pin, frame).zero(tail..self.memory.frame_size());
        }
        debug_assert!(self.memory.frame(frame).page().has(PageFlags::LOCKED));
        self.events(pin).page_reads.bump();
        self.objects.filled(&self.memory, pin, lock);
        self.note_inserted(pin, frame, Inserted::Cache);
        self.memory.put(pin, frame);
    }

    /// Sleeps until a page may be unlocked, and drops the reference that came
    /// with the step.
    pub(in crate::space) fn wait_for_page(&self, mut unpinned: Unpinned<'_>, frame: Pfn) {
        (self.objects.locks).wait(unpinned.reborrow(), &self.memory, frame);
        self.memory.put(&self.pin_by(&unpinned), frame);
    }

    /// Sleeps while pages of an object change places.
    #[cold]
    pub(in crate::space) fn wait_for_shift(&self, unpinned: Unpinned<'_>, handle: u32) {
        let writers = &self.objects.get(handle).writers;
        // Whoever moves them holds all pages up to the last that there can be.
        let last = u64::MAX - 1..u64::MAX;
        let mut caller = MaybePinned::not_yet(unpinned);
        let held = writers.lock(&mut caller, last, &self.waits, &self.memory);
        let platform = self.memory.platform();
        writers.unlock(held, &self.waits, platform, caller.pinned(&self.memory));
    }

    /// Sleeps until the page at `index` may be unlocked. False if there is none.
    pub(in crate::space) fn wait_for_page_at(
        &self,
        unpinned: Unpinned<'_>,
        object: &Object,
        index: u64,
    ) -> bool {
        let found = {
            let pin = self.pin_by(&unpinned);
            self.objects.lookup(&self.memory, &pin, object, index)
        };
        if let Some(page) = found {
            self.wait_for_page(unpinned, page);
        }
        found.is_some()
    }

    /// Reads a page from its backing store, unlocks it and drops the reference that came with
    /// the step.
    pub(in crate::space) fn fill_page(
        &self,
        mut unpinned: Unpinned<'_>,
        lock: PageLock,
    ) -> Result<(), FaultError> {
        let frame = lock.page();
        let record = self.memory.frame(frame);
        let object = self.objects.get(record.owner());
        let read = match object.kind() {
            ObjectKind::File { store } => {
                let read = |platform: &P| {
                    // SAFETY: the page is locked and not up to date, so it is mapped
                    // nowhere and nobody else reads or writes it (invariant 10).
                    unsafe { platform.read_page(store, record.index(), frame) }
                };
                self.memory
                    .unpinned_platform(unpinned.reborrow())
                    .and_then(read)
            }
            _ => Ok(()),
        };
        let pin = self.pin_by(&unpinned);
        if let Err(error) = read {
            self.objects.fill_failed(&self.memory, &pin, lock);
            return Err(error.into());
        }
        self.page_is_read(&pin, object, lock);
        Ok(())
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// Makes pages of a file from `first` on, up to `pages` as far as none of them is cached and
    /// they are in one node of its tree, and fills them from its store. Those that cannot be read
    /// leave the cache, and `failed` is told their indices. Returns how many there were.
    pub(in crate::space) fn make_filled(
        &self,
        unpinned: Unpinned<'_>,
        (object, store): (&Object, u64),
        (handle, first, pages): (u32, u64, u64),
        failed: impl FnMut(u64, IoError),
    ) -> Result<usize, CacheError> {
        let mut frames = [Pfn::NONE; RUN_PAGES];
        let frames = &mut frames[..run_length(first, pages) as usize];
        let inserted = {
            let pin = self.pin_by(&unpinned);
            let (place, new) = ((handle, first), (NewPages::ToFill, self.payer(&pin)));
            let count = (self.objects).alloc_run(&self.memory, &pin, place, new, frames)?;
            let run = NewRun {
                object: handle,
                first,
                frames: &frames[..count],
                pages: NewPages::ToFill,
            };
            self.objects.insert_run(&self.memory, &pin, &run)?
        };
        self.fill_run(
            unpinned,
            object,
            store,
            (first, &frames[..inserted]),
            failed,
        );
        Ok(inserted)
    }

    /// Reads pages of a file from `next` on, as far as there is memory. The caller is a
    /// user of the object.
    pub(in crate::space) fn read_after(&self, unpinned: Unpinned<'_>, handle: u32, next: u64) {
        let object = self.objects.get(handle);
        let pages = AHEAD.min(object.pages().saturating_sub(next));
        if let ObjectKind::File { store } = object.kind()
            && pages > 0
        {
            let run = (handle, next, pages);
            // Whoever needs a page that could not be read finds out.
            let _ = self.make_filled(unpinned, (object, store), run, |_, _| ());
        }
    }
}
