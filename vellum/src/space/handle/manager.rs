//! What a manager makes, and what it finds by a stored name.

use super::{File, Group, Mount, Space};
use crate::ObjectId;
use crate::object::MountId;
use crate::platform::{GroupId, Platform};
use crate::rmap::ReverseMap;
use crate::space::files::create::FileRequest;
use crate::space::files::open::OpenFile;
use crate::space::life::group::GroupError;
use crate::space::state::error::{FileError, MapError};
use crate::space::state::manager::Vm;
use crate::space::state::spaces::SpaceId;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// A space without regions and with one user.
    ///
    /// # Errors
    /// [`MapError::OutOfMemory`].
    #[inline]
    pub fn create_space(&self) -> Result<Space<'_, P, F, R>, MapError> {
        Ok(self.space(self.begin_space()?))
    }

    /// The space with a name that was kept.
    #[inline]
    pub fn space(&self, id: SpaceId) -> Space<'_, P, F, R> {
        Space { vm: self, id }
    }

    /// Makes a file or shared memory, as the request says. It has one user, who gives it up by
    /// [`File::release`].
    ///
    /// # Errors
    /// [`FileError::TooLarge`], [`FileError::NoMount`], [`FileError::OutOfMemory`].
    #[inline]
    pub fn create_file(&self, request: FileRequest) -> Result<File<'_, P, F, R>, FileError> {
        Ok(self.file(self.page_cache().begin_file(&request)?))
    }

    /// The file or shared memory with a name that was kept.
    #[inline]
    pub fn file(&self, id: ObjectId) -> File<'_, P, F, R> {
        File {
            vm: self,
            id,
            open: None,
        }
    }

    /// Closes what was opened. The object ends with its last user; a file's dirty pages
    /// are written then.
    ///
    /// # Errors
    /// The file, if another manager has opened it, which is to close it, or if the caller has
    /// pinned its CPU.
    #[inline]
    pub fn close(&self, file: OpenFile) -> Result<(), OpenFile> {
        self.page_cache().close(file)
    }

    /// Makes a group that is charged for at most `limit` pages (`u64::MAX`: no limit). Spaces
    /// come to it by [`Space::set_group`](crate::space::Space::set_group).
    ///
    /// # Errors
    /// [`GroupError::Off`], [`GroupError::TooMany`].
    #[inline]
    pub fn create_group(&self, limit: u64) -> Result<Group<'_, P, F, R>, GroupError> {
        Ok(self.group(self.page_cache().new_group(limit)?))
    }

    /// The group with a name that was kept, or that of [`GroupId::ROOT`].
    #[inline]
    pub fn group(&self, id: GroupId) -> Group<'_, P, F, R> {
        Group { vm: self, id }
    }

    /// Makes a mount whose files in memory may have `limit` pages together
    /// (`mount -t tmpfs -o nr_blocks=`); `u64::MAX` is no limit.
    ///
    /// # Errors
    /// [`FileError::OutOfMemory`].
    #[inline]
    pub fn create_mount(&self, limit: u64) -> Result<Mount<'_, P, F, R>, FileError> {
        Ok(self.mount(self.page_cache().begin_mount(limit)?))
    }

    /// The mount with a name that was kept.
    #[inline]
    pub fn mount(&self, id: MountId) -> Mount<'_, P, F, R> {
        Mount { vm: self, id }
    }
}
