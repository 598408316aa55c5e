//! Pages that are held: by writes, truncations and holes.

use core::ops::Range;

use crate::object::Object;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::FileError;
use crate::space::state::manager::Vm;
use crate::space::state::shortage::Lends;
use crate::sync::{HeldRange, MaybePinned, Pin, Unpinned};
use crate::table::Format;

/// Where a write begins.
#[derive(Clone, Copy)]
pub(super) enum Start {
    At(u64),
    /// At the object's end, whatever that is when the write has it.
    End,
}

/// A range of an object's pages that is held until it is dropped.
pub(in crate::space) struct HeldPages<'a, P: Platform, F: Format, R: ReverseMap> {
    vm: &'a Vm<P, F, R>,
    object: &'a Object,
    held: Option<HeldRange>,
}

impl<P: Platform, F: Format, R: ReverseMap> HeldPages<'_, P, F, R> {
    /// Lets go of them, by a caller who is pinned.
    pub(super) fn let_go(mut self, pin: &Pin<'_>) {
        self.unlock(pin);
    }

    #[inline]
    fn unlock(&mut self, pin: &Pin<'_>) {
        if let Some(held) = self.held.take() {
            let platform = self.vm.memory.platform();
            let writers = &self.object.writers;
            writers.unlock(held, &self.vm.waits, platform, pin);
        }
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Lends for HeldPages<'_, P, F, R> {
    fn lend(&self, mut unpinned: Unpinned<'_>, work: &mut dyn FnMut(Unpinned<'_>) -> bool) -> bool {
        let (vm, writers) = (self.vm, &self.object.writers);
        if let Some(held) = &self.held {
            writers.lend(held, &vm.pin_by(&unpinned));
        }
        let done = work(unpinned.reborrow());
        if let Some(held) = &self.held {
            writers.take_back(unpinned, held, &vm.waits, &vm.memory);
        }
        done
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Drop for HeldPages<'_, P, F, R> {
    #[inline]
    fn drop(&mut self) {
        if self.held.is_some() {
            let vm = self.vm;
            self.unlock(&vm.pin());
        }
    }
}

/// The bytes that a write may change, and their pages, held.
pub(super) struct HeldWrite<'a, P: Platform, F: Format, R: ReverseMap> {
    pub(in crate::space) pages: HeldPages<'a, P, F, R>,
    pub(in crate::space) bytes: Range<u64>,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Holds a range of an object's pages: nobody else writes to them or takes them out
    /// of the cache.
    pub(super) fn hold_pages<'a>(
        &'a self,
        unpinned: Unpinned<'_>,
        object: &'a Object,
        pages: Range<u64>,
    ) -> HeldPages<'a, P, F, R> {
        self.hold_pages_pinned(&mut MaybePinned::not_yet(unpinned), object, pages)
    }

    /// The same by a caller who is left pinned.
    fn hold_pages_pinned<'a: 'p, 'p>(
        &'a self,
        caller: &mut MaybePinned<'p>,
        object: &'a Object,
        pages: Range<u64>,
    ) -> HeldPages<'a, P, F, R> {
        let held = (object.writers).lock(caller, pages, &self.waits, &self.memory);
        HeldPages {
            vm: self,
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
    ) -> Result<HeldWrite<'a, P, F, R>, FileError> {
        loop {
            let size = object.size();
            let bytes = Self::write_range(start, len, size)?;
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
            let bytes = Self::write_range(start, len, size)?;
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
    fn write_range(start: Start, len: usize, size: u64) -> Result<Range<u64>, FileError> {
        let first = match start {
            Start::At(offset) => offset,
            Start::End => size,
        };
        if first >= Self::MAX_SIZE && len > 0 {
            return Err(FileError::TooLarge);
        }
        let first = first.min(Self::MAX_SIZE);
        Ok(first..first.saturating_add(len as u64).min(Self::MAX_SIZE))
    }
}
