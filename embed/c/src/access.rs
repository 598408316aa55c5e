//! Memory of programs, read and written by the kernel.

use core::ffi::c_void;

use vellum::addr::Pfn;
use vellum::space::{PinError, PinnedPages, UpdateError};

use crate::manager::{Manager, Out, named, page_at};
use crate::objects::{bytes_at, counted, room_at};
use crate::spaces::{Space, access_of};
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
        // SAFETY: the head of the header, and what is asked for above.
        let buffer = unsafe { room_at(buffer, bytes)? };
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
        // SAFETY: the head of the header, and what is asked for above.
        let buffer = unsafe { bytes_at(buffer, bytes)? };
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
        // SAFETY: the head of the header, and what is asked for above.
        let buffer = unsafe { room_at(buffer, bytes)? };
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

/// Frames from C: one is a frame's number.
fn frames_at(frames: *mut u32, count: usize) -> Result<*mut Pfn, Status> {
    let fits = count <= isize::MAX as usize / size_of::<u32>();
    (!frames.is_null() && fits)
        .then_some(frames.cast())
        .ok_or(Status::Argument)
}

/// Faults in the `count` pages from `address` on, for VELLUM_READ, VELLUM_WRITE or
/// VELLUM_EXECUTE, and pins their frames, whose numbers go to `frames`: for a device that reads or
/// writes them. A pinned frame stays what the space sees there, and stays allocated, until
/// vellum_unpin_pages(), whatever happens to its mapping. After a failure nothing is pinned.
/// VELLUM_STATUS_TOO_MANY if a page has as many pins as can be counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_pin_pages(
    vm: *mut Manager,
    space: Space,
    address: u64,
    access: u32,
    frames: *mut u32,
    count: usize,
) -> Status {
    let pin = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let (start, access) = (page_at(address)?, access_of(access)?);
        let frames = frames_at(frames, count)?;
        // SAFETY: as above; a frame is a number (`Pfn` is transparent).
        let frames = unsafe { core::slice::from_raw_parts_mut(frames, count) };
        frames.fill(Pfn::NONE);
        let space = manager.vm.space(space.id());
        match space.pin_pages(start, access, frames) {
            Ok(pinned) => {
                pinned.into_frames();
                Ok(())
            }
            Err(PinError::Fault(error)) => Err(error.into()),
            Err(PinError::TooManyPins) => Err(Status::TooMany),
        }
    };
    Status::of(pin())
}

/// Ends pins that vellum_pin_pages() of this manager made, each once, in any order and number. No
/// device uses the frames any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_unpin_pages(
    vm: *mut Manager,
    frames: *const u32,
    count: usize,
) -> Status {
    let unpin = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let frames = frames_at(frames.cast_mut(), count)?;
        // SAFETY: as in `vellum_pin_pages`, which pinned them, as is asked for above.
        drop(unsafe {
            let frames = core::slice::from_raw_parts(frames, count);
            PinnedPages::from_frames(&manager.vm, frames)
        });
        Ok(())
    };
    Status::of(unpin())
}
