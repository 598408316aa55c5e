//! Groups of spaces that have a limit together.

use vellum::addr::Vpn;
use vellum::frame::{self, CommitLimits, CommitPolicy, CommitShare};
use vellum::platform::GroupId;
use vellum::space::GroupError;

use crate::Paging;
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
    /// Of what it is charged for, page tables; with `groups=all`.
    pub table_bytes: u64,
    /// Of what it is charged for, records of the regions of its spaces, in whole pages for each
    /// space; with `groups=all`.
    pub record_bytes: u64,
    /// Bytes of its pages that reclaim had leave memory.
    pub reclaimed_bytes: u64,
    /// Times that the limit was reached and pages of the group had to leave.
    pub limit_hits: u64,
    /// Calls that failed because no page of it could leave.
    pub failures: u64,
    /// Times that a call had pages of the group leave first because it was above its high_bytes.
    pub high_events: u64,
    /// Times that its pages were looked at although it had no more than its low_bytes.
    pub low_events: u64,
    /// Bytes that its spaces are promised, with the shared memory made for it; with `commit=`.
    pub committed_bytes: u64,
    /// Most of that; UINT64_MAX if there is no limit.
    pub commit_limit_bytes: u64,
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
            GroupError::NotCounted => Status::NotInDesign,
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

/// The same within another group: what the new one is charged for, that one is charged for, too,
/// and the limits of both hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_group_create_in(
    vm: *mut Manager,
    around: Group,
    limit_bytes: u64,
    group: *mut Group,
) -> Status {
    let create = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(group)?) };
        let around = manager.vm.group(around.id());
        let id = around.create_group(limit_of(limit_bytes)?)?.id();
        out.set(Group { bits: id.to_bits() });
        Ok(())
    };
    Status::of(create())
}

/// What a group may have and keep, with those within it, as the limits of Linux's memory control
/// groups.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct GroupLimits {
    /// What it never has more of; UINT64_MAX for no limit.
    pub max_bytes: u64,
    /// Above this, calls have pages of it leave first, and go on; UINT64_MAX for no limit.
    pub high_bytes: u64,
    /// Up to this, its pages leave for others only if nothing else can.
    pub low_bytes: u64,
    /// Up to this, they never do.
    pub min_bytes: u64,
}

/// Gives a group other limits, as vellum_group_limit_set does with the first of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_group_limits_set(
    vm: *mut Manager,
    group: Group,
    limits: *const GroupLimits,
    excess_bytes: *mut u64,
) -> Status {
    let set = || {
        // SAFETY: the head of the header.
        let (manager, limits) = unsafe { (named(vm)?, limits.as_ref()) };
        let limits = limits.ok_or(Status::Argument)?;
        let limits = frame::GroupLimits {
            max: limit_of(limits.max_bytes)?,
            high: limit_of(limits.high_bytes)?,
            low: limit_of(limits.low_bytes)?,
            min: limit_of(limits.min_bytes)?,
        };
        let excess = manager.vm.group(group.id()).set_limits(limits)?;
        // SAFETY: as above.
        if let Ok(out) = unsafe { Out::new(excess_bytes) } {
            out.set(bytes_of(excess));
        }
        Ok(())
    };
    Status::of(set())
}

/// Has up to about so many bytes of pages of a group leave memory; `left_bytes`, which may be null,
/// gets how many have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_group_reclaim(
    vm: *mut Manager,
    group: Group,
    bytes: u64,
    left_bytes: *mut u64,
) -> Status {
    let reclaim = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let left = manager.vm.group(group.id()).reclaim(pages_of(bytes)?)?;
        // SAFETY: as above.
        if let Ok(out) = unsafe { Out::new(left_bytes) } {
            out.set(bytes_of(left));
        }
        Ok(())
    };
    Status::of(reclaim())
}

/// Ends a group that no space belongs to and no group lies within. What it is charged for is that of
/// the group around it then. Looks at every frame.
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
            limit_bytes: bytes_of_limit(stats.limits.max),
            table_bytes: bytes_of(stats.tables),
            record_bytes: bytes_of(stats.records),
            reclaimed_bytes: bytes_of(stats.reclaimed),
            limit_hits: stats.limit_hits,
            failures: stats.failures,
            high_events: stats.high_events,
            low_events: stats.low_events,
            committed_bytes: bytes_of(stats.committed),
            commit_limit_bytes: bytes_of_limit(stats.commit_limit),
            spaces: stats.spaces,
        });
        Ok(())
    };
    Status::of(get())
}

/// Limits what the spaces of a group may be promised together, with the shared memory that they
/// make (UINT64_MAX: no limit); what is more is refused with VELLUM_STATUS_COMMIT_LIMIT. Needs a
/// design with `commit=`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_group_commit_limit_set(
    vm: *mut Manager,
    group: Group,
    limit_bytes: u64,
) -> Status {
    let set = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let limit = limit_of(limit_bytes)?;
        Ok(manager.vm.group(group.id()).set_commit_limit(limit)?)
    };
    Status::of(set())
}

fn set_policy(vm: *mut Manager, policy: CommitPolicy) -> Status {
    let set = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let root = manager.vm.group(GroupId::ROOT);
        Ok(root.set_commit_policy(policy)?)
    };
    Status::of(set())
}

/// Refuses from now on what alone asks for more than there are frames and swap slots
/// (`vm.overcommit_memory` 0). Needs a design with `commit=`, as do the other policies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_commit_heuristic(vm: *mut Manager) -> Status {
    set_policy(vm, CommitPolicy::Heuristic)
}

/// Refuses no promise from now on (1).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_commit_always(vm: *mut Manager) -> Status {
    set_policy(vm, CommitPolicy::Always)
}

/// Refuses from now on what would have been promised in all above so many bytes and those of swap
/// (2). Of these `admin_reserve_bytes` are for spaces that are an administrator's alone, and a space
/// leaves `user_reserve_bytes`, or a 32nd of its own size if that is less.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_commit_never(
    vm: *mut Manager,
    most_bytes: u64,
    admin_reserve_bytes: u64,
    user_reserve_bytes: u64,
) -> Status {
    let pages = |bytes| Vpn::of::<Paging>(bytes).0;
    let limits = CommitLimits {
        most: CommitShare::Pages(pages(most_bytes)),
        admin_reserve: pages(admin_reserve_bytes),
        user_reserve: pages(user_reserve_bytes),
    };
    set_policy(vm, CommitPolicy::Never(limits))
}
