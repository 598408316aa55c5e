//! Reading bytes.

use super::ahead::Readahead;
use super::buffers::Sinks;
use super::parts::FilePart;
use crate::ObjectId;
use crate::addr::Pfn;
use crate::object::{CachedPage, Inserted, Object, RUN_PAGES, run_length};
use crate::platform::Platform;
use crate::space::path::swap_shared::Loading;
use crate::space::state::common::PageCache;
use crate::space::state::error::{FaultError, FileError};
use crate::space::state::page::PageBytes;
use crate::space::steps::fault::ReadAround;
use crate::sync::{Pin, Unpinned};

/// A read under way: bytes `offset + done` on, `left` of them.
#[derive(Clone, Copy)]
pub(in crate::space) struct Rest {
    offset: u64,
    pub(in crate::space) done: usize,
    pub(in crate::space) left: usize,
}

impl Rest {
    pub(in crate::space) fn place(self) -> u64 {
        self.offset + self.done as u64
    }
}

/// How far one run of pages was read.
enum RunRead {
    /// So many bytes, and whether the read is over.
    Done(usize, bool),
    /// The page with this index has to be read from its store or from swap first.
    Absent(u64),
}

impl<P: Platform> PageCache<'_, P> {
    /// [`File::read`](crate::space::File::read).
    pub(crate) fn read_at(
        &self,
        id: ObjectId,
        offset: u64,
        buffers: &mut [&mut [u8]],
    ) -> Result<usize, FileError> {
        let mut sinks = Sinks::new(buffers);
        let len = sinks.total();
        // Inlined where runs are read, although single pages are read with it, too.
        self.read_ahead_of(
            Unpinned::at_door(),
            id,
            &Readahead::default(),
            offset,
            len,
            #[inline(always)]
            |at, part| sinks.take(at, part),
        )
    }

    /// [`File::read`](crate::space::File::read).
    pub(crate) fn read_with(
        &self,
        id: ObjectId,
        offset: u64,
        len: usize,
        each: impl FnMut(usize, &FilePart<'_, P>) -> usize,
    ) -> Result<usize, FileError> {
        let (unpinned, ahead) = (Unpinned::at_door(), Readahead::default());
        self.read_ahead_of(unpinned, id, &ahead, offset, len, each)
    }

    /// [`File::read`](crate::space::File::read) of a reader whose way through the object is known.
    pub(super) fn read_ahead_of(
        &self,
        mut unpinned: Unpinned<'_>,
        id: ObjectId,
        ahead: &Readahead,
        offset: u64,
        len: usize,
        mut each: impl FnMut(usize, &FilePart<'_, P>) -> usize,
    ) -> Result<usize, FileError> {
        let each = &mut each;
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        ahead.begin(self.page_of(offset));
        let mut rest = Rest {
            offset,
            done: 0,
            left: len,
        };
        while rest.left > 0 && offset < self.most_bytes() {
            let read = self.with_room(unpinned.reborrow(), |mut unpinned| {
                #[cfg(feature = "published")]
                if self.goes_by_page() {
                    return self.read_by_page(unpinned, (object, id.handle), ahead, rest, each);
                }
                match self.read_run_unheld(unpinned.reborrow(), object, rest, each) {
                    Some(RunRead::Done(count, over)) => Ok((count, over)),
                    _ => self.read_run_held(unpinned, object, id.handle, ahead, rest, each),
                }
            });
            match read {
                Ok((count, over)) => {
                    rest.done += count;
                    rest.left -= count;
                    if over {
                        break;
                    }
                }
                Err(error) if rest.done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        ahead.end(self.page_of(offset.saturating_add(rest.done as u64)));
        Ok(rest.done)
    }

    /// Reads one run without holding it. `None` if something was cut off meanwhile:
    /// what `each` has been given does not count.
    fn read_run_unheld(
        &self,
        unpinned: Unpinned<'_>,
        object: &Object,
        rest: Rest,
        each: &mut impl FnMut(usize, &FilePart<'_, P>) -> usize,
    ) -> Option<RunRead> {
        let begun = object.cuts.begin()?;
        let read = self.read_run(&self.pin_by(&unpinned), object, rest, each);
        object.cuts.valid(begun).then_some(read)
    }

    /// Reads one run, whose pages nobody takes away meanwhile, and has them read from
    /// their store if need be.
    #[cold]
    fn read_run_held(
        &self,
        mut unpinned: Unpinned<'_>,
        object: &Object,
        handle: u32,
        ahead: &Readahead,
        rest: Rest,
        each: &mut impl FnMut(usize, &FilePart<'_, P>) -> usize,
    ) -> Result<(usize, bool), FileError> {
        let first = self.page_of(rest.place());
        let end = rest.place().saturating_add(rest.left as u64);
        let pages = run_length(first, self.pages_for(end) - first);
        let _held = self.hold_pages(unpinned.reborrow(), object, first..first + pages);
        loop {
            // The pin ends before a page is read.
            let read = self.read_run(&self.pin_by(&unpinned), object, rest, each);
            match read {
                RunRead::Done(count, over) => return Ok((count, over)),
                RunRead::Absent(index) => {
                    let pages = ahead.pages(index, self.pages_for(end) - index);
                    self.fetch_run(unpinned.reborrow(), object, handle, index, pages)?;
                }
            }
        }
    }

    /// Hands out the part of one run of pages that is there, below the object's end.
    fn read_run(
        &self,
        pin: &Pin<'_>,
        object: &Object,
        rest: Rest,
        each: &mut impl FnMut(usize, &FilePart<'_, P>) -> usize,
    ) -> RunRead {
        let (place, size) = (rest.place(), object.size());
        if place >= size {
            return RunRead::Done(0, true);
        }
        let end = size.min(place.saturating_add(rest.left as u64));
        let first = self.page_of(place);
        match run_length(first, self.pages_for(end) - first) {
            1 => self.read_frames(pin, object, rest, end, &mut [Pfn::NONE], each),
            pages => {
                let frames = &mut [Pfn::NONE; RUN_PAGES][..pages as usize];
                self.read_frames(pin, object, rest, end, frames, each)
            }
        }
    }

    /// [`Vm::read_run`] up to byte `end`, of as many pages as `frames` has room for.
    // Always: of a single page little is left of it.
    #[inline(always)]
    fn read_frames(
        &self,
        pin: &Pin<'_>,
        object: &Object,
        rest: Rest,
        end: u64,
        frames: &mut [Pfn],
        each: &mut impl FnMut(usize, &FilePart<'_, P>) -> usize,
    ) -> RunRead {
        let place = rest.place();
        let first = self.page_of(place);
        let looked_at = self
            .objects
            .peek_run(&self.memory, pin, object, first, frames);
        let frames = &frames[..looked_at];
        if frames.is_empty() {
            return RunRead::Absent(first);
        }
        let mut done = 0;
        for (index, &frame) in (first..).zip(frames) {
            if frame == Pfn::NONE && object.is_file() {
                return match done {
                    0 => RunRead::Absent(index),
                    _ => RunRead::Done(done, false),
                };
            }
            let start = self.within_page(place + done as u64);
            let left = (end - place) as usize - done;
            let part = FilePart {
                page: (frame != Pfn::NONE).then(|| PageBytes::new(&self.memory, pin, frame)),
                start,
                len: left.min(self.memory.frame_size() - start),
            };
            let taken = each(rest.done + done, &part).min(part.len);
            done += taken;
            if frame != Pfn::NONE {
                self.note_touched(pin, frame);
            }
            if taken < part.len {
                return RunRead::Done(done, true);
            }
        }
        RunRead::Done(done, false)
    }

    /// Has a page of a file read from its store, or one of shared memory from swap, if nobody
    /// has done so meanwhile.
    pub(super) fn fetch_page(
        &self,
        mut unpinned: Unpinned<'_>,
        handle: u32,
        index: u64,
    ) -> Result<(), FileError> {
        let frame = self.get_page(unpinned.reborrow(), handle, index)?;
        self.memory.put(&self.pin_by(&unpinned), frame);
        Ok(())
    }

    /// A page of an object that is locked for nobody in particular and up to
    /// date, with a reference. Sleeps and reads as needed.
    pub(super) fn get_page(
        &self,
        mut unpinned: Unpinned<'_>,
        handle: u32,
        index: u64,
    ) -> Result<Pfn, FaultError> {
        self.read_superpage_around(unpinned.reborrow(), handle, index)?;
        loop {
            let found = {
                let pin = self.pin_by(&unpinned);
                let payer = self.payer(&pin);
                (self.objects).page(&self.memory, &pin, (handle, index), payer)?
            };
            match found {
                CachedPage::Ready(frame) => return Ok(frame),
                CachedPage::Made(frame) => {
                    self.note_inserted(&self.pin_by(&unpinned), frame, Inserted::Cache);
                    return Ok(frame);
                }
                CachedPage::Fill(lock) => self.fill_page(unpinned.reborrow(), lock)?,
                CachedPage::Locked(frame) => self.wait_for_page(unpinned.reborrow(), frame),
                CachedPage::Swapped(slot) => {
                    let loading = {
                        let pin = self.pin_by(&unpinned);
                        self.load_shared(&pin, (handle, index), slot, self.payer(&pin))?
                    };
                    match loading {
                        Loading::Here(frame) => return Ok(frame),
                        Loading::Wait(frame) => self.wait_for_page(unpinned.reborrow(), frame),
                        Loading::Read(lock) => {
                            self.read_swapped(unpinned.reborrow(), lock, ReadAround::Allowed)?;
                        }
                        Loading::Again => {}
                        Loading::Lost => return Err(FaultError::Lost),
                    }
                }
            }
        }
    }
}
