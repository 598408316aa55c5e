//! Why a call was refused.

use core::fmt;

use super::commit::NotCommitted;
use crate::frame::{NoPage, OutOfMemory};
use crate::object::CacheError;
use crate::platform::{GroupId, HookKind, IoError};
use crate::swap::SwapOffError;
use crate::sync::Pin;

/// Why a fault could not be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// No such space.
    NoSpace,
    /// No such object.
    NoObject,
    /// No region holds the address.
    NoRegion,
    /// The region does not allow the access.
    Protection,
    /// The page lies past the end of the mapped object.
    PastEnd,
    /// The page shows a frame that the manager does not manage
    /// ([`MapRequest::frames`](crate::space::MapRequest::frames)), and so cannot read, write or pin
    /// (`EFAULT`).
    Unmanaged,
    /// The object's mount has as many pages as it may, or no more may be promised.
    Full,
    /// No frame, table or node could be had.
    OutOfMemory,
    /// The group that would be charged has as many pages as it may, and none can leave.
    GroupLimit(GroupId),
    /// The backing store failed.
    Io,
    /// The memory of the page has failed, and what it held is lost (`SIGBUS` with `BUS_MCEERR_AR`),
    /// until the page is unmapped or dropped ([`Vm::set_frame_health`](crate::Vm::set_frame_health)).
    Lost,
    /// A hook caught the access ([`Space::hooks`](crate::space::Space::hooks)), and
    /// [`Policy::fault_hook`](crate::platform::Policy::fault_hook) has the call fail.
    Hooked(HookKind),
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultError::NoSpace => "no such address space",
            FaultError::NoObject => "no such object",
            FaultError::NoRegion => "no region holds the address",
            FaultError::Protection => "the region does not allow the access",
            FaultError::PastEnd => "the page lies past the end of the mapped object",
            FaultError::Unmanaged => "the page shows a frame that the manager does not manage",
            FaultError::Full => "the mount has as many pages as it may, or as may be promised",
            FaultError::OutOfMemory => "out of memory",
            FaultError::GroupLimit(group) => {
                return fmt::Display::fmt(&NoPage::GroupLimit(*group), f);
            }
            FaultError::Io => "the backing store failed",
            FaultError::Lost => "the memory of the page has failed, with what it held",
            FaultError::Hooked(_) => "a fault hook caught the access",
        })
    }
}

impl core::error::Error for FaultError {}

impl From<OutOfMemory> for FaultError {
    fn from(_: OutOfMemory) -> Self {
        FaultError::OutOfMemory
    }
}

impl From<NoPage> for FaultError {
    fn from(error: NoPage) -> Self {
        match error {
            NoPage::OutOfMemory | NoPage::Unplaced => FaultError::OutOfMemory,
            NoPage::GroupLimit(group) => FaultError::GroupLimit(group),
        }
    }
}

impl From<IoError> for FaultError {
    fn from(_: IoError) -> Self {
        FaultError::Io
    }
}

impl From<CacheError> for FaultError {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::OutOfMemory | CacheError::Unplaced => FaultError::OutOfMemory,
            CacheError::Full => FaultError::Full,
            CacheError::GroupLimit(group) => FaultError::GroupLimit(group),
        }
    }
}

/// Why bytes of an object could not be read, written or cut off. Each is one error of
/// a system call, named beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileError {
    /// No such object (`EBADF`).
    NoObject,
    /// No such mount (`ENODEV`).
    NoMount,
    /// The place lies past [`Vm::MAX_SIZE`](crate::Vm::MAX_SIZE) (`EFBIG`).
    TooLarge,
    /// There is no data, or no file, at the place or after it (`ENXIO`).
    NoData,
    /// The object's mount has as many pages as it may, or no more may be promised (`ENOSPC`).
    Full,
    /// No frame or node could be had (`ENOMEM`).
    OutOfMemory,
    /// The group that would be charged has as many pages as it may, and none can leave
    /// (`ENOMEM`).
    GroupLimit(GroupId),
    /// More memory would be promised than may be
    /// ([`Group::set_commit_policy`](crate::space::Group::set_commit_policy)) (`ENOMEM`).
    CommitLimit,
    /// The backing store failed (`EIO`).
    Io,
    /// A seal forbids it ([`File::seal`](crate::space::File::seal)) (`EPERM`).
    Sealed,
    /// What is to be sealed against stores is mapped so that it may be stored to, or a page of it is
    /// pinned (`EBUSY`).
    Busy,
    /// It exists for shared memory and files in memory only, or is none that exists (`EINVAL`).
    WrongKind,
    /// [`MapError::BadNodes`].
    BadNodes,
    /// The caller has pinned its CPU ([`Vm::pin`](crate::Vm::pin)), and the call may sleep.
    Pinned,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileError::NoObject => "no such object",
            FileError::NoMount => "no such mount",
            FileError::TooLarge => "the place lies past what a file may hold",
            FileError::NoData => "there is no data at the place or after it",
            FileError::Full => "the mount has as many pages as it may, or as may be promised",
            FileError::OutOfMemory => "out of memory",
            FileError::GroupLimit(group) => {
                return fmt::Display::fmt(&NoPage::GroupLimit(*group), f);
            }
            FileError::CommitLimit => "more memory would be promised than may be",
            FileError::Io => "the backing store failed",
            FileError::Sealed => "a seal forbids it",
            FileError::Busy => "it is mapped for stores, or pinned",
            FileError::WrongKind => "such an object cannot have what was asked for",
            FileError::BadNodes => "the policy names no node, or one that there is not",
            FileError::Pinned => "the caller's CPU is pinned",
        })
    }
}

