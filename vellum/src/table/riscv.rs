//! RISC-V Sv39 and Sv48, with 4 KiB pages.
//!
//! Bits as in the RISC-V Instruction Set Manual, volume II (privileged
//! architecture), sections "Sv39" and "Sv48", and of the extensions Svpbmt
//! (memory types) and Svadu: hardware sets A and D (`menvcfg.ADUE` set). A hart
//! that traps instead (Svade) is not supported.
//!
//! | format | levels | bits for programs | larger leaves         |
//! |--------|--------|-------------------|-----------------------|
//! | Sv39   | 3      | 38                | 2 MiB, 1 GiB          |
//! | Sv48   | 4      | 47                | 2 MiB, 1 GiB, 512 GiB |
//!
//! W without R is reserved and never made: stores imply loads. An entry with V
//! set and R, W and X clear leads to a table, so a leaf that forbids all access
//! has V clear too; hardware then ignores the rest. The lower of the two bits
//! left to software (8) marks every entry that holds something.
//!
//! **Contiguous runs** (Svnapot). Bit 63 (N) of sixteen pages in a row says that they map
//! 64 KiB that are aligned and lie in a row, with the same rights. The low four bits of the
//! frame's number are 1000 then, which stands for the size, and those of the page take their
//! place: so an entry is read and written with its index. A and D may be set in any entry of
//! the run. A hart without Svnapot must not be shown such entries (`contiguous=off`).
//!
//! The entry of a page in swap has V and bit 8 clear and the other bit left to software (9)
//! set, with the slot's number from bit 10 on, bit 7 if no other entry names the slot, and bit 5
//! if nobody has stored to the page since dirty tracking looked. With V clear all bits are left to
//! software.
//!
//! A page that a fault hook watches has the second software bit (9) of its leaf set, or bit 6 of its
//! entry in swap.

use super::format::{Format, Marks, Swapped};
use crate::addr::{Geometry, MemoryType, Pfn, Prot, Vpn};

/// RISC-V paging with `TABLES` levels: 3 or 4.
pub struct RiscV<const TABLES: u32>;

/// RISC-V with 39-bit addresses, of which programs have 38 bits.
pub type Sv39 = RiscV<3>;
/// RISC-V with 48-bit addresses, of which programs have 47 bits.
pub type Sv48 = RiscV<4>;

const VALID: u64 = 1 << 0;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
/// Software (RSW): the entry holds something.
const MAPPED: u64 = 1 << 8;
/// Software (RSW): the page is in swap.
const SWAPPED: u64 = 1 << 9;
/// Of a page in swap: nobody has stored to it since dirty tracking looked.
const CLEAN: u64 = 1 << 5;
/// Of a page in swap: no other entry names the slot.
const EXCLUSIVE: u64 = 1 << 7;
/// Software, of a leaf: watched by a fault hook.
const WATCHED: u64 = 1 << 9;
/// The same, of a page in swap.
const WATCHED_IN_SWAP: u64 = 1 << 6;
const SLOT_SHIFT: u32 = 10;
const FRAME_SHIFT: u32 = 10;
const FRAME_MASK: u64 = (1 << 54) - (1 << FRAME_SHIFT);
/// Svpbmt: 0 is the type of the physical memory, 1 NC (non-cacheable, idempotent,
/// weakly ordered), 2 IO (non-cacheable, strongly ordered).
const MEMORY_SHIFT: u32 = 61;
const MEMORY: u64 = 3 << MEMORY_SHIFT;

/// Svnapot: one of a contiguous run.
const NAPOT: u64 = 1 << 63;
const NAPOT_ORDER: u32 = 4;
/// The low bits of the frame's number of such an entry.
const NAPOT_FRAME: u64 = ((1 << NAPOT_ORDER) - 1) << FRAME_SHIFT;
/// What they are for 64 KiB.
const NAPOT_64K: u64 = 1 << (NAPOT_ORDER - 1) << FRAME_SHIFT;

const ANY: u64 = READ | WRITE | EXECUTE;
const RIGHTS: u64 = VALID | ANY | MEMORY;

#[inline]
fn rights(prot: Prot) -> u64 {
    let valid = if prot.is_none() { 0 } else { VALID };
    let data = prot.can_read() || prot.can_write();
    let read = if data { READ } else { 0 };
    let write = if prot.can_write() { WRITE } else { 0 };
    let execute = if prot.can_execute() { EXECUTE } else { 0 };
    let memory: u64 = match prot.memory_type() {
        MemoryType::WriteBack => 0,
        MemoryType::WriteCombining => 1,
        MemoryType::Uncached => 2,
    };
    valid | read | write | execute | memory << MEMORY_SHIFT
}

// SAFETY: frames of 4 KiB, and nothing else is defined.
unsafe impl<const TABLES: u32> Geometry for RiscV<TABLES> {
    const FRAME_SHIFT: u32 = 12;
}

