//! The display: QEMU's `bochs-display` or `VGA`, found on the first PCI bus.

use core::arch::asm;

use crate::PAGE;
use crate::lock::SpinLock;
use crate::protocol::device;

/// Vendor and device of both.
const DISPLAY: u32 = 0x1111_1234;
/// Registers of a function: what it is, what it may do, and where its memory is.
const NAME: u8 = 0;
const COMMAND: u8 = 4;
const FRAME_BUFFER: u8 = 0x10;
const REGISTERS: u8 = 0x18;
/// In [`COMMAND`]: it answers where its memory is.
const DECODES_MEMORY: u32 = 2;

/// Address and data of the registers with which PCI functions are set up.
const CONFIGURATION: (u16, u16) = (0xcf8, 0xcfc);

fn out_wide(port: u16, value: u32) {
    // SAFETY: these ports are those of PCI, whose functions are told of no memory but their own.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, nomem)) }
}

/// A register of the first function in a slot of the first PCI bus; all ones if there is none.
fn read_configuration(slot: u32, register: u8) -> u32 {
    out_wide(CONFIGURATION.0, 1 << 31 | slot << 11 | u32::from(register));
    let value: u32;
    // SAFETY: as for `out_wide`.
    unsafe {
        asm!("in eax, dx", in("dx") CONFIGURATION.1, out("eax") value, options(nostack, nomem))
    }
    value
}

/// Sets such a register.
fn write_configuration(slot: u32, register: u8, value: u32) {
    out_wide(CONFIGURATION.0, 1 << 31 | slot << 11 | u32::from(register));
    out_wide(CONFIGURATION.1, value);
}

/// First frame and pages of what the display has, if there is one.
pub fn memory_of(which: u64) -> Option<(u64, u64)> {
    static FINDS: SpinLock<()> = SpinLock::new(());
    let _guard = FINDS.lock();
    let slot = (0..32).find(|&slot| read_configuration(slot, NAME) == DISPLAY)?;
    let place = match which {
        device::FRAME_BUFFER => FRAME_BUFFER,
        device::REGISTERS => REGISTERS,
        _ => return None,
    };
    let command = read_configuration(slot, COMMAND);
    let address = read_configuration(slot, place);
    // It says which bits of the address are its own, and forgets it; nobody reads it meanwhile.
    write_configuration(slot, COMMAND, command & !DECODES_MEMORY);
    write_configuration(slot, place, !0);
    let bytes = !(read_configuration(slot, place) & !15) + 1;
    write_configuration(slot, place, address);
    write_configuration(slot, COMMAND, command | DECODES_MEMORY);
    let start = u64::from(address & !15);
    (start != 0).then_some((start / PAGE, u64::from(bytes) / PAGE))
}
