//! Files and shared memory that begin.

use crate::ObjectId;
use crate::object::{MountId, ObjectKind, Seals};
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::sync::Unpinned;

/// What the pages of a file are made of before anything is written to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// The platform's backing store with this number.
    Store(u64),
    /// Zeroes: shared memory.
    Memory,
    /// Zeroes, and the pages count against the limit of this mount: a file in memory, which can
    /// be mapped as shared memory can.
    Mount(MountId),
}

/// A file or shared memory to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRequest {
    /// What its pages are made of.
    pub backing: Backing,
    /// Its length in bytes: [`Vm::MAX_SIZE`](crate::Vm::MAX_SIZE) at most.
    pub size: u64,
    /// What of it is promised from the beginning on: [`Seals::SEAL`], that nothing else is, if
    /// nothing is said. Of memory alone can more be said ([`FileRequest::sealable`]).
    pub seals: Seals,
}

impl FileRequest {
    /// A file of `size` bytes whose content is in the platform's backing store `store`.
    pub const fn stored(store: u64, size: u64) -> FileRequest {
        FileRequest {
            backing: Backing::Store(store),
            size,
            seals: Seals::SEAL,
        }
    }

    /// `size` bytes of shared memory, all zero.
    pub const fn shared_memory(size: u64) -> FileRequest {
        FileRequest {
            backing: Backing::Memory,
            size,
            seals: Seals::SEAL,
        }
    }

    /// An empty file in memory, in a mount.
    pub const fn in_mount(mount: MountId) -> FileRequest {
        FileRequest {
            backing: Backing::Mount(mount),
            size: 0,
            seals: Seals::SEAL,
        }
    }

    /// The same, to which [`File::seal`](crate::space::File::seal) may add seals
    /// (`MFD_ALLOW_SEALING`). For memory, not for a file of a store.
    pub const fn sealable(mut self) -> FileRequest {
        self.seals = Seals::NONE;
        self
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// [`Vm::create_file`].
    pub(crate) fn begin_file(&self, request: &FileRequest) -> Result<ObjectId, FileError> {
        let unpinned = Unpinned::at_door();
        let FileRequest {
            backing,
            size,
            seals,
        } = *request;
        if size > self.most_bytes() {
            return Err(FileError::TooLarge);
        }
        let id = match backing {
            Backing::Store(_) if seals != Seals::SEAL => return Err(FileError::WrongKind),
            Backing::Store(store) => self.create_object(unpinned, ObjectKind::File { store }, size),
            Backing::Memory => self.create_object(unpinned, ObjectKind::SharedMemory, size),
            Backing::Mount(mount) => self.create_in(unpinned, mount, size),
        }?;
        // Nobody else knows its name yet.
        self.objects.get(id.handle).begin_seals(seals);
        Ok(id)
    }

    /// Makes a file in memory, in a mount.
    fn create_in(
        &self,
        unpinned: Unpinned<'_>,
        mount: MountId,
        size: u64,
    ) -> Result<ObjectId, FileError> {
        self.with_room(unpinned, |unpinned| {
            let pin = self.pin_by(&unpinned);
            let handle = self
                .objects
                .join_mount(&pin, mount)
                .ok_or(FileError::NoMount)?;
            let made = self
                .objects
                .create(&self.memory, &pin, ObjectKind::SharedMemory, size, handle)
                .inspect_err(|_| self.objects.quit_mount(&pin, handle))?;
            Ok(made)
        })
    }

    /// Makes an object of `size` bytes that is on no mount.
    fn create_object(
        &self,
        unpinned: Unpinned<'_>,
        kind: ObjectKind,
        size: u64,
    ) -> Result<ObjectId, FileError> {
        self.with_room(unpinned, |unpinned| {
            let pin = self.pin_by(&unpinned);
            let id = self.objects.create(&self.memory, &pin, kind, size, 0)?;
            if kind == ObjectKind::SharedMemory && self.memory.commit().is_some() {
                let who = self.committer_of(self.paying_group(&pin));
                self.commit_object(&pin, id.handle, who)
                    .inspect_err(|_| self.objects.unmake(&pin, id.handle))?;
            }
            Ok(id)
        })
    }
}
