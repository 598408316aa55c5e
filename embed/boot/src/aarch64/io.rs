//! The serial line, and switching off.

use core::arch::asm;
use core::fmt::{self, Write};

use super::direct;
use crate::lock::SpinLock;

/// The PL011 of QEMU's machine.
pub const SERIAL_LINE: u64 = 0x0900_0000;
const FLAGS: u64 = 0x18;
const FULL: u32 = 1 << 5;

/// The serial line.
pub struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the device's registers, in the direct map.
            unsafe {
                while direct(SERIAL_LINE + FLAGS).cast::<u32>().read_volatile() & FULL != 0 {}
                direct(SERIAL_LINE)
                    .cast::<u32>()
                    .write_volatile(u32::from(byte));
            }
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

/// Ends the emulator by a semihosting call, with the exit code that x86's device makes of
/// `code`.
pub fn end(code: u8) -> ! {
    const EXIT: u64 = 0x20;
    const APPLICATION: u64 = 0x2_0026;
    let block = [APPLICATION, 2 * u64::from(code) + 1];
    loop {
        // SAFETY: the block is what the call reads.
        unsafe { asm!("hlt 0xf000", in("x0") EXIT, in("x1") &block) }
    }
}
