//! Statistics, the audit, and what a kernel calls when it has nothing else to do.

use core::ffi::c_char;

use crate::manager::{Manager, Message, Out, named};
use crate::spaces::Space;
use crate::status::Status;

/// What a space uses.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SpaceStats {
    /// Private pages.
    pub anonymous_pages: u64,
    /// Mapped pages of files.
    pub file_pages: u64,
    /// Mapped pages of shared memory.
    pub shared_memory_pages: u64,
    /// Entries that show the shared zero page, which takes no memory.
    pub zero_pages: u64,
    /// Pages of all regions together.
    pub mapped_pages: u64,
    /// Pages of all locked regions together, in memory or not.
    pub locked_pages: u64,
    /// Pages of all regions together that are private, can be written and are no stack.
    pub data_pages: u64,
    /// Pages of private memory that are charged with `commit=`.
    pub committed_pages: u64,
    /// Bytes of page tables, with the root.
    pub table_bytes: u64,
    /// Regions.
    pub regions: u32,
    /// Users.
    pub users: u32,
}

/// What happened since the manager was made, and where memory is.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Stats {
    /// Frames.
    pub frames: u64,
    /// Those that nobody uses, whether in CPUs' lists or not.
    pub free_frames: u64,
    /// Faults that found a region.
    pub faults: u64,
    /// Faults that found nothing to do.
    pub spurious_faults: u64,
    /// Private pages made of zeroes.
    pub zero_fills: u64,
    /// Private pages made by copying.
    pub cow_copies: u64,
    /// Write-protected private pages that needed no copy.
    pub cow_reuses: u64,
    /// Entries made that show the shared zero page.
    pub zero_maps: u64,
    /// Pages of objects mapped, whether by the fault that asked for them or around it.
    pub file_maps: u64,
    /// Pages read from backing stores.
    pub page_reads: u64,
    /// Pages written to backing stores.
    pub page_writes: u64,
    /// Objects that ended with pages that their backing store did not take.
    pub lost_objects: u64,
    /// Forks.
    pub forks: u64,
    /// Spaces that ended.
    pub exits: u64,
    /// Pages promised with `commit=` (Committed_AS).
    pub committed_pages: u64,
    /// Pages that may be promised (CommitLimit), if that is what is refused.
    pub commit_limit_pages: u64,
}

/// What an audit counted.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Audit {
    /// Spaces.
    pub spaces: u64,
    /// Regions.
    pub regions: u64,
    /// Objects.
    pub objects: u64,
    /// Page tables in use.
    pub tables: u64,
    /// Entries that map frames, the shared zero page aside.
    pub entries: u64,
    /// Frames that the kernel holds.
    pub kernel_frames: u64,
}

/// What a space uses. Exact if none of its tasks runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_space_stats_get(
    vm: *mut Manager,
    space: Space,
    stats: *mut SpaceStats,
) -> Status {
    let get = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(stats)?) };
        let stats = manager.vm.space(space.id()).stats()?;
        out.set(SpaceStats {
            anonymous_pages: stats.rss.anonymous,
            file_pages: stats.rss.file,
            shared_memory_pages: stats.rss.shared_memory,
            zero_pages: stats.rss.zero,
            mapped_pages: stats.pages,
            locked_pages: stats.locked,
            data_pages: stats.data,
            committed_pages: stats.committed,
            table_bytes: stats.table_bytes,
            regions: stats.regions,
            users: stats.users,
        });
        Ok(())
    };
    Status::of(get())
}

/// Statistics; approximate while CPUs are at work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_stats_get(vm: *mut Manager, stats: *mut Stats) -> Status {
    let get = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(stats)?) };
        let stats = manager.vm.stats();
        let (events, frames, commit) = (stats.events, stats.frames, stats.commit);
        out.set(Stats {
            frames: frames.total,
            free_frames: frames.total - frames.used(),
            faults: events.faults,
            spurious_faults: events.spurious_faults,
            zero_fills: events.zero_fills,
            cow_copies: events.cow_copies,
            cow_reuses: events.cow_reuses,
            zero_maps: events.zero_maps,
            file_maps: events.file_maps + events.around_maps,
            page_reads: events.page_reads,
            page_writes: events.page_writes,
            lost_objects: events.lost_objects,
            forks: events.forks,
            exits: events.exits,
            committed_pages: commit.committed,
            commit_limit_pages: commit.limit,
        });
        Ok(())
    };
    Status::of(get())
}

/// Checks everything that the manager keeps against everything else, while no other call runs
/// on any CPU. VELLUM_STATUS_AUDIT if something is wrong; `message`, which may be null, gets
/// what, as a string cut off to `message_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_audit_run(
    vm: *mut Manager,
    audit: *mut Audit,
    message: *mut c_char,
    message_bytes: usize,
) -> Status {
    let check = || {
        // SAFETY: the head of the header.
        let (message, out) = unsafe { (Message::new(message, message_bytes), Out::new(audit)?) };
        // SAFETY: as above.
        let manager = unsafe { named(vm)? };
        match manager.vm.audit() {
            Ok(found) => {
                out.set(Audit {
                    spaces: found.spaces,
                    regions: found.regions,
                    objects: found.objects,
                    tables: found.tables,
                    entries: found.entries,
                    kernel_frames: found.frames.owned,
                });
                Ok(())
            }
            Err(failure) => {
                message.say(failure);
                Err(Status::Audit)
            }
        }
    };
    Status::of(check())
}

/// For a CPU with nothing else to do: frees page tables that are kept beyond need, and gives
/// frames back to their nodes. Returns whether another call would do more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_idle(vm: *mut Manager) -> bool {
    // SAFETY: the head of the header.
    unsafe { named(vm) }.is_ok_and(|manager| manager.vm.idle())
}

/// For a CPU that is taken away: frees what is kept for it. Returns how much still waits
/// until other CPUs are done; called on that CPU until it is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_offline(vm: *mut Manager) -> u64 {
    // SAFETY: the head of the header.
    unsafe { named(vm) }.map_or(0, |manager| manager.vm.offline())
}
