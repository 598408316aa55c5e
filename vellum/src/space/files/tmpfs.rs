//! Mounts of files in memory, and what an object takes.

use crate::ObjectId;
use crate::frame::NodePolicy;
use crate::object::{MountId, MountStats, Seals};
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::sync::Unpinned;

/// What `fstat(2)` asks of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FileStats {
    /// Length in bytes.
    pub size: u64,
    /// Pages in memory.
    pub cached: u64,
    /// Pages in swap. Of a file in memory, these and those in memory are what it takes.
    pub swapped: u64,
    /// Pages of a file that were written since its store took them last. Pages that
    /// mappings store to are found by a sync.
    pub dirty: u64,
    /// What is promised of it (`F_GET_SEALS`; [`File::seal`](crate::space::File::seal)).
    pub seals: Seals,
    /// On which nodes its pages come to lie, if it was said
    /// ([`File::set_node_policy`](crate::space::File::set_node_policy)).
    pub node_policy: Option<NodePolicy>,
}

impl<P: Platform> PageCache<'_, P> {
    /// [`Vm::create_mount`](crate::Vm::create_mount).
    pub(crate) fn begin_mount(&self, limit: u64) -> Result<MountId, FileError> {
        let unpinned = Unpinned::at_door();
        self.with_room(unpinned, |unpinned| {
            let made = self
                .objects
                .create_mount(&self.memory, &self.pin_by(&unpinned), limit)?;
            Ok(made)
        })
    }

    /// [`Mount::set_limit`](crate::space::Mount::set_limit).
    pub(crate) fn set_mount_limit(&self, mount: MountId, limit: u64) -> Result<(), FileError> {
        let found = self.objects.set_mount_limit(mount, limit);
        found.then_some(()).ok_or(FileError::NoMount)
    }

    /// [`Mount::stats`](crate::space::Mount::stats).
    pub(crate) fn mount_stats(&self, mount: MountId) -> Option<MountStats> {
        self.objects.mount_stats(mount)
    }

    /// [`Mount::release`](crate::space::Mount::release).
    pub(crate) fn release_mount(&self, mount: MountId) -> Result<(), FileError> {
        let released = self.objects.release_mount(&self.pin(), mount);
        released.then_some(()).ok_or(FileError::NoMount)
    }

    /// [`File::stats`](crate::space::File::stats).
    pub(crate) fn object_stats(&self, id: ObjectId) -> Option<FileStats> {
        let object = self.objects.find(id)?;
        Some(FileStats {
            size: object.size(),
            cached: object.cached(),
            swapped: object.swapped(),
            dirty: object.dirty(),
            seals: object.seals(),
            node_policy: object.policy().policy(),
        })
    }
}
