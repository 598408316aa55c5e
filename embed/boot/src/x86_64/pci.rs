//! The display: QEMU's `bochs-display` or `VGA`, found on the first PCI bus.

use super::io::{read_configuration, write_configuration};
use crate::PAGE;
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

/// First frame and pages of what the display has, if there is one.
pub fn display(which: u64) -> Option<(u64, u64)> {
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
