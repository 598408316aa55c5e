//! Files and shared memory.

use core::ffi::c_void;

use vellum::ObjectId;
use vellum::object::Seals;
use vellum::space::{Allocation, FileRequest, ReadRequest, WriteRequest};

use crate::manager::{Manager, Out, named};
use crate::status::Status;

/// Names a file or shared memory. All bits are zero in no name.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Object {
    /// To be kept and compared, and for nothing else.
    pub bits: u64,
}

impl Object {
    pub(crate) fn id(self) -> ObjectId {
        ObjectId::from_bits(self.bits)
    }

    pub(crate) fn of(id: ObjectId) -> Object {
        Object { bits: id.to_bits() }
    }
}

/// Makes an object for a file of `bytes` bytes in the backing store with the number `store`,
/// which is less than 2^63.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_file_create(
    vm: *mut Manager,
    store: u64,
    bytes: u64,
    object: *mut Object,
) -> Status {
    let create = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(object)?) };
        if store >> 63 != 0 {
            return Err(Status::Argument);
        }
        out.set(Object::of(
            manager
                .vm
                .create_file(FileRequest::stored(store, bytes))?
                .id(),
        ));
        Ok(())
    };
    Status::of(create())
}

/// Makes shared memory of `bytes` bytes, which are zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_shared_memory_create(
    vm: *mut Manager,
    bytes: u64,
    object: *mut Object,
) -> Status {
    // SAFETY: the head of the header.
    unsafe { create_memory(vm, bytes, FileRequest::shared_memory(bytes), object) }
}

/// Makes shared memory of `bytes` bytes as `request` says.
///
/// # Safety
/// As the head of the header says.
unsafe fn create_memory(
    vm: *mut Manager,
    bytes: u64,
    request: FileRequest,
    object: *mut Object,
) -> Status {
    let create = || {
        // SAFETY: the caller's promise.
        let (manager, out) = unsafe { (named(vm)?, Out::new(object)?) };
        crate::manager::pages_of(bytes)?;
        out.set(Object::of(manager.vm.create_file(request)?.id()));
        Ok(())
    };
    Status::of(create())
}

/// No more seals.
pub const VELLUM_SEAL_SEAL: u32 = 1;
/// It does not get shorter.
pub const VELLUM_SEAL_SHRINK: u32 = 2;
/// It does not get longer.
pub const VELLUM_SEAL_GROW: u32 = 4;
/// Its content stays.
pub const VELLUM_SEAL_WRITE: u32 = 8;
/// Its content stays, but for what those store who have it mapped.
pub const VELLUM_SEAL_FUTURE_WRITE: u32 = 16;
/// Whether it may be executed stays; kept for the caller.
pub const VELLUM_SEAL_EXEC: u32 = 32;

// The core's numbers are these.
const _: () = assert!(
    VELLUM_SEAL_SEAL == Seals::SEAL.0
        && VELLUM_SEAL_SHRINK == Seals::SHRINK.0
        && VELLUM_SEAL_GROW == Seals::GROW.0
        && VELLUM_SEAL_WRITE == Seals::WRITE.0
        && VELLUM_SEAL_FUTURE_WRITE == Seals::FUTURE_WRITE.0
        && VELLUM_SEAL_EXEC == Seals::EXEC.0
);

/// Pages are made, and the object gets longer if need be.
pub const VELLUM_ALLOCATE: u32 = 0;
/// Pages are made, and the length stays.
pub const VELLUM_ALLOCATE_KEEP_SIZE: u32 = 1;
/// Bytes are zeroed, pages made, and the object gets longer if need be.
pub const VELLUM_ALLOCATE_ZERO: u32 = 2;
/// Bytes are zeroed, pages made, and the length stays.
pub const VELLUM_ALLOCATE_ZERO_KEEP_SIZE: u32 = 3;
/// Whole pages go, and parts of pages are zeroed (FALLOC_FL_PUNCH_HOLE); the length stays.
pub const VELLUM_ALLOCATE_HOLE: u32 = 4;
/// Whole pages of memory are taken out, and what follows moves to their place
/// (FALLOC_FL_COLLAPSE_RANGE).
pub const VELLUM_ALLOCATE_COLLAPSE: u32 = 5;
/// What is there moves back, and leaves a hole of whole pages (FALLOC_FL_INSERT_RANGE).
pub const VELLUM_ALLOCATE_INSERT: u32 = 6;

/// As vellum_shared_memory_create(), and vellum_object_seal() may seal it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_sealable_memory_create(
    vm: *mut Manager,
    bytes: u64,
    object: *mut Object,
) -> Status {
    let request = FileRequest::shared_memory(bytes).sealable();
    // SAFETY: the head of the header.
    unsafe { create_memory(vm, bytes, request, object) }
}

/// Adds seals, VELLUM_SEAL_SHRINK and so on. VELLUM_STATUS_SEALED if there are to be no more,
/// VELLUM_STATUS_BUSY if somebody may store to what is to be sealed against that. The object may be
/// sealed then: VELLUM_STATUS_SEALED of calls that break what a seal promises.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_seal(
    vm: *mut Manager,
    object: Object,
    seals: u32,
) -> Status {
    let seal = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        Ok(manager.vm.file(object.id()).seal(Seals(seals))?)
    };
    Status::of(seal())
}

/// The seals of an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_seals(
    vm: *mut Manager,
    object: Object,
    seals: *mut u32,
) -> Status {
    let tell = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(seals)?) };
        out.set(manager.vm.file(object.id()).stats()?.seals.0);
        Ok(())
    };
    Status::of(tell())
}

