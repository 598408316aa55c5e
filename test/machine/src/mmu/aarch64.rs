//! AArch64 (VMSAv8-64) stage 1 translation through TTBR0, from the Arm
//! Architecture Reference Manual for A-profile (DDI 0487), sections D8.2 to
//! D8.5: 48-bit input addresses, TCR_EL1.HA and HD set (hardware keeps access
//! flag and dirty state), TBI and HPD0 clear, SCTLR_EL1.WXN clear, without
//! FEAT_LPA, FEAT_HAFT and permission indirection. Physical addresses have 44
//! bits (PARange 0b0100).
//!
//! | bits  | table descriptor | block and page descriptors |
//! |-------|------------------|----------------------------|
//! | 0     | valid            | valid |
//! | 1     | 1                | 0 in blocks, 1 in pages |
//! | 4:2   |                  | AttrIndx: memory type |
//! | 6     |                  | AP\[1\]: programs may access data |
//! | 7     |                  | AP\[2\]: no stores; with DBM: clean |
//! | 9:8   |                  | SH |
//! | 10    |                  | AF |
//! | 11    |                  | nG |
//! | 47:m  | next table       | output address |
//! | 51    |                  | DBM |
//! | 52    |                  | Contiguous, of pages with the granule of 4 KiB; the others' runs are not cached |
//! | 54    |                  | UXN: programs may not execute |
//! | 60    | UXNTable         | |
//! | 62:61 | APTable: no stores below; nothing for programs below | |
//!
//! Where blocks are not allowed, and at the lowest level, the other value of
//! bit 1 is an invalid descriptor. Two cached translations of an address that are of different
//! sizes raise a TLB conflict abort. The manual's levels count down to 3; here
//! they count down to 1.

use vellum::addr::Pfn;

use super::walker::{Entry, FaultReason, Rights, Walker};

const VALID: u64 = 1 << 0;
const NOT_BLOCK: u64 = 1 << 1;
const AP1: u64 = 1 << 6;
const AP2: u64 = 1 << 7;
const AF: u64 = 1 << 10;
const DBM: u64 = 1 << 51;
const CONTIGUOUS: u64 = 1 << 52;
const UXN: u64 = 1 << 54;
const UXN_TABLE: u64 = 1 << 60;
const AP_TABLE_NO_PROGRAMS: u64 = 1 << 61;
const AP_TABLE_NO_STORES: u64 = 1 << 62;

const INPUT_BITS: u32 = 48;
const PHYSICAL_BITS: u32 = 44;
/// Output addresses that raise an address size fault.
const BEYOND_PHYSICAL: u64 = (1 << 48) - (1 << PHYSICAL_BITS);

/// The AArch64 MMU with one translation granule.
#[derive(Clone, Copy, Debug)]
pub struct Aarch64 {
    /// Log2 of the granule.
    granule: u32,
}

/// With a granule of 4 KiB.
pub const AARCH64_4K: Aarch64 = Aarch64 { granule: 12 };
/// With a granule of 16 KiB.
pub const AARCH64_16K: Aarch64 = Aarch64 { granule: 14 };
/// With a granule of 64 KiB.
pub const AARCH64_64K: Aarch64 = Aarch64 { granule: 16 };

impl Aarch64 {
    fn allows_blocks(self, level: u8) -> bool {
        match self.granule {
            12 => level == 2 || level == 3,
            _ => level == 2,
        }
    }
}

impl Walker for Aarch64 {
    fn name(&self) -> &'static str {
        match self.granule {
            12 => "aarch64-4k",
            14 => "aarch64-16k",
            _ => "aarch64-64k",
        }
    }

    fn frame_shift(&self) -> u32 {
        self.granule
    }

    fn root_level(&self) -> u8 {
        // The walk starts at the manual's level 0, or at 1 with 64 KiB.
        if self.granule == 16 { 3 } else { 4 }
    }

    fn is_canonical(&self, address: u64) -> bool {
        // Addresses with ones at the top go through TTBR1, the kernel's.
        address >> INPUT_BITS == 0
    }

    fn decode(&self, entry: u64, level: u8) -> Entry {
        if entry & VALID == 0 {
            return Entry::Absent;
        }
        let is_block = entry & NOT_BLOCK == 0;
        let is_valid = !is_block || self.allows_blocks(level);
        if !is_valid {
            return Entry::Absent;
        }
        if entry & BEYOND_PHYSICAL != 0 {
            return Entry::Reserved(entry & BEYOND_PHYSICAL);
        }
        if level > 1 && !is_block {
            let programs = entry & AP_TABLE_NO_PROGRAMS == 0;
            let address = entry & ((1 << PHYSICAL_BITS) - (1 << self.granule));
            return Entry::Table {
                table: Pfn((address >> self.granule) as u32),
                rights: Rights {
                    read: programs,
                    write: programs && entry & AP_TABLE_NO_STORES == 0,
                    execute: entry & UXN_TABLE == 0,
                    user: true,
                },
            };
        }
        let address = entry & ((1 << PHYSICAL_BITS) - (1 << self.coverage_shift(level)));
        let programs = entry & AP1 != 0;
        Entry::Leaf {
            frame: Pfn((address >> self.granule) as u32),
            rights: Rights {
                read: programs,
                // With DBM, a store to a clean page makes it dirty.
                write: programs && (entry & AP2 == 0 || entry & DBM != 0),
                execute: entry & UXN == 0,
                user: true,
            },
            dirty: entry & AP2 == 0,
        }
    }

    fn run_order(&self, entry: u64, level: u8) -> Option<u32> {
        let is_one = self.granule == 12 && level == 1 && entry & CONTIGUOUS != 0;
        is_one.then_some(4)
    }

    fn has_conflicts(&self) -> bool {
        true
    }

    fn mark(&self, entry: u64, level: u8, write: bool) -> Result<u64, FaultReason> {
        if level > 1 && entry & NOT_BLOCK != 0 {
            // Table descriptors have no access flag.
            return Ok(entry);
        }
        let accessed = entry | AF;
        Ok(if write && entry & DBM != 0 {
            accessed & !AP2
        } else {
            accessed
        })
    }
}
