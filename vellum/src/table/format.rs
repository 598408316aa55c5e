//! How an architecture writes a page-table entry.

use super::reach::Reach;
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

/// What the entry of a page says that is in swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swapped {
    /// The slot that holds the page: [`Swapped::SLOT_BITS`] bits.
    pub slot: u64,
    /// No other entry names the slot, or has done since this one was made.
    pub exclusive: bool,
    /// Nobody has stored to the page since dirty tracking looked at it last
    /// ([`Space::take_dirty`](crate::space::Space::take_dirty)).
    pub clean: bool,
}

impl Swapped {
    /// Bits of a slot's number.
    pub const SLOT_BITS: u32 = 40;
    /// The highest number that a slot may have.
    pub const MAX_SLOT: u64 = (1 << Swapped::SLOT_BITS) - 1;
    /// What the entry of a guard says: a slot that no area has.
    pub(crate) const GUARD: Swapped = Swapped {
        slot: Swapped::MAX_SLOT,
        exclusive: false,
        clean: false,
    };
    /// What the entry of a page says whose memory has failed, with what it held.
    pub(crate) const LOST: Swapped = Swapped {
        exclusive: true,
        ..Swapped::GUARD
    };
}

/// The kinds of entries. Whoever takes an entry apart that may be any of them does
/// so through [`Format::decode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing.
    Empty,
    /// The table below.
    Table(Pfn),
    /// The first frame that is mapped.
    Leaf(Pfn),
    /// A page that is in swap. At level 1 only.
    Swap(Swapped),
    /// A page that nobody may access, and that faults
    /// ([`Advice::InstallGuards`](crate::space::Advice::InstallGuards)). At level 1 only.
    Guard,
    /// A page whose memory has failed, with what it held: every access faults
    /// ([`FaultError::Lost`](crate::space::FaultError::Lost)). At level 1 only.
    Lost,
}

