//! 32-bit x86 with PAE: three levels, entries of 8 bytes, pages of 4 KiB.
//!
//! Bits as in Intel's manual, volume 3A, section 4.4.2, and the AMD64 Architecture
//! Programmer's Manual, volume 2, section 5.2. The two lower levels have the entries of
//! long mode, with leaves of 2 MiB. The root is different:
//!
//! * It has four entries (PDPTEs), each for 1 GiB. In them R/W, U/S, A, PS and NX are
//!   reserved: an entry is P and a frame, and bits 9 to 11 are free for software.
//! * A processor reads all four when CR3 is loaded, and uses what it has read until
//!   CR3 is loaded again. So a root is made with its tables ([`Format::FIXED_ROOT`]).
//! * CR3 has 32 bits, so a root that is loaded lies below 4 GiB.
//!
//! Programs have 3 GiB. The fourth entry is the kernel's, and 0 in the root that the
//! manager makes. Since that never changes, an embedder may load a copy of its three
//! entries, below 4 GiB, with the kernel's beside them.

use super::format::{Format, Marks, Swapped};
use super::x86_64::{self, X86_64};
use crate::addr::{Geometry, Pfn, Prot, Vpn};

/// 32-bit x86 with PAE: 3 GiB of addresses for programs.
pub struct X86Pae;

// SAFETY: frames of 4 KiB, and nothing else is defined.
unsafe impl Geometry for X86Pae {
    const FRAME_SHIFT: u32 = 12;
}

// SAFETY: indices are the trait's own, entries those of x86-64 but in the root, where
// the frame stands in the same bits; `the_promises_of_the_trait_hold` checks all
// conditions.
unsafe impl Format for X86Pae {
    const NAME: &'static str = "x86-pae";
    type Reach = super::Windowed;
    const LEVELS: u32 = 3;
    const MAX_LEAF_LEVEL: u32 = 2;
    const SOFT_DIRTY: u64 = X86_64::SOFT_DIRTY;
    const USER_END: Vpn = Vpn(3 << 18);
    const FIXED_ROOT: bool = true;

    #[inline]
    fn table_entry(table: Pfn, level: u32) -> u64 {
        let entry = X86_64::table_entry(table, level);
        match level == Self::LEVELS {
            true => entry & !x86_64::RESERVED_IN_PDPTE,
            false => entry,
        }
    }

    #[inline]
    fn leaf(frame: Pfn, level: u32, prot: Prot, marks: Marks) -> u64 {
        X86_64::leaf(frame, level, prot, marks)
    }

    #[inline]
    fn is_mapped(entry: u64) -> bool {
        X86_64::is_mapped(entry)
    }

    #[inline]
    fn is_leaf(entry: u64, level: u32) -> bool {
        X86_64::is_leaf(entry, level)
    }

    #[inline]
    fn frame(entry: u64, level: u32) -> Pfn {
        X86_64::frame(entry, level)
    }

    #[inline]
    fn prot(entry: u64, level: u32) -> Prot {
        X86_64::prot(entry, level)
    }

    #[inline]
    fn is_writable(entry: u64) -> bool {
        X86_64::is_writable(entry)
    }

    #[inline]
    fn marks(entry: u64) -> Marks {
        X86_64::marks(entry)
    }

    #[inline]
    fn write_protect(entry: u64) -> u64 {
        X86_64::write_protect(entry)
    }

    #[inline]
    fn with_marks(entry: u64, marks: Marks) -> u64 {
        X86_64::with_marks(entry, marks)
    }

    #[inline]
    fn with_prot(entry: u64, level: u32, prot: Prot) -> u64 {
        X86_64::with_prot(entry, level, prot)
    }

    const WATCHES: bool = X86_64::WATCHES;

    #[inline]
    fn with_watch(entry: u64, is_watched: bool) -> u64 {
        X86_64::with_watch(entry, is_watched)
    }

    #[inline]
    fn is_watched(entry: u64) -> bool {
        X86_64::is_watched(entry)
    }

    #[inline]
    fn swap(page: Swapped) -> u64 {
        X86_64::swap(page)
    }

    #[inline]
    fn swapped(entry: u64) -> Swapped {
        X86_64::swapped(entry)
    }
}
