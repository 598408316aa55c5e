//! Objects that somebody has open.

use super::ahead::Readahead;
use super::buffers::Sinks;
use super::parts::FilePart;
use crate::ObjectId;
use crate::object::Told;
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::sync::Unpinned;

/// An object as somebody has it open: what a kernel keeps in an open file beside the
/// position. Threads may share it.
///
/// It is a user of the object, and must be given to [`Vm::close`](crate::Vm::close).
#[must_use = "an object that is not closed never ends"]
#[derive(Debug)]
pub struct OpenFile {
    id: ObjectId,
    /// Whose object it is.
    manager: u64,
    told: Told,
    ahead: Readahead,
}

impl OpenFile {
    /// The object.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Which errors of writing it has been told of.
    pub(in crate::space) fn told(&self) -> &Told {
        &self.told
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// [`File::open`](crate::space::File::open).
    pub(crate) fn open(&self, id: ObjectId) -> Result<OpenFile, FileError> {
        let pin = self.pin();
        let object = self.objects.hold_named(&pin, id);
        let object = object.ok_or(FileError::NoObject)?;
        Ok(OpenFile {
            id,
            manager: self.objects.manager(),
            told: object.errors.begin(),
            ahead: Readahead::default(),
        })
    }

    /// [`Vm::close`](crate::Vm::close).
    pub(in crate::space) fn close(&self, file: OpenFile) -> Result<(), OpenFile> {
        let unpinned = match self.memory.unless_pinned() {
            Some(unpinned) if self.has_opened(&file) => unpinned,
            _ => return Err(file),
        };
        if self.objects.release(file.id.handle) {
            self.end_object(unpinned, file.id.handle);
        }
        Ok(())
    }

    /// Whether this manager has opened a file, whose object is held then.
    #[inline]
    pub(in crate::space) fn has_opened(&self, file: &OpenFile) -> bool {
        file.manager == self.objects.manager()
    }

    /// [`File::read`](crate::space::File::read).
    pub(crate) fn read_open(
        &self,
        file: &OpenFile,
        offset: u64,
        buffers: &mut [&mut [u8]],
    ) -> Result<usize, FileError> {
        let mut sinks = Sinks::new(buffers);
        let len = sinks.total();
        // As in `read_at`.
        self.read_opened(
            Unpinned::at_door(),
            file,
            offset,
            len,
            #[inline(always)]
            |at, part| sinks.take(at, part),
        )
    }

    /// [`File::read`](crate::space::File::read).
    pub(crate) fn read_open_with(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
        each: impl FnMut(usize, &FilePart<'_, P>) -> usize,
    ) -> Result<usize, FileError> {
        self.read_opened(Unpinned::at_door(), file, offset, len, each)
    }

    fn read_opened(
        &self,
        unpinned: Unpinned<'_>,
        file: &OpenFile,
        offset: u64,
        len: usize,
        each: impl FnMut(usize, &FilePart<'_, P>) -> usize,
    ) -> Result<usize, FileError> {
        if !self.has_opened(file) {
            return Err(FileError::NoObject);
        }
        self.read_ahead_of(unpinned, file.id, &file.ahead, offset, len, each)
    }
}
