//! AArch64 (VMSAv8-64): stage 1, 48-bit addresses, TTBR0, granules of 4, 16
//! and 64 KiB.
//!
//! Bits as in the Arm Architecture Reference Manual for A-profile (DDI 0487),
//! section D8.3 "Translation table descriptor formats". Levels count here from
//! 1 at the bottom; the manual's level is 4 less ours, and its walk begins at
//! level 0, or at level 1 with 64 KiB.
//!
//! | granule | entries a table | levels | entries used in the root | larger leaves |
//! |---------|-----------------|--------|--------------------------|---------------|
//! | 4 KiB   | 512             | 4      | 512                      | 2 MiB, 1 GiB  |
//! | 16 KiB  | 2048            | 4      | 2                        | 32 MiB        |
//! | 64 KiB  | 8192            | 3      | 64                       | 512 MiB       |
//!
//! What software has to set up: `TCR_EL1.HA` and `HD` (FEAT_HAFDBS: hardware
//! sets the access flag and the dirty state), and the attributes of [`MAIR`].
//! Leaves are split without going through an invalid entry, which needs
//! FEAT_BBM level 2; nothing else relies on it.
//!
//! **Writable and dirty.** A leaf that may be written has DBM set, always. It is
//! clean while AP\[2\] is set and dirty when hardware or software has cleared it.
//! A leaf that may not be written has DBM clear and AP\[2\] set, and keeps the
//! dirty mark in a bit left to software (55), which hardware never looks at. So
//! AP\[2\] alone says nothing: *writable* is DBM, *dirty* is "DBM and not AP\[2\],
//! or bit 55". Entries with both DBM and AP\[2\] clear, or with DBM and bit 55
//! set, are never made.
//!
//! **`PROT_NONE`.** Bit 56, left to software, marks every entry that holds
//! something. A leaf that forbids all access has bit 0 (valid) clear: hardware
//! ignores the rest of it. Bit 1 stays, so that page and block are told apart.
//!
//! **Contiguous runs.** Bit 52 of sixteen pages in a row, with the granule of 4 KiB: they map
//! 64 KiB that are aligned and lie in a row, with the same rights. The processor may cache one
//! translation for all, and keep marks in any entry. The other granules have runs of 2 MiB,
//! which nothing here makes.
//!
//! **Swap.** The entry of a page in swap has bits 0 and 56 clear and bit 57 set, with the
//! slot's number from bit 12 on, bit 58 if no other entry names the slot, and bit 60 if nobody has
//! stored to the page since dirty tracking looked. Hardware ignores all of it but bit 0.
//!
//! **Watched.** A page that a fault hook watches has bit 57 of its leaf set, or bit 59 of its entry
//! in swap. **Soft-dirty** ([`Format::SOFT_DIRTY`]) is bit 58 of leaves.

use super::format::{Format, Marks, Swapped};
use crate::addr::{Geometry, MemoryType, Pfn, Prot, Vpn};

/// AArch64 with a granule of `1 << GRANULE` bytes: 12, 14 or 16.
pub struct Aarch64<const GRANULE: u32>;

/// AArch64 with pages of 4 KiB.
pub type Aarch64_4K = Aarch64<12>;
/// AArch64 with pages of 16 KiB: 2048 entries and 32 MiB a table.
pub type Aarch64_16K = Aarch64<14>;
/// AArch64 with pages of 64 KiB: 8192 entries and 512 MiB a table.
pub type Aarch64_64K = Aarch64<16>;

/// The value of `MAIR_EL1` that leaves count on: attribute 0 is normal
/// write-back memory (0xff), 1 normal non-cacheable memory, which gathers
/// stores (0x44), 2 device memory nGnRnE (0x00).
pub const MAIR: u64 = 0x00_44_ff;

const ADDRESS_BITS: u32 = 48;

