//! What a space's mappings may not become.

use crate::manager::{Manager, named};
use crate::regions::on_range;
use crate::spaces::Space;
use crate::status::Status;

/// Has the regions of a range, all of which is mapped, stay as they are until the space ends
/// (mseal): VELLUM_STATUS_SEALED is the answer to whoever unmaps, replaces, moves, resizes or
/// protects them, and to advice that drops pages which the space could not store to. Their
/// contents may change. A forked child has the seals, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_seal(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            Ok(manager.vm.space(space.id()).seal(start, pages)?)
        })
    }
}

/// From now on memory of the space that is no code does not become code, and none is both code
/// and stored to (PR_SET_MDWE): VELLUM_STATUS_RIGHTS. Holds for spaces that come of it, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_refuse_new_code(vm: *mut Manager, space: Space) -> Status {
    let refuse = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        Ok(manager.vm.space(space.id()).refuse_new_code()?)
    };
    Status::of(refuse())
}
