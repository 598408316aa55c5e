//! Traps: what the processor does when something cannot go on, and what is done then.

use core::cell::UnsafeCell;

use vellum::addr::Access;

use super::cpu::{self, Cpu, KERNEL_CODE, KERNEL_DATA, USER_CODE, USER_DATA, cycles};
use super::{apic, flush};
use crate::check::report;
use crate::protocol::{BARE_PROBE, PROBE};
use crate::{calls, task, vm};

/// What a trap leaves on the task's stack, in the order that `boot.s` pushes.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct TrapFrame {
    sse: [u8; 512],
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rbp: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    rcx: u64,
    rbx: u64,
    rax: u64,
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

/// From the end of a stack to where a function expects it to begin.
pub const BELOW_STACK_END: u64 = 8;
/// Words that `switch_stacks` takes off a stack; the last is where it returns to.
pub const SWITCHED_WORDS: usize = 7;

const INTERRUPTS: u64 = 1 << 9;

impl TrapFrame {
    /// One that begins at `rip` with two arguments, in user mode or in the kernel.
    pub fn begin(rip: u64, rsp: u64, arguments: [u64; 2], user: bool) -> TrapFrame {
        // SAFETY: zero is a value of every field.
        let mut frame: TrapFrame = unsafe { core::mem::zeroed() };
        // The control words of x87 and SSE as after reset: all exceptions masked.
        frame.sse[..2].copy_from_slice(&0x037fu16.to_le_bytes());
        frame.sse[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        [frame.rdi, frame.rsi] = arguments;
        (frame.rip, frame.rsp) = (rip, rsp);
        (frame.cs, frame.ss, frame.rflags) = match user {
            true => (USER_CODE, USER_DATA, 2 | INTERRUPTS),
            false => (KERNEL_CODE, KERNEL_DATA, 2),
        };
        frame
    }

    /// The number of a call, and its arguments.
    pub fn asked(&self) -> (u64, [u64; 6]) {
        (
            self.rax,
            [self.rdi, self.rsi, self.rdx, self.rcx, self.r8, self.r9],
        )
    }

    /// The answer to a call.
    pub fn answer(&mut self, answer: u64) {
        self.rax = answer;
    }

    fn is_user(&self) -> bool {
        self.cs & 3 != 0
    }
}

const PAGE_FAULT: u64 = 14;
const DOUBLE_FAULT: usize = 8;
const CALL: u64 = 0x80;

struct Vectors(UnsafeCell<[u128; 256]>);

// SAFETY: written by the first CPU before others start.
unsafe impl Sync for Vectors {}

static VECTORS: Vectors = Vectors(UnsafeCell::new([0; 256]));

/// Fills the table of vectors; once.
pub fn init_vectors() {
    unsafe extern "C" {
        fn trap_vectors();
        fn trap_call();
    }
    let gate = |address: u64, user: bool, stack: u128| {
        let address = u128::from(address);
        let kind: u128 = if user { 0xee } else { 0x8e };
        address & 0xffff
            | u128::from(KERNEL_CODE) << 16
            | stack << 32
            | kind << 40
            | (address >> 16 & 0xffff) << 48
            | (address >> 32) << 64
    };
    // SAFETY: no other CPU runs, and no interrupt can come.
    let vectors = unsafe { &mut *VECTORS.0.get() };
    let first = trap_vectors as *const () as u64;
    for (number, vector) in vectors.iter_mut().take(48).enumerate() {
        // Where the stack itself may be what is wrong, another one is used.
        let stack = u128::from([2, DOUBLE_FAULT, 18].contains(&number));
        *vector = gate(first + 16 * number as u64, false, stack);
    }
    vectors[CALL as usize] = gate(trap_call as *const () as u64, true, 0);
}

/// Tells this processor where the table is.
pub fn load_vectors() {
    // SAFETY: the table is filled and never changes.
    unsafe { cpu::load_table(cpu::Table::Vectors, VECTORS.0.get() as u64, 4095) }
}

/// Every trap comes here, with interrupts off.
#[unsafe(no_mangle)]
extern "C" fn trap(frame: &mut TrapFrame) {
    match frame.vector {
        PAGE_FAULT => page_fault(frame),
        CALL => calls::call(frame),
        apic::FLUSH => {
            flush::answer();
            apic::end_of_interrupt();
        }
        apic::CLOCK => {
            apic::end_of_interrupt();
            if frame.is_user() {
                task::give_way();
            }
        }
        apic::WAKE => apic::end_of_interrupt(),
        apic::SPURIOUS => {}
        _ if frame.is_user() => {
            report::give_up(format_args!(
                "trap {} (error {:#x}) at {:#x}",
                frame.vector, frame.error, frame.rip
            ));
        }
        _ => lost(frame),
    }
}

/// The kernel itself trapped.
fn lost(frame: &TrapFrame) -> ! {
    panic!(
        "trap {} (error {:#x}, address {:#x}) in the kernel at {:#x}",
        frame.vector,
        frame.error,
        fault_address(),
        frame.rip
    )
}

fn fault_address() -> u64 {
    let address: u64;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, cr2", out(reg) address, options(nostack, nomem)) }
    address
}

fn page_fault(frame: &mut TrapFrame) {
    const WRITE: u64 = 2;
    const USER: u64 = 4;
    const RESERVED: u64 = 8;
    const FETCH: u64 = 16;
    let address = fault_address();
    if frame.error & USER == 0 || frame.error & RESERVED != 0 {
        lost(frame);
    }
    let access = match frame.error {
        error if error & FETCH != 0 => Access::Execute,
        error if error & WRITE != 0 => Access::Write,
        _ => Access::Read,
    };
    let task = task::current();
    if frame.r10 == BARE_PROBE {
        frame.rip = task.recover();
        return;
    }
    let Some(space) = task.space() else {
        lost(frame)
    };
    let start = cycles();
    let resolved = vm().space(space).fault(address, access);
    Cpu::this().counts.fault.add(cycles() - start);
    match resolved {
        Ok(_) => {}
        Err(_) if frame.r10 == PROBE => frame.rip = task.recover(),
        Err(error) => {
            report::give_up(format_args!(
                "{access:?} at {address:#x} by {:#x}: {error}",
                frame.rip
            ));
        }
    }
}
