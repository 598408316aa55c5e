//! Pages of a file that are filled from its store.

use crate::addr::Pfn;
use crate::frame::PageFlags;
use crate::object::{Inserted, Object, PageLock};
use crate::platform::{IoError, Platform};
use crate::rmap::ReverseMap;
use crate::space::state::manager::Vm;
use crate::space::state::page::PageBytes;
use crate::sync::{Pin, Unpinned};
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
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
}