/// A page-table format: the geometry, and the bits of an entry.
///
/// An entry is empty (0), a table entry, a leaf, the entry of a page in swap, a guard, or that of a
/// page that is lost ([`Entry`]). A leaf may forbid every
/// access and still hold its frame (`PROT_NONE`): hardware then sees an invalid
/// entry, and [`Format::is_mapped`] is true all the same. Levels count from 1,
/// whose leaves are single pages, to [`Format::LEVELS`], the root.
///
/// # Safety
/// Walks follow what these methods make of entries to frames, which they read and
/// write as tables, so:
///
/// 1. [`Format::index`] is less than [`Geometry::ENTRIES`] for every page and every
///    level from 1 to [`Format::LEVELS`], which is at least 1; pages below
///    [`Format::USER_END`] that differ have different indices at some level.
/// 2. For every frame number below [`Pfn::NONE`] that a platform may have,
///    `table_entry` gives an entry that is mapped and no leaf at the levels from 2
///    up, and `leaf` one that is mapped and a leaf at levels 1 to
///    [`Format::MAX_LEAF_LEVEL`]; neither is 0, and `frame` gives the frame back.
///    At level 1 every mapped entry is a leaf. Entry 0 is not mapped.
/// 3. `write_protect`, `with_marks` and `with_prot` change neither whether a leaf is
///    mapped nor its frame, and hardware changes nothing but marks.
/// 4. A leaf allows user code what `prot` says and no more, and
///    `is_writable` is what `prot` says of stores.
/// 5. `swap` gives an entry that is not 0 and not mapped, in which hardware sees nothing,
///    and `swapped` gives back what it was made of.
/// 6. With [`Format::CONTIGUOUS_ORDER`] other than 0, `seen` gives back what `stored` was
///    given with the same index, if that is an entry without the hint, or a leaf with the
///    hint of a run of frames that lies as its entries do; hardware may take each entry with
///    the hint for any of its run.
/// 7. `with_watch` changes nothing but what `is_watched` says, and the latter is false of what
///    `leaf` and `swap` give.
///
/// A format that exists can be wrapped; the wrapper promises the same:
///
/// ```
/// # use vellum::addr::{Geometry, Pfn, Prot, Vpn};
/// # use vellum::table::{Format, Marks, Swapped, X86_64};
/// struct Renamed;
/// # // SAFETY: that of x86-64.
/// # unsafe impl Geometry for Renamed { const FRAME_SHIFT: u32 = X86_64::FRAME_SHIFT; }
/// // SAFETY: everything but the name is that of x86-64.
/// unsafe impl Format for Renamed {
///     const NAME: &'static str = "renamed";
/// #   type Reach = <X86_64 as Format>::Reach;
/// #   const LEVELS: u32 = X86_64::LEVELS;
/// #   const MAX_LEAF_LEVEL: u32 = X86_64::MAX_LEAF_LEVEL;
/// #   const USER_END: Vpn = X86_64::USER_END;
/// #   fn table_entry(table: Pfn, level: u32) -> u64 { X86_64::table_entry(table, level) }
/// #   fn leaf(frame: Pfn, level: u32, prot: Prot, marks: Marks) -> u64 { X86_64::leaf(frame, level, prot, marks) }
/// #   fn is_mapped(entry: u64) -> bool { X86_64::is_mapped(entry) }
/// #   fn is_leaf(entry: u64, level: u32) -> bool { X86_64::is_leaf(entry, level) }
/// #   fn frame(entry: u64, level: u32) -> Pfn { X86_64::frame(entry, level) }
/// #   fn prot(entry: u64, level: u32) -> Prot { X86_64::prot(entry, level) }
/// #   fn is_writable(entry: u64) -> bool { X86_64::is_writable(entry) }
/// #   fn marks(entry: u64) -> Marks { X86_64::marks(entry) }
/// #   fn write_protect(entry: u64) -> u64 { X86_64::write_protect(entry) }
/// #   fn with_marks(entry: u64, marks: Marks) -> u64 { X86_64::with_marks(entry, marks) }
/// #   fn with_prot(entry: u64, level: u32, prot: Prot) -> u64 { X86_64::with_prot(entry, level, prot) }
/// #   fn swap(page: Swapped) -> u64 { X86_64::swap(page) }
/// #   fn swapped(entry: u64) -> Swapped { X86_64::swapped(entry) }
///     // The rest forwards.
/// }
/// ```
/// ```compile_fail,E0200
/// # use vellum::addr::{Geometry, Pfn, Prot, Vpn};
/// # use vellum::table::{Format, Marks, Swapped, X86_64};
/// struct Renamed;
/// # // SAFETY: that of x86-64.
/// # unsafe impl Geometry for Renamed { const FRAME_SHIFT: u32 = X86_64::FRAME_SHIFT; }
/// // Everything but the name is that of x86-64.
/// impl Format for Renamed {
///     const NAME: &'static str = "renamed";
/// #   type Reach = <X86_64 as Format>::Reach;
/// #   const LEVELS: u32 = X86_64::LEVELS;
/// #   const MAX_LEAF_LEVEL: u32 = X86_64::MAX_LEAF_LEVEL;
/// #   const USER_END: Vpn = X86_64::USER_END;
/// #   fn table_entry(table: Pfn, level: u32) -> u64 { X86_64::table_entry(table, level) }
/// #   fn leaf(frame: Pfn, level: u32, prot: Prot, marks: Marks) -> u64 { X86_64::leaf(frame, level, prot, marks) }
/// #   fn is_mapped(entry: u64) -> bool { X86_64::is_mapped(entry) }
/// #   fn is_leaf(entry: u64, level: u32) -> bool { X86_64::is_leaf(entry, level) }
/// #   fn frame(entry: u64, level: u32) -> Pfn { X86_64::frame(entry, level) }
/// #   fn prot(entry: u64, level: u32) -> Prot { X86_64::prot(entry, level) }
/// #   fn is_writable(entry: u64) -> bool { X86_64::is_writable(entry) }
/// #   fn marks(entry: u64) -> Marks { X86_64::marks(entry) }
/// #   fn write_protect(entry: u64) -> u64 { X86_64::write_protect(entry) }
/// #   fn with_marks(entry: u64, marks: Marks) -> u64 { X86_64::with_marks(entry, marks) }
/// #   fn with_prot(entry: u64, level: u32, prot: Prot) -> u64 { X86_64::with_prot(entry, level, prot) }
/// #   fn swap(page: Swapped) -> u64 { X86_64::swap(page) }
/// #   fn swapped(entry: u64) -> Swapped { X86_64::swapped(entry) }
///     // The rest forwards.
/// }
/// ```
pub unsafe trait Format: Geometry + Sized + Send + Sync {
    /// Name in reports.
    const NAME: &'static str;
    /// Where the lowest tables may lie: [`super::Direct`], or [`super::Windowed`] if
    /// machines have more memory than they can address directly.
    type Reach: Reach;
    /// Levels of tables.
    const LEVELS: u32;
    /// Highest level at which a leaf may stand.
    const MAX_LEAF_LEVEL: u32;
    /// First page beyond those a user space can map. The page must not be one that the processor
    /// cannot return to from a system call at the end of the page before it.
    const USER_END: Vpn;

