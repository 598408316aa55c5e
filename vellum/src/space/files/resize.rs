//! Lengths and holes.

use core::cmp::Ordering;
use core::ops::Range;

use super::hold::HeldPages;
use crate::ObjectId;
use crate::object::{HoldsPages, Object, ObjectKind, Seals};
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::sync::Unpinned;

impl<P: Platform> PageCache<'_, P> {
    /// [`File::size`](crate::space::File::size).
    pub(crate) fn size(&self, id: ObjectId) -> Option<u64> {
        Some(self.objects.find(id)?.size())
    }

    /// [`File::set_size`](crate::space::File::set_size).
    pub(crate) fn set_size(&self, id: ObjectId, size: u64) -> Result<(), FileError> {
        let unpinned = Unpinned::at_door();
        if size > self.most_bytes() {
            return Err(FileError::TooLarge);
        }
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        self.with_room(unpinned, |unpinned| {
            self.resize_once(unpinned, object, id.handle, size)
        })
    }

    fn resize_once(
        &self,
        mut unpinned: Unpinned<'_>,
        object: &Object,
        handle: u32,
        size: u64,
    ) -> Result<(), FileError> {
        loop {
            let from = self.page_of(object.size().min(size));
            let held = self.hold_pages(unpinned.reborrow(), object, from..u64::MAX);
            let old = object.size();
            if self.page_of(old) < from {
                // Somebody cut it before the range was ours.
                continue;
            }
            let seal = match size.cmp(&old) {
                Ordering::Less => Seals::SHRINK,
                Ordering::Equal => Seals::NONE,
                Ordering::Greater => Seals::GROW,
            };
            if seal != Seals::NONE && object.seals().has(seal) {
                return Err(FileError::Sealed);
            }
            if size > old {
                self.recommit(&self.pin_by(&unpinned), object, self.pages_for(size))?;
                let cleared = self.clear_tail(unpinned.reborrow(), &held, handle, old);
                if cleared.is_ok() {
                    self.objects.extend_to(&held, (size, self.pages_for(size)));
                }
                self.settle_size(unpinned, object);
                return cleared;
            }
            let shortened = self.shorten(unpinned.reborrow(), &held, handle, size);
            self.settle_size(unpinned, object);
            return shortened;
        }
    }

    /// Gives back what an object is charged for past its end. The caller may change the length.
    pub(super) fn settle_size(&self, unpinned: Unpinned<'_>, object: &Object) {
        if self.is_committed(object) {
            let pages = self.pages_for(object.size());
            let settled = self.recommit(&self.pin_by(&unpinned), object, pages);
            debug_assert!(settled.is_ok(), "an object is charged for too little");
        }
    }

    fn shorten(
        &self,
        mut unpinned: Unpinned<'_>,
        held: &HeldPages<'_, P>,
        handle: u32,
        size: u64,
    ) -> Result<(), FileError> {
        let object = held.object();
        let tail = self.within_page(size);
        if tail != 0 {
            self.fetch_if_stored(unpinned.reborrow(), object, handle, self.page_of(size))?;
        }
        let pages = self.pages_for(size);
        let _cut = object.cuts.cut();
        self.objects.set_size_then(held, (size, pages), || {
            // Pages first: a private copy made meanwhile came from a
            // page that was still there, and is found afterwards.
            self.drop_pages(unpinned.reborrow(), held, handle, pages..u64::MAX);
            self.mappings.zap_copies(handle, pages);
        });
        self.clear_tail(unpinned.reborrow(), held, handle, size)?;
        self.discard(unpinned, held, handle, pages..u64::MAX)
    }

    /// [`File::punch_hole`](crate::space::File::punch_hole).
    pub(crate) fn punch_hole(&self, id: ObjectId, offset: u64, len: u64) -> Result<(), FileError> {
        let unpinned = Unpinned::at_door();
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        let end = offset.saturating_add(len).min(self.most_bytes());
        self.with_room(unpinned, |unpinned| {
            self.punch_hole_once(unpinned, object, id.handle, offset, end)
        })
    }

    fn punch_hole_once(
        &self,
        mut unpinned: Unpinned<'_>,
        object: &Object,
        handle: u32,
        offset: u64,
        end: u64,
    ) -> Result<(), FileError> {
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (self.page_of(offset), self.pages_for(end));
        let held = self.hold_pages(unpinned.reborrow(), object, first..last);
        if object.seals().refuse_writes() {
            return Err(FileError::Sealed);
        }
        self.punch_held(unpinned, &held, handle, offset..end)
    }

    /// Makes a hole in pages that are held.
    pub(super) fn punch_held(
        &self,
        mut unpinned: Unpinned<'_>,
        held: &HeldPages<'_, P>,
        handle: u32,
        bytes: Range<u64>,
    ) -> Result<(), FileError> {
        let object = held.object();
        let whole = self.pages_for(bytes.start)..self.page_of(bytes.end);
        for edge in self.edges(bytes.clone()).into_iter().flatten() {
            if edge.0 < object.pages() {
                self.fetch_if_stored(unpinned.reborrow(), object, handle, edge.0)?;
            }
        }
        let _cut = object.cuts.cut();
        for (index, part) in self.edges(bytes).into_iter().flatten() {
            if index < object.pages() {
                self.clear_part(unpinned.reborrow(), held, handle, index, part)?;
            }
        }
        if whole.is_empty() {
            return Ok(());
        }
        self.drop_pages(unpinned.reborrow(), held, handle, whole.clone());
        self.discard(unpinned, held, handle, whole)
    }

    /// The pages of which `bytes` are a part and not the whole, with the part.
    fn edges(&self, bytes: Range<u64>) -> [Option<(u64, Range<usize>)>; 2] {
        let (start, end) = (self.within_page(bytes.start), self.within_page(bytes.end));
        let (first, last) = (self.page_of(bytes.start), self.page_of(bytes.end));
        if first == last {
            return [(start < end).then_some((first, start..end)), None];
        }
        let head = (start > 0).then(|| (first, start..self.memory.frame_size()));
        [head, (end > 0).then_some((last, 0..end))]
    }

    /// Tells a file's store that pages are zero from now on. They have left the cache;
    /// one that a fault has read since goes again, for it may be as the store was before.
    fn discard(
        &self,
        mut unpinned: Unpinned<'_>,
        held: &HeldPages<'_, P>,
        handle: u32,
        pages: Range<u64>,
    ) -> Result<(), FileError> {
        if let ObjectKind::File { store } = held.object().kind() {
            let platform = self.memory.unpinned_platform(unpinned.reborrow())?;
            platform.discard_pages(store, pages.clone())?;
            self.drop_pages(unpinned, held, handle, pages);
        }
        Ok(())
    }
}