// SAFETY: indices are the trait's own, and 32 bits of frame number fit into those of
// an entry; `the_promises_of_the_trait_hold` checks all conditions.
unsafe impl<const TABLES: u32> Format for RiscV<TABLES> {
    const NAME: &'static str = if TABLES == 3 { "sv39" } else { "sv48" };
    type Reach = super::Direct;
    const LEVELS: u32 = {
        assert!(TABLES == 3 || TABLES == 4, "Sv39 has 3 levels, Sv48 has 4");
        TABLES
    };
    // A leaf may stand at every level.
    const MAX_LEAF_LEVEL: u32 = TABLES;
    // The lower half: the upper bits are copies of bit 38 or 47.
    const USER_END: Vpn = Vpn(1 << (9 * TABLES - 1));
    const CONTIGUOUS_ORDER: u32 = NAPOT_ORDER;

    #[inline]
    fn table_entry(table: Pfn, _level: u32) -> u64 {
        // U, A, D and the memory type are reserved here.
        u64::from(table.0) << FRAME_SHIFT | VALID | MAPPED
    }

    #[inline]
    fn leaf(frame: Pfn, _level: u32, prot: Prot, marks: Marks) -> u64 {
        let entry = u64::from(frame.0) << FRAME_SHIFT | USER | MAPPED | rights(prot);
        Self::with_marks(entry, marks)
    }

    #[inline]
    fn is_mapped(entry: u64) -> bool {
        entry & MAPPED != 0
    }

    #[inline]
    fn is_leaf(entry: u64, level: u32) -> bool {
        level == 1 || entry & (VALID | ANY) != VALID
    }

    #[inline]
    fn frame(entry: u64, _level: u32) -> Pfn {
        Pfn(((entry & FRAME_MASK) >> FRAME_SHIFT) as u32)
    }

    #[inline]
    fn prot(entry: u64, _level: u32) -> Prot {
        let memory = match (entry & MEMORY) >> MEMORY_SHIFT {
            0 => MemoryType::WriteBack,
            1 => MemoryType::WriteCombining,
            _ => MemoryType::Uncached,
        };
        let mut prot = Prot::NONE;
        for (bit, right) in [
            (READ, Prot::READ),
            (WRITE, Prot::WRITE),
            (EXECUTE, Prot::EXECUTE),
        ] {
            if entry & bit != 0 {
                prot = prot.union(right);
            }
        }
        prot.with_type(memory)
    }

    #[inline]
    fn is_writable(entry: u64) -> bool {
        // W is set only with V and R.
        entry & WRITE != 0
    }

    #[inline]
    fn marks(entry: u64) -> Marks {
        Marks {
            accessed: entry & ACCESSED != 0,
            dirty: entry & DIRTY != 0,
        }
    }

    #[inline]
    fn write_protect(entry: u64) -> u64 {
        entry & !WRITE
    }

    #[inline]
    fn with_marks(entry: u64, marks: Marks) -> u64 {
        let accessed = if marks.accessed { ACCESSED } else { 0 };
        let dirty = if marks.dirty { DIRTY } else { 0 };
        entry & !(ACCESSED | DIRTY) | accessed | dirty
    }

    #[inline]
    fn with_prot(entry: u64, _level: u32, prot: Prot) -> u64 {
        entry & !RIGHTS | rights(prot)
    }

    #[inline]
    fn contiguous(entry: u64) -> u64 {
        entry | NAPOT
    }

    // Entries of pages in swap have slot numbers of 40 bits and so none of these.
    #[inline]
    fn is_contiguous(entry: u64) -> bool {
        entry & NAPOT != 0
    }

    #[inline]
    fn seen(word: u64, index: usize) -> u64 {
        match word & NAPOT {
            0 => word,
            _ => word & !NAPOT_FRAME | (index as u64) << FRAME_SHIFT & NAPOT_FRAME,
        }
    }

    #[inline]
    fn stored(entry: u64) -> u64 {
        match entry & NAPOT {
            0 => entry,
            _ => entry & !NAPOT_FRAME | NAPOT_64K,
        }
    }

    const WATCHES: bool = true;

    #[inline]
    fn with_watch(entry: u64, is_watched: bool) -> u64 {
        let mark = match Self::is_mapped(entry) {
            true => WATCHED,
            false => WATCHED_IN_SWAP,
        };
        match is_watched {
            true => entry | mark,
            false => entry & !mark,
        }
    }

    #[inline]
    fn is_watched(entry: u64) -> bool {
        match Self::is_mapped(entry) {
            true => entry & WATCHED != 0,
            false => entry & WATCHED_IN_SWAP != 0,
        }
    }

    #[inline]
    fn swap(page: Swapped) -> u64 {
        let exclusive = if page.exclusive { EXCLUSIVE } else { 0 };
        let clean = if page.clean { CLEAN } else { 0 };
        page.slot << SLOT_SHIFT | SWAPPED | exclusive | clean
    }

    #[inline]
    fn swapped(entry: u64) -> Swapped {
        Swapped {
            slot: entry >> SLOT_SHIFT & Swapped::MAX_SLOT,
            exclusive: entry & EXCLUSIVE != 0,
            clean: entry & CLEAN != 0,
        }
    }
}
