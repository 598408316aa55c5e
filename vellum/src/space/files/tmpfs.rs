//! Files in memory, their mounts, and what an object takes.

use crate::ObjectId;
use crate::object::{MountId, MountStats, ObjectKind};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::FileError;
use crate::space::state::manager::Vm;
use crate::table::Format;

/// What `fstat(2)` asks of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObjectStats {
    /// Length in bytes.
    pub size: u64,
    /// Pages in memory.
    pub cached: u64,
    /// Pages in swap. Of a file in memory, these and those in memory are what it takes.
    pub swapped: u64,
    /// Pages of a file that were written since its store took them last. Pages that
    /// mappings store to are found by a sync.
    pub dirty: u64,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Makes a mount whose files in memory may have `limit` pages together
    /// (`mount -t tmpfs -o nr_blocks=`); `u64::MAX` is no limit.
    ///
    /// # Errors
    /// [`FileError::OutOfMemory`].
    pub fn create_mount(&self, limit: u64) -> Result<MountId, FileError> {
        self.with_room(|| {
            let made = self
                .objects
                .create_mount(&self.memory, &self.pin(), limit)?;
            Ok(made)
        })
    }

    /// Sets the limit of a mount. One below what is in use stands: no page is made until
    /// enough have gone.
    ///
    /// # Errors
    /// [`FileError::NoMount`].
    pub fn set_mount_limit(&self, mount: MountId, limit: u64) -> Result<(), FileError> {
        let found = self.objects.set_mount_limit(mount, limit);
        found.then_some(()).ok_or(FileError::NoMount)
    }

    /// Limit and pages of a mount. The pages are exact when no call is under way on its
    /// objects, and never fewer than there are.
    pub fn mount_stats(&self, mount: MountId) -> Option<MountStats> {
        self.objects.mount_stats(mount)
    }

    /// Whoever made the mount is done with it (`umount`): no file can be made in it any
    /// more, and it ends with the last of its files.
    ///
    /// # Errors
    /// [`FileError::NoMount`].
    pub fn release_mount(&self, mount: MountId) -> Result<(), FileError> {
        let released = self.objects.release_mount(&self.pin(), mount);
        released.then_some(()).ok_or(FileError::NoMount)
    }

    /// Makes an empty file in memory, in a mount. It is an object of shared memory: it can
    /// be mapped, too, and ends with its last user.
    ///
    /// # Errors
    /// [`FileError::NoMount`], [`FileError::OutOfMemory`].
    pub fn create_in(&self, mount: MountId) -> Result<ObjectId, FileError> {
        self.with_room(|| {
            let pin = self.pin();
            let handle = self
                .objects
                .join_mount(&pin, mount)
                .ok_or(FileError::NoMount)?;
            let made = self
                .objects
                .create(&self.memory, &pin, ObjectKind::SharedMemory, 0, handle)
                .inspect_err(|_| self.objects.quit_mount(&pin, handle))?;
            Ok(made)
        })
    }

    /// Makes a file of `size` bytes known, whose content is in the platform's backing
    /// store `store`.
    ///
    /// # Errors
    /// [`FileError::TooLarge`], [`FileError::OutOfMemory`].
    pub fn create_file_of(&self, store: u64, size: u64) -> Result<ObjectId, FileError> {
        if size > Self::MAX_SIZE {
            return Err(FileError::TooLarge);
        }
        self.create_object(ObjectKind::File { store }, size)
    }

    /// Length and pages of an object.
    pub fn object_stats(&self, id: ObjectId) -> Option<ObjectStats> {
        let object = self.objects.find(id)?;
        Some(ObjectStats {
            size: object.size(),
            cached: object.cached(),
            swapped: object.swapped(),
            dirty: object.dirty(),
        })
    }
}
