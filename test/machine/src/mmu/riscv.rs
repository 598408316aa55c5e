//! RISC-V Sv39 and Sv48 paging, from the RISC-V Instruction Set Manual,
//! volume II, section "Sv32: Page-Based 32-bit Virtual-Memory Systems" (the
//! translation algorithm) and those on Sv39 and Sv48: in U-mode, with Svadu
//! (hardware sets A and D), Svpbmt and Svnapot. Physical addresses have
//! 44 bits.
//!
//! | bits  | meaning |
//! |-------|---------|
//! | 0     | V: valid |
//! | 1, 2, 3 | R, W, X; none of them: the next table. W without R is reserved |
//! | 4     | U: programs may access the page; reserved in table entries |
//! | 5     | G |
//! | 6, 7  | A, D: accessed, dirty; reserved in table entries |
//! | 9:8   | RSW: software |
//! | 53:10 | PPN; the part below the page's size is zero in large leaves |
//! | 60:54 | zero |
//! | 62:61 | PBMT: memory type; 3 is reserved, and all but 0 in table entries |
//! | 63    | N: at the lowest level, and with 1000 in PPN\[3:0\], one of sixteen entries that map 64 KiB; reserved otherwise |

use vellum::addr::Pfn;

use super::walker::{Entry, FaultReason, Rights, Walker};

const VALID: u64 = 1 << 0;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
const PPN_SHIFT: u32 = 10;
const ZERO: u64 = 0x7f << 54;
const NAPOT: u64 = 1 << 63;
const NAPOT_SIZE: u64 = 0xf << PPN_SHIFT;
const NAPOT_64K: u64 = 0x8 << PPN_SHIFT;
const PBMT: u64 = 3 << 61;
/// PPN bits of addresses that this machine does not have.
const BEYOND_PHYSICAL: u64 = (1 << 54) - (1 << (44 - 12 + PPN_SHIFT));

/// The RISC-V MMU with some number of levels.
#[derive(Clone, Copy, Debug)]
pub struct RiscV {
    levels: u8,
}

/// Three levels, 39-bit addresses.
pub const SV39: RiscV = RiscV { levels: 3 };
/// Four levels, 48-bit addresses.
pub const SV48: RiscV = RiscV { levels: 4 };

impl Walker for RiscV {
    fn name(&self) -> &'static str {
        if self.levels == 3 { "sv39" } else { "sv48" }
    }

    fn frame_shift(&self) -> u32 {
        12
    }

    fn root_level(&self) -> u8 {
        self.levels
    }

    fn is_canonical(&self, address: u64) -> bool {
        // The bits above are copies of the highest translated one.
        let translated = 12 + 9 * u32::from(self.levels);
        let upper = (address as i64) >> (translated - 1);
        upper == 0 || upper == -1
    }

    fn decode(&self, entry: u64, level: u8) -> Entry {
        if entry & VALID == 0 {
            return Entry::Absent;
        }
        if entry & (READ | WRITE) == WRITE {
            return Entry::Reserved(WRITE);
        }
        let is_leaf = entry & (READ | EXECUTE) != 0;
        if !is_leaf && level == 1 {
            return Entry::Absent;
        }
        let mut reserved = ZERO | BEYOND_PHYSICAL;
        if is_leaf {
            // A misaligned superpage.
            reserved |= ((1 << (9 * u32::from(level - 1))) - 1) << PPN_SHIFT;
            if entry & PBMT == PBMT {
                reserved |= PBMT;
            }
            if level > 1 || entry & NAPOT_SIZE != NAPOT_64K {
                reserved |= NAPOT;
            }
        } else {
            reserved |= NAPOT;
            reserved |= PBMT | USER | ACCESSED | DIRTY;
        }
        if entry & reserved != 0 {
            return Entry::Reserved(entry & reserved);
        }
        let frame = Pfn((entry >> PPN_SHIFT) as u32);
        if !is_leaf {
            return Entry::Table {
                table: frame,
                rights: Rights::ALL,
            };
        }
        Entry::Leaf {
            frame,
            rights: Rights {
                read: entry & READ != 0,
                write: entry & WRITE != 0,
                execute: entry & EXECUTE != 0,
                user: entry & USER != 0,
            },
            dirty: entry & DIRTY != 0,
        }
    }

    fn run_order(&self, entry: u64, level: u8) -> Option<u32> {
        (level == 1 && entry & NAPOT != 0).then_some(4)
    }

    fn mark(&self, entry: u64, _level: u8, write: bool) -> Result<u64, FaultReason> {
        if entry & (READ | EXECUTE) == 0 {
            return Ok(entry);
        }
        Ok(entry | ACCESSED | if write { DIRTY } else { 0 })
    }
}
