//! Writing bytes.

use core::ops::Range;

use super::buffers::Sources;
use super::hold::{HeldPages, HeldWrite, Start};
use super::parts::Filling;
use crate::ObjectId;
use crate::addr::Pfn;
use crate::object::{HoldsPages, Inserted, NewPages, NewRun, Object, RUN_PAGES, Seals, run_length};
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::space::state::page::PageBytes;
use crate::space::state::shortage::Shortage;
use crate::sync::{MaybePinned, Pin, Unpinned};

/// Bytes of an object that are to be written, and the place of the first in the write.
pub(in crate::space) struct Rest {
    pub(in crate::space) bytes: Range<u64>,
    pub(in crate::space) at: usize,
}

/// What became of one run of pages.
enum RunStep {
    Written(Written),
    /// Its first page may be being filled, or has to be read first: the write covers
    /// all that is kept of it, or does not.
    NotReady {
        is_whole: bool,
    },
}

/// How far one run of pages was written.
pub(in crate::space) struct Written {
    pub(in crate::space) bytes: usize,
    /// The source gave no more.
    pub(in crate::space) over: bool,
}

impl Written {
    /// The page has to be looked for again.
    pub(super) const NOTHING: Written = Written {
        bytes: 0,
        over: false,
    };
}

impl<P: Platform> PageCache<'_, P> {
    /// [`File::write`](crate::space::File::write).
    pub(crate) fn write_at(
        &self,
        id: ObjectId,
        offset: u64,
        buffers: &[&[u8]],
    ) -> Result<usize, FileError> {
        let unpinned = Unpinned::at_door();
        let mut sources = Sources::new(buffers);
        let len = sources.total();
        let mut give = |at, filling: &mut Filling<'_, P>| sources.give(at, filling);
        let (_, written) = self.write_from(unpinned, id, Start::At(offset), len, &mut give)?;
        Ok(written)
    }

    /// [`File::write`](crate::space::File::write).
    pub(crate) fn append(
        &self,
        id: ObjectId,
        buffers: &[&[u8]],
    ) -> Result<(u64, usize), FileError> {
        let unpinned = Unpinned::at_door();
        let mut sources = Sources::new(buffers);
        let len = sources.total();
        let mut give = |at, filling: &mut Filling<'_, P>| sources.give(at, filling);
        self.write_from(unpinned, id, Start::End, len, &mut give)
    }

    /// [`File::write`](crate::space::File::write).
    pub(crate) fn write_with(
        &self,
        id: ObjectId,
        offset: u64,
        len: usize,
        mut give: impl FnMut(usize, &mut Filling<'_, P>),
    ) -> Result<usize, FileError> {
        let unpinned = Unpinned::at_door();
        let (_, written) = self.write_from(unpinned, id, Start::At(offset), len, &mut give)?;
        Ok(written)
    }

    pub(super) fn write_from(
        &self,
        unpinned: Unpinned<'_>,
        id: ObjectId,
        start: Start,
        len: usize,
        give: &mut impl FnMut(usize, &mut Filling<'_, P>),
    ) -> Result<(u64, usize), FileError> {
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        let throttled = self.throttled(object);
        let mut caller = MaybePinned::not_yet(unpinned);
        let HeldWrite { pages, mut bytes } =
            self.hold_for_write(&mut caller, object, start, len)?;
        let (offset, old_end) = (bytes.start, object.size());
        let seals = object.seals();
        if seals != Seals::SEAL && !bytes.is_empty() {
            if seals.has(Seals::GROW) {
                bytes.end = bytes.end.min(old_end);
            }
            if seals.refuse_writes() || bytes.is_empty() {
                return Err(FileError::Sealed);
            }
        }
        if offset > old_end && !bytes.is_empty() {
            self.with_room_beside(caller.unpinned(), &pages, |unpinned| {
                self.clear_tail(unpinned, &pages, id.handle, old_end)
            })?;
        }
        let is_longer = bytes.end > old_end && self.is_committed(object);
        if is_longer {
            let end = self.pages_for(bytes.end);
            self.recommit(caller.pinned(&self.memory), object, end)?;
        }
        let mut rest = Rest { bytes, at: 0 };
        while !rest.bytes.is_empty() {
            if rest.at > 0 {
                caller.unpinned();
            }
            let written = match self.write_next(&mut caller, object, id.handle, &rest, give) {
                Err(error) if error.is_shortage() => {
                    self.with_room_made(caller.unpinned(), error, Some(&pages), |unpinned| {
                        let mut caller = MaybePinned::not_yet(unpinned);
                        self.write_next(&mut caller, object, id.handle, &rest, give)
                    })
                }
                done => done,
            };
            match written {
                Ok(written) => {
                    rest.at += written.bytes;
                    rest.bytes.start += written.bytes as u64;
                    let end = rest.bytes.start;
                    if written.bytes > 0 && end > object.size() {
                        self.objects.extend_to(&pages, (end, self.pages_for(end)));
                    }
                    if written.over {
                        break;
                    }
                }
                Err(error) if rest.at == 0 => {
                    if is_longer {
                        self.settle_size(caller.unpinned(), object);
                    }
                    return Err(error);
                }
                Err(_) => break,
            }
        }
        if is_longer {
            self.settle_size(caller.unpinned(), object);
        }
        pages.let_go(caller.pinned(&self.memory));
        if let Some(throttled) = throttled {
            let touched = self.pages_for(rest.bytes.start) - self.page_of(offset);
            self.throttle(caller.unpinned(), id, object, &throttled, touched);
        }
        Ok((offset, rest.at))
    }

    /// Writes to the next pages, with the pin that there is, or with one that is then
    /// there. There is none where somebody had to sleep.
    fn write_next<'a>(
        &'a self,
        caller: &mut MaybePinned<'a>,
        object: &Object,
        handle: u32,
        rest: &Rest,
        give: &mut impl FnMut(usize, &mut Filling<'_, P>),
    ) -> Result<Written, FileError> {
        #[cfg(feature = "published")]
        if self.goes_by_page() {
            return self.write_one(caller.unpinned(), object, handle, rest, give);
        }
        let pin = caller.pinned(&self.memory);
        match self.write_run(pin, object, handle, rest, give)? {
            RunStep::Written(written) => Ok(written),
            RunStep::NotReady { is_whole } => {
                let index = self.page_of(rest.bytes.start);
                self.make_ready(caller.unpinned(), object, handle, index, is_whole)?;
                Ok(Written::NOTHING)
            }
        }
    }

    /// Waits for a page that is to be written, or has it read from its store.
    #[cold]
    fn make_ready(
        &self,
        mut unpinned: Unpinned<'_>,
        object: &Object,
        handle: u32,
        index: u64,
        is_whole: bool,
    ) -> Result<(), FileError> {
        // Somebody may be filling the page. What becomes of that is no matter if the
        // write covers all of it.
        if is_whole && self.wait_for_page_at(unpinned.reborrow(), object, index) {
            return Ok(());
        }
        // Part of the page keeps what its store, or swap, holds.
        self.fetch_if_stored(unpinned, object, handle, index)
    }

    /// Has a page read that is in the store of a file, or in swap.
    pub(super) fn fetch_if_stored(
        &self,
        unpinned: Unpinned<'_>,
        object: &Object,
        handle: u32,
        index: u64,
    ) -> Result<(), FileError> {
        let is_swapped = || {
            self.objects
                .is_swapped(&self.pin_by(&unpinned), object, index)
        };
        match object.is_file() || is_swapped() {
            true => self.fetch_page(unpinned, handle, index),
            false => Ok(()),
        }
    }

    /// Writes to the pages of one run that are alike: cached, or not.
    fn write_run(
        &self,
        pin: &Pin<'_>,
        object: &Object,
        handle: u32,
        rest: &Rest,
        give: &mut impl FnMut(usize, &mut Filling<'_, P>),
    ) -> Result<RunStep, FileError> {
        let first = self.page_of(rest.bytes.start);
        if self.has_huge() {
            self.make_huge_around(pin, handle, first);
        }
        let pages = run_length(first, self.pages_for(rest.bytes.end) - first);
        // Clearing room for a whole run would be felt in a call that writes one page.
        let (mut one, mut many);
        let frames = if pages == 1 {
            one = [Pfn::NONE];
            &mut one[..]
        } else {
            many = [Pfn::NONE; RUN_PAGES];
            &mut many[..pages as usize]
        };
        let looked_at = self
            .objects
            .peek_run(&self.memory, pin, object, first, frames);
        let frames = &mut frames[..looked_at];
        if frames.is_empty() {
            return Ok(RunStep::NotReady { is_whole: false });
        }
        let is_cached = |frame: &Pfn| *frame != Pfn::NONE;
        let cached = frames.iter().take_while(|frame| is_cached(frame)).count();
        if cached > 0 {
            let written = self.overwrite(pin, object, &frames[..cached], rest, give);
            return Ok(RunStep::Written(written));
        }
        let vacant = frames.iter().take_while(|frame| !is_cached(frame)).count();
        let whole = (first..)
            .take(vacant)
            .take_while(|&index| !self.keeps_bytes(object, index, &rest.bytes))
            .count();
        if whole > 0 {
            let written = self.write_new(pin, handle, &mut frames[..whole], rest, give)?;
            if written.bytes > 0 || written.over {
                return Ok(RunStep::Written(written));
            }
        }
        Ok(RunStep::NotReady {
            is_whole: whole > 0,
        })
    }

    /// Whether a page that is not cached has bytes in its store that a write of `bytes`
    /// leaves as they are.
    pub(super) fn keeps_bytes(&self, object: &Object, index: u64, bytes: &Range<u64>) -> bool {
        // First: writers elsewhere in the object change the line that its length is in.
        if !object.is_file() {
            return false;
        }
        let start = index << self.memory.frame_shift();
        let end = object.size().min(start + self.memory.frame_size() as u64);
        start < end && (start < bytes.start || bytes.end < end)
    }

    /// The part of the page at `place` that a write up to `end` covers.
    pub(super) fn part_of_page(&self, place: u64, end: u64) -> Range<usize> {
        let start = self.within_page(place);
        let left = end - place;
        let room = self.memory.frame_size() - start;
        start..start + left.min(room as u64) as usize
    }

    /// Writes to pages that are cached.
    fn overwrite(
        &self,
        pin: &Pin<'_>,
        object: &Object,
        frames: &[Pfn],
        rest: &Rest,
        give: &mut impl FnMut(usize, &mut Filling<'_, P>),
    ) -> Written {
        let mut written = Written::NOTHING;
        let mut pages = 0;
        for &frame in frames {
            let place = rest.bytes.start + written.bytes as u64;
            let part = self.part_of_page(place, rest.bytes.end);
            let mut filling = self.filling(pin, frame, part);
            let room = filling.room();
            give(rest.at + written.bytes, &mut filling);
            let put = room - filling.room();
            written.bytes += put;
            pages += u64::from(put > 0);
            self.note_touched(pin, frame);
            if put < room {
                written.over = true;
                break;
            }
        }
        if object.is_file() && pages > 0 {
            let first = self.page_of(rest.bytes.start);
            self.objects
                .mark_dirty(&self.memory, pin, object, first..first + pages);
        }
        written
    }

    pub(super) fn filling<'a>(
        &'a self,
        pin: &'a Pin<'a>,
        frame: Pfn,
        part: Range<usize>,
    ) -> Filling<'a, P> {
        Filling {
            page: PageBytes::new(&self.memory, pin, frame),
            next: part.start,
            end: part.end,
        }
    }

    /// Writes to pages that are not cached, and of which nothing is kept: as many as
    /// `frames` has room for at the most. They are filled before they enter the cache.
    fn write_new(
        &self,
        pin: &Pin<'_>,
        handle: u32,
        frames: &mut [Pfn],
        rest: &Rest,
        give: &mut impl FnMut(usize, &mut Filling<'_, P>),
    ) -> Result<Written, FileError> {
        let object = self.objects.get(handle);
        let (first, new) = (self.page_of(rest.bytes.start), NewPages::Written);
        let count = self.objects.alloc_run(
            &self.memory,
            pin,
            (handle, first),
            (new, self.payer(pin)),
            frames,
        )?;
        let frames = &frames[..count];
        let (mut bytes, mut used, mut over) = (0, 0, false);
        for &frame in frames {
            let place = rest.bytes.start + bytes as u64;
            let part = self.part_of_page(place, rest.bytes.end);
            let start = part.start;
            let mut filling = self.filling(pin, frame, part);
            let room = filling.room();
            give(rest.at + bytes, &mut filling);
            let put = room - filling.room();
            let starts_below_end = || place - (start as u64) < object.size();
            if put < room && object.is_file() && starts_below_end() {
                // The store has the rest of it, which has to be read first.
                break;
            }
            if put > 0 {
                filling.page.zero(0..start);
                filling.page.zero(start + put..self.memory.frame_size());
                used += 1;
                bytes += put;
            }
            if put < room {
                over = true;
                break;
            }
        }
        let (filled, unused) = frames.split_at(used);
        self.objects.drop_frames(&self.memory, pin, handle, unused);
        if used == 0 {
            return Ok(Written { bytes: 0, over });
        }
        let run = NewRun {
            object: handle,
            first,
            frames: filled,
            pages: NewPages::Written,
        };
        let inserted = self.objects.insert_run(&self.memory, pin, &run)?;
        for &frame in &filled[..inserted] {
            self.note_inserted(pin, frame, Inserted::Cache);
        }
        if inserted == used {
            return Ok(Written { bytes, over });
        }
        // A fault has made a page meanwhile: it is overwritten next.
        let end = (first + inserted as u64) << self.memory.frame_shift();
        Ok(Written {
            bytes: end.saturating_sub(rest.bytes.start) as usize,
            over: false,
        })
    }

    /// Zeroes what follows the object's end in its last page, before the object becomes
    /// longer: mappings may have stored there.
    pub(super) fn clear_tail(
        &self,
        unpinned: Unpinned<'_>,
        held: &HeldPages<'_, P>,
        handle: u32,
        size: u64,
    ) -> Result<(), FileError> {
        let start = self.within_page(size);
        if start == 0 {
            return Ok(());
        }
        self.clear_part(
            unpinned,
            held,
            handle,
            self.page_of(size),
            start..self.memory.frame_size(),
        )
    }

    /// Zeroes a part of a page that is held. A page that is in a store or in swap is
    /// read first; one of shared memory that is nowhere is zero already.
    pub(super) fn clear_part(
        &self,
        mut unpinned: Unpinned<'_>,
        held: &HeldPages<'_, P>,
        handle: u32,
        index: u64,
        part: Range<usize>,
    ) -> Result<(), FileError> {
        let object = held.object();
        self.fetch_if_stored(unpinned.reborrow(), object, handle, index)?;
        let pin = self.pin_by(&unpinned);
        let mut frame = [Pfn::NONE];
        self.objects
            .peek_run(&self.memory, &pin, object, index, &mut frame);
        let [frame] = frame;
        if frame != Pfn::NONE {
            PageBytes::new(&self.memory, &pin, frame).zero(part);
            if object.is_file() {
                self.objects
                    .mark_dirty(&self.memory, &pin, object, index..index + 1);
            }
        }
        Ok(())
    }
}
