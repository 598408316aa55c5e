//! How a call went.

use core::ffi::{CStr, c_char};

use vellum::frame::OutOfMemory;
use vellum::space::{FaultError, FileError, HookError, MapError, WithdrawError};

/// How a call went. Whatever is not VELLUM_STATUS_OK says that nothing has changed, unless
/// the function says otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// As asked.
    Ok = 0,
    /// A pointer is null, a number is none of the constants, or an address or a length is no
    /// multiple of a page.
    Argument,
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
    /// The range is empty, or lies outside of what page tables can map.
    BadRange,
    /// Part of the range is not mapped.
    NotMapped,
    /// Something else is mapped there.
    Occupied,
    /// No gap is wide enough.
    NoGap,
    /// A limit of the space would be exceeded.
    Limit,
    /// The object's mount has as many pages as it may.
    Full,
    /// The place lies past what an object may hold.
    TooLarge,
    /// No frame, table or node could be had; or the memory given to vellum_create() is less
    /// than vellum_heap_bytes().
    OutOfMemory,
    /// The backing store failed.
    Io,
    /// The platform or the design cannot be used; the message says why.
    Setup,
    /// An audit found something wrong; the message says what.
    Audit,
    /// Another CPU is making a manager.
    Busy,
    /// The group of the space has as many pages as it may, and none of them can leave.
    GroupLimit,
    /// No such group, or it is the root.
    NoGroup,
    /// There are as many groups, swap areas or pins of a page as can be.
    TooMany,
    /// Spaces belong to the group; or the store is a swap area, or a page of it is kept.
    InUse,
    /// The manager's design leaves it out.
    NotInDesign,
    /// Part of the range is locked.
    Locked,
    /// Growing down, and advice to free, are for private memory without an object only.
    WrongKind,
    /// The mapping may never get these rights, or the space makes no code of other memory.
    Rights,
    /// Part of the range is sealed.
    Sealed,
    /// The memory is none that the manager manages (VELLUM_MAP_FRAMES), or a frame that was to be
    /// mapped so is.
    Unmanaged,
    /// More memory would be promised than may be.
    CommitLimit,
    /// A fault hook caught the access, and the platform did not have the task wait.
    Hooked,
    /// Part of the range has no hooks, or not the one that the call needs.
    NotHooked,
    /// There is a page already.
    Exists,
    /// The object has no page there.
    NoPage,
    /// A policy of nodes names none, or one that there is not.
    BadNodes,
    /// The memory of the page has failed, and what it held is lost.
    Lost,
    /// What the frame holds cannot leave it, or it is out of use, or in use, already.
    Kept,
}

impl Status {
    /// The status of a result.
    pub fn of(result: Result<(), Status>) -> Status {
        result.err().unwrap_or(Status::Ok)
    }

    const ALL: [Status; 37] = [
        Status::Ok,
        Status::Argument,
        Status::NoSpace,
        Status::NoObject,
        Status::NoRegion,
        Status::Protection,
        Status::PastEnd,
        Status::BadRange,
        Status::NotMapped,
        Status::Occupied,
        Status::NoGap,
        Status::Limit,
        Status::Full,
        Status::TooLarge,
        Status::OutOfMemory,
        Status::Io,
        Status::Setup,
        Status::Audit,
        Status::Busy,
        Status::GroupLimit,
        Status::NoGroup,
        Status::TooMany,
        Status::InUse,
        Status::NotInDesign,
        Status::Locked,
        Status::WrongKind,
        Status::Rights,
        Status::Sealed,
        Status::Unmanaged,
        Status::CommitLimit,
        Status::Hooked,
        Status::NotHooked,
        Status::Exists,
        Status::NoPage,
        Status::BadNodes,
        Status::Lost,
        Status::Kept,
    ];

    fn text(self) -> &'static CStr {
        match self {
            Status::Ok => c"as asked",
            Status::Argument => c"a null pointer, an unknown number, or not a multiple of a page",
            Status::NoSpace => c"no such address space",
            Status::NoObject => c"no such object",
            Status::NoRegion => c"no region holds the address",
            Status::Protection => c"the region does not allow the access",
            Status::PastEnd => c"the page lies past the end of the mapped object",
            Status::BadRange => c"the range is empty or lies outside the address space",
            Status::NotMapped => c"part of the range is not mapped",
            Status::Occupied => c"something else is mapped there",
            Status::NoGap => c"no gap is wide enough",
            Status::Limit => c"a limit of the address space would be exceeded",
            Status::Full => c"the mount has as many pages as it may",
            Status::TooLarge => c"the place lies past what an object may hold",
            Status::OutOfMemory => c"out of memory",
            Status::Io => c"the backing store failed",
            Status::Setup => c"the platform or the design cannot be used",
            Status::Audit => c"an audit found something wrong",
            Status::Busy => c"another CPU is making a manager",
            Status::GroupLimit => c"the group has as many pages as it may, and none can leave",
            Status::NoGroup => c"no such group",
            Status::TooMany => c"there are as many groups, swap areas or pins of a page as can be",
            Status::InUse => c"the group or the swap area is in use",
            Status::NotInDesign => c"the manager's design leaves it out",
            Status::Locked => c"part of the range is locked",
            Status::WrongKind => c"only private memory without an object can be asked for that",
            Status::Rights => c"the mapping may not get these rights",
            Status::Sealed => c"part of the range is sealed",
            Status::Unmanaged => c"whether the manager manages the frames does not fit",
            Status::CommitLimit => c"more memory would be promised than may be",
            Status::Hooked => c"a fault hook caught the access",
            Status::NotHooked => c"part of the range has no such fault hook",
            Status::Exists => c"there is a page already",
            Status::NoPage => c"the object has no page there",
            Status::BadNodes => c"the policy names no node, or one that there is not",
            Status::Lost => c"the memory of the page has failed, with what it held",
            Status::Kept => c"what the frame holds cannot leave it",
        }
    }
}

