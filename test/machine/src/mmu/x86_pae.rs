//! 32-bit x86 with PAE, from the Intel manual, volume 3A, section 4.4 and tables 4-7 to
//! 4-11: CR4.PAE and EFER.NXE set, EFER.LME clear, protection keys absent.
//!
//! | bits  | in the root (PDPTE)  | below |
//! |-------|----------------------|-------|
//! | 0     | P: present           | P |
//! | 1, 2  | zero                 | R/W, U/S: stores and programs allowed here and below |
//! | 3, 4  | PWT, PCD             | PWT, PCD: memory type |
//! | 5, 6  | zero                 | A: accessed; D: dirty (leaves) |
//! | 7     | zero                 | PS: leaf, at level 2; PAT at level 1 |
//! | 8     | zero                 | G: global (leaves) |
//! | 12    | frame                | PAT (leaves at level 2), else frame |
//! | M-1:12 | frame               | frame; bits 20:13 are zero in leaves at level 2 |
//! | 62:M  | zero                 | zero |
//! | 63    | zero                 | XD: no instruction fetches here and below |
//!
//! Loading CR3 reads the four entries of the root into registers, and fails if one that
//! is present has a bit set that must be zero. Walks take those registers. CR3 has bits
//! 31:5 of the root's address.

use vellum::addr::Pfn;

use super::walker::{Entry, FaultReason, Rights, Walker};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const PAGE_SIZE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;

/// Physical address bits (MAXPHYADDR): as many as frame numbers have. The first
/// processors had 36.
const PHYSICAL_BITS: u32 = 44;
const FRAME: u64 = (1 << PHYSICAL_BITS) - (1 << 12);
const BEYOND_PHYSICAL: u64 = NO_EXECUTE - (1 << PHYSICAL_BITS);

/// Zero in an entry of the root, beside what is beyond the physical addresses.
const ZERO_IN_PDPTE: u64 = NO_EXECUTE | 0b1_1110_0110;
/// Zero in a leaf of 2 MiB: the address bits between PAT and the page's size.
const ZERO_IN_LARGE: u64 = (1 << 21) - (1 << 13);

/// The 32-bit x86 MMU with PAE.
#[derive(Clone, Copy, Debug)]
pub struct X86Pae;

/// Three levels, 32-bit addresses.
pub const X86_PAE: X86Pae = X86Pae;

impl Walker for X86Pae {
    fn name(&self) -> &'static str {
        "x86-pae"
    }

    fn frame_shift(&self) -> u32 {
        12
    }

    fn root_level(&self) -> u8 {
        3
    }

    fn root_registers(&self) -> usize {
        4
    }

    fn roots_end(&self) -> Option<Pfn> {
        Some(Pfn(1 << (32 - 12)))
    }

    /// Section 4.10.4.1 of the manual: a page fault invalidates what the paging-structure
    /// caches have for the address. The manager moves tables of this format and relies on it.
    fn forgets_tables_at_faults(&self) -> bool {
        true
    }

    fn is_canonical(&self, address: u64) -> bool {
        address < 1 << 32
    }

    fn decode(&self, entry: u64, level: u8) -> Entry {
        if entry & PRESENT == 0 {
            return Entry::Absent;
        }
        let is_large = level == 2 && entry & PAGE_SIZE != 0;
        let zero = match level {
            3 => ZERO_IN_PDPTE,
            _ if is_large => ZERO_IN_LARGE,
            _ => 0,
        };
        let wrong = entry & (zero | BEYOND_PHYSICAL);
        if wrong != 0 {
            return Entry::Reserved(wrong);
        }
        let frame = Pfn(((entry & FRAME) >> 12) as u32);
        if level == 3 {
            return Entry::Table {
                table: frame,
                rights: Rights::ALL,
            };
        }
        let rights = Rights {
            read: true,
            write: entry & WRITABLE != 0,
            execute: entry & NO_EXECUTE == 0,
            user: entry & USER != 0,
        };
        if level == 2 && !is_large {
            return Entry::Table {
                table: frame,
                rights,
            };
        }
        Entry::Leaf {
            // Bit 12 of a large leaf is its PAT bit.
            frame: Pfn(if is_large { frame.0 & !1 } else { frame.0 }),
            rights,
            dirty: entry & DIRTY != 0,
        }
    }

    fn mark(&self, entry: u64, level: u8, write: bool) -> Result<u64, FaultReason> {
        if level == 3 {
            return Ok(entry);
        }
        Ok(entry | ACCESSED | if write { DIRTY } else { 0 })
    }
}
