//! Errors of fault hooks, and waking those who wait for a page.

use core::fmt;

use super::common::Common;
use super::error::{FaultError, MapError};
use super::manager::Vm;
use crate::addr::{PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::sync::Pin;
use crate::table::Format;

/// Why a page could not be supplied, or a range not be watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookError {
    /// No such space (`ESRCH`).
    NoSpace,
    /// The range is empty, lies outside what the format can map, or is not what the bytes fill
    /// (`EINVAL`).
    BadRange,
    /// Part of the range has no hooks, or not the one that the call needs (`ENOENT`).
    NotHooked,
    /// The space has a page there already (`EEXIST`).
    Exists,
    /// The object has no page there to be mapped (`EFAULT`).
    NoPage,
    /// The range lies past the end of the mapped object (`EFAULT`).
    PastEnd,
    /// The caller has pinned its CPU ([`Vm::pin`](crate::Vm::pin)), and the call may sleep.
    Pinned,
    /// No page could be made (`ENOMEM`, `EIO`).
    Fault(FaultError),
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HookError::NoSpace => "no such address space",
            HookError::BadRange => {
                "the range is empty, outside the space, or not what the bytes fill"
            }
            HookError::NotHooked => "part of the range has no such fault hook",
            HookError::Exists => "there is a page already",
            HookError::NoPage => "the object has no page there",
            HookError::PastEnd => "the range lies past the end of the mapped object",
            HookError::Pinned => "the caller's CPU is pinned",
            HookError::Fault(error) => return error.fmt(f),
        })
    }
}

impl core::error::Error for HookError {}

impl From<FaultError> for HookError {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::NoSpace => HookError::NoSpace,
            FaultError::NoRegion => HookError::NotHooked,
            FaultError::PastEnd => HookError::PastEnd,
            error => HookError::Fault(error),
        }
    }
}

impl From<MapError> for HookError {
    fn from(error: MapError) -> Self {
        match error {
            MapError::NoSpace => HookError::NoSpace,
            MapError::BadRange => HookError::BadRange,
            MapError::OutOfMemory => HookError::Fault(FaultError::OutOfMemory),
            MapError::GroupLimit(group) => HookError::Fault(FaultError::GroupLimit(group)),
            MapError::Pinned => HookError::Pinned,
            _ => HookError::NotHooked,
        }
    }
}

/// The key of those who wait for a page; the pages after it have the keys that follow. Others may
/// have the same, and look again.
pub(in crate::space) fn hook_key(space: u32, page: Vpn) -> u64 {
    (u64::from(space) << 40).wrapping_add(page.0)
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Whether a hook watches the page of an entry of level 1, if there are hooks at all.
    #[inline]
    pub(in crate::space) fn is_watched(entry: u64) -> bool {
        P::PARTS.hooks && F::is_watched(entry)
    }
}

impl<P: Platform> Common<P> {
    /// Wakes those who wait for a page of the range, after what they wait for has come.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn wake_hooked(&self, pin: &Pin<'_>, space: u32, range: PageRange) {
        let row = (hook_key(space, range.start), range.pages());
        self.waits.wake_row(row, self.memory.platform(), pin);
    }
}
