//! A mount as an embedder holds it.

use crate::object::{MountId, MountStats};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::FileError;
use crate::space::state::manager::Vm;
use crate::table::Format;

/// A mount of files in memory: its name, and the manager that has it. As with a
/// [`File`](crate::space::File), each call looks whether there is such a mount. Files are made in
/// it by [`Vm::create_file`].
pub struct Mount<'vm, P: Platform, F: Format, R: ReverseMap> {
    pub(crate) vm: &'vm Vm<P, F, R>,
    pub(crate) id: MountId,
}

handle!(Mount, MountId);

impl<P: Platform, F: Format, R: ReverseMap> Mount<'_, P, F, R> {
    /// The name, to keep where there is no borrow of the manager ([`Vm::mount`]).
    #[inline]
    pub fn id(self) -> MountId {
        self.id
    }

    /// Sets the limit of the mount. One below what is in use stands: no page is made until
    /// enough have gone.
    ///
    /// # Errors
    /// [`FileError::NoMount`].
    #[inline]
    pub fn set_limit(self, limit: u64) -> Result<(), FileError> {
        self.vm.page_cache().set_mount_limit(self.id, limit)
    }

    /// Limit and pages of the mount. The pages are exact when no call is under way on its
    /// files, and never fewer than there are.
    ///
    /// # Errors
    /// [`FileError::NoMount`].
    #[inline]
    pub fn stats(self) -> Result<MountStats, FileError> {
        self.vm
            .page_cache()
            .mount_stats(self.id)
            .ok_or(FileError::NoMount)
    }

    /// Whoever made the mount is done with it (`umount`): no file can be made in it any
    /// more, and it ends with the last of its files.
    ///
    /// # Errors
    /// [`FileError::NoMount`].
    #[inline]
    pub fn release(self) -> Result<(), FileError> {
        self.vm.page_cache().release_mount(self.id)
    }
}
