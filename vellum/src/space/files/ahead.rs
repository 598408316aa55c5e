//! Having pages of a file read from its store, more than one at a time.
//!
//! A reader that goes on where it stopped will go on. So a page that it misses is read
//! together with a window of those after it, which is twice as wide each time, up to a
//! bound; a jump begins anew with as many pages as are asked for. This is Linux's
//! on-demand readahead (2007) without its second half, which reads the next window
//! while this one is used: an embedder whose devices work by themselves calls
//! [`File::prefetch`](crate::space::File::prefetch) from a task of its own.

use crate::ObjectId;
use crate::object::{Object, ObjectKind, RUN_PAGES};
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::sync::Unpinned;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Pages of a window at first.
const FIRST_WINDOW: u64 = 4;
/// Most pages of a window.
const MAX_WINDOW: u64 = RUN_PAGES as u64 / 2;

/// Where a reader is, and how far it is read ahead of. Threads that share it may
/// confuse it, which costs reads and nothing else.
#[derive(Debug, Default)]
pub(super) struct Readahead {
    /// The page that a reader who goes on asks for next.
    next: AtomicU64,
    /// Pages of the last window; 0 after a jump.
    window: AtomicU64,
}

impl Readahead {
    /// A read begins at page `first`.
    pub fn begin(&self, first: u64) {
        let next = self.next.load(Ordering::Relaxed);
        if first != next && first + 1 != next {
            self.window.store(0, Ordering::Relaxed);
        }
    }

    /// The read has come to page `next`.
    pub fn end(&self, next: u64) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// A page is missing, and `asked` pages from there on are asked for: how many to
    /// read.
    pub fn pages(&self, index: u64, asked: u64) -> u64 {
        let window = self.window.load(Ordering::Relaxed);
        // The first page of a file is where readers of all of it begin.
        let goes_on = window > 0 || index == self.next.load(Ordering::Relaxed);
        let window = match goes_on {
            true => (2 * window).clamp(FIRST_WINDOW, MAX_WINDOW),
            false => 0,
        };
        self.window.store(window, Ordering::Relaxed);
        asked.max(window)
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// [`File::prefetch`](crate::space::File::prefetch).
    pub(crate) fn prefetch(&self, id: ObjectId, offset: u64, len: u64) -> Result<(), FileError> {
        let mut unpinned = Unpinned::at_door();
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        let end = self.pages_for(offset.saturating_add(len).min(object.size()));
        let mut next = self.page_of(offset);
        while next < end {
            if !object.is_file() {
                let slot = self
                    .objects
                    .next_slot(&self.pin_by(&unpinned), object, next);
                match slot.filter(|&index| index < end) {
                    Some(index) => next = index,
                    None => return Ok(()),
                }
            }
            let cached = self.is_cached(object, next);
            if !cached {
                self.with_room(unpinned.reborrow(), |unpinned| {
                    self.fetch_run(unpinned, object, id.handle, next, end - next)
                })?;
            }
            next += 1;
        }
        Ok(())
    }

    fn is_cached(&self, object: &Object, index: u64) -> bool {
        let pin = self.pin();
        let ready = self.objects.peek_ready(&self.memory, &pin, object, index);
        ready.is_some()
    }

    /// Has page `first` of a file read from its store, or from swap if it is one of shared memory,
    /// if nobody has done so meanwhile, and with it up to `pages` pages as far as none of them is
    /// cached. An error is that of the first page.
    pub(super) fn fetch_run(
        &self,
        mut unpinned: Unpinned<'_>,
        object: &Object,
        handle: u32,
        first: u64,
        pages: u64,
    ) -> Result<(), FileError> {
        let pages = pages.min(object.pages().saturating_sub(first));
        if self.read_superpage_around(unpinned.reborrow(), handle, first)? {
            return Ok(());
        }
        let ObjectKind::File { store } = object.kind() else {
            let is_swapped = self
                .objects
                .is_swapped(&self.pin_by(&unpinned), object, first);
            return match is_swapped {
                true => self.fetch_page(unpinned, handle, first),
                false => Ok(()),
            };
        };
        let mut result = Ok(());
        let run = (handle, first, pages);
        let inserted = match pages > 1 {
            true => {
                self.make_filled(unpinned.reborrow(), (object, store), run, |index, error| {
                    if index == first {
                        result = Err(error.into());
                    }
                })?
            }
            false => 0,
        };
        if inserted == 0 {
            return self.fetch_page(unpinned, handle, first);
        }
        result
    }
}
