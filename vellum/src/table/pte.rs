//! Naming a page-table entry.

use crate::addr::Pfn;

/// A page-table entry: its table and its index there. Never a pointer, so that
/// it stays valid wherever the table can be reached, and packs into 48 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PteRef {
    /// The table.
    pub table: Pfn,
    /// Index of the entry.
    pub index: u16,
}

impl PteRef {
    /// Bits that [`PteRef::pack`] uses.
    pub const BITS: u32 = 48;

    /// As a 48-bit number.
    #[inline]
    pub const fn pack(self) -> u64 {
        (self.table.0 as u64) << 16 | self.index as u64
    }

    /// From [`PteRef::pack`]; higher bits are ignored.
    #[inline]
    pub const fn unpack(bits: u64) -> PteRef {
        PteRef {
            table: Pfn((bits >> 16) as u32),
            index: bits as u16,
        }
    }

    /// The entry `count` further on in the same table.
    #[inline]
    pub const fn offset(self, count: u32) -> PteRef {
        PteRef {
            table: self.table,
            index: self.index + count as u16,
        }
    }
}