impl core::error::Error for FileError {}

impl From<OutOfMemory> for FileError {
    fn from(_: OutOfMemory) -> Self {
        FileError::OutOfMemory
    }
}

impl From<NoPage> for FileError {
    fn from(error: NoPage) -> Self {
        match error {
            NoPage::OutOfMemory | NoPage::Unplaced => FileError::OutOfMemory,
            NoPage::GroupLimit(group) => FileError::GroupLimit(group),
        }
    }
}

impl From<IoError> for FileError {
    fn from(_: IoError) -> Self {
        FileError::Io
    }
}

impl From<CacheError> for FileError {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::OutOfMemory | CacheError::Unplaced => FileError::OutOfMemory,
            CacheError::Full => FileError::Full,
            CacheError::GroupLimit(group) => FileError::GroupLimit(group),
        }
    }
}

impl From<FaultError> for FileError {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::Io | FaultError::Lost => FileError::Io,
            FaultError::Full => FileError::Full,
            FaultError::OutOfMemory => FileError::OutOfMemory,
            FaultError::GroupLimit(group) => FileError::GroupLimit(group),
            FaultError::PastEnd => FileError::TooLarge,
            FaultError::NoObject
            | FaultError::NoSpace
            | FaultError::NoRegion
            | FaultError::Unmanaged
            | FaultError::Protection
            | FaultError::Hooked(_) => FileError::NoObject,
        }
    }
}

/// Why a space could not be changed. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// No such space.
    NoSpace,
    /// No such object.
    NoObject,
    /// The range is empty, or lies outside what the format can map.
    BadRange,
    /// Part of the range is not mapped.
    NotMapped,
    /// Something else is mapped there.
    Occupied,
    /// No gap is wide enough.
    NoGap,
    /// A limit of the space ([`Limits`](crate::space::Limits)) would be exceeded.
    Limit,
    /// Part of the range is locked ([`Space::lock`](crate::space::Space::lock)).
    Locked,
    /// Part of the range is sealed ([`Space::seal`](crate::space::Space::seal)), or the object
    /// against stores ([`File::seal`](crate::space::File::seal)) (`EPERM`).
    Sealed,
    /// The rights are more than the mapping may ever get
    /// ([`MapRequest::at_most`](crate::space::MapRequest::at_most)), or would make code of memory
    /// in a space that refuses that
    /// ([`Space::refuse_new_code`](crate::space::Space::refuse_new_code)) (`EACCES`).
    Rights,
    /// What was asked for exists for private memory without an object only (`EINVAL`): growing
    /// down ([`Traits::GROWS_DOWN`](crate::space::Traits::GROWS_DOWN)), and advice to free
    /// ([`Advice::Free`](crate::space::Advice::Free)). Or no mapping can ask for it
    /// ([`MapRequest::traits`](crate::space::MapRequest::traits)). Or the memory is none of the
    /// manager's ([`MapRequest::frames`](crate::space::MapRequest::frames)): it takes no advice, and
    /// cannot grow.
    WrongKind,
    /// A frame that was named to be mapped is one that the manager manages, or no frame
    /// (`EINVAL`).
    Managed,
    /// A policy of nodes names none, or one that there is not
    /// ([`NodePolicy`](crate::frame::NodePolicy)) (`EINVAL`).
    BadNodes,
    /// The caller has pinned its CPU ([`Vm::pin`](crate::Vm::pin)), and the call may sleep.
    Pinned,
    /// The space that would end is loaded on a CPU
    /// ([`Machine::is_loaded`](crate::platform::Machine::is_loaded)).
    Loaded,
    /// No frame, table or node could be had.
    OutOfMemory,
    /// The group that would be charged has as many pages as it may, and none can leave.
    GroupLimit(GroupId),
    /// More memory would be promised than may be
    /// ([`Group::set_commit_policy`](crate::space::Group::set_commit_policy)) (`ENOMEM`).
    CommitLimit,
    /// A page could not be faulted in, read or dropped (`EFAULT`).
    Fault(FaultError),
}

