//! What the kernel was started with, whichever boot loader says it.

use core::ffi::CStr;

use super::{direct, multiboot2, pvh, read};

/// Entries of 20 bytes or more, whose beginning both protocols have: address, size, kind.
#[derive(Default)]
pub struct MemoryMap {
    pub first: u64,
    pub stride: u64,
    pub end: u64,
}

const RAM: u32 = 1;

/// What the kernel was started with.
#[derive(Default)]
pub struct Boot {
    /// Where the command line lies, or 0.
    pub command_line: u64,
    /// Where ACPI's root pointer lies, if the boot loader knows.
    pub rsdp: Option<u64>,
    pub map: MemoryMap,
    /// What must stay: the RAM disk, and what the boot loader says.
    pub busy: [(u64, u64); 2],
}

impl Boot {
    /// Reads what lies at `physical`.
    pub fn at(physical: u64) -> Boot {
        let boot = pvh::read_at(physical).unwrap_or_else(|| multiboot2::read_at(physical));
        assert!(
            boot.map.stride >= 20,
            "the boot loader says nothing of memory"
        );
        boot
    }

    /// The command line.
    pub fn command_line(&self) -> &'static str {
        if self.command_line == 0 {
            return "";
        }
        // SAFETY: the boot loader put a string there that ends with a zero byte.
        let line = unsafe { CStr::from_ptr(direct(self.command_line).cast()) };
        line.to_str().unwrap_or("")
    }

    /// What must stay, first bytes and ends.
    pub fn busy(&self) -> [(u64, u64); 2] {
        self.busy
    }

    /// Where the RAM disk lies, and its bytes.
    pub fn disk(&self) -> Option<(u64, u64)> {
        let (start, end) = self.busy[0];
        (start < end).then_some((start, end - start))
    }

    /// Usable memory, ascending: first byte and bytes.
    pub fn memory(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let entries = (self.map.first..self.map.end).step_by(self.map.stride as usize);
        // SAFETY: the boot loader put it there, and the kernel uses that memory for nothing.
        let entries = entries.map(|at| unsafe { (read::<[u64; 2]>(at), read::<u32>(at + 16)) });
        entries
            .filter(|(_, kind)| *kind == RAM)
            .map(|([start, bytes], _)| (start, bytes))
    }
}