const VALID: u64 = 1 << 0;
/// A table above the lowest level, a page at it; clear in blocks.
const TABLE_OR_PAGE: u64 = 1 << 1;
const ATTRIBUTE_SHIFT: u32 = 2;
const ATTRIBUTES: u64 = 7 << ATTRIBUTE_SHIFT;
/// AP\[1\]: programs may load (and store, without AP\[2\]).
const USER: u64 = 1 << 6;
/// AP\[2\]: no stores; with DBM, not stored to yet.
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 3 << 8;
const ACCESS_FLAG: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const DIRTY_MODIFIER: u64 = 1 << 51;
/// One of a contiguous run.
const CONTIGUOUS: u64 = 1 << 52;
const PRIVILEGED_NEVER: u64 = 1 << 53;
const USER_NEVER: u64 = 1 << 54;
/// Software: dirty, of a leaf that may not be written.
const WAS_DIRTY: u64 = 1 << 55;
/// Software: the entry holds something.
const MAPPED: u64 = 1 << 56;
/// Software: the page is in swap.
const SWAPPED: u64 = 1 << 57;
/// Software, of a page in swap: no other entry names the slot.
const EXCLUSIVE: u64 = 1 << 58;
/// Software, of a leaf: watched by a fault hook.
const WATCHED: u64 = 1 << 57;
/// The same, of a page in swap.
const WATCHED_IN_SWAP: u64 = 1 << 59;
/// Software, of a page in swap: nobody has stored to it since dirty tracking looked.
const CLEAN: u64 = 1 << 60;
const SLOT_SHIFT: u32 = 12;
/// Of a table: nothing below is executable at EL1.
const PRIVILEGED_NEVER_TABLE: u64 = 1 << 59;

const RIGHTS: u64 = VALID | ATTRIBUTES | USER | DIRTY_MODIFIER | USER_NEVER;

const fn attribute(memory: MemoryType) -> u64 {
    let index = match memory {
        MemoryType::WriteBack => 0,
        MemoryType::WriteCombining => 1,
        MemoryType::Uncached => 2,
    };
    index << ATTRIBUTE_SHIFT
}

/// Everything that [`Format::with_prot`] changes, but for the dirty state.
/// Stores imply loads; instruction fetches alone need no right to load.
#[inline]
fn rights(prot: Prot) -> u64 {
    let valid = if prot.is_none() { 0 } else { VALID };
    let data = prot.can_read() || prot.can_write();
    let user = if data { USER } else { 0 };
    let write = if prot.can_write() { DIRTY_MODIFIER } else { 0 };
    let execute = if prot.can_execute() { 0 } else { USER_NEVER };
    valid | user | write | execute | attribute(prot.memory_type())
}

impl<const GRANULE: u32> Aarch64<GRANULE> {
    /// Bits 47 down to the granule. Frame numbers have 32 bits, so that even
    /// with the 64 KiB granule no address needs the bits above 47, which
    /// FEAT_LPA puts elsewhere.
    const OUTPUT: u64 = (1 << ADDRESS_BITS) - (1 << GRANULE);
}

// SAFETY: frames of 4 to 64 KiB, and nothing else is defined.
unsafe impl<const GRANULE: u32> Geometry for Aarch64<GRANULE> {
    const FRAME_SHIFT: u32 = {
        assert!(
            GRANULE == 12 || GRANULE == 14 || GRANULE == 16,
            "AArch64 has granules of 4, 16 and 64 KiB"
        );
        GRANULE
    };
}