impl MapError {
    /// Refuses a call that may sleep if the CPU would go on being pinned when `pin` has ended.
    pub(in crate::space) fn unless_ends(pin: &Pin<'_>) -> Result<(), MapError> {
        match pin.is_nested() {
            true => Err(MapError::Pinned),
            false => Ok(()),
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MapError::NoSpace => "no such address space",
            MapError::NoObject => "no such object",
            MapError::BadRange => "the range is empty or lies outside the address space",
            MapError::NotMapped => "part of the range is not mapped",
            MapError::Occupied => "something else is mapped there",
            MapError::NoGap => "no gap is wide enough",
            MapError::Limit => "a limit of the address space would be exceeded",
            MapError::Locked => "part of the range is locked",
            MapError::Sealed => "part of the range is sealed",
            MapError::Rights => "the mapping may not get these rights",
            MapError::WrongKind => "such memory cannot have what was asked for",
            MapError::Managed => "a frame that was named is the manager's, or none",
            MapError::BadNodes => "the policy names no node, or one that there is not",
            MapError::Pinned => "the caller's CPU is pinned",
            MapError::Loaded => "the address space is loaded",
            MapError::OutOfMemory => "out of memory",
            MapError::GroupLimit(group) => {
                return fmt::Display::fmt(&NoPage::GroupLimit(*group), f);
            }
            MapError::CommitLimit => "more memory would be promised than may be",
            MapError::Fault(error) => return fmt::Display::fmt(error, f),
        })
    }
}

impl core::error::Error for MapError {}

impl From<NotCommitted> for MapError {
    fn from(_: NotCommitted) -> Self {
        MapError::CommitLimit
    }
}

impl From<NotCommitted> for FileError {
    fn from(_: NotCommitted) -> Self {
        FileError::CommitLimit
    }
}

impl From<FaultError> for MapError {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::NoSpace => MapError::NoSpace,
            FaultError::NoRegion => MapError::NotMapped,
            FaultError::OutOfMemory => MapError::OutOfMemory,
            FaultError::GroupLimit(group) => MapError::GroupLimit(group),
            error => MapError::Fault(error),
        }
    }
}

impl From<FileError> for MapError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NoObject => MapError::NoObject,
            FileError::OutOfMemory => MapError::OutOfMemory,
            FileError::GroupLimit(group) => MapError::GroupLimit(group),
            FileError::CommitLimit => MapError::CommitLimit,
            FileError::Full => MapError::Fault(FaultError::Full),
            FileError::Pinned => MapError::Pinned,
            FileError::Sealed => MapError::Sealed,
            FileError::WrongKind => MapError::WrongKind,
            FileError::BadNodes => MapError::BadNodes,
            FileError::Io
            | FileError::Busy
            | FileError::NoMount
            | FileError::TooLarge
            | FileError::NoData => MapError::Fault(FaultError::Io),
        }
    }
}

impl From<OutOfMemory> for MapError {
    fn from(_: OutOfMemory) -> Self {
        MapError::OutOfMemory
    }
}

impl From<NoPage> for MapError {
    fn from(error: NoPage) -> Self {
        match error {
            NoPage::OutOfMemory | NoPage::Unplaced => MapError::OutOfMemory,
            NoPage::GroupLimit(group) => MapError::GroupLimit(group),
        }
    }
}

impl From<FaultError> for SwapOffError {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::OutOfMemory | FaultError::GroupLimit(_) | FaultError::Full => {
                SwapOffError::OutOfMemory
            }
            _ => SwapOffError::Io,
        }
    }
}

/// Why a manager could not be set up. The text says what the platform must change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateError(pub alloc::string::String);

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for CreateError {}
