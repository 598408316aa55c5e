//! Page frames for the kernel's own use.

use vellum::addr::Pfn;
use vellum::frame::{Kind, MAX_ORDER, OwnedBlock, Request, Site};

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
