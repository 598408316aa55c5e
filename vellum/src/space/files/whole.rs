//! Objects by whole pages.

use core::ops::Range;

use super::hold::Start;
use super::parts::Filling;
use crate::ObjectId;
use crate::addr::Pfn;
use crate::object::{INDEX_END, Object, RUN_PAGES, run_length};
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::space::state::page::PageBytes;
use crate::sync::Unpinned;

impl<P: Platform> PageCache<'_, P> {
    /// [`File::read`](crate::space::File::read).
    pub(crate) fn read_pages(
        &self,
        id: ObjectId,
        first: u64,
        pages: u64,
        mut each: impl FnMut(u64, &PageBytes<'_, P>),
    ) -> Result<u64, FileError> {
        let mut unpinned = Unpinned::at_door();
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        let end = first.saturating_add(pages).min(object.pages());
        let mut index = first;
        while index < end {
            let run_end = index + run_length(index, end - index);
            if !self.goes_by_page() {
                index = self.read_cached(unpinned.reborrow(), object, index..run_end, &mut each);
            }
            if index < run_end {
                let frame = self.with_room(unpinned.reborrow(), |unpinned| {
                    self.get_page(unpinned, id.handle, index)
                })?;
                let pin = self.pin_by(&unpinned);
                each(index, &PageBytes::new(&self.memory, &pin, frame));
                self.note_touched(&pin, frame);
                self.memory.put(&pin, frame);
                index += 1;
            }
        }
        Ok(end.saturating_sub(first))
    }

    /// The part of [`File::read`](crate::space::File::read) that need not wait: as many of the pages at
    /// `range`, which is one run, as are up to date, in turn. Returns the index after the
    /// last. Takes no references: whatever becomes of a page, its frame is not used for
    /// anything else while the CPU is pinned.
    fn read_cached(
        &self,
        unpinned: Unpinned<'_>,
        object: &Object,
        range: Range<u64>,
        each: &mut impl FnMut(u64, &PageBytes<'_, P>),
    ) -> u64 {
        let pin = self.pin_by(&unpinned);
        let mut frames = [Pfn::NONE; RUN_PAGES];
        let frames = &mut frames[..(range.end - range.start) as usize];
        let looked_at = self
            .objects
            .peek_run(&self.memory, &pin, object, range.start, frames);
        let end = range.start + looked_at as u64;
        for (index, &frame) in (range.start..end).zip(&*frames) {
            if frame == Pfn::NONE {
                return index;
            }
            each(index, &PageBytes::new(&self.memory, &pin, frame));
            self.note_touched(&pin, frame);
        }
        end
    }

    /// [`File::write`](crate::space::File::write).
    pub(crate) fn write_pages(
        &self,
        id: ObjectId,
        first: u64,
        pages: u64,
        mut each: impl FnMut(u64, &PageBytes<'_, P>),
    ) -> Result<u64, FileError> {
        let unpinned = Unpinned::at_door();
        self.objects.find(id).ok_or(FileError::NoObject)?;
        let end = first.saturating_add(pages);
        if end > INDEX_END.min(self.pages_for(self.most_bytes())) {
            return Err(FileError::TooLarge);
        }
        let mut give = |at: usize, filling: &mut Filling<'_, P>| {
            each(first + self.page_of(at as u64), &filling.page);
            filling.next = filling.end;
        };
        // Of more bytes than can be counted, as many whole pages as can be.
        let most = usize::MAX & !(self.memory.frame_size() - 1);
        let bytes = self.bytes_in(pages).min(most as u64) as usize;
        let start = Start::At(self.bytes_in(first));
        let (_, written) = self.write_from(unpinned, id, start, bytes, &mut give)?;
        Ok(self.page_of(written as u64))
    }
}
