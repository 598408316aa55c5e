//! The kernel's perf events: opening them and draining their ring buffers.
//!
//! All unsafe code of the recorder that concerns perf is here. A [`Ring`] is
//! drained by one thread at a time (`&mut self`); the kernel is the other side.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Event types of `perf_event_attr::type`.
pub const TYPE_SOFTWARE: u32 = 1;
/// See [`TYPE_SOFTWARE`].
pub const TYPE_TRACEPOINT: u32 = 2;
/// A software event that never fires; it carries the side-band records.
pub const SW_DUMMY: u64 = 9;
/// A software event that carries what BPF programs write.
pub const SW_BPF_OUTPUT: u64 = 10;

/// Bits of `perf_event_attr::sample_type`.
pub const SAMPLE_TID: u64 = 1 << 1;
/// See [`SAMPLE_TID`].
pub const SAMPLE_TIME: u64 = 1 << 2;
/// See [`SAMPLE_TID`].
pub const SAMPLE_RAW: u64 = 1 << 10;

/// Flag bits of `perf_event_attr`.
pub mod flag {
    pub const DISABLED: u64 = 1;
    pub const MMAP: u64 = 1 << 8;
    pub const COMM: u64 = 1 << 9;
    pub const TASK: u64 = 1 << 13;
    pub const WATERMARK: u64 = 1 << 14;
    pub const MMAP_DATA: u64 = 1 << 17;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const MMAP2: u64 = 1 << 23;
    pub const COMM_EXEC: u64 = 1 << 24;
    pub const USE_CLOCKID: u64 = 1 << 25;
    pub const CONTEXT_SWITCH: u64 = 1 << 26;
}

const OPEN_CLOEXEC: u64 = 8;
const IOC_ENABLE: u64 = 0x2400;
const IOC_SET_OUTPUT: u64 = 0x2405;
const IOC_SET_FILTER: u64 = 0x4008_2406;

/// `struct perf_event_attr`, version 5 of its layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Attr {
    pub kind: u32,
    size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    read_format: u64,
    pub flags: u64,
    /// Bytes in the buffer after which the reader is woken.
    pub wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    pub clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

/// Every task, for [`perf_event_open`](open).
const ANY_TASK: libc::pid_t = -1;

/// Opens an event of every task on `cpu`.
pub fn open(attr: &Attr, cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = *attr;
    attr.size = size_of::<Attr>() as u32;
    // SAFETY: the attribute outlives the call and states its own size; the
    // call takes no other pointer.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &attr as *const Attr,
            ANY_TASK,
            cpu as libc::c_int,
            -1 as libc::c_int,
            OPEN_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Lets an event that was opened disabled begin.
pub fn enable(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open; the request takes an integer.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), IOC_ENABLE as _, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sends the records of `event` to the ring of `target`.
pub fn set_output(event: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are open; the request takes an integer.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_OUTPUT as _, target.as_raw_fd()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets the kernel drop the tracepoint's events that do not match `filter`.
pub fn set_filter(event: &OwnedFd, filter: &str) -> io::Result<()> {
    let text = std::ffi::CString::new(filter)?;
    // SAFETY: the text is NUL-terminated and outlives the call.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_FILTER as _, text.as_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Offsets in the control page that precedes a ring's data.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const CONTROL_BYTES: usize = 4096;

/// A mapped ring buffer: one control page and `size` bytes of data.
pub struct Ring {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to this value alone and is valid in every thread;
// the kernel's accesses go through the atomic head and tail.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `event` with `size` bytes of data, a power of two.
    pub fn map(event: &OwnedFd, size: usize) -> io::Result<Ring> {
        assert!(size.is_power_of_two() && size >= CONTROL_BYTES);
        // SAFETY: a fresh shared mapping at an address the kernel chooses.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                CONTROL_BYTES + size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("mmap does not map page 0 unasked");
        Ok(Ring { base, size })
    }

    /// Appends every complete record to `out` and gives the space back.
    /// Returns the number of bytes appended.
    pub fn drain(&mut self, out: &mut Vec<u8>) -> usize {
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        // Only this side writes the tail.
        let tail = self.position(DATA_TAIL).load(Ordering::Relaxed);
        let length = head.wrapping_sub(tail) as usize;
        let begin = tail as usize & (self.size - 1);
        let first = length.min(self.size - begin);
        for (offset, length) in [(begin, first), (0, length - first)] {
            // SAFETY: `offset + length <= size`, inside the mapping. The kernel
            // does not write between tail and head before the tail moves on.
            let bytes = unsafe {
                let data = self.base.as_ptr().add(CONTROL_BYTES + offset);
                std::slice::from_raw_parts(data, length)
            };
            out.extend_from_slice(bytes);
        }
        self.position(DATA_TAIL).store(head, Ordering::Release);
        length
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped, the fields are 8-byte aligned, and
        // the kernel accesses them as single words.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; no reference into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), CONTROL_BYTES + self.size) };
    }
}
