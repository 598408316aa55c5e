//! Making and destroying a manager, and what all calls begin with.

use alloc::boxed::Box;
use core::ffi::{CStr, c_char};
use core::fmt::{self, Write};

use vellum::addr::{Geometry, Vpn};
use vellum::table::Format;
use vellum::{Design, Vm};

use crate::heap::{self, Using};
use crate::platform::{Machine, Platform};
use crate::status::Status;
use crate::{Paging, Rmap};

/// A manager.
pub struct Manager {
    pub(crate) vm: Vm<Machine, Paging, Rmap>,
    used: usize,
}

/// The manager that C passes.
///
/// # Safety
/// It is null, or a manager that lives as long as the call.
pub(crate) unsafe fn named<'a>(vm: *const Manager) -> Result<&'a Manager, Status> {
    // SAFETY: the caller's promise.
    unsafe { vm.as_ref() }.ok_or(Status::Argument)
}

/// Where a result goes, if there is a place for it.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// `place` is null, or can be written until this is used.
    pub(crate) unsafe fn new(place: *mut T) -> Result<Out<T>, Status> {
        match place.is_null() {
            true => Err(Status::Argument),
            false => Ok(Out(place)),
        }
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: promised to `new`.
        unsafe { self.0.write(value) }
    }
}

/// The page that begins at an address.
pub(crate) fn page_at(address: u64) -> Result<Vpn, Status> {
    let page = Vpn::of::<Paging>(address);
    (page.address::<Paging>() == address)
        .then_some(page)
        .ok_or(Status::Argument)
}

/// As many pages as there are bytes.
pub(crate) fn pages_of(bytes: u64) -> Result<u64, Status> {
    Ok(page_at(bytes)?.0)
}

/// A place for a message to C, which may be missing.
pub(crate) struct Message {
    text: *mut c_char,
    room: usize,
}

impl Message {
    /// Empties the place.
    ///
    /// # Safety
    /// `text` is null, or has room for `room` bytes until this is dropped.
    pub(crate) unsafe fn new(text: *mut c_char, room: usize) -> Message {
        let room = if text.is_null() { 0 } else { room };
        let message = Message { text, room };
        if message.room > 0 {
            // SAFETY: there is room for a byte.
            unsafe { message.text.write(0) }
        }
        message
    }

    pub(crate) fn say(mut self, what: impl fmt::Display) {
        // What does not fit is left out.
        let _ = write!(self, "{what}");
    }
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // A byte for the zero at the end.
        let fits = text.len().min(self.room.saturating_sub(1));
        // SAFETY: promised to `new`; `text` and `room` move on together.
        unsafe {
            self.text
                .copy_from_nonoverlapping(text.as_ptr().cast(), fits);
            self.text = self.text.wrapping_add(fits);
            if self.room > 0 {
                self.text.write(0);
            }
        }
        self.room -= fits;
        Ok(())
    }
}

/// Bytes of a page, and of a page frame.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_page_bytes() -> usize {
    Paging::FRAME_SIZE
}

/// The first address that programs cannot have. An entry of a root that maps this address or
/// a higher one is the kernel's.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_user_end() -> u64 {
    Paging::USER_END.address::<Paging>()
}

/// The bytes that vellum_create() needs for a platform and a design without reclaim; 0 if the
/// platform is not complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_heap_bytes(platform: *const Platform) -> usize {
    // SAFETY: the head of the header.
    unsafe { heap_bytes(platform, false) }
}

/// The same with `reclaim=on`: more for each frame, CPU and node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_heap_bytes_for_reclaim(platform: *const Platform) -> usize {
    // SAFETY: the head of the header.
    unsafe { heap_bytes(platform, true) }
}

/// # Safety
/// The platform is null, or as the head of the header says.
unsafe fn heap_bytes(platform: *const Platform, reclaims: bool) -> usize {
    // SAFETY: the caller's promise.
    let platform = unsafe { platform.as_ref() }.filter(|platform| platform.is_complete());
    let needed = platform.and_then(|platform| {
        // SAFETY: as above.
        let (_, frames) = unsafe { platform.frames() }.ok()?;
        heap::needed(platform, frames, reclaims)
    });
    needed.unwrap_or(0)
}

