//! What a Multiboot2 boot loader says: a list of tags.

use super::boot::{Boot, MemoryMap};
use super::read;

const COMMAND_LINE: u32 = 1;
const MODULE: u32 = 3;
const MEMORY_MAP: u32 = 6;
/// Copies of ACPI's root pointer, of version 1 and of later ones.
const RSDP: [u32; 2] = [14, 15];

/// Reads the tags at `physical`.
pub fn read_at(physical: u64) -> Boot {
    let mut boot = Boot::default();
    // SAFETY: the boot loader put it there, and the kernel uses that memory for nothing.
    unsafe {
        let end = physical + u64::from(read::<u32>(physical));
        boot.busy[1] = (physical, end);
        let mut at = physical + 8;
        while at < end {
            let [kind, bytes] = read::<[u32; 2]>(at);
            match kind {
                COMMAND_LINE => boot.command_line = at + 8,
                MODULE => {
                    let [start, end] = read::<[u32; 2]>(at + 8);
                    boot.busy[0] = (u64::from(start), u64::from(end));
                }
                MEMORY_MAP => {
                    boot.map = MemoryMap {
                        first: at + 16,
                        stride: u64::from(read::<u32>(at + 8)),
                        end: at + u64::from(bytes),
                    }
                }
                kind if RSDP.contains(&kind) => boot.rsdp = Some(at + 8),
                _ => {}
            }
            at += u64::from(bytes.max(8)).next_multiple_of(8);
        }
    }
    boot
}
