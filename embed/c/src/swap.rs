//! Swap areas.

use core::ffi::c_void;

use vellum::swap::{SwapArea, SwapOffError, SwapOnError};

use crate::heap::{self, Using};
use crate::manager::{Manager, named};
use crate::status::Status;

/// The bytes that vellum_swap_on() needs for an area of `slots` pages; 0 if none can have as
/// many.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_swap_heap_bytes(slots: u64) -> usize {
    heap::needed_for_swap(slots).unwrap_or(0)
}

/// Lets private pages and those of shared memory be written to the pages 0 to `slots - 1` of a
/// backing store from now on, with `write_page` and `read_page` of the platform. The manager's
/// design has `reclaim=on`. Areas of higher priority are filled first. What the store holds is
/// overwritten. After VELLUM_STATUS_OK `heap` is used until vellum_destroy();
/// vellum_swap_heap_bytes() says how much it must be.
///
/// VELLUM_STATUS_IN_USE if the store is an area already, VELLUM_STATUS_TOO_MANY if there are 32,
/// VELLUM_STATUS_OUT_OF_MEMORY if the heap is too small, VELLUM_STATUS_BUSY if another CPU uses
/// another heap at this moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_swap_on(
    vm: *mut Manager,
    store: u64,
    slots: u64,
    priority: i32,
    heap: *mut c_void,
    heap_bytes: usize,
) -> Status {
    let swap_on = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let needed = heap::needed_for_swap(slots).ok_or(Status::Argument)?;
        if heap.is_null() || store >> 63 != 0 {
            return Err(Status::Argument);
        }
        if needed > heap_bytes {
            return Err(Status::OutOfMemory);
        }
        // SAFETY: as above; the area lives there until the manager is destroyed.
        let using = unsafe { Using::new(heap.cast(), heap_bytes) }.ok_or(Status::Busy)?;
        let area = SwapArea {
            priority,
            ..SwapArea::new(store, slots)
        };
        let added = manager.vm.swap_on(area);
        drop(using);
        added.map_err(|error| match error {
            SwapOnError::LeftOut => Status::NotInDesign,
            SwapOnError::TooMany => Status::TooMany,
            SwapOnError::BadSize => Status::Argument,
            SwapOnError::InUse => Status::InUse,
        })
    };
    Status::of(swap_on())
}

/// Brings back everything that a swap area holds, and writes nothing there any more, unless
/// vellum_swap_on() adds it again. VELLUM_STATUS_NO_OBJECT if the store is no area; after another
/// failure it is used on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_swap_off(vm: *mut Manager, store: u64) -> Status {
    let swap_off = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        manager.vm.swap_off(store).map_err(|error| match error {
            SwapOffError::NoArea => Status::NoObject,
            SwapOffError::OutOfMemory => Status::OutOfMemory,
            SwapOffError::Io => Status::Io,
            SwapOffError::InUse => Status::InUse,
        })
    };
    Status::of(swap_off())
}
