//! Windows that bite: each is a mapping of its own, at an address where nothing is while
//! the window is closed. Who keeps a pointer beyond a window gets a segmentation fault.
//!
//! Each opening and closing is a system call, so this is for tests and verification. The
//! arena must be shared memory ([`Arena::shared`]), whose pages can be mapped twice.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use vellum::platform::{CpuId, WindowSlot};

use crate::arena::Arena;

/// The windows of all CPUs of a machine.
#[derive(Debug)]
pub(crate) struct BitingWindows {
    arena: Arc<Arena>,
    start: NonNull<u8>,
    bytes: usize,
    frame_bytes: usize,
}

// SAFETY: the addresses are used for system calls on mappings of this value alone; who
// uses the bytes of a window is settled by the CPU that it belongs to.
unsafe impl Send for BitingWindows {}
// SAFETY: as above.
unsafe impl Sync for BitingWindows {}

impl BitingWindows {
    /// Closed windows for `cpus` CPUs, to frames of `frame_bytes` bytes of `arena`.
    ///
    /// # Errors
    /// The arena is not shared memory, or the host refused the addresses.
    pub(crate) fn new(arena: Arc<Arena>, cpus: usize, frame_bytes: usize) -> io::Result<Self> {
        if arena.file().is_none() {
            let text = "windows that bite need an arena made by Arena::shared";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let bytes = cpus * WindowSlot::COUNT * frame_bytes;
        // SAFETY: a new mapping without access at an address of the host's choice.
        let start = unsafe { map_nothing(std::ptr::null_mut(), bytes, 0) }?;
        Ok(BitingWindows {
            arena,
            start,
            bytes,
            frame_bytes,
        })
    }

    fn address(&self, cpu: CpuId, slot: WindowSlot) -> *mut u8 {
        let number = usize::from(cpu.0) * WindowSlot::COUNT + slot.index();
        debug_assert!(number * self.frame_bytes < self.bytes, "no such CPU");
        self.start.as_ptr().wrapping_add(number * self.frame_bytes)
    }

    /// Maps the frame at byte `offset` of the arena.
    ///
    /// # Panics
    /// If the host refuses: it has too many mappings, or no memory for page tables.
    pub(crate) fn open(&self, cpu: CpuId, slot: WindowSlot, offset: usize) -> NonNull<u8> {
        let address = self.address(cpu, slot);
        let file = self.arena.file().map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: replaces the mapping of this closed window, in which nobody has
        // anything, by a frame of the arena, which the machine has claimed.
        let mapped = unsafe {
            libc::mmap(
                address.cast(),
                self.frame_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file,
                offset as libc::off_t,
            )
        };
        match NonNull::new(mapped.cast::<u8>()) {
            Some(mapped) if mapped.as_ptr() == address => mapped,
            _ => panic!("the host refused a window: {}", io::Error::last_os_error()),
        }
    }

    /// Takes the mapping away.
    ///
    /// # Panics
    /// If the host refuses.
    pub(crate) fn close(&self, cpu: CpuId, slot: WindowSlot) {
        let address = self.address(cpu, slot);
        // SAFETY: the window is this value's, and whoever opened it is done with it.
        let closed = unsafe { map_nothing(address, self.frame_bytes, libc::MAP_FIXED) };
        if let Err(error) = closed {
            panic!("the host did not close a window: {error}");
        }
    }
}

impl Drop for BitingWindows {
    fn drop(&mut self) {
        // SAFETY: the addresses are this value's, and no window is open any more. A
        // failure leaves them mapped, which harms nobody.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Maps `bytes` bytes without access.
///
/// # Safety
/// As for `mmap` with these `flags` and that address: nobody uses what was there.
unsafe fn map_nothing(
    address: *mut u8,
    bytes: usize,
    flags: libc::c_int,
) -> io::Result<NonNull<u8>> {
    // SAFETY: the caller's promise.
    let mapped = unsafe {
        libc::mmap(
            address.cast(),
            bytes,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(mapped.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}
