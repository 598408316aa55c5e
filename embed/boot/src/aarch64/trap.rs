//! Traps: calls and faults of programs. Nothing else happens.

use core::arch::asm;

use vellum::addr::Access;

use super::cpu::{Cpu, cycles};
use crate::check::report;
use crate::protocol::{BARE_PROBE, PROBE};
use crate::{calls, task, vm};

/// What a trap leaves on the task's stack.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct TrapFrame {
    x: [u64; 31],
    sp: u64,
    elr: u64,
    spsr: u64,
    reserved: [u64; 2],
}

/// From the end of a stack to where a function expects it to begin.
pub const BELOW_STACK_END: u64 = 0;
/// Words that `switch_stacks` takes off a stack; the last is where it returns to.
pub const SWITCHED_WORDS: usize = 12;

/// EL0, and EL1 with its own stack; interrupts are masked.
const USER: u64 = 0x3c0;
const KERNEL: u64 = 0x3c5;

impl TrapFrame {
    /// One that begins at `rip` with two arguments, in user mode or in the kernel.
    pub fn begin(start: u64, stack: u64, arguments: [u64; 2], user: bool) -> TrapFrame {
        let mut x = [0; 31];
        x[..2].copy_from_slice(&arguments);
        TrapFrame {
            x,
            sp: stack,
            elr: start,
            spsr: if user { USER } else { KERNEL },
            reserved: [0; 2],
        }
    }

    /// The number of a call, and its arguments.
    pub fn asked(&self) -> (u64, [u64; 6]) {
        let x = &self.x;
        (x[8], [x[0], x[1], x[2], x[3], x[4], x[5]])
    }

    /// The answer to a call.
    pub fn answer(&mut self, answer: u64) {
        self.x[0] = answer;
    }
}

const CALL: u64 = 0x15;
const FETCH_FAULT: u64 = 0x20;
const DATA_FAULT: u64 = 0x24;

/// Every trap comes here; `kind` is 0 for one of a program that is no interrupt.
#[unsafe(no_mangle)]
extern "C" fn trap(frame: &mut TrapFrame, kind: u64) {
    let (syndrome, address): (u64, u64);
    // SAFETY: reads registers.
    unsafe {
        asm!("mrs {0}, esr_el1", "mrs {1}, far_el1", out(reg) syndrome, out(reg) address);
    }
    let class = syndrome >> 26;
    match class {
        _ if kind != 0 => lost(frame, syndrome, address),
        CALL => calls::call(frame),
        FETCH_FAULT | DATA_FAULT => page_fault(frame, syndrome, address),
        _ => report::give_up(format_args!("trap {class:#x} at {:#x}", frame.elr)),
    }
}

/// The kernel itself trapped.
fn lost(frame: &TrapFrame, syndrome: u64, address: u64) -> ! {
    panic!(
        "trap {syndrome:#x} (address {address:#x}) in the kernel at {:#x}",
        frame.elr
    )
}

fn page_fault(frame: &mut TrapFrame, syndrome: u64, address: u64) {
    const WRITE: u64 = 1 << 6;
    // Translation, access flag and permission faults; others are a broken machine.
    if !(4..16).contains(&(syndrome & 0x3f)) {
        lost(frame, syndrome, address);
    }
    let access = match syndrome >> 26 {
        FETCH_FAULT => Access::Execute,
        _ if syndrome & WRITE != 0 => Access::Write,
        _ => Access::Read,
    };
    let task = task::current();
    if frame.x[16] == BARE_PROBE {
        frame.elr = task.recover();
        return;
    }
    let Some(space) = task.space() else {
        lost(frame, syndrome, address)
    };
    let start = cycles();
    let resolved = vm().space(space).fault(address, access);
    Cpu::this().counts.fault.add(cycles() - start);
    match resolved {
        Ok(_) => {}
        Err(_) if frame.x[16] == PROBE => frame.elr = task.recover(),
        Err(error) => {
            report::give_up(format_args!(
                "{access:?} at {address:#x} by {:#x}: {error}",
                frame.elr
            ));
        }
    }
}
