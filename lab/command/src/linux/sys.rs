//! System calls of the driver.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// A file in memory without a name. `execute`: it will hold a program.
pub fn memory_file(name: &std::ffi::CStr, execute: bool) -> io::Result<File> {
    const MFD_EXEC: u32 = 0x10;
    let wanted = libc::MFD_CLOEXEC | if execute { MFD_EXEC } else { 0 };
    // Kernels before 6.3 do not know the flag, and need none.
    for flags in [wanted, libc::MFD_CLOEXEC] {
        // SAFETY: the name ends with a zero byte and outlives the call.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: the descriptor is new and owned by nobody else.
            return Ok(unsafe { File::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
    }
    Err(io::Error::last_os_error())
}

/// Wakes whoever waits for `word` in any process.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call, which does not write.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Waits until `word` is no longer `seen`, for `patience` at most. Whether it
/// changed has to be looked up: waits may end early.
pub fn wait(word: &AtomicU32, seen: u32, patience: Duration) {
    let time = libc::timespec {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_nsec: patience.subsec_nanos().into(),
    };
    // SAFETY: word and time outlive the call, which writes neither.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            seen,
            &raw const time,
        )
    };
}

/// A descriptor that becomes readable when process `pid` has ended.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    match fd {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new and owned by nobody else.
        _ => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
    }
}

/// Waits until `fd` is readable, for `patience` at most; whether it is.
pub fn readable(fd: &OwnedFd, patience: Duration) -> bool {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which outlives the call.
    let ready = unsafe { libc::poll(&mut entry, 1, patience.as_millis() as i32) };
    ready > 0
}

/// CPU time of all threads of process `pid`, the ended ones included, in
/// nanoseconds; also of a process that has ended and was not waited for. It is the
/// run time that the scheduler keeps, which `/proc/PID/schedstat` shows.
pub fn cpu_ns(pid: u32) -> Option<u64> {
    const CPUCLOCK_SCHED: i32 = 2;
    let clock = (!(pid as i32)) << 3 | CPUCLOCK_SCHED;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes `time`, which outlives the call.
    let read = unsafe { libc::clock_gettime(clock, &mut time) };
    (read == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Keeps the calling thread, and what it starts, on one CPU until it is dropped.
#[derive(Debug)]
pub struct Pinned {
    before: libc::cpu_set_t,
    /// The CPU.
    pub cpu: usize,
}

impl Pinned {
    /// Stays on the CPU where the thread is.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn here() -> io::Result<Pinned> {
        // SAFETY: an all-zero set is a valid, empty one.
        let (mut before, mut only): (libc::cpu_set_t, libc::cpu_set_t) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: takes nothing.
        let cpu = unsafe { libc::sched_getcpu() }.max(0) as usize;
        // SAFETY: both sets are of the stated size and outlive the calls; the CPU
        // is one of this machine's, and sets have room for 1024.
        let refused = unsafe {
            let got = libc::sched_getaffinity(0, bytes, &mut before);
            libc::CPU_SET(cpu % libc::CPU_SETSIZE as usize, &mut only);
            got != 0 || libc::sched_setaffinity(0, bytes, &only) != 0
        };
        match refused {
            true => Err(io::Error::last_os_error()),
            false => Ok(Pinned { before, cpu }),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the kernel gave, and outlives the call.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &self.before) };
    }
}

/// A shared mapping of a whole file, unmapped when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    bytes: usize,
}

impl Mapping {
    /// Maps the first `bytes` bytes of `file`.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn of(file: &File, bytes: usize) -> io::Result<Mapping> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                rights,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match start == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Mapping {
                start: start.cast(),
                bytes,
            }),
        }
    }

    /// The address of byte `offset`.
    ///
    /// # Panics
    /// It is beyond the mapping.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.bytes, "{offset} is beyond the mapping");
        self.start.wrapping_add(offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has an address in it any more:
        // what `at` gave is used only by the owner of the mapping.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
