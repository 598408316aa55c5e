//! Pages of files made before they are written, and zeroed.

use core::ops::Range;

use super::hold::HeldPages;
use crate::ObjectId;
use crate::object::{HoldsPages, Object, Seals};
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::sync::Unpinned;

/// What [`File::allocate`](crate::space::File::allocate) does (modes of `fallocate`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Allocation {
    /// Pages that are not there are made, zeroed, and what ends behind the file's end makes it longer
    /// (mode 0, `posix_fallocate`).
    Extend,
    /// The same, but the length stays (`FALLOC_FL_KEEP_SIZE`): pages behind the end are there when
    /// the file gets longer, and go when it gets shorter.
    KeepSize,
    /// As [`Allocation::Extend`], and all bytes are zero afterwards (`FALLOC_FL_ZERO_RANGE`).
    Zero,
    /// As [`Allocation::KeepSize`], and all bytes are zero afterwards.
    ZeroKeepSize,
    /// The bytes are taken out, and what follows moves to their place; the file is shorter afterwards
    /// (`FALLOC_FL_COLLAPSE_RANGE`). They are whole pages, and end before the file does.
    Collapse,
    /// What is there and behind moves further back, and leaves a hole (`FALLOC_FL_INSERT_RANGE`). The
    /// bytes are whole pages, and begin before the file's end.
    Insert,
}

impl Allocation {
    fn zeroes(self) -> bool {
        matches!(self, Allocation::Zero | Allocation::ZeroKeepSize)
    }

    fn extends(self) -> bool {
        matches!(self, Allocation::Extend | Allocation::Zero)
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// [`File::allocate`](crate::space::File::allocate).
    pub(crate) fn allocate(
        &self,
        id: ObjectId,
        how: Allocation,
        offset: u64,
        len: u64,
    ) -> Result<(), FileError> {
        let mut unpinned = Unpinned::at_door();
        if let Allocation::Collapse | Allocation::Insert = how {
            return self.shift(unpinned, id, how, (offset, len));
        }
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        if len == 0 || object.is_unmanaged() || object.is_file() && !how.zeroes() {
            return Err(FileError::WrongKind);
        }
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= self.most_bytes());
        let bytes = offset..end.ok_or(FileError::TooLarge)?;
        let (held, old) = self.hold_to_extend(unpinned.reborrow(), object, bytes.start);
        let seals = object.seals();
        if bytes.end > old && seals.has(Seals::GROW) || how.zeroes() && seals.refuse_writes() {
            return Err(FileError::Sealed);
        }
        let extends = how.extends() && bytes.end > old;
        if extends {
            let pages = self.pages_for(bytes.end);
            self.recommit(&self.pin_by(&unpinned), object, pages)?;
        }
        let made = self.allocate_held(unpinned.reborrow(), &held, (id.handle, how), (bytes, old));
        if extends {
            self.settle_size(unpinned, object);
        }
        made
    }

    /// The same of bytes that are held up to the object's end, `old`, with all behind it.
    fn allocate_held(
        &self,
        mut unpinned: Unpinned<'_>,
        held: &HeldPages<'_, P>,
        (handle, how): (u32, Allocation),
        (bytes, old): (Range<u64>, u64),
    ) -> Result<(), FileError> {
        let extends = how.extends() && bytes.end > old;
        if how.zeroes() {
            self.with_room_beside(unpinned.reborrow(), held, |unpinned| {
                self.punch_held(unpinned, held, handle, bytes.clone())
            })?;
        }
        if extends {
            self.with_room_beside(unpinned.reborrow(), held, |unpinned| {
                self.clear_tail(unpinned, held, handle, old)
            })?;
        }
        if !held.object().is_file() {
            let pages = self.page_of(bytes.start)..self.pages_for(bytes.end);
            let made = self.make_pages(unpinned.reborrow(), held, handle, pages.clone());
            if made.is_err() {
                // Nobody sees those that were made behind the end, and nobody would miss them.
                let behind = self.pages_for(old).max(pages.start)..pages.end;
                if extends && !behind.is_empty() {
                    self.drop_pages(unpinned, held, handle, behind);
                }
                return made;
            }
        }
        if extends {
            (self.objects).extend_to(held, (bytes.end, self.pages_for(bytes.end)));
        }
        Ok(())
    }

    /// Holds everything from a byte and from the object's end on. Returns the length.
    fn hold_to_extend<'a>(
        &'a self,
        mut unpinned: Unpinned<'_>,
        object: &'a Object,
        offset: u64,
    ) -> (HeldPages<'a, P>, u64) {
        loop {
            let from = self.page_of(object.size().min(offset));
            let held = self.hold_pages(unpinned.reborrow(), object, from..u64::MAX);
            let size = object.size();
            // Somebody may have cut it before the range was ours.
            if self.page_of(size.min(offset)) >= from {
                return (held, size);
            }
        }
    }

    /// Makes pages of memory that are neither there nor in swap.
    fn make_pages(
        &self,
        mut unpinned: Unpinned<'_>,
        held: &HeldPages<'_, P>,
        handle: u32,
        pages: Range<u64>,
    ) -> Result<(), FileError> {
        for index in pages {
            let is_there = {
                let pin = self.pin_by(&unpinned);
                let object = held.object();
                self.objects
                    .peek_ready(&self.memory, &pin, object, index)
                    .is_some()
                    || self.objects.is_swapped(&pin, object, index)
            };
            if !is_there {
                let frame = self.with_room_beside(unpinned.reborrow(), held, |unpinned| {
                    self.get_page(unpinned, handle, index)
                })?;
                self.memory.put(&self.pin_by(&unpinned), frame);
            }
        }
        Ok(())
    }
}
