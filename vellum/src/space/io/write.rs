//! Writing bytes.

use core::ops::Range;

use super::buffers::Sources;
use super::{Filling, HeldPages};
use crate::ObjectId;
use crate::addr::Pfn;
use crate::object::{Inserted, NewPages, NewRun, Object, run_length};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::error::FileError;
use crate::space::manager::Vm;
use crate::space::page::PageBytes;
use crate::sync::Pin;
use crate::table::Format;

/// Where a write begins.
#[derive(Clone, Copy)]
pub(super) enum Start {
    At(u64),
    /// At the object's end, whatever that is when the write has it.
    End,
}

/// Bytes of an object that are to be written, and the place of the first in the write.
pub(super) struct Rest {
    pub(super) bytes: Range<u64>,
    pub(super) at: usize,
}

/// The bytes that a write may change, and their pages, held.
struct HeldWrite<'a, P: Platform, F: Format, R: ReverseMap> {
    _pages: HeldPages<'a, P, F, R>,
    bytes: Range<u64>,
}

/// How far one run of pages was written.
pub(super) struct Written {
    pub(super) bytes: usize,
    /// The source gave no more.
    pub(super) over: bool,
}

impl Written {
    /// The page has to be looked for again.
    pub(super) const NOTHING: Written = Written {
        bytes: 0,
        over: false,
    };
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Writes the bytes of `buffers`, one after the other, from byte `offset` of an object
    /// on, and makes the object longer if need be. Returns how many were written:
    /// fewer than there are only if memory or the mount ran out, or the backing store
    /// failed, after others had been. What lies between the old end and `offset` reads
    /// as zeroes, and takes no memory but in the page of the old end.
    ///
    /// Not called pinned. Writes to other pages of the object run at the same time;
    /// those to the same pages come one after the other.
    ///
    /// # Errors
    /// [`FileError`] if nothing was written; nothing has changed then.
    pub fn write_at(
        &self,
        id: ObjectId,
        offset: u64,
        buffers: &[&[u8]],
    ) -> Result<usize, FileError> {
        let mut sources = Sources::new(buffers);
        let len = sources.total();
        let mut give = |at, filling: &mut Filling<'_, P>| sources.give(at, filling);
        let (_, written) = self.write_from(id, Start::At(offset), len, &mut give)?;
        Ok(written)
    }

    /// [`Vm::write_at`] at the object's end (`O_APPEND`): no other write comes between
    /// finding the end and writing there. Returns where it was, and how many bytes
    /// were written.
    ///
    /// # Errors
    /// As there.
    pub fn append(&self, id: ObjectId, buffers: &[&[u8]]) -> Result<(u64, usize), FileError> {
        let mut sources = Sources::new(buffers);
        let len = sources.total();
        let mut give = |at, filling: &mut Filling<'_, P>| sources.give(at, filling);
        self.write_from(id, Start::End, len, &mut give)
    }

