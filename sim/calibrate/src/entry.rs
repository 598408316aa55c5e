//! What entering the kernel and returning costs.

use std::io;

use vellum_description::Time;

use crate::Effort;
use crate::host::{Host, pin};
use crate::rounds::{Rounds, nanoseconds};

/// Calls in a round.
const CALLS: u32 = 2000;

/// A system call that does nothing.
pub fn null_call() {
    // SAFETY: takes nothing and changes nothing.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// A page fault that the kernel answers at once, if this process can have one: a call
/// into the vsyscall page of x86-64. It is not executable; the kernel recognises the
/// address and does what the function there would do (`time`).
#[cfg(target_arch = "x86_64")]
pub fn answered_fault() -> Option<fn()> {
    /// Where the kernel's interface puts `time`.
    const TIME: usize = 0xffff_ffff_ff60_0400;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.contains("[vsyscall]").then_some(|| {
        // SAFETY: the page is there, so that the address is the entry of a
        // function with the C calling convention, fixed for good, which takes
        // a pointer that may be null and returns a number.
        let time = unsafe { std::mem::transmute::<usize, extern "C" fn(*mut i64) -> i64>(TIME) };
        let _ = time(std::ptr::null_mut());
    })
}

/// A page fault that the kernel answers at once: this architecture has none.
#[cfg(not(target_arch = "x86_64"))]
pub fn answered_fault() -> Option<fn()> {
    None
}

fn calls(effort: Effort, call: impl Fn()) -> Rounds {
    Rounds::take(effort, 51, || {
        let all = nanoseconds(|| (0..CALLS).for_each(|_| call()));
        all / f64::from(CALLS)
    })
}

pub(crate) fn syscall(host: &Host, effort: Effort) -> io::Result<Time> {
    pin(host.first().cpu)?;
    Ok(calls(effort, null_call).time("getppid"))
}

pub(crate) fn trap(host: &Host, effort: Effort) -> io::Result<Option<Time>> {
    pin(host.first().cpu)?;
    let trap = answered_fault().map(|fault| calls(effort, fault));
    Ok(trap.map(|trap| trap.time("a page fault on the vsyscall page, answered at once")))
}
