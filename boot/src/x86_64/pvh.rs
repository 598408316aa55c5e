//! What a PVH boot loader says: `hvm_start_info` of Xen's public headers, version 1.

use core::ffi::CStr;

use super::{direct, read};

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

#[derive(Clone, Copy)]
#[repr(C)]
struct Module {
    address: u64,
    size: u64,
    command_line: u64,
    reserved: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct MapEntry {
    address: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

const MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;

/// What the kernel was started with.
pub struct Boot {
    info: StartInfo,
}

impl Boot {
    /// Reads what lies at `physical`.
    pub fn at(physical: u64) -> Boot {
        // SAFETY: the boot loader put it there, and the kernel uses that memory for nothing.
        let info: StartInfo = unsafe { read(physical) };
        assert!(
            info.magic == MAGIC && info.version >= 1,
            "not started by a PVH boot loader"
        );
        Boot { info }
    }

    /// The command line.
    pub fn command_line(&self) -> &'static str {
        if self.info.command_line == 0 {
            return "";
        }
        // SAFETY: the boot loader put a string there that ends with a zero byte.
        let line = unsafe { CStr::from_ptr(direct(self.info.command_line).cast()) };
        line.to_str().unwrap_or("")
    }

    /// Where the RAM disk lies, and its bytes.
    pub fn disk(&self) -> Option<(u64, u64)> {
        // SAFETY: as in `at`.
        let module: Module =
            (self.info.modules > 0).then(|| unsafe { read(self.info.module_list) })?;
        Some((module.address, module.size))
    }

    /// What the boot loader left that must stay: first byte and end.
    pub fn busy(&self) -> (u64, u64) {
        self.disk()
            .map_or((0, 0), |(start, bytes)| (start, start + bytes))
    }

    /// Usable memory, ascending: first byte and bytes.
    pub fn memory(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let entries = 0..u64::from(self.info.memory_map_entries);
        // SAFETY: as in `at`.
        let entries =
            entries.map(|index| unsafe { read::<MapEntry>(self.info.memory_map + index * 24) });
        entries
            .filter(|entry| entry.kind == RAM)
            .map(|entry| (entry.address, entry.size))
    }

    /// Where ACPI's root pointer lies, if the boot loader knows.
    pub fn rsdp(&self) -> Option<u64> {
        (self.info.rsdp != 0).then_some(self.info.rsdp)
    }
}
