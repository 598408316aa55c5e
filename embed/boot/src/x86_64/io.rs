//! Ports, the serial line, and switching off.

use core::arch::asm;
use core::fmt::{self, Write};

use crate::lock::SpinLock;

const COM1: u16 = 0x3f8;
/// QEMU's `isa-debug-exit`: a write of `n` ends it with exit code `2n + 1`.
const DEBUG_EXIT: u16 = 0xf4;

fn out(port: u16, value: u8) {
    // SAFETY: the ports written here are those of devices that touch no memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, nomem)) }
}

fn input(port: u16) -> u8 {
    let value: u8;
    // SAFETY: as for `out`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, nomem)) }
    value
}

/// 115,200 baud, 8 bits, no interrupts.
pub fn init_serial() {
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 0xc7), (4, 3)] {
        out(COM1 + register, value);
    }
}

/// The first serial line.
pub struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while input(COM1 + 5) & 0x20 == 0 {}
            out(COM1, byte);
        }
        Ok(())
    }
}

/// One line at a time.
pub static SERIAL: SpinLock<Serial> = SpinLock::new(Serial);

/// Prints a line on the serial port.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {{
        use core::fmt::Write;
        let _ = writeln!($crate::arch::io::SERIAL.lock(), $($argument)*);
    }};
}

/// Ends the emulator, or stops a machine that is none.
pub fn end(code: u8) -> ! {
    out(DEBUG_EXIT, code);
    loop {
        // SAFETY: interrupts are off: the processor stops.
        unsafe { asm!("cli", "hlt", options(nostack, nomem)) }
    }
}

/// Masks the interrupts of the two old controllers: the local one has all that is used.
pub fn mask_legacy_interrupts() {
    out(0x21, 0xff);
    out(0xa1, 0xff);
}

/// Waits about so many microseconds: a write to this port takes about one.
pub fn delay(microseconds: u32) {
    for _ in 0..microseconds {
        out(0x80, 0);
    }
}