    /// [`Vm::write_at`] for a writer of its own: calls `give` for up to `len` bytes from
    /// `offset` on, page by page, with their place in the write. What `give` does not
    /// put into a page ends the write there. It is called pinned and must not call the
    /// manager; a kernel whose user memory is not there puts less, brings the memory
    /// in when the call has returned, and goes on. `give` may be called again for a
    /// place, and must then put the same bytes.
    ///
    /// # Errors
    /// As there.
    pub fn write_with(
        &self,
        id: ObjectId,
        offset: u64,
        len: usize,
        mut give: impl FnMut(usize, &mut Filling<'_, P>),
    ) -> Result<usize, FileError> {
        let (_, written) = self.write_from(id, Start::At(offset), len, &mut give)?;
        Ok(written)
    }

    pub(super) fn write_from(
        &self,
        id: ObjectId,
        start: Start,
        len: usize,
        give: &mut impl FnMut(usize, &mut Filling<'_, P>),
    ) -> Result<(u64, usize), FileError> {
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        let held = self.hold_for_write(object, start, len)?;
        let (offset, old_end) = (held.bytes.start, object.size());
        if offset > old_end && !held.bytes.is_empty() {
            self.clear_tail(object, id.handle, old_end)?;
        }
        let mut rest = Rest {
            bytes: held.bytes.clone(),
            at: 0,
        };
        while !rest.bytes.is_empty() {
            let written = match self.goes_by_page() {
                false => self.write_run(object, id.handle, &rest, give),
                true => self.write_one(object, id.handle, &rest, give),
            };
            match written {
                Ok(written) => {
                    rest.at += written.bytes;
                    rest.bytes.start += written.bytes as u64;
                    let end = rest.bytes.start;
                    if written.bytes > 0 && end > object.size() {
                        self.objects.extend_to(object, (end, self.pages_for(end)));
                    }
                    if written.over {
                        break;
                    }
                }
                Err(error) if rest.at == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok((offset, rest.at))
    }

    /// Holds what a write of `len` bytes may change; the bytes, as many as an object
    /// may have.
    fn hold_for_write<'a>(
        &'a self,
        object: &'a Object<R::Object>,
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
            let held = self.hold_pages(object, first..end);
            // The length may have changed until the range was ours.
            let size = object.size();
            let bytes = Self::write_range(start, len, size)?;
            let fits = if extends {
                first <= self.page_of(size)
            } else {
                bytes.end <= size
            };
            if fits {
                return Ok(HeldWrite {
                    _pages: held,
                    bytes,
                });
            }
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

    /// Writes to the pages of one run that are alike: cached, or not.
    fn write_run(
        &self,
        object: &Object<R::Object>,
        handle: u32,
        rest: &Rest,
        give: &mut impl FnMut(usize, &mut Filling<'_, P>),
    ) -> Result<Written, FileError> {
        let first = self.page_of(rest.bytes.start);
        let pages = run_length(first, self.pages_for(rest.bytes.end) - first);
        let is_whole = {
            let pin = self.pin();
            let run = self
                .objects
                .peek_run(&self.memory, &pin, object, first..first + pages);
            let frames = run.frames();
            let is_cached = |frame: &Pfn| *frame != Pfn::NONE;
            let cached = frames.iter().take_while(|frame| is_cached(frame)).count();
            if cached > 0 {
                return Ok(self.overwrite(&pin, object, &frames[..cached], rest, give));
            }
            let vacant = frames.iter().take_while(|frame| !is_cached(frame)).count();
            let whole = (first..)
                .take(vacant)
                .take_while(|&index| !self.keeps_bytes(object, index, &rest.bytes))
                .count();
            if whole > 0 {
                let written = self.write_new(&pin, handle, whole as u64, rest, give)?;
                if written.bytes > 0 || written.over {
                    return Ok(written);
                }
            }
            whole > 0
        };
        // Somebody may be filling the page. What becomes of that is no matter if the
        // write covers all of it.
        if is_whole && self.wait_for_page_at(object, first) {
            return Ok(Written::NOTHING);
        }
        // Part of the page keeps what its store holds.
        if object.is_file() {
            self.fetch_page(handle, first)?;
        }
        Ok(Written::NOTHING)
    }

    /// Whether a page that is not cached has bytes in its store that a write of `bytes`
    /// leaves as they are.
    pub(super) fn keeps_bytes(
        &self,
        object: &Object<R::Object>,
        index: u64,
        bytes: &Range<u64>,
    ) -> bool {
        let start = index << self.memory.frame_shift();
        let end = object.size().min(start + self.memory.frame_size() as u64);
        object.is_file() && start < end && (start < bytes.start || bytes.end < end)
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
        object: &Object<R::Object>,
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

    /// Writes to up to `pages` pages that are not cached, and of which nothing is kept.
    /// They are filled before they enter the cache.
    fn write_new(
        &self,
        pin: &Pin<'_>,
        handle: u32,
        pages: u64,
        rest: &Rest,
        give: &mut impl FnMut(usize, &mut Filling<'_, P>),
    ) -> Result<Written, FileError> {
        let object = self.objects.get(handle);
        let new = NewPages::Written;
        let run = self
            .objects
            .alloc_run(&self.memory, pin, object, pages, new)?;
        let (mut bytes, mut used, mut over) = (0, 0, false);
        for &frame in run.frames() {
            let place = rest.bytes.start + bytes as u64;
            let part = self.part_of_page(place, rest.bytes.end);
            let start = part.start;
            let mut filling = self.filling(pin, frame, part);
            let room = filling.room();
            give(rest.at + bytes, &mut filling);
            let put = room - filling.room();
            let starts_below_end = place - (start as u64) < object.size();
            if put < room && object.is_file() && starts_below_end {
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
        let (filled, unused) = run.frames().split_at(used);
        self.objects.drop_frames(&self.memory, pin, object, unused);
        if used == 0 {
            return Ok(Written { bytes: 0, over });
        }
        let first = self.page_of(rest.bytes.start);
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
        object: &Object<R::Object>,
        handle: u32,
        size: u64,
    ) -> Result<(), FileError> {
        let start = self.within_page(size);
        if start == 0 {
            return Ok(());
        }
        self.clear_part(
            object,
            handle,
            self.page_of(size),
            start..self.memory.frame_size(),
        )
    }

    /// Zeroes a part of a page, which the caller holds. A page of a file is read first if
    /// need be; one of shared memory that is not there is zero already.
    pub(super) fn clear_part(
        &self,
        object: &Object<R::Object>,
        handle: u32,
        index: u64,
        part: Range<usize>,
    ) -> Result<(), FileError> {
        if object.is_file() {
            self.fetch_page(handle, index)?;
        }
        let pin = self.pin();
        let run = self
            .objects
            .peek_run(&self.memory, &pin, object, index..index + 1);
        for &frame in run.frames().iter().filter(|&&frame| frame != Pfn::NONE) {
            PageBytes::new(&self.memory, &pin, frame).zero(part.clone());
            if object.is_file() {
                self.objects
                    .mark_dirty(&self.memory, &pin, object, index..index + 1);
            }
        }
        Ok(())
    }
}
