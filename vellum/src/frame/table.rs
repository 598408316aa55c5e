//! The frame table: one record for each frame between the lowest and the
//! highest of the memory map, holes included.

use alloc::alloc::{Layout, alloc_zeroed};
use alloc::boxed::Box;
use core::ptr::slice_from_raw_parts_mut;

use super::record::Frame;
use super::report::SetupError;
use crate::addr::Pfn;
use crate::sync::bytes;
use crate::sync::limbo::ChainLinks;
use crate::sync::report::name;

/// The records, indexed from the lowest frame.
pub(crate) struct FrameTable {
    base: u32,
    records: Box<[Frame]>,
}

impl FrameTable {
    /// Records for the frames from `first` up to but not including `end`, all
    /// zero, so that a host that hands out zeroed memory lazily is not made to
    /// touch it.
    pub(super) fn new(first: Pfn, end: Pfn) -> Result<FrameTable, SetupError> {
        let count = (end.0 - first.0) as usize;
        let layout = Layout::array::<Frame>(count)
            .map_err(|_| SetupError::FrameTable { bytes: usize::MAX })?;
        debug_assert!(layout.size() > 0, "a memory map has frames");
        // SAFETY: the layout is not of size 0, since a memory map has frames.
        let memory = unsafe { alloc_zeroed(layout) }.cast::<Frame>();
        if memory.is_null() {
            return Err(SetupError::FrameTable {
                bytes: layout.size(),
            });
        }
        // SAFETY: `memory` comes from the global allocator with the layout of
        // `count` frames, and a frame is plain atomic words for which zero is
        // a value.
        let records = unsafe { Box::from_raw(slice_from_raw_parts_mut(memory, count)) };
        name("Frame", &[], records.as_ptr(), count);
        Ok(FrameTable {
            base: first.0,
            records,
        })
    }

    /// The record of a frame.
    #[inline]
    pub(crate) fn frame(&self, pfn: Pfn) -> &Frame {
        &self.records[pfn.0.wrapping_sub(self.base) as usize]
    }

    /// The records of consecutive frames.
    #[inline]
    pub(super) fn frames(&self, first: Pfn, count: u32) -> &[Frame] {
        let place = first.0.wrapping_sub(self.base) as usize;
        &self.records[place..place + count as usize]
    }

    /// Asks for the record of a frame that is about to be written. Of a number beyond
    /// the table, for nothing.
    #[inline]
    pub(super) fn prefetch(&self, pfn: Pfn) {
        let place = pfn.0.wrapping_sub(self.base) as usize;
        bytes::prefetch_at(self.records.as_ptr().wrapping_add(place).cast());
    }

    /// The record of a frame that may lie outside of the table.
    #[inline]
    pub(crate) fn get(&self, pfn: Pfn) -> Option<&Frame> {
        self.records.get(pfn.0.wrapping_sub(self.base) as usize)
    }
}

/// Retired frames, linked through the word of the reverse mapping.
impl ChainLinks for FrameTable {
    const END: u32 = Pfn::NONE.0;

    #[inline]
    fn next(&self, frame: u32) -> u32 {
        self.frame(Pfn(frame)).links().0.0
    }

    #[inline]
    fn set_next(&self, frame: u32, next: u32) {
        self.frame(Pfn(frame)).set_next(Pfn(next));
    }
}
