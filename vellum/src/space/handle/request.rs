//! What is read and written: requests to [`File::read`] and [`File::write`].

use super::File;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::files::parts::{FilePart, Filling};
use crate::space::state::error::FileError;
use crate::space::state::page::PageBytes;
use crate::table::Format;

/// What can be asked of [`File::read`].
pub trait Reads<P: Platform> {
    /// How much was read.
    type Done;

    /// Reads it.
    ///
    /// # Errors
    /// [`FileError`] if nothing was read.
    fn read_from<F: Format, R: ReverseMap>(
        self,
        file: File<'_, P, F, R>,
    ) -> Result<Self::Done, FileError>;
}

/// What can be asked of [`File::write`].
pub trait Writes<P: Platform> {
    /// How much was written.
    type Done;

    /// Writes it.
    ///
    /// # Errors
    /// [`FileError`] if nothing was written.
    fn write_to<F: Format, R: ReverseMap>(
        self,
        file: File<'_, P, F, R>,
    ) -> Result<Self::Done, FileError>;
}

/// What is read, and where it goes.
pub struct ReadRequest<T> {
    first: u64,
    to: T,
}

/// What is written, and where it comes from.
pub struct WriteRequest<T> {
    first: u64,
    from: T,
}

/// Buffers that bytes go to.
pub struct Buffers<'a, 'b>(&'a mut [&'b mut [u8]]);

/// Buffers that bytes come from.
pub struct Bytes<'a, 'b>(&'a [&'b [u8]]);

/// The same, for the file's end.
pub struct AtEnd<'a, 'b>(&'a [&'b [u8]]);

/// So many bytes, and a function that takes or gives them, part by part.
pub struct Parts<E> {
    len: usize,
    each: E,
}

/// So many whole pages, and a function that takes or gives them.
pub struct Pages<E> {
    pages: u64,
    each: E,
}

impl<'a, 'b> ReadRequest<Buffers<'a, 'b>> {
    /// The bytes from `offset` on, into `buffers`, one after the other.
    #[inline]
    pub fn bytes(offset: u64, buffers: &'a mut [&'b mut [u8]]) -> Self {
        ReadRequest {
            first: offset,
            to: Buffers(buffers),
        }
    }
}

impl<E> ReadRequest<Parts<E>> {
    /// For a reader of its own: calls `each` with up to `len` bytes from `offset` on, page by
    /// page, and their place in the read. `each` returns how many of them it took; if not all, the
    /// read ends there. It is called pinned and must not call the manager. It may be called again
    /// for a place, from which on everything is then handed out anew.
    #[inline]
    pub fn parts<P: Platform>(offset: u64, len: usize, each: E) -> Self
    where
        E: FnMut(usize, &FilePart<'_, P>) -> usize,
    {
        ReadRequest {
            first: offset,
            to: Parts { len, each },
        }
    }
}

impl<E> ReadRequest<Pages<E>> {
    /// Whole pages: calls `each` with the index and bytes of each page in turn, pinned; it must
    /// not call the manager. A page of shared memory that is not there is made. If a page cannot
    /// be had, the read fails, and those before were read.
    #[inline]
    pub fn pages<P: Platform>(first: u64, pages: u64, each: E) -> Self
    where
        E: FnMut(u64, &PageBytes<'_, P>),
    {
        ReadRequest {
            first,
            to: Pages { pages, each },
        }
    }
}

impl<'a, 'b> WriteRequest<Bytes<'a, 'b>> {
    /// The bytes of `buffers`, one after the other, from byte `offset` on.
    #[inline]
    pub fn bytes(offset: u64, buffers: &'a [&'b [u8]]) -> Self {
        WriteRequest {
            first: offset,
            from: Bytes(buffers),
        }
    }
}

impl<'a, 'b> WriteRequest<AtEnd<'a, 'b>> {
    /// The bytes of `buffers` at the file's end (`O_APPEND`): no other write comes between finding
    /// the end and writing there. What is returned is where it was, and how many bytes were
    /// written.
    #[inline]
    pub fn append(buffers: &'a [&'b [u8]]) -> Self {
        WriteRequest {
            first: 0,
            from: AtEnd(buffers),
        }
    }
}