impl From<FaultError> for Status {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::NoSpace => Status::NoSpace,
            FaultError::NoObject => Status::NoObject,
            FaultError::NoRegion => Status::NoRegion,
            FaultError::Protection => Status::Protection,
            FaultError::PastEnd => Status::PastEnd,
            FaultError::Unmanaged => Status::Unmanaged,
            FaultError::Full => Status::Full,
            FaultError::OutOfMemory => Status::OutOfMemory,
            FaultError::GroupLimit(_) => Status::GroupLimit,
            FaultError::Io => Status::Io,
            FaultError::Lost => Status::Lost,
            FaultError::Hooked(_) => Status::Hooked,
        }
    }
}

impl From<HookError> for Status {
    fn from(error: HookError) -> Self {
        match error {
            HookError::NoSpace => Status::NoSpace,
            HookError::BadRange => Status::BadRange,
            HookError::NotHooked => Status::NotHooked,
            HookError::Exists => Status::Exists,
            HookError::NoPage => Status::NoPage,
            HookError::PastEnd => Status::PastEnd,
            HookError::Pinned => Status::Busy,
            HookError::Fault(error) => error.into(),
        }
    }
}

impl From<MapError> for Status {
    fn from(error: MapError) -> Self {
        match error {
            MapError::NoSpace => Status::NoSpace,
            MapError::NoObject => Status::NoObject,
            MapError::BadRange => Status::BadRange,
            MapError::NotMapped => Status::NotMapped,
            MapError::Occupied => Status::Occupied,
            MapError::NoGap => Status::NoGap,
            MapError::Limit => Status::Limit,
            MapError::Locked => Status::Locked,
            MapError::WrongKind => Status::WrongKind,
            MapError::Rights => Status::Rights,
            MapError::Sealed => Status::Sealed,
            MapError::Managed => Status::Unmanaged,
            // A kernel in C has no pins of its own, and is not asked what is loaded.
            MapError::Pinned | MapError::Loaded => Status::Busy,
            MapError::OutOfMemory => Status::OutOfMemory,
            MapError::GroupLimit(_) => Status::GroupLimit,
            MapError::CommitLimit => Status::CommitLimit,
            MapError::BadNodes => Status::BadNodes,
            MapError::Fault(error) => error.into(),
        }
    }
}

impl From<FileError> for Status {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NoObject | FileError::NoMount => Status::NoObject,
            FileError::TooLarge | FileError::NoData => Status::TooLarge,
            FileError::Full => Status::Full,
            FileError::OutOfMemory => Status::OutOfMemory,
            FileError::GroupLimit(_) => Status::GroupLimit,
            FileError::CommitLimit => Status::CommitLimit,
            FileError::Io => Status::Io,
            FileError::Pinned | FileError::Busy => Status::Busy,
            FileError::Sealed => Status::Sealed,
            FileError::WrongKind => Status::WrongKind,
            FileError::BadNodes => Status::BadNodes,
        }
    }
}

impl From<WithdrawError> for Status {
    fn from(error: WithdrawError) -> Self {
        match error {
            WithdrawError::NoFrame => Status::Unmanaged,
            WithdrawError::Withdrawn | WithdrawError::InUse | WithdrawError::Kept => Status::Kept,
            WithdrawError::Pinned => Status::InUse,
            WithdrawError::OutOfMemory => Status::OutOfMemory,
            _ => Status::Busy,
        }
    }
}

impl From<OutOfMemory> for Status {
    fn from(_: OutOfMemory) -> Self {
        Status::OutOfMemory
    }
}

/// A status in English, for messages. Never null, and there for good.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_status_text(status: u32) -> *const c_char {
    let known = Status::ALL.iter().find(|known| **known as u32 == status);
    known.map_or(c"no status", |known| known.text()).as_ptr()
}