/// Has pages of an object made, zeroed, dropped or moved: VELLUM_ALLOCATE and so on. Of a file in a
/// backing store bytes can be zeroed and dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_allocate(
    vm: *mut Manager,
    object: Object,
    how: u32,
    offset: u64,
    bytes: u64,
) -> Status {
    let allocate = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let file = manager.vm.file(object.id());
        let how = match how {
            VELLUM_ALLOCATE => Allocation::Extend,
            VELLUM_ALLOCATE_KEEP_SIZE => Allocation::KeepSize,
            VELLUM_ALLOCATE_ZERO => Allocation::Zero,
            VELLUM_ALLOCATE_ZERO_KEEP_SIZE => Allocation::ZeroKeepSize,
            VELLUM_ALLOCATE_COLLAPSE => Allocation::Collapse,
            VELLUM_ALLOCATE_INSERT => Allocation::Insert,
            VELLUM_ALLOCATE_HOLE => return Ok(file.punch_hole(offset, bytes)?),
            _ => return Err(Status::Argument),
        };
        Ok(file.allocate(how, offset, bytes)?)
    };
    Status::of(allocate())
}

/// Who made the object is done with it. It ends with its last mapping; what was stored to a
/// file is written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_release(vm: *mut Manager, object: Object) -> Status {
    let release = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        Ok(manager.vm.file(object.id()).release()?)
    };
    Status::of(release())
}

/// A call that returns a number, to a place that may be missing.
///
/// # Safety
/// As for all calls from C.
pub(crate) unsafe fn counted<T>(
    vm: *mut Manager,
    place: *mut T,
    call: impl FnOnce(&Manager) -> Result<T, Status>,
) -> Status {
    let call = || {
        // SAFETY: the caller's promise.
        let (manager, out) = unsafe { (named(vm)?, Out::new(place)) };
        let count = call(manager)?;
        if let Ok(out) = out {
            out.set(count);
        }
        Ok(())
    };
    Status::of(call())
}

/// Writes what was stored to a file to its backing store. `pages`, which may be null, gets
/// how many pages that were. Of a failure, those before were written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_sync(
    vm: *mut Manager,
    object: Object,
    pages: *mut u64,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        counted(vm, pages, |manager| {
            Ok(manager.vm.file(object.id()).sync()?)
        })
    }
}

/// The bytes of an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_size(
    vm: *mut Manager,
    object: Object,
    bytes: *mut u64,
) -> Status {
    let size = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(bytes)?) };
        out.set(manager.vm.file(object.id()).size()?);
        Ok(())
    };
    Status::of(size())
}

/// Makes an object longer or shorter. Pages past the end go, private copies of them too. If
/// the backing store does not discard what is cut off, the object is shorter all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_resize(
    vm: *mut Manager,
    object: Object,
    bytes: u64,
) -> Status {
    let resize = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        Ok(manager.vm.file(object.id()).set_size(bytes)?)
    };
    Status::of(resize())
}

/// Bytes from C, in one piece: nobody has more, and none if there is no place for them.
pub(crate) fn checked(buffer: *const c_void, bytes: usize) -> Result<*const u8, Status> {
    let fits = bytes <= isize::MAX as usize;
    (!buffer.is_null() && fits)
        .then_some(buffer.cast())
        .ok_or(Status::Argument)
}

/// The bytes of a buffer of C's that is written from.
///
/// # Safety
/// As the head of the header says of pointers; nobody stores there until the call has ended.
pub(crate) unsafe fn bytes_at<'a>(buffer: *const c_void, bytes: usize) -> Result<&'a [u8], Status> {
    let buffer = checked(buffer, bytes)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts(buffer, bytes) })
}

/// The bytes of a buffer of C's that is read to.
///
/// # Safety
/// As the head of the header says of pointers; nobody else uses the buffer until the call has ended,
/// and it is no memory of a program.
pub(crate) unsafe fn room_at<'a>(
    buffer: *mut c_void,
    bytes: usize,
) -> Result<&'a mut [u8], Status> {
    let buffer = checked(buffer, bytes)?.cast_mut();
    // SAFETY: the caller's promise. What was never written may be read: the buffer is the kernel's
    // memory, and C has no rule that Rust's compiler could see across the border.
    Ok(unsafe { core::slice::from_raw_parts_mut(buffer, bytes) })
}

/// Reads up to `bytes` bytes of an object, from byte `offset` on, into a buffer that nobody
/// else uses meanwhile, and that is no memory of a program. `done`, which may be null, gets how
/// many were read: fewer at the object's end only, or if a page could not be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_read(
    vm: *mut Manager,
    object: Object,
    offset: u64,
    buffer: *mut c_void,
    bytes: usize,
    done: *mut usize,
) -> Status {
    let read = |manager: &Manager| {
        // SAFETY: the head of the header, and what is asked for above.
        let buffer = unsafe { room_at(buffer, bytes)? };
        Ok(manager
            .vm
            .file(object.id())
            .read(ReadRequest::bytes(offset, &mut [buffer]))?)
    };
    // SAFETY: the head of the header.
    unsafe { counted(vm, done, read) }
}

/// Writes bytes to an object, from byte `offset` on, from a buffer that nobody stores to
/// meanwhile, and makes the object longer if need be. `done`, which may be null, gets how many
/// were written: fewer only if memory ran out or the backing store failed after others had
/// been.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_write(
    vm: *mut Manager,
    object: Object,
    offset: u64,
    buffer: *const c_void,
    bytes: usize,
    done: *mut usize,
) -> Status {
    let write = |manager: &Manager| {
        // SAFETY: the head of the header, and what is asked for above.
        let buffer = unsafe { bytes_at(buffer, bytes)? };
        Ok(manager
            .vm
            .file(object.id())
            .write(WriteRequest::bytes(offset, &[buffer]))?)
    };
    // SAFETY: the head of the header.
    unsafe { counted(vm, done, write) }
}
