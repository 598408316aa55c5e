//! Groups of spaces that have a limit together.

use vellum::platform::GroupId;
use vellum::space::GroupError;

use crate::manager::{Manager, Out, named, pages_of};
use crate::regions::bytes_of;
use crate::spaces::Space;
use crate::status::Status;

/// Names a group of spaces. All bits are zero in the name of the root, in which spaces begin
/// and which has no limit.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Group {
    /// To be kept and compared, and for nothing else.
    pub bits: u32,
}

impl Group {
    fn id(self) -> GroupId {
        GroupId::from_bits(self.bits)
    }
}

/// What there is of a group.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct GroupStats {
    /// Bytes of the pages that it is charged for; approximate while CPUs charge it.
    pub used_bytes: u64,
    /// The most that this was since the group was made, with what CPUs had taken for it and
    /// not used yet.
    pub peak_bytes: u64,
    /// What it may be charged for; UINT64_MAX if there is no limit.
    pub limit_bytes: u64,
    /// Bytes of its pages that reclaim had leave memory.
    pub reclaimed_bytes: u64,
    /// Times that the limit was reached and pages of the group had to leave.
    pub limit_hits: u64,
    /// Calls that failed because no page of it could leave.
    pub failures: u64,
    /// Spaces that belong to it.
    pub spaces: u32,
}

/// Pages that a limit in bytes allows.
fn limit_of(bytes: u64) -> Result<u64, Status> {
    match bytes {
        u64::MAX => Ok(u64::MAX),
        bytes => pages_of(bytes),
    }
}

fn bytes_of_limit(pages: u64) -> u64 {
    match pages {
        u64::MAX => u64::MAX,
        pages => bytes_of(pages),
    }
}

impl From<GroupError> for Status {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::Off => Status::NotInDesign,
            GroupError::TooMany => Status::TooMany,
            GroupError::NoGroup => Status::NoGroup,
            GroupError::NoSpace => Status::NoSpace,
            GroupError::InUse => Status::InUse,
        }
    }
}

/// Makes a group that is charged for at most so many bytes of pages (UINT64_MAX: no limit).
/// At its limit pages of its own leave memory, and if none can, a call that needs one fails
/// with VELLUM_STATUS_GROUP_LIMIT. Needs a design with `reclaim=on,groups=on`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_group_create(
    vm: *mut Manager,
    limit_bytes: u64,
    group: *mut Group,
) -> Status {
    let create = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(group)?) };
        let id = manager.vm.create_group(limit_of(limit_bytes)?)?.id();
        out.set(Group { bits: id.to_bits() });
        Ok(())
    };
    Status::of(create())
}

/// Ends a group that no space belongs to. What it is charged for is the root's then. Looks at
/// every frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_group_end(vm: *mut Manager, group: Group) -> Status {
    // SAFETY: the head of the header.
    let end = || Ok(unsafe { named(vm)? }.vm.group(group.id()).end()?);
    Status::of(end())
}

/// Gives a group another limit. If it has more, pages of it leave until it has not, or none
/// can leave any more. `excess_bytes` may be null: it gets what is left above the limit, and
/// until that is gone everything is refused that would be charged to the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_group_limit_set(
    vm: *mut Manager,
    group: Group,
    limit_bytes: u64,
    excess_bytes: *mut u64,
) -> Status {
    let set = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let limit = limit_of(limit_bytes)?;
        let excess = manager.vm.group(group.id()).set_limit(limit)?;
        // SAFETY: as above.
        if let Ok(out) = unsafe { Out::new(excess_bytes) } {
            out.set(bytes_of(excess));
        }
        Ok(())
    };
    Status::of(set())
}

/// Moves a space to a group, or to the root: what it touches from now on is charged there.
/// What was charged before stays where it is. A child of fork begins in its parent's group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_group_join(vm: *mut Manager, space: Space, group: Group) -> Status {
    let join = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        Ok(manager.vm.space(space.id()).set_group(group.id())?)
    };
    Status::of(join())
}

/// What there is of a group that is not the root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_group_stats_get(
    vm: *mut Manager,
    group: Group,
    stats: *mut GroupStats,
) -> Status {
    let get = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(stats)?) };
        let stats = manager.vm.group(group.id()).stats()?;
        out.set(GroupStats {
            used_bytes: bytes_of(stats.usage),
            peak_bytes: bytes_of(stats.peak),
            limit_bytes: bytes_of_limit(stats.limit),
            reclaimed_bytes: bytes_of(stats.reclaimed),
            limit_hits: stats.limit_hits,
            failures: stats.failures,
            spaces: stats.spaces,
        });
        Ok(())
    };
    Status::of(get())
}
