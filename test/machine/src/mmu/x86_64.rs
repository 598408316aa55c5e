//! x86-64 four-level and five-level paging (IA-32e), from the Intel manual,
//! volume 3A, sections 4.5 to 4.8: CR4.PAE, EFER.LME and EFER.NXE set,
//! protection keys off, 1 GiB pages supported; CR4.LA57 set for five levels.
//!
//! | bits  | meaning |
//! |-------|---------|
//! | 0     | P: present |
//! | 1     | R/W: stores allowed here and below |
//! | 2     | U/S: programs allowed here and below |
//! | 3, 4  | PWT, PCD: memory type |
//! | 5     | A: accessed |
//! | 6     | D: dirty (leaves) |
//! | 7     | PS: leaf, at levels 3 and 2; PAT at level 1; zero at levels 4 and 5 |
//! | 8     | G: global (leaves) |
//! | 12    | PAT (leaves at levels 3 and 2) |
//! | M-1:12 | frame; the bits below the page size are zero in large leaves |
//! | 51:M  | zero |
//! | 63    | XD: no instruction fetches here and below |

use vellum::addr::Pfn;

use super::walker::{Entry, FaultReason, Rights, Walker};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const PAGE_SIZE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;

/// Physical address bits (MAXPHYADDR). Frame numbers are 32 bits wide, and the
/// one of all ones is never used.
const PHYSICAL_BITS: u32 = 44;
const FRAME: u64 = (1 << PHYSICAL_BITS) - (1 << 12);
const BEYOND_PHYSICAL: u64 = (1 << 52) - (1 << PHYSICAL_BITS);

/// The x86-64 MMU with some number of levels.
#[derive(Clone, Copy, Debug)]
pub struct X86 {
    levels: u8,
}

/// Four levels, 48-bit addresses.
pub const X86_64: X86 = X86 { levels: 4 };
/// Five levels, 57-bit addresses.
pub const X86_64_LA57: X86 = X86 { levels: 5 };

impl Walker for X86 {
    fn name(&self) -> &'static str {
        if self.levels == 5 {
            "x86-64-la57"
        } else {
            "x86-64"
        }
    }

    fn frame_shift(&self) -> u32 {
        12
    }

    fn root_level(&self) -> u8 {
        self.levels
    }

    fn is_canonical(&self, address: u64) -> bool {
        // Bits 63:47, or 63:56 with five levels, are all equal.
        let translated = 12 + 9 * u32::from(self.levels);
        let upper = (address as i64) >> (translated - 1);
        upper == 0 || upper == -1
    }

    fn decode(&self, entry: u64, level: u8) -> Entry {
        if entry & PRESENT == 0 {
            return Entry::Absent;
        }
        let is_leaf = level == 1 || entry & PAGE_SIZE != 0 && level <= 3;
        let reserved = BEYOND_PHYSICAL
            | match level {
                4 | 5 => PAGE_SIZE,
                // In a large leaf, the address bits between PAT and the page's size.
                3 | 2 if is_leaf => (1 << self.coverage_shift(level)) - (1 << 13),
                _ => 0,
            };
        if entry & reserved != 0 {
            return Entry::Reserved(entry & reserved);
        }
        let rights = Rights {
            read: true,
            write: entry & WRITABLE != 0,
            execute: entry & NO_EXECUTE == 0,
            user: entry & USER != 0,
        };
        if is_leaf {
            let within_page = (1 << self.coverage_shift(level)) - 1;
            Entry::Leaf {
                frame: Pfn(((entry & FRAME & !within_page) >> 12) as u32),
                rights,
                dirty: entry & DIRTY != 0,
            }
        } else {
            Entry::Table {
                table: Pfn(((entry & FRAME) >> 12) as u32),
                rights,
            }
        }
    }

    fn mark(&self, entry: u64, _level: u8, write: bool) -> Result<u64, FaultReason> {
        Ok(entry | ACCESSED | if write { DIRTY } else { 0 })
    }
}
