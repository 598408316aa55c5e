//! How an architecture writes a page-table entry.

use crate::addr::{Geometry, Pfn, Prot, Vpn};

/// What a leaf entry says beside its frame and rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// The page was used since the mark was cleared.
    pub accessed: bool,
    /// The page was written since the mark was cleared.
    pub dirty: bool,
}

impl Marks {
    /// Used, not written.
    pub const ACCESSED: Marks = Marks {
        accessed: true,
        dirty: false,
    };
    /// Used and written.
    pub const DIRTY: Marks = Marks {
        accessed: true,
        dirty: true,
    };
}

/// A page-table format: the geometry, and the bits of an entry.
///
/// An entry is empty (0), a table entry, or a leaf. A leaf may forbid every
/// access and still hold its frame (`PROT_NONE`): hardware then sees an invalid
/// entry, and [`Format::is_mapped`] is true all the same. Levels count from 1,
/// whose leaves are single pages, to [`Format::LEVELS`], the root.
pub trait Format: Geometry + Sized + Send + Sync {
    /// Name in reports.
    const NAME: &'static str;
    /// Levels of tables.
    const LEVELS: u32;
    /// Highest level at which a leaf may stand.
    const MAX_LEAF_LEVEL: u32;
    /// First page beyond those a user space can map.
    const USER_END: Vpn;

    /// An entry that leads to `table`.
    fn table_entry(table: Pfn) -> u64;
    /// A leaf at `level`; `frame` is aligned to the level's size.
    fn leaf(frame: Pfn, level: u32, prot: Prot, marks: Marks) -> u64;
    /// Whether the entry is a leaf or leads to a table.
    fn is_mapped(entry: u64) -> bool;
    /// Whether a mapped entry at `level` is a leaf.
    fn is_leaf(entry: u64, level: u32) -> bool;
    /// First frame of a leaf, or the table of a table entry.
    fn frame(entry: u64, level: u32) -> Pfn;
    /// What hardware allows through a leaf.
    fn prot(entry: u64, level: u32) -> Prot;
    /// Whether hardware allows stores through a leaf.
    fn is_writable(entry: u64) -> bool;
    /// The marks of a leaf.
    fn marks(entry: u64) -> Marks;
    /// The leaf without the right to store.
    fn write_protect(entry: u64) -> u64;
    /// The leaf with other marks.
    fn with_marks(entry: u64, marks: Marks) -> u64;
    /// The leaf with other rights and memory type.
    fn with_prot(entry: u64, level: u32, prot: Prot) -> u64;

    /// Index of `page` in a table at `level`.
    #[inline]
    fn index(page: Vpn, level: u32) -> usize {
        (page.0 >> ((level - 1) * Self::INDEX_BITS)) as usize & (Self::ENTRIES - 1)
    }

    /// Pages that one entry at `level` covers.
    #[inline]
    fn pages_at(level: u32) -> u64 {
        1 << ((level - 1) * Self::INDEX_BITS)
    }

    /// First page that the table at `level` which covers `page` covers.
    #[inline]
    fn table_base(page: Vpn, level: u32) -> Vpn {
        Vpn(page.0 & !(Self::pages_at(level + 1) - 1))
    }
}
