//! What entering the kernel costs on this machine.
//!
//! A replay on the host enters the kernel for each fault and each call; the core in
//! a process does neither. How much that is, is measured in a process of its own:
//! * a system call: `getppid`, which does nothing;
//! * a trap: a page fault that the kernel answers at once, without looking for a
//!   region or a page. A call into the vsyscall page of x86-64, which cannot be
//!   executed, is one; the kernel recognises the address and does what the function
//!   there would do (`time`).

use vellum_results::linux::EntryCost;

use super::LinuxError;
use crate::host::forkfault::Helper;
use vellum_terminal::progress::Interrupt;

/// Measures what it costs.
///
/// # Errors
/// The process for it failed, or the user interrupted.
pub fn measure(helper: &Helper, interrupt: &Interrupt) -> Result<EntryCost, LinuxError> {
    let cost = helper.trap_cost(interrupt)?;
    let (trap_ns, trap_method) = match cost.fault_ns {
        Some(fault) => (fault, "page fault on the vsyscall page, answered at once"),
        None => (
            cost.syscall_ns,
            "not measurable (no vsyscall page): the system call's, which is a lower bound",
        ),
    };
    // To what is worth telling, and what a saved result gives back as it was.
    let rounded = |ns: f64| (ns * 10.0).round() / 10.0;
    Ok(EntryCost {
        syscall_ns: rounded(cost.syscall_ns),
        trap_ns: rounded(trap_ns),
        trap_method: trap_method.to_owned(),
    })
}
