//! Memory of programs, read and written by the kernel.

use core::ffi::c_void;

use vellum::space::UpdateError;

use crate::manager::{Manager, Out, named};
use crate::objects::{checked, counted};
use crate::spaces::Space;
use crate::status::Status;

/// Whether the rights of regions count.
pub const VELLUM_CHECKED: u32 = 0;
/// They do not: for debuggers. All that is mapped can be read, and private memory written, whose
/// pages are copied where others see them.
pub const VELLUM_FORCED: u32 = 1;

fn is_forced(rights: u32) -> Result<bool, Status> {
    match rights {
        VELLUM_CHECKED => Ok(false),
        VELLUM_FORCED => Ok(true),
        _ => Err(Status::Argument),
    }
}

/// Copies memory of a program to a buffer that nobody else uses meanwhile, and that is no memory
/// of a program. Pages are faulted in. `rights` is VELLUM_CHECKED or VELLUM_FORCED. `done`, which may
/// be null, gets how many bytes were copied: fewer than `bytes` if a page could not be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_memory_read(
    vm: *mut Manager,
    space: Space,
    address: u64,
    buffer: *mut c_void,
    bytes: usize,
    rights: u32,
    done: *mut usize,
) -> Status {
    let read = |manager: &Manager| {
        let buffer = checked(buffer, bytes)?.cast_mut();
        // SAFETY: the head of the header, and what is asked for above.
        let buffer = unsafe { core::slice::from_raw_parts_mut(buffer, bytes) };
        let space = manager.vm.space(space.id());
        Ok(match is_forced(rights)? {
            true => space.read_forced(address, buffer)?,
            false => space.read(address, buffer)?,
        })
    };
    // SAFETY: the head of the header.
    unsafe { counted(vm, done, read) }
}

/// Copies a buffer that nobody stores to meanwhile to memory of a program, as its own stores
/// would. `rights` is VELLUM_CHECKED or VELLUM_FORCED. `done`, which may be null, gets how many bytes
/// were copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_memory_write(
    vm: *mut Manager,
    space: Space,
    address: u64,
    buffer: *const c_void,
    bytes: usize,
    rights: u32,
    done: *mut usize,
) -> Status {
    let write = |manager: &Manager| {
        let buffer = checked(buffer, bytes)?;
        // SAFETY: the head of the header, and what is asked for above.
        let buffer = unsafe { core::slice::from_raw_parts(buffer, bytes) };
        let space = manager.vm.space(space.id());
        Ok(match is_forced(rights)? {
            true => space.write_forced(address, buffer)?,
            false => space.write(address, buffer)?,
        })
    };
    // SAFETY: the head of the header.
    unsafe { counted(vm, done, write) }
}

/// Copies a string of a program that ends with a zero byte. `length`, which may be null, gets
/// its length without that byte, or `bytes` if the buffer has no room for all of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_memory_read_string(
    vm: *mut Manager,
    space: Space,
    address: u64,
    buffer: *mut c_void,
    bytes: usize,
    length: *mut usize,
) -> Status {
    let read = |manager: &Manager| {
        let buffer = checked(buffer, bytes)?.cast_mut();
        // SAFETY: the head of the header, and what is asked for above.
        let buffer = unsafe { core::slice::from_raw_parts_mut(buffer, bytes) };
        let space = manager.vm.space(space.id());
        Ok(space.read_string(address, buffer)?)
    };
    // SAFETY: the head of the header.
    unsafe { counted(vm, length, read) }
}

/// Puts `desired` in the place of a 4-byte word of a program if it is `*expected`, in one atomic
/// step; otherwise `*expected` gets what it is, and the answer is VELLUM_STATUS_OK as well: what
/// futexes are made of. VELLUM_STATUS_ARGUMENT if the address is no multiple of 4.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_memory_compare_exchange(
    vm: *mut Manager,
    space: Space,
    address: u64,
    expected: *mut u32,
    desired: u32,
) -> Status {
    let exchange = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(expected)?) };
        // SAFETY: it is not null, and the head of the header says the rest.
        let expected = unsafe { expected.read() };
        let space = manager.vm.space(space.id());
        let updated = space.update_word(address, |now| (now == expected).then_some(desired));
        match updated {
            Ok(Ok(old) | Err(old)) => out.set(old),
            Err(UpdateError::Unaligned) => return Err(Status::Argument),
            Err(UpdateError::Fault(error)) => return Err(error.into()),
        }
        Ok(())
    };
    Status::of(exchange())
}
