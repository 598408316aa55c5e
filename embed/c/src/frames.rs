//! Page frames for the kernel's own use.

use vellum::addr::Pfn;
use vellum::frame::{Kind, MAX_ORDER, OwnedBlock, Request, Site};
use vellum::space::{FrameHealth, Withdrawn};

use crate::manager::{Manager, Out, named};
use crate::platform::Machine;
use crate::status::Status;

/// Takes `1 << order` frames in a row, aligned to as many; `order` is 10 at most. `first` gets
/// the first one's number. The audit counts them as the kernel's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_frames_alloc(
    vm: *mut Manager,
    order: u32,
    zeroed: bool,
    first: *mut u32,
) -> Status {
    let take = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(first)?) };
        if order > MAX_ORDER {
            return Err(Status::Argument);
        }
        let request = Request::page(Site::AnonymousPage).order(order);
        let request = if zeroed { request.zeroed() } else { request };
        let block = manager.vm.memory().alloc(&manager.vm.pin(), request)?;
        out.set(block.into_raw().0);
        Ok(())
    };
    Status::of(take())
}

/// A frame that is out of use can be used: memory that comes back, or that is added.
pub const VELLUM_FRAME_GOOD: u32 = 0;
/// Errors in the memory of a frame were corrected, or it is to be taken away: what it holds is good.
pub const VELLUM_FRAME_FAILING: u32 = 1;
/// What a frame held is lost.
pub const VELLUM_FRAME_FAILED: u32 = 2;

/// Nobody used the frame.
pub const VELLUM_WITHDRAWN_UNUSED: u32 = 0;
/// It held a page of a file, which is read anew.
pub const VELLUM_WITHDRAWN_DROPPED: u32 = 1;
/// What it held is elsewhere.
pub const VELLUM_WITHDRAWN_MOVED: u32 = 2;
/// What it held is lost: accesses are VELLUM_STATUS_LOST until the page is unmapped or dropped, and of
/// a page of a file an error is told when it is synchronised.
pub const VELLUM_WITHDRAWN_LOST: u32 = 3;
/// It was out of use, and is free now.
pub const VELLUM_READMITTED: u32 = 4;

/// Takes a frame out of use (memory_failure, soft_offline_page), whose memory fails or has failed, or
/// back into use: VELLUM_FRAME_*. `what`, which may be null, gets one of VELLUM_WITHDRAWN_*. The frame is still
/// in use after VELLUM_STATUS_KEPT (a page table, the kernel's or the manager's own memory, or out of
/// use already), IN_USE (pinned), OUT_OF_MEMORY, UNMANAGED, and BUSY, after which the call may be made
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_set_frame_health(
    vm: *mut Manager,
    frame: u32,
    health: u32,
    what: *mut u32,
) -> Status {
    let go = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(what)) };
        let health = match health {
            VELLUM_FRAME_GOOD => FrameHealth::Good,
            VELLUM_FRAME_FAILING => FrameHealth::Failing,
            VELLUM_FRAME_FAILED => FrameHealth::Failed,
            _ => return Err(Status::Argument),
        };
        let done = manager.vm.set_frame_health(Pfn(frame), health)?;
        if let Ok(out) = out {
            out.set(match done {
                Withdrawn::Unused => VELLUM_WITHDRAWN_UNUSED,
                Withdrawn::Dropped => VELLUM_WITHDRAWN_DROPPED,
                Withdrawn::Moved => VELLUM_WITHDRAWN_MOVED,
                Withdrawn::Readmitted => VELLUM_READMITTED,
                _ => VELLUM_WITHDRAWN_LOST,
            });
        }
        Ok(())
    };
    Status::of(go())
}

/// The block that vellum_frames_alloc() handed out, `first` being its first frame.
fn block(manager: &Manager, first: u32, order: u32) -> Result<OwnedBlock<'_, Machine>, Status> {
    let (memory, first) = (manager.vm.memory(), Pfn(first));
    if order > MAX_ORDER || !memory.contains(first) {
        return Err(Status::Argument);
    }
    let frame = memory.frame(first);
    if frame.kind() != Kind::Allocated || frame.owner() != OWNED {
        return Err(Status::Argument);
    }
    // SAFETY: the block is the caller's, who does not use it any more; its order is what
    // the functions ask for.
    Ok(unsafe { memory.adopt(first, order) })
}

/// Gives frames back that vellum_frames_alloc() handed out, with the same order. A frame that
/// it did not hand out, or that was given back, is VELLUM_STATUS_ARGUMENT; another order cannot
/// be noticed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_frames_free(vm: *mut Manager, first: u32, order: u32) -> Status {
    let give = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        block(manager, first, order)?.free(&manager.vm.pin());
        Ok(())
    };
    Status::of(give())
}

/// Keeps frames for good that vellum_frames_alloc() handed out, with the same order: they leave
/// the manager's memory, and can be mapped by VELLUM_MAP_FRAMES. Errors as of vellum_frames_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_frames_reserve(vm: *mut Manager, first: u32, order: u32) -> Status {
    let keep = || {
        // SAFETY: the head of the header.
        block(unsafe { named(vm)? }, first, order)?.reserve();
        Ok(())
    };
    Status::of(keep())
}

/// Owner of frames that an embedder holds.
const OWNED: u32 = u32::MAX;