// SAFETY: indices are the trait's own, and 32 bits of frame number fit into those of
// an entry; `the_promises_of_the_trait_hold` checks all conditions.
unsafe impl<const GRANULE: u32> Format for Aarch64<GRANULE> {
    const NAME: &'static str = match GRANULE {
        12 => "aarch64-4k",
        14 => "aarch64-16k",
        _ => "aarch64-64k",
    };
    type Reach = super::Direct;
    const LEVELS: u32 = (ADDRESS_BITS - GRANULE).div_ceil(GRANULE - 3);
    // Blocks stand at the manual's levels 1 and 2 with 4 KiB, at 2 with the others.
    const MAX_LEAF_LEVEL: u32 = if GRANULE == 12 { 3 } else { 2 };
    const SOFT_DIRTY: u64 = EXCLUSIVE;
    // TTBR0 has all 48 bits to itself.
    const USER_END: Vpn = Vpn(1 << (ADDRESS_BITS - GRANULE));
    const CONTIGUOUS_ORDER: u32 = if GRANULE == 12 { 4 } else { 0 };

    #[inline]
    fn table_entry(table: Pfn, _level: u32) -> u64 {
        u64::from(table.0) << GRANULE | VALID | TABLE_OR_PAGE | PRIVILEGED_NEVER_TABLE | MAPPED
    }

    #[inline]
    fn leaf(frame: Pfn, level: u32, prot: Prot, marks: Marks) -> u64 {
        let page = if level == 1 { TABLE_OR_PAGE } else { 0 };
        let fixed = page | INNER_SHAREABLE | NOT_GLOBAL | PRIVILEGED_NEVER | MAPPED;
        Self::with_marks(u64::from(frame.0) << GRANULE | fixed | rights(prot), marks)
    }

    #[inline]
    fn is_mapped(entry: u64) -> bool {
        entry & MAPPED != 0
    }

    #[inline]
    fn is_leaf(entry: u64, level: u32) -> bool {
        level == 1 || entry & TABLE_OR_PAGE == 0
    }

    #[inline]
    fn frame(entry: u64, _level: u32) -> Pfn {
        Pfn(((entry & Self::OUTPUT) >> GRANULE) as u32)
    }

    #[inline]
    fn prot(entry: u64, _level: u32) -> Prot {
        let memory = match (entry & ATTRIBUTES) >> ATTRIBUTE_SHIFT {
            0 => MemoryType::WriteBack,
            1 => MemoryType::WriteCombining,
            _ => MemoryType::Uncached,
        };
        let mut prot = Prot::NONE;
        if entry & VALID != 0 {
            if entry & USER != 0 {
                prot = Prot::READ;
            }
            if entry & DIRTY_MODIFIER != 0 {
                prot = prot.union(Prot::WRITE);
            }
            if entry & USER_NEVER == 0 {
                prot = prot.union(Prot::EXECUTE);
            }
        }
        prot.with_type(memory)
    }

    #[inline]
    fn is_writable(entry: u64) -> bool {
        entry & (VALID | DIRTY_MODIFIER) == VALID | DIRTY_MODIFIER
    }

    #[inline]
    fn marks(entry: u64) -> Marks {
        Marks {
            accessed: entry & ACCESS_FLAG != 0,
            dirty: entry & WAS_DIRTY != 0 || entry & (DIRTY_MODIFIER | READ_ONLY) == DIRTY_MODIFIER,
        }
    }

    #[inline]
    fn write_protect(entry: u64) -> u64 {
        Self::with_marks(entry & !DIRTY_MODIFIER, Self::marks(entry))
    }

    #[inline]
    fn with_marks(entry: u64, marks: Marks) -> u64 {
        let accessed = if marks.accessed { ACCESS_FLAG } else { 0 };
        let dirty = match (entry & DIRTY_MODIFIER != 0, marks.dirty) {
            (true, true) => 0,
            (true, false) | (false, false) => READ_ONLY,
            (false, true) => READ_ONLY | WAS_DIRTY,
        };
        entry & !(ACCESS_FLAG | READ_ONLY | WAS_DIRTY) | accessed | dirty
    }

    #[inline]
    fn with_prot(entry: u64, _level: u32, prot: Prot) -> u64 {
        Self::with_marks(entry & !RIGHTS | rights(prot), Self::marks(entry))
    }

    #[inline]
    fn contiguous(entry: u64) -> u64 {
        match Self::CONTIGUOUS_ORDER {
            0 => entry,
            _ => entry | CONTIGUOUS,
        }
    }

    #[inline]
    fn is_contiguous(entry: u64) -> bool {
        Self::CONTIGUOUS_ORDER != 0 && entry & CONTIGUOUS != 0
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
