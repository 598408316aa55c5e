//! What a PVH boot loader says: `hvm_start_info` of Xen's public headers, version 1.

use super::boot::{Boot, MemoryMap};
use super::read;

#[derive(Clone, Copy)]
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
    reserved: u32,
}

const MAGIC: u32 = 0x336e_c578;
/// Bytes of an entry of the memory map.
const STRIDE: u64 = 24;

/// Reads what lies at `physical`, if that is it.
pub fn read_at(physical: u64) -> Option<Boot> {
    // SAFETY: the boot loader put it there, and the kernel uses that memory for nothing.
    let info: StartInfo = unsafe { read(physical) };
    if info.magic != MAGIC || info.version < 1 {
        return None;
    }
    let mut boot = Boot {
        command_line: info.command_line,
        rsdp: (info.rsdp != 0).then_some(info.rsdp),
        map: MemoryMap {
            first: info.memory_map,
            stride: STRIDE,
            end: info.memory_map + u64::from(info.memory_map_entries) * STRIDE,
        },
        ..Boot::default()
    };
    if info.modules > 0 {
        // SAFETY: as above. A module's first words are its address and size.
        let [start, bytes] = unsafe { read::<[u64; 2]>(info.module_list) };
        boot.busy[0] = (start, start + bytes);
    }
    Some(boot)
}
