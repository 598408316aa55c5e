//! Pages that are held: by writes, truncations and holes.

use core::ops::Range;

use crate::object::{HoldsPages, Object};
use crate::platform::Platform;
use crate::space::state::common::Common;
use crate::space::state::error::FileError;
use crate::space::state::shortage::Lends;
use crate::sync::{HeldRange, MaybePinned, Pin, Unpinned};

/// Where a write begins.
#[derive(Clone, Copy)]
pub(super) enum Start {
    At(u64),
    /// At the object's end, whatever that is when the write has it.
    End,
}

/// A range of an object's pages that is held until it is dropped.
pub(in crate::space) struct HeldPages<'a, P: Platform> {
    common: &'a Common<P>,
    object: &'a Object,
    held: Option<HeldRange>,
}

impl<P: Platform> HoldsPages for HeldPages<'_, P> {
    #[inline]
    fn object(&self) -> &Object {
        self.object
    }
}

impl<P: Platform> HeldPages<'_, P> {
    /// Lets go of them, by a caller who is pinned.
    pub(super) fn let_go(mut self, pin: &Pin<'_>) {
        self.unlock(pin);
    }

    #[inline]
    fn unlock(&mut self, pin: &Pin<'_>) {
        if let Some(held) = self.held.take() {
            let platform = self.common.memory.platform();
            let writers = &self.object.writers;
            writers.unlock(held, &self.common.waits, platform, pin);
        }
    }
}

impl<P: Platform> Lends for HeldPages<'_, P> {
    fn lend(&self, mut unpinned: Unpinned<'_>, work: &mut dyn FnMut(Unpinned<'_>) -> bool) -> bool {
        let (common, writers) = (self.common, &self.object.writers);
        if let Some(held) = &self.held {
            writers.lend(held, &common.pin_by(&unpinned));
        }
        let done = work(unpinned.reborrow());
        if let Some(held) = &self.held {
            writers.take_back(unpinned, held, &common.waits, &common.memory);
        }
        done
    }
}

impl<P: Platform> Drop for HeldPages<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if self.held.is_some() {
            let common = self.common;
            self.unlock(&common.pin());
        }
    }
}

/// The bytes that a write may change, and their pages, held.
pub(super) struct HeldWrite<'a, P: Platform> {
    pub(in crate::space) pages: HeldPages<'a, P>,
    pub(in crate::space) bytes: Range<u64>,
}

impl<P: Platform> Common<P> {
    /// Holds a range of an object's pages: nobody else writes to them or takes them out
    /// of the cache.
    pub(super) fn hold_pages<'a>(
        &'a self,
        unpinned: Unpinned<'_>,
        object: &'a Object,
        pages: Range<u64>,
    ) -> HeldPages<'a, P> {
        self.hold_pages_pinned(&mut MaybePinned::not_yet(unpinned), object, pages)
    }

    /// The same by a caller who is left pinned.
    fn hold_pages_pinned<'a: 'p, 'p>(
        &'a self,
        caller: &mut MaybePinned<'p>,
        object: &'a Object,
        pages: Range<u64>,
    ) -> HeldPages<'a, P> {
        let held = (object.writers).lock(caller, pages, &self.waits, &self.memory);
        HeldPages {
            common: self,
            object,
            held: Some(held),
        }
    }

    /// Does `work` while nobody else writes to or truncates the object.
    pub(in crate::space) fn with_object_held<T>(
        &self,
        mut unpinned: Unpinned<'_>,
        object: &Object,
        work: impl FnOnce(Unpinned<'_>) -> T,
    ) -> T {
        let _held = self.hold_pages(unpinned.reborrow(), object, 0..u64::MAX);
        work(unpinned)
    }

    /// Holds what a write of `len` bytes may change; the bytes, as many as an object
    /// may have. The caller is left with the pin that the pages were taken with, for as long as
    /// nobody sleeps and there is no second run: a CPU stays pinned for one run at the most.
    pub(super) fn hold_for_write<'a: 'p, 'p>(
        &'a self,
        caller: &mut MaybePinned<'p>,
        object: &'a Object,
        start: Start,
        len: usize,
    ) -> Result<HeldWrite<'a, P>, FileError> {
        loop {
            let size = object.size();
            let bytes = self.write_range(start, len, size)?;
            let extends = bytes.end > size || matches!(start, Start::End);
            let first = self.page_of(if extends {
                size.min(bytes.start)
            } else {
                bytes.start
            });
            let end = if extends {
                u64::MAX
            } else {
                self.pages_for(bytes.end)
            };
            let pages = self.hold_pages_pinned(caller, object, first..end);
            // The length may have changed until the range was ours.
            let size = object.size();
            let bytes = self.write_range(start, len, size)?;
            let fits = if extends {
                first <= self.page_of(size)
            } else {
                bytes.end <= size
            };
            if fits {
                return Ok(HeldWrite { pages, bytes });
            }
            caller.unpinned();
        }
    }

    /// The bytes that a write means to an object of `size` bytes.
    fn write_range(&self, start: Start, len: usize, size: u64) -> Result<Range<u64>, FileError> {
        let first = match start {
            Start::At(offset) => offset,
            Start::End => size,
        };
        if first >= self.most_bytes() && len > 0 {
            return Err(FileError::TooLarge);
        }
        let first = first.min(self.most_bytes());
        Ok(first..first.saturating_add(len as u64).min(self.most_bytes()))
    }
}
