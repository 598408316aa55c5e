//! A file or shared memory as an embedder holds it.

use super::request::{Reads, Writes};
use crate::ObjectId;
use crate::frame::NodePolicy;
use crate::object::Seals;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::files::allocate::Allocation;
use crate::space::files::open::OpenFile;
use crate::space::files::tmpfs::FileStats;
use crate::space::leaving::scan::ScanReport;
use crate::space::state::error::FileError;
use crate::space::state::manager::Vm;
use crate::table::Format;

/// A file or shared memory: its name, and the manager that has it.
///
/// [`Vm::file`] makes one of a stored name, [`OpenFile::on`] one of a file that somebody has open,
/// whose reads are read ahead of and whose syncs tell of errors before. Either costs nothing and
/// proves nothing: each call looks whether there is such an object, and says
/// [`FileError::NoObject`] if there is none.
pub struct File<'vm, P: Platform, F: Format, R: ReverseMap> {
    pub(crate) vm: &'vm Vm<P, F, R>,
    pub(crate) id: ObjectId,
    pub(super) open: Option<&'vm OpenFile>,
}

handle!(File, ObjectId, open);

impl OpenFile {
    /// The file on the manager that has opened it. With another, each call says
    /// [`FileError::NoObject`].
    #[inline]
    pub fn on<'a, P: Platform, F: Format, R: ReverseMap>(
        &'a self,
        vm: &'a Vm<P, F, R>,
    ) -> File<'a, P, F, R> {
        File {
            open: Some(self),
            ..vm.file(self.id())
        }
    }
}

impl<'vm, P: Platform, F: Format, R: ReverseMap> File<'vm, P, F, R> {
    /// The name, to keep where there is no borrow of the manager ([`Vm::file`]).
    #[inline]
    pub fn id(self) -> ObjectId {
        self.id
    }

    /// Reads what the request names ([`ReadRequest`](crate::space::ReadRequest)). Returns how many
    /// bytes were read, or pages of a request for pages: fewer than it asked for at the file's end
    /// only, or if a page could not be read after others had been. Holes read as zeroes.
    ///
    /// Not called pinned. Reads take no lock unless pages have to come from the
    /// backing store, or pages are cut off meanwhile.
    ///
    /// # Errors
    /// [`FileError`] if nothing was read.
    #[inline]
    pub fn read<Q: Reads<P>>(self, request: Q) -> Result<Q::Done, FileError> {
        request.read_from(self)
    }

    /// Writes what the request names ([`WriteRequest`](crate::space::WriteRequest)), and makes the
    /// file longer if need be. Returns how many bytes were written, or pages of a request for
    /// pages, and of an append also where: fewer than it asked for only if memory or the mount ran
    /// out, or the backing store failed, after others had been. What lies between the old end and
    /// the first byte reads as zeroes, and takes no memory but in the page of the old end.
    ///
    /// Not called pinned. Writes to other pages of the file run at the same time;
    /// those to the same pages come one after the other.
    ///
    /// # Errors
    /// [`FileError`] if nothing was written; nothing has changed then.
    #[inline]
    pub fn write<Q: Writes<P>>(self, request: Q) -> Result<Q::Done, FileError> {
        request.write_to(self)
    }

    /// Length in bytes.
    ///
    /// # Errors
    /// [`FileError::NoObject`].
    #[inline]
    pub fn size(self) -> Result<u64, FileError> {
        self.vm
            .page_cache()
            .size(self.id)
            .ok_or(FileError::NoObject)
    }

    /// Sets the length in bytes (`ftruncate`). Pages past the new end are dropped
    /// from the cache and from every mapping, copies that private mappings made of them
    /// too, and the rest of the page of the new end is zeroed. A file's store is told to
    /// discard the pages, after they have left the cache. What is added reads as zeroes and
    /// takes no memory; pages that a file has never had read as its store defines.
    ///
    /// Not called pinned. Waits for writes to what is cut off or added, and for pages
    /// that are being read or written back.
    ///
    /// # Errors
    /// [`FileError::NoObject`]. [`FileError::TooLarge`], if `size` is past [`Vm::MAX_SIZE`].
    /// [`FileError::OutOfMemory`] or [`FileError::GroupLimit`] if the page of the new or old
    /// end could not be had. Of a file [`FileError::Io`] if that page could not be read, with
    /// nothing changed; or if the store did not discard pages: the file has its new length
    /// then, and the call can be made again.
    #[inline]
    pub fn set_size(self, size: u64) -> Result<(), FileError> {
        self.vm.page_cache().set_size(self.id, size)
    }

