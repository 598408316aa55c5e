//! Files as somebody has them open: read ahead of, and told of errors of writing back.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use vellum::space::{OpenFile as Open, ReadRequest, WriteRequest};

use crate::manager::{Manager, Out, named};
use crate::objects::{Object, bytes_at, counted, room_at};
use crate::status::Status;

/// Words of a `struct vellum_open_file`.
pub const VELLUM_OPEN_FILE_WORDS: usize = 8;

/// A file that somebody has open: what a kernel keeps beside the position, in memory of its own,
/// from vellum_open() to vellum_close(). It stays where it is. Threads may share it.
#[repr(C)]
pub struct OpenFile {
    /// For the library alone.
    pub words: [u64; VELLUM_OPEN_FILE_WORDS],
}

const _: () = assert!(size_of::<Open>() <= size_of::<OpenFile>());
const _: () = assert!(align_of::<Open>() <= align_of::<OpenFile>());

/// What C has open.
///
/// # Safety
/// It is null, or vellum_open() filled it in, and vellum_close() has not been called for it.
unsafe fn opened<'a>(file: *const OpenFile) -> Result<&'a Open, Status> {
    // SAFETY: the caller's promise: an `Open` lies there.
    unsafe { file.cast::<Open>().as_ref() }.ok_or(Status::Argument)
}

/// Opens an object: one user more. Syncs of it tell of errors of writing back from now on, and
/// of one before if nobody has been told of it yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_open(
    vm: *mut Manager,
    object: Object,
    file: *mut OpenFile,
) -> Status {
    let open = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        // SAFETY: as above; there is room for an `Open`.
        let place = unsafe { Out::new(file.cast::<MaybeUninit<Open>>())? };
        place.set(MaybeUninit::new(manager.vm.file(object.id()).open()?));
        Ok(())
    };
    Status::of(open())
}

/// Closes what was opened. The object ends with its last user; what was stored to a file is
/// written then. VELLUM_STATUS_BUSY if the file was opened by another manager, and stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_close(vm: *mut Manager, file: *mut OpenFile) -> Status {
    let close = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let place = file.cast::<Open>();
        if place.is_null() {
            return Err(Status::Argument);
        }
        // SAFETY: as for `opened`; what is not closed goes back.
        let file = unsafe { place.read() };
        manager.vm.close(file).map_err(|file| {
            // SAFETY: as above.
            unsafe { place.write(file) };
            Status::Busy
        })
    };
    Status::of(close())
}

/// As vellum_object_read(), of a file that is open: the pages that will be read next are read
/// ahead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_open_read(
    vm: *mut Manager,
    file: *const OpenFile,
    offset: u64,
    buffer: *mut c_void,
    bytes: usize,
    done: *mut usize,
) -> Status {
    let read = |manager: &Manager| {
        // SAFETY: the head of the header, and what vellum_object_read() asks for.
        let (buffer, file) = unsafe { (room_at(buffer, bytes)?, opened(file)?) };
        let file = file.on(&manager.vm);
        Ok(file.read(ReadRequest::bytes(offset, &mut [buffer]))?)
    };
    // SAFETY: the head of the header.
    unsafe { counted(vm, done, read) }
}

/// fsync: writes what was stored to a file that is open to its backing store, and tells once of
/// an error since it was opened or last synced (VELLUM_STATUS_IO). `pages`, which may be null,
/// gets how many pages were written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_open_sync(
    vm: *mut Manager,
    file: *const OpenFile,
    pages: *mut u64,
) -> Status {
    let sync = |manager: &Manager| {
        // SAFETY: the head of the header.
        let file = unsafe { opened(file)? };
        Ok(file.on(&manager.vm).sync()?)
    };
    // SAFETY: the head of the header.
    unsafe { counted(vm, pages, sync) }
}

/// Writes bytes at the end of an object: no other write comes between finding the end and
/// writing there. `offset`, which may be null, gets where they are; `done` as for
/// vellum_object_write().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_append(
    vm: *mut Manager,
    object: Object,
    buffer: *const c_void,
    bytes: usize,
    offset: *mut u64,
    done: *mut usize,
) -> Status {
    let write = |manager: &Manager| {
        // SAFETY: the head of the header, and what vellum_object_write() asks for.
        let (buffer, offset) = unsafe { (bytes_at(buffer, bytes)?, Out::new(offset)) };
        let file = manager.vm.file(object.id());
        let (start, written) = file.write(WriteRequest::append(&[buffer]))?;
        if let Ok(offset) = offset {
            offset.set(start);
        }
        Ok(written)
    };
    // SAFETY: the head of the header.
    unsafe { counted(vm, done, write) }
}
