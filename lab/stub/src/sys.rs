//! System calls of x86-64 Linux, by number.

use core::arch::asm;

pub const MMAP: usize = 9;
pub const MPROTECT: usize = 10;
pub const MUNMAP: usize = 11;
pub const RT_SIGACTION: usize = 13;
pub const CLOSE: usize = 3;
pub const MREMAP: usize = 25;
pub const MADVISE: usize = 28;
pub const EXIT: usize = 60;
pub const WAIT4: usize = 61;
pub const KILL: usize = 62;
pub const FTRUNCATE: usize = 77;
pub const GETPPID: usize = 110;
pub const PRCTL: usize = 157;
pub const FUTEX: usize = 202;
pub const SET_TID_ADDRESS: usize = 218;
pub const CLOCK_GETTIME: usize = 228;
pub const EXIT_GROUP: usize = 231;
pub const OPENAT: usize = 257;
pub const DUP3: usize = 292;
pub const PREADV: usize = 295;
pub const PWRITEV: usize = 296;
pub const EXECVEAT: usize = 322;
pub const CLOSE_RANGE: usize = 436;

/// A system call with up to six arguments: its result, or `-errno`.
///
/// # Safety
/// What the call does to memory must leave everything valid that is used later.
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the kernel keeps every register but those named; the caller answers
    // for what the call does.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