    /// Whether processors read the entries of a root when they load it, and not again
    /// (the PDPTE registers of PAE). Those for pages of programs then lead to tables
    /// from before the root is loaded until it is given up, and never change. Such a
    /// format has three levels or more and no leaves in the root, or does not compile.
    const FIXED_ROOT: bool = false;

    /// Log2 of the pages of a *contiguous run*: entries of level 1 in a row, aligned to their
    /// number, which may say that they map frames that lie the same way with the same rights,
    /// so that a processor caches one translation for all. 0 if the format has no such hint.
    const CONTIGUOUS_ORDER: u32 = 0;

    /// A bit of leaves that map one page of an object. Set: the page may have been written since dirty
    /// tracking looked at it last, also without a dirty mark. Hardware and the other methods leave it alone, and
    /// [`Format::leaf`] leaves it clear. 0 if the format has none to spare: dirty tracking then reports
    /// more pages than were written.
    const SOFT_DIRTY: u64 = 0;

    /// An entry at `level` that leads to `table`.
    fn table_entry(table: Pfn, level: u32) -> u64;
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
    /// The rights that user code has where `asked` are asked for: with those that hardware cannot
    /// withhold. No format has stores without loads, and x86 has no instruction fetches without
    /// loads either.
    #[inline]
    fn given(asked: Prot) -> Prot {
        match asked.can_read() {
            true => asked,
            false => Self::prot(Self::leaf(Pfn(0), 1, asked, Marks::default()), 1),
        }
    }
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
    /// The entry of a page that is in swap, at level 1.
    fn swap(page: Swapped) -> u64;
    /// What such an entry says.
    fn swapped(entry: u64) -> Swapped;

    /// Whether entries have room for the mark of [`Format::with_watch`].
    const WATCHES: bool = false;

    /// A leaf of level 1, or the entry of a page in swap, with or without the mark that the page is
    /// *watched*: stores are handed to a fault hook. `write_protect`, `with_marks` and `with_prot`
    /// keep it.
    #[inline]
    fn with_watch(entry: u64, _is_watched: bool) -> u64 {
        entry
    }

    /// Whether such an entry has the mark.
    #[inline]
    fn is_watched(_entry: u64) -> bool {
        false
    }

    /// The leaf of level 1 with the hint that it is one of a contiguous run.
    #[inline]
    fn contiguous(entry: u64) -> u64 {
        entry
    }

    /// Whether a leaf of level 1 has the hint.
    #[inline]
    fn is_contiguous(_entry: u64) -> bool {
        false
    }

    /// What an entry, found at `index` of its table, says in the form of the other methods:
    /// hints may take the place of bits of the frame's number.
    #[inline]
    fn seen(word: u64, _index: usize) -> u64 {
        word
    }

    /// How an entry is kept in its table.
    #[inline]
    fn stored(entry: u64) -> u64 {
        entry
    }

    /// Whether an entry at level 1 is a guard.
    #[inline]
    fn is_guard(entry: u64) -> bool {
        entry == Self::swap(Swapped::GUARD)
    }

    /// Whether an entry at level 1 is that of a page that is lost.
    #[inline]
    fn is_lost(entry: u64) -> bool {
        entry == Self::swap(Swapped::LOST)
    }

    /// Whether an entry at level 1 is not empty, and of no page in memory or in swap: a guard, or that
    /// of a page that is lost.
    #[inline]
    fn is_of_no_page(entry: u64) -> bool {
        Self::is_guard(entry) || Self::is_lost(entry)
    }

    /// What an entry at `level` is. That of a leaf or table is found out by the tests that
    /// would be made anyway.
    #[inline]
    fn decode(entry: u64, level: u32) -> Entry {
        if Self::is_mapped(entry) {
            let frame = Self::frame(entry, level);
            return match Self::is_leaf(entry, level) {
                true => Entry::Leaf(frame),
                false => Entry::Table(frame),
            };
        }
        match entry {
            0 => Entry::Empty,
            _ => match Self::swapped(entry) {
                Swapped::GUARD => Entry::Guard,
                Swapped::LOST => Entry::Lost,
                swapped => Entry::Swap(swapped),
            },
        }
    }

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
