//! The flags with which tasks are created.
//!
//! Flags that say what is shared are those recorded. Those about namespaces,
//! tracing and thread-local storage are left out, and so is `CLONE_PARENT`: they
//! are not about memory, and some would need privileges.
//!
//! With `CLONE_VFORK` the kernel stops the parent until the child has left its
//! memory. A trace in which the parent does something before that (its events were
//! cut, or the child was killed) would stop the replay for good; there the flag is
//! left out, too.

use crate::linux::LinuxError;
use vellum_trace::{EventKind, TraceReader};

/// The signal at the end of a process.
const SIGCHLD: u64 = 17;
pub(super) const CLONE_VFORK: u64 = 0x4000;
pub(super) const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_VM: u64 = 0x100;
const CLONE_FS: u64 = 0x200;
const CLONE_FILES: u64 = 0x400;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_SYSVSEM: u64 = 0x4_0000;
const CLONE_IO: u64 = 0x8000_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;

const KEPT: u64 = CLONE_VM
    | CLONE_FS
    | CLONE_FILES
    | CLONE_SIGHAND
    | CLONE_VFORK
    | CLONE_THREAD
    | CLONE_SYSVSEM
    | CLONE_IO;

/// The flags for a task that was created with `recorded`.
pub(super) fn flags(recorded: u64, loose: bool) -> u64 {
    let mut flags = recorded & KEPT;
    if loose {
        flags &= !CLONE_VFORK;
    }
    // The kernel demands these of each other; a recording has them together.
    if flags & CLONE_THREAD != 0 {
        flags |= CLONE_SIGHAND;
    }
    if flags & CLONE_SIGHAND != 0 {
        flags |= CLONE_VM;
    }
    let signal = if flags & CLONE_THREAD != 0 {
        0
    } else {
        SIGCHLD
    };
    flags | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | signal
}

/// By task: it was created with `CLONE_VFORK`, but its parent did not wait for it.
pub(super) fn loosened(trace: &TraceReader, tasks: usize) -> Result<Vec<bool>, LinuxError> {
    let mut loosened = vec![false; tasks];
    // Who keeps a task waiting, and whom it keeps.
    let mut waits_for: Vec<Option<u32>> = vec![None; tasks];
    let mut keeps: Vec<Option<u32>> = vec![None; tasks];
    for event in trace.events() {
        let event = event?;
        let task = event.task.0 as usize;
        if let Some(child) = waits_for[task].take() {
            loosened[child as usize] = true;
            keeps[child as usize] = None;
        }
        match event.kind {
            EventKind::Create { child, clone_flags } if clone_flags & CLONE_VFORK != 0 => {
                waits_for[task] = Some(child.0);
                keeps[child.0 as usize] = Some(event.task.0);
            }
            EventKind::Exec { .. } | EventKind::Exit => {
                if let Some(parent) = keeps[task].take() {
                    waits_for[parent as usize] = None;
                }
            }
            _ => {}
        }
    }
    // Where the recording ends first, the parent would wait at the end.
    for child in waits_for.into_iter().flatten() {
        loosened[child as usize] = true;
    }
    Ok(loosened)
}