    /// Promises of shared memory, or of a file in memory, what `seals` says, to whoever has it
    /// (`F_ADD_SEALS`); [`File::stats`] tells it. Calls that break a promise are [`FileError::Sealed`], and
    /// [`MapError::Sealed`](crate::space::MapError::Sealed) if they would map it for stores. What is
    /// mapped shared for loads of memory that is sealed against stores never gets the right to store.
    ///
    /// Not called pinned. Waits for writes and changes of the length.
    ///
    /// # Errors
    /// [`FileError::Sealed`] after [`Seals::SEAL`], which is there from the beginning unless the
    /// request said [`FileRequest::sealable`](crate::space::FileRequest::sealable);
    /// [`FileError::Busy`] for [`Seals::WRITE`] if somebody may store to it by a mapping or a pin;
    /// [`FileError::WrongKind`] of a file of a store, and for bits that are no seals;
    /// [`FileError::NoObject`]. Nothing changed.
    #[inline]
    pub fn seal(self, seals: Seals) -> Result<(), FileError> {
        self.vm.seal_object(self.id, seals)
    }

    /// Has the pages around `len` bytes from `offset` on made, or zeroed, as `how` says
    /// (`fallocate`), so that writes and stores there need no memory for them. A hole is
    /// [`File::punch_hole`]'s. Of a file of a store bytes can be zeroed: whether it has room for what
    /// is written later is its own matter.
    ///
    /// Not called pinned; waits as [`File::set_size`] does.
    ///
    /// # Errors
    /// [`FileError::Full`], [`FileError::OutOfMemory`] or [`FileError::GroupLimit`]: pages that were
    /// made before the end may stay, and the length does. [`FileError::WrongKind`] for 0 bytes, and
    /// for files of a store; [`FileError::TooLarge`], if the last byte is past [`Vm::MAX_SIZE`];
    /// [`FileError::Sealed`], also if it would be longer than a seal allows and its length were to
    /// stay; [`FileError::NoObject`], and of a file of a store [`FileError::Io`].
    #[inline]
    pub fn allocate(self, how: Allocation, offset: u64, len: u64) -> Result<(), FileError> {
        self.vm.page_cache().allocate(self.id, how, offset, len)
    }

    /// Makes a hole of `len` bytes at `offset` (`FALLOC_FL_PUNCH_HOLE`): whole pages in
    /// it leave the cache and every shared mapping, and give back their memory; parts of
    /// pages are zeroed. Copies that private mappings made stay. The length stays.
    ///
    /// Not called pinned; waits as [`File::set_size`] does.
    ///
    /// # Errors
    /// Of a file [`FileError::Io`], as there.
    #[inline]
    pub fn punch_hole(self, offset: u64, len: u64) -> Result<(), FileError> {
        self.vm.page_cache().punch_hole(self.id, offset, len)
    }

    /// The first byte at or after `offset` that may be other than zero (`SEEK_DATA`): one
    /// in a page that takes memory, or that a file's store has bytes of
    /// ([`Store::find_page`](crate::platform::Store::find_page)). Must not be called pinned.
    ///
    /// # Errors
    /// [`FileError::NoData`] if there is none, or `offset` is at the end or past it.
    #[inline]
    pub fn seek_data(self, offset: u64) -> Result<u64, FileError> {
        self.vm.page_cache().seek_data(self.id, offset)
    }

    /// The first byte at or after `offset` from which on everything up to the next data
    /// is zero, takes no memory, and is not in a file's store (`SEEK_HOLE`); the end if
    /// there is no such. Must not be called pinned.
    ///
    /// # Errors
    /// [`FileError::NoData`] if `offset` is at the end or past it.
    #[inline]
    pub fn seek_hole(self, offset: u64) -> Result<u64, FileError> {
        self.vm.page_cache().seek_hole(self.id, offset)
    }

    /// Has the pages around `len` bytes of the file from byte `offset` on read from its
    /// store, as far as they are not cached (`posix_fadvise(POSIX_FADV_WILLNEED)`). Of
    /// shared memory those that are in swap are read.
    ///
    /// # Errors
    /// [`FileError`]; the pages before the failing one have been read.
    #[inline]
    pub fn prefetch(self, offset: u64, len: u64) -> Result<(), FileError> {
        self.vm.page_cache().prefetch(self.id, offset, len)
    }

