//! The local interrupt controller: starting processors, interrupting them, and the clock.

use super::{direct, io};

/// Vector of the clock.
pub const CLOCK: u64 = 32;
/// Vector that asks for flushes to be answered.
pub const FLUSH: u64 = 33;
/// Vector that ends an idle processor's halt.
pub const WAKE: u64 = 34;
/// Vector of interrupts that are none.
pub const SPURIOUS: u64 = 47;

const BASE: u64 = 0xfee0_0000;
const ID: u64 = 0x20;
const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS_VECTOR: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const COMMAND_TARGET: u64 = 0x310;
const TIMER: u64 = 0x320;
const TIMER_COUNT: u64 = 0x380;
const TIMER_DIVIDE: u64 = 0x3e0;

/// Clock ticks of the controller in a time slice: 10 ms if it runs at 1 GHz.
const SLICE: u32 = 10_000_000;

fn register(offset: u64) -> *mut u32 {
    direct(BASE + offset).cast()
}

fn write(offset: u64, value: u32) {
    // SAFETY: a register of the processor's own controller.
    unsafe { register(offset).write_volatile(value) }
}

fn get(offset: u64) -> u32 {
    // SAFETY: as for `write`.
    unsafe { register(offset).read_volatile() }
}

/// Switches the controller of this processor on, and returns its number.
pub fn init() -> u32 {
    write(SPURIOUS_VECTOR, 0x100 | SPURIOUS as u32);
    write(TIMER_DIVIDE, 0b1011); // by one
    write(TIMER, 1 << 17 | CLOCK as u32); // periodic
    write(TIMER_COUNT, SLICE);
    get(ID) >> 24
}

/// The interrupt at hand has been handled.
pub fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

fn command(target: u32, command: u32) {
    write(COMMAND_TARGET, target << 24);
    write(COMMAND, command);
    while get(COMMAND) & 1 << 12 != 0 {}
}

/// Interrupts processor `target`.
pub fn interrupt(target: u32, vector: u64) {
    command(target, 1 << 14 | vector as u32);
}

/// Starts processor `target` at real-mode page `page`: INIT, and twice SIPI.
pub fn start(target: u32, page: u32) {
    command(target, 0x4500);
    io::delay(10_000);
    for _ in 0..2 {
        command(target, 0x4600 | page);
        io::delay(200);
    }
}
