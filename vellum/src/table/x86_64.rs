//! x86-64 with 4 KiB pages: 4 levels, or 5 (LA57).
//!
//! Bits as in the AMD64 Architecture Programmer's Manual, volume 2, section
//! 5.4. Bit 9, which is free for software, marks every entry that holds
//! something, so that a leaf that forbids all access (P = 0) is not taken for
//! an empty entry.
//!
//! The entry of a page in swap has P and bit 9 clear, bit 10 set, and bit 11 if no other
//! entry names the slot, and bit 3 if nobody has stored to the page since dirty tracking looked. The
//! slot's number stands where a frame would. In leaves bit 10 is [`Format::SOFT_DIRTY`].
//!
//! A page that a fault hook watches has bit 11 of its leaf set, or bit 8 of its entry in swap: bits
//! that PAE has, too.
//!
//! In every entry with P = 0 the bits of the frame or slot are inverted. Some processors look up
//! the address of such an entry in their first-level cache before they notice that it is not
//! present (L1TF, 2018): inverted, it is an address that no memory has.

use super::format::{Format, Marks, Swapped};
use crate::addr::{Geometry, MemoryType, Pfn, Prot, Vpn};

/// x86-64 long mode with `TABLES` levels: 4, or 5 with CR4.LA57 set.
pub struct X86<const TABLES: u32>;

/// The x86-64 4-level format: 47 bits of address for programs.
pub type X86_64 = X86<4>;

/// The x86-64 5-level format (LA57): 56 bits of address for programs.
pub type X86_64La57 = X86<5>;

const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const WRITE_THROUGH: u64 = 1 << 3;
const CACHE_DISABLE: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const PAGE_SIZE: u64 = 1 << 7;
const MAPPED: u64 = 1 << 9;
const SWAPPED: u64 = 1 << 10;
/// Of a page in swap: nobody has stored to it since dirty tracking looked.
const CLEAN: u64 = 1 << 3;
const EXCLUSIVE: u64 = 1 << 11;
/// Software, of a leaf: watched by a fault hook.
const WATCHED: u64 = 1 << 11;
/// The same, of a page in swap.
const WATCHED_IN_SWAP: u64 = 1 << 8;
const SLOT_SHIFT: u32 = 12;
const NO_EXECUTE: u64 = 1 << 63;
const FRAME_MASK: u64 = 0x000f_ffff_ffff_f000;

/// What a table entry of long mode has and an entry of a PAE root must not have.
pub(super) const RESERVED_IN_PDPTE: u64 = WRITE | USER | ACCESSED;

const RIGHTS: u64 = PRESENT | WRITE | NO_EXECUTE | WRITE_THROUGH | CACHE_DISABLE;

/// An entry with its frame inverted if it is not present: as it stands in a table if the frame
/// is as it is, and the other way round. This is a branch, because processors foresee it, nearly
/// every entry being present, and what follows then waits for nothing but the entry.
#[inline]
fn turned(entry: u64) -> u64 {
    match entry & PRESENT {
        0 => invert(entry),
        _ => entry,
    }
}

#[cold]
fn invert(entry: u64) -> u64 {
    entry ^ FRAME_MASK
}

/// The rights and memory type of a leaf. The memory type uses PCD and PWT with
/// the reset values of the PAT, in which PWT alone is write-through; a kernel
/// that wants write-combining programs PAT entry 1 to WC, as is usual.
#[inline]
fn rights(prot: Prot) -> u64 {
    let present = if prot.is_none() { 0 } else { PRESENT };
    let write = if prot.can_write() { WRITE } else { 0 };
    let execute = if prot.can_execute() { 0 } else { NO_EXECUTE };
    let memory = match prot.memory_type() {
        MemoryType::WriteBack => 0,
        MemoryType::WriteCombining => WRITE_THROUGH,
        MemoryType::Uncached => CACHE_DISABLE | WRITE_THROUGH,
    };
    present | write | execute | memory
}

// SAFETY: frames of 4 KiB, and nothing else is defined.
unsafe impl<const TABLES: u32> Geometry for X86<TABLES> {
    const FRAME_SHIFT: u32 = 12;
}

// SAFETY: indices are the trait's own, and 32 bits of frame number fit into those of
// an entry; `the_promises_of_the_trait_hold` checks all conditions.
unsafe impl<const TABLES: u32> Format for X86<TABLES> {
    const NAME: &'static str = if TABLES == 5 { "x86-64-la57" } else { "x86-64" };
    type Reach = super::Direct;
    const LEVELS: u32 = {
        assert!(
            TABLES == 4 || TABLES == 5,
            "x86-64 tables have 4 or 5 levels"
        );
        TABLES
    };
    const MAX_LEAF_LEVEL: u32 = 3;
    const SOFT_DIRTY: u64 = SWAPPED;
    // The lower half, where bits 47, or 56, and up are zero, but for its last page: a system call
    // from the end of that would return to an address that is not canonical, at which a SYSRET
    // faults in the kernel. Linux keeps the page free for this, too.
    const USER_END: Vpn = Vpn((1 << (9 * TABLES - 1)) - 1);

    #[inline]
    fn table_entry(table: Pfn, _level: u32) -> u64 {
        u64::from(table.0) << 12 | PRESENT | WRITE | USER | ACCESSED | MAPPED
    }

    #[inline]
    fn leaf(frame: Pfn, level: u32, prot: Prot, marks: Marks) -> u64 {
        let size = if level > 1 { PAGE_SIZE } else { 0 };
        let entry = u64::from(frame.0) << 12 | USER | MAPPED | size | rights(prot);
        Self::with_marks(turned(entry), marks)
    }

    #[inline]
    fn is_mapped(entry: u64) -> bool {
        entry & MAPPED != 0
    }

    #[inline]
    fn is_leaf(entry: u64, level: u32) -> bool {
        level == 1 || entry & PAGE_SIZE != 0
    }

    #[inline]
    fn frame(entry: u64, _level: u32) -> Pfn {
        Pfn(((turned(entry) & FRAME_MASK) >> 12) as u32)
    }

    #[inline]
    fn prot(entry: u64, _level: u32) -> Prot {
        let memory = match entry & (CACHE_DISABLE | WRITE_THROUGH) {
            0 => MemoryType::WriteBack,
            WRITE_THROUGH => MemoryType::WriteCombining,
            _ => MemoryType::Uncached,
        };
        let mut prot = Prot::NONE;
        if entry & PRESENT != 0 {
            prot = Prot::READ;
            if entry & WRITE != 0 {
                prot = prot.union(Prot::WRITE);
            }
            if entry & NO_EXECUTE == 0 {
                prot = prot.union(Prot::EXECUTE);
            }
        }
        prot.with_type(memory)
    }

    #[inline]
    fn is_writable(entry: u64) -> bool {
        entry & (PRESENT | WRITE) == PRESENT | WRITE
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
        turned(turned(entry) & !RIGHTS | rights(prot))
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
        (page.slot ^ Swapped::MAX_SLOT) << SLOT_SHIFT | SWAPPED | exclusive | clean
    }

    #[inline]
    fn swapped(entry: u64) -> Swapped {
        Swapped {
            slot: (entry & FRAME_MASK) >> SLOT_SHIFT ^ Swapped::MAX_SLOT,
            exclusive: entry & EXCLUSIVE != 0,
            clean: entry & CLEAN != 0,
        }
    }
}