impl<E> WriteRequest<Parts<E>> {
    /// For a writer of its own: calls `give` for up to `len` bytes from `offset` on, page by page,
    /// with their place in the write. What `give` does not put into a page ends the write there.
    /// It is called pinned and must not call the manager; a kernel whose user memory is not there
    /// puts less, brings the memory in when the call has returned, and goes on. `give` may be
    /// called again for a place, and must then put the same bytes.
    #[inline]
    pub fn parts<P: Platform>(offset: u64, len: usize, give: E) -> Self
    where
        E: FnMut(usize, &mut Filling<'_, P>),
    {
        WriteRequest {
            first: offset,
            from: Parts { len, each: give },
        }
    }
}

impl<E> WriteRequest<Pages<E>> {
    /// Whole pages: calls `each` with the index and bytes of each page in turn, pinned, to fill the
    /// page. `each` may be called again for a page, and must then fill it alike; it must
    /// not call the manager.
    #[inline]
    pub fn pages<P: Platform>(first: u64, pages: u64, each: E) -> Self
    where
        E: FnMut(u64, &PageBytes<'_, P>),
    {
        WriteRequest {
            first,
            from: Pages { pages, each },
        }
    }
}

impl<P: Platform> Reads<P> for ReadRequest<Buffers<'_, '_>> {
    type Done = usize;

    #[inline]
    fn read_from<F: Format, R: ReverseMap>(
        self,
        file: File<'_, P, F, R>,
    ) -> Result<usize, FileError> {
        let (offset, buffers) = (self.first, self.to.0);
        match file.open {
            None => file.vm.page_cache().read_at(file.id, offset, buffers),
            Some(open) => file.vm.page_cache().read_open(open, offset, buffers),
        }
    }
}

impl<P: Platform, E: FnMut(usize, &FilePart<'_, P>) -> usize> Reads<P> for ReadRequest<Parts<E>> {
    type Done = usize;

    #[inline]
    fn read_from<F: Format, R: ReverseMap>(
        self,
        file: File<'_, P, F, R>,
    ) -> Result<usize, FileError> {
        let (offset, Parts { len, each }) = (self.first, self.to);
        match file.open {
            None => file.vm.page_cache().read_with(file.id, offset, len, each),
            Some(open) => file.vm.page_cache().read_open_with(open, offset, len, each),
        }
    }
}

impl<P: Platform, E: FnMut(u64, &PageBytes<'_, P>)> Reads<P> for ReadRequest<Pages<E>> {
    type Done = u64;

    #[inline]
    fn read_from<F: Format, R: ReverseMap>(
        self,
        file: File<'_, P, F, R>,
    ) -> Result<u64, FileError> {
        (file.vm)
            .page_cache()
            .read_pages(file.id, self.first, self.to.pages, self.to.each)
    }
}

impl<P: Platform> Writes<P> for WriteRequest<Bytes<'_, '_>> {
    type Done = usize;

    #[inline]
    fn write_to<F: Format, R: ReverseMap>(
        self,
        file: File<'_, P, F, R>,
    ) -> Result<usize, FileError> {
        file.vm
            .page_cache()
            .write_at(file.id, self.first, self.from.0)
    }
}

impl<P: Platform> Writes<P> for WriteRequest<AtEnd<'_, '_>> {
    type Done = (u64, usize);

    #[inline]
    fn write_to<F: Format, R: ReverseMap>(
        self,
        file: File<'_, P, F, R>,
    ) -> Result<(u64, usize), FileError> {
        file.vm.page_cache().append(file.id, self.from.0)
    }
}

impl<P: Platform, E: FnMut(usize, &mut Filling<'_, P>)> Writes<P> for WriteRequest<Parts<E>> {
    type Done = usize;

    #[inline]
    fn write_to<F: Format, R: ReverseMap>(
        self,
        file: File<'_, P, F, R>,
    ) -> Result<usize, FileError> {
        let Parts { len, each } = self.from;
        file.vm
            .page_cache()
            .write_with(file.id, self.first, len, each)
    }
}

impl<P: Platform, E: FnMut(u64, &PageBytes<'_, P>)> Writes<P> for WriteRequest<Pages<E>> {
    type Done = u64;

    #[inline]
    fn write_to<F: Format, R: ReverseMap>(self, file: File<'_, P, F, R>) -> Result<u64, FileError> {
        (file.vm)
            .page_cache()
            .write_pages(file.id, self.first, self.from.pages, self.from.each)
    }
}