    /// Writes every page that is newer than its backing store (`fsync`): pages marked dirty, and
    /// pages with a dirty mark in an entry that maps them. Waits for pages that are being filled.
    /// Then has the store make them safe. Returns how many pages were written.
    ///
    /// # Errors
    /// [`FileError::Io`] if the store refused a page, which stays dirty; the others were written,
    /// and the next call tries again. Of an [`OpenFile`] also if somebody else had it written since
    /// it was opened or told of such last. [`FileError::NoObject`].
    #[inline]
    pub fn sync(self) -> Result<u64, FileError> {
        self.sync_range(0, u64::MAX)
    }

    /// The same of the pages around `len` bytes from byte `offset` on (`sync_file_range`,
    /// `msync`). Errors of other pages are told of, too.
    ///
    /// # Errors
    /// As [`File::sync`].
    #[inline]
    pub fn sync_range(self, offset: u64, len: u64) -> Result<u64, FileError> {
        self.vm
            .page_cache()
            .sync_range(self.id, self.open, offset, len)
    }

    /// Writes up to about `pages` pages of the file that calls have written (not those that
    /// only mappings have stored to), where the last such call stopped: for the
    /// embedder's task that keeps few pages dirty, see [`File::stats`]. Does not
    /// have the store make them safe. Pages that the store refuses count among the `pages`.
    /// Returns how many were written.
    ///
    /// # Errors
    /// [`FileError::Io`] if the store refused a page; it stays dirty, and everybody
    /// who has the file open is told by their next sync. [`FileError::NoObject`].
    #[inline]
    pub fn write_back(self, pages: u64) -> Result<u64, FileError> {
        self.vm.page_cache().write_back(self.id, pages)
    }

    /// Opens the file: one user more. Its next sync tells of errors of writing back from
    /// now on, and of one before if nobody has been told of it yet.
    ///
    /// # Errors
    /// [`FileError::NoObject`].
    #[inline]
    pub fn open(self) -> Result<OpenFile, FileError> {
        self.vm.page_cache().open(self.id)
    }

    /// Gives up the maker's use of the file, which ends with its last mapping and the last
    /// that has it open; a file's dirty pages are written then.
    ///
    /// # Errors
    /// [`FileError::NoObject`], also if it was released before: those who map it or have it
    /// open keep it. [`FileError::Pinned`].
    #[inline]
    pub fn release(self) -> Result<(), FileError> {
        self.vm.page_cache().release_object(self.id)
    }

    /// Says whether the pages of the file come in superpages from now on, or, with `None`, that
    /// the design decides again: for shared memory and tmpfs files, also where they grow, `huge=`,
    /// for files of a backing store, which are read so, `filehuge=`. Pages that are there stay
    /// what they are. With `never` there are none all the same.
    ///
    /// # Errors
    /// [`FileError::NoObject`].
    #[inline]
    pub fn set_huge(self, huge: Option<bool>) -> Result<(), FileError> {
        self.vm.page_cache().set_huge(self.id, huge)
    }

    /// Says on which nodes pages of the file or shared memory come to lie, in whichever space they
    /// are first touched, where its region has no policy of its own, and when they are read or
    /// written by bytes. `None` takes the policy away. Pages that are there stay where they are.
    ///
    /// # Errors
    /// [`FileError::NoObject`], [`FileError::BadNodes`].
    pub fn set_node_policy(self, policy: Option<NodePolicy>) -> Result<(), FileError> {
        self.vm.page_cache().set_file_policy(self.id, policy)
    }

    /// Length and pages of the file.
    ///
    /// # Errors
    /// [`FileError::NoObject`].
    #[inline]
    pub fn stats(self) -> Result<FileStats, FileError> {
        self.vm
            .page_cache()
            .object_stats(self.id)
            .ok_or(FileError::NoObject)
    }

    /// Looks up every cached page of the file among the `pages` from
    /// `first` on, as [`Space::scan`](crate::space::Space::scan) does.
    ///
    /// # Errors
    /// [`FileError::NoObject`].
    #[inline]
    pub fn scan(self, first: u64, pages: u64) -> Result<ScanReport, FileError> {
        let report = self.vm.scan_object(self.id, first, pages);
        report.ok_or(FileError::NoObject)
    }
}
