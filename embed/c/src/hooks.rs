//! Fault hooks (userfaultfd).

use core::ffi::c_void;

use vellum::space::{Supply, Traits};

use crate::Paging;
use crate::manager::{Manager, page_at, pages_of};
use crate::objects::{checked, counted};
use crate::regions::on_range;
use crate::spaces::Space;
use crate::status::Status;

/// Catches accesses to pages that are not there.
pub const VELLUM_HOOK_MISSING: u32 = 1;
/// Catches stores to pages that vellum_hooks_protect() has protected.
pub const VELLUM_HOOK_STORES: u32 = 2;
/// Catches accesses to pages that shared memory has and the space does not map.
pub const VELLUM_HOOK_MINOR: u32 = 4;

/// Pages come protected: for vellum_hooks_supply().
pub const VELLUM_HOOK_PROTECTED: u32 = 1;
/// Who waits is not woken: vellum_hooks_wake() is called later.
pub const VELLUM_HOOK_QUIET: u32 = 2;

/// Gives a range, all of which is mapped, these hooks and no others: a sum of VELLUM_HOOK_MISSING,
/// VELLUM_HOOK_STORES and VELLUM_HOOK_MINOR, or 0 to take all of them off. What they catch is told
/// to `fault_hook` of the platform. VELLUM_STATUS_WRONG_KIND for files, and for VELLUM_HOOK_MINOR of
/// private memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_hooks(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    hooks: u32,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            let all = [
                (VELLUM_HOOK_MISSING, Traits::HOOK_MISSING),
                (VELLUM_HOOK_STORES, Traits::HOOK_STORES),
                (VELLUM_HOOK_MINOR, Traits::HOOK_MINOR),
            ];
            let known = all.iter().fold(0, |known, (hook, _)| known | hook);
            if hooks & !known != 0 {
                return Err(Status::Argument);
            }
            let chosen = all.iter().filter(|(hook, _)| hooks & hook != 0);
            let traits = chosen.fold(Traits::NONE, |all, (_, one)| all.union(*one));
            Ok(manager
                .vm
                .space(space.id())
                .hooks(start, pages)
                .register(traits)?)
        })
    }
}

/// Puts pages into a range that has hooks, where there are none: with the bytes of a buffer as long
/// as the range, which nobody stores to meanwhile, or zeroes, if it is null. `flags` is a sum of
/// VELLUM_HOOK_PROTECTED, not with zeroes, and VELLUM_HOOK_QUIET. `done`, which may be null, gets how
/// many bytes of the range that were: fewer than `bytes` if a page could not be put there. Only if
/// that was the first, it is an error: VELLUM_STATUS_EXISTS if there is a page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_hooks_supply(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    buffer: *const c_void,
    flags: u32,
    done: *mut u64,
) -> Status {
    let supply = |manager: &Manager| {
        let (start, pages) = (page_at(address)?, pages_of(bytes)?);
        let is_protected = flags & VELLUM_HOOK_PROTECTED != 0;
        let is_known = flags & !(VELLUM_HOOK_PROTECTED | VELLUM_HOOK_QUIET) == 0;
        if !is_known || is_protected && buffer.is_null() {
            return Err(Status::Argument);
        }
        let hooks = manager.vm.space(space.id()).hooks(start, pages);
        let hooks = match flags & VELLUM_HOOK_QUIET {
            0 => hooks,
            _ => hooks.quiet(),
        };
        let supplied = match buffer.is_null() {
            true => hooks.supply(Supply::Zeroes)?,
            false => {
                let length = usize::try_from(bytes).map_err(|_| Status::Argument)?;
                let buffer = checked(buffer, length)?;
                // SAFETY: the head of the header, and what is asked for above.
                let buffer = unsafe { core::slice::from_raw_parts(buffer, length) };
                match is_protected {
                    true => hooks.supply(Supply::Protected(buffer))?,
                    false => hooks.supply(Supply::Bytes(buffer))?,
                }
            }
        };
        Ok(supplied << <Paging as vellum::addr::Geometry>::FRAME_SHIFT)
    };
    // SAFETY: the head of the header.
    unsafe { counted(vm, done, supply) }
}

/// Maps the pages of a range that its shared memory has, and wakes who waits for them. `done`, which
/// may be null, gets how many bytes of the range that were, as of vellum_hooks_supply().
/// VELLUM_STATUS_NO_PAGE if there is none to begin with, VELLUM_STATUS_EXISTS if it is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_hooks_map_present(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    done: *mut u64,
) -> Status {
    let map = |manager: &Manager| {
        let (start, pages) = (page_at(address)?, pages_of(bytes)?);
        let hooks = manager.vm.space(space.id()).hooks(start, pages);
        Ok(hooks.supply(Supply::Present)? << <Paging as vellum::addr::Geometry>::FRAME_SHIFT)
    };
    // SAFETY: the head of the header.
    unsafe { counted(vm, done, map) }
}

/// Protects the pages of a range with VELLUM_HOOK_STORES: the next store to each is caught. Or, with
/// false, ends that, and wakes who waits. VELLUM_STATUS_NOT_HOOKED if part of the range has not that
/// hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_hooks_protect(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    is_protected: bool,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            let hooks = manager.vm.space(space.id()).hooks(start, pages);
            match is_protected {
                true => hooks.protect()?,
                false => hooks.unprotect()?,
            }
            Ok(())
        })
    }
}

/// Wakes the tasks that wait for a page of a range: their faults begin again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_hooks_wake(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            Ok(manager.vm.space(space.id()).hooks(start, pages).wake()?)
        })
    }
}