/// Makes a manager of a platform, which it copies, in `heap_bytes` bytes at `heap`, which it
/// uses until vellum_destroy(). Needs less than 16 KiB of stack, as all other calls do.
///
/// `design` may be null; or it chooses among the manager's options, as "fork=..." (docs/c.md).
/// Page tables and the reverse mapping are those that the library was built with, and naming
/// others is an error. `message` may be null: of an error it gets what is wrong, as a
/// string cut off to `message_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_create(
    platform: *const Platform,
    design: *const c_char,
    heap: *mut core::ffi::c_void,
    heap_bytes: usize,
    vm: *mut *mut Manager,
    message: *mut c_char,
    message_bytes: usize,
) -> Status {
    let create = || {
        // SAFETY: the head of the header, here and below.
        let (message, vm) = unsafe { (Message::new(message, message_bytes), Out::new(vm)?) };
        // SAFETY: as above.
        let platform = unsafe { platform.as_ref() }.ok_or(Status::Argument)?;
        if !platform.is_complete() {
            message.say("the platform lacks a function, or its size, CPUs or nodes are wrong");
            return Err(Status::Argument);
        }
        // SAFETY: as above.
        let (memory, frames) = unsafe { platform.frames()? };
        if heap.is_null() {
            return Err(Status::Argument);
        }
        if !platform.has_addresses(memory) {
            message.say("a frame of the memory has no address: direct_map is wrong, or frame() returns null");
            return Err(Status::Argument);
        }
        // Reading the design takes memory, too.
        let is_less = |needed: Option<usize>| needed.is_none_or(|needed| needed > heap_bytes);
        if is_less(heap::needed(platform, frames, false)) {
            message.say("the heap is smaller than vellum_heap_bytes()");
            return Err(Status::OutOfMemory);
        }
        // SAFETY: as above; the manager lives there until it is destroyed.
        let using = unsafe { Using::new(heap.cast(), heap_bytes) }.ok_or(Status::Busy)?;
        // SAFETY: as above.
        let design = match unsafe { design_of(design) } {
            Ok(design) => design,
            Err(error) => {
                message.say(error);
                return Err(Status::Setup);
            }
        };
        if is_less(heap::needed(platform, frames, design.reclaim)) {
            message.say("the heap is smaller than vellum_heap_bytes_for_reclaim()");
            return Err(Status::OutOfMemory);
        }
        match Vm::new(Machine::new(*platform, memory), design) {
            Ok(made) => {
                let manager = Box::leak(Box::new(Manager { vm: made, used: 0 }));
                manager.used = using.used();
                vm.set(manager);
                Ok(())
            }
            Err(error) => {
                message.say(error);
                Err(Status::Setup)
            }
        }
    };
    Status::of(create())
}

/// The design that a string from C names.
///
/// # Safety
/// `text` is null or a string.
unsafe fn design_of(text: *const c_char) -> Result<Design, alloc::string::String> {
    let own = alloc::format!(
        "rmap={},format={}",
        <Rmap as vellum::rmap::ReverseMap>::NAME,
        Paging::NAME
    );
    let base = Design::parse(&own).map_err(|error| error.0)?;
    if text.is_null() {
        return Ok(base);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| "the design is not UTF-8")?;
    let design = Design::parse(&alloc::format!("{own},{text}")).map_err(|error| error.0)?;
    match design.rmap == base.rmap && design.format == base.format {
        true => Ok(design),
        false => Err(alloc::format!(
            "the library was built with {own}, and cannot be '{text}'"
        )),
    }
}

/// Destroys a manager. Its heap and the platform's memory are the kernel's again, whatever
/// they hold. No CPU may have one of its spaces loaded, and no call may be running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_destroy(vm: *mut Manager) -> Status {
    if vm.is_null() {
        return Status::Argument;
    }
    // SAFETY: the head of the header: it was made by `vellum_create`, and nobody uses it.
    unsafe { vm.drop_in_place() };
    Status::Ok
}

/// The bytes that a manager has taken of its heap; 0 if `vm` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_heap_used(vm: *const Manager) -> usize {
    // SAFETY: the head of the header.
    unsafe { named(vm) }.map_or(0, |manager| manager.used)
}
