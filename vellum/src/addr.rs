//! Plain types for places in memory, and the geometry they are measured in.
//!
//! Frame numbers, page numbers and byte addresses are different types, so that
//! one cannot be passed for another. Nothing here touches memory.

use core::fmt;

/// Sizes that follow from a page-table format: one page, one table.
///
/// A page frame, a page and a page table are all `FRAME_SIZE` bytes, and an
/// entry is 8 bytes, so a table has `FRAME_SIZE / 8` entries.
///
/// # Safety
/// Frames are reached as slices of this many entries, so:
///
/// 1. `FRAME_SHIFT` is at least 3 and less than 32, and the other constants are
///    what their definitions here make of it.
///
/// ```
/// use vellum::addr::Geometry;
/// struct Small;
/// // SAFETY: frames of 4 KiB; nothing else is defined.
/// unsafe impl Geometry for Small {
///     const FRAME_SHIFT: u32 = 12;
/// }
/// ```
/// ```compile_fail,E0200
/// use vellum::addr::Geometry;
/// struct Small;
/// // SAFETY: frames of 4 KiB; nothing else is defined.
/// impl Geometry for Small {
///     const FRAME_SHIFT: u32 = 12;
/// }
/// ```
pub unsafe trait Geometry: 'static {
    /// Log2 of the bytes in a page frame.
    const FRAME_SHIFT: u32;
    /// Bytes in a page frame.
    const FRAME_SIZE: usize = 1 << Self::FRAME_SHIFT;
    /// Log2 of the entries in one table.
    const INDEX_BITS: u32 = Self::FRAME_SHIFT - 3;
    /// Entries in one table.
    const ENTRIES: usize = 1 << Self::INDEX_BITS;
}

/// A page frame number: physical address divided by the frame size.
///
/// They reach 12 TiB of 4 KiB frames ([`Pfn::END`]). [`Pfn::NONE`] is never a real frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pfn(pub u32);

impl Pfn {
    /// No frame.
    pub const NONE: Pfn = Pfn(u32::MAX);

    /// No frame's number, as all that follow: where a frame may be named, they name swap slots.
    pub const END: Pfn = Pfn((3 << 30) - 1);

    /// The frame number as an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The frame `count` frames further on.
    #[inline]
    pub const fn offset(self, count: u32) -> Pfn {
        Pfn(self.0 + count)
    }

    /// Whether this is [`Pfn::NONE`].
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == u32::MAX
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            f.write_str("pfn:none")
        } else {
            write!(f, "pfn:{:#x}", self.0)
        }
    }
}

/// A virtual page number: virtual address divided by the page size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Vpn(pub u64);

impl Vpn {
    /// The page that byte `address` lies in.
    #[inline]
    pub const fn of<G: Geometry>(address: u64) -> Vpn {
        Vpn(address >> G::FRAME_SHIFT)
    }

    /// Address of the page's first byte.
    #[inline]
    pub const fn address<G: Geometry>(self) -> u64 {
        self.0 << G::FRAME_SHIFT
    }

    /// The page `count` pages further on.
    #[inline]
    pub const fn offset(self, count: u64) -> Vpn {
        Vpn(self.0 + count)
    }
}

impl fmt::Debug for Vpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vpn:{:#x}", self.0)
    }
}

/// Pages `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PageRange {
    /// First page.
    pub start: Vpn,
    /// First page after the range.
    pub end: Vpn,
}

impl PageRange {
    /// The range of `pages` pages from `start` on.
    #[inline]
    pub const fn new(start: Vpn, pages: u64) -> PageRange {
        PageRange {
            start,
            end: Vpn(start.0 + pages),
        }
    }

    /// Pages in the range.
    #[inline]
    pub const fn pages(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether there is no page in the range.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Whether `page` lies in the range.
    #[inline]
    pub const fn contains(self, page: Vpn) -> bool {
        self.start.0 <= page.0 && page.0 < self.end.0
    }

    /// Whether the two ranges share a page.
    #[inline]
    pub const fn overlaps(self, other: PageRange) -> bool {
        self.start.0 < other.end.0 && other.start.0 < self.end.0
    }

    /// The pages in both ranges.
    #[inline]
    pub fn intersection(self, other: PageRange) -> PageRange {
        let start = self.start.max(other.start);
        PageRange {
            start,
            end: self.end.min(other.end).max(start),
        }
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vpn:{:#x}..{:#x}", self.start.0, self.end.0)
    }
}

/// What an access wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Instruction fetch.
    Execute,
}

/// How a mapping is cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MemoryType {
    /// Write-back: ordinary memory.
    #[default]
    WriteBack,
    /// Write-combining: frame buffers.
    WriteCombining,
    /// Uncached: device registers.
    Uncached,
}

/// Rights and memory type of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Prot(u8);

impl Prot {
    /// No access.
    pub const NONE: Prot = Prot(0);
    /// Loads.
    pub const READ: Prot = Prot(1);
    /// Stores.
    pub const WRITE: Prot = Prot(2);
    /// Instruction fetches.
    pub const EXECUTE: Prot = Prot(4);
    /// Loads and stores.
    pub const READ_WRITE: Prot = Prot(3);
    /// Loads and instruction fetches.
    pub const READ_EXECUTE: Prot = Prot(5);

    const TYPE_SHIFT: u32 = 4;

    /// The rights of both.
    #[inline]
    pub const fn union(self, other: Prot) -> Prot {
        Prot(self.0 | other.0)
    }

    /// The same without the right to store.
    #[inline]
    pub const fn read_only(self) -> Prot {
        Prot(self.0 & !Prot::WRITE.0)
    }

    /// The same rights with another memory type.
    #[inline]
    pub const fn with_type(self, memory: MemoryType) -> Prot {
        Prot(self.0 & 7 | (memory as u8) << Self::TYPE_SHIFT)
    }

    /// The memory type.
    #[inline]
    pub const fn memory_type(self) -> MemoryType {
        match self.0 >> Self::TYPE_SHIFT {
            1 => MemoryType::WriteCombining,
            2 => MemoryType::Uncached,
            _ => MemoryType::WriteBack,
        }
    }

    /// Whether loads are allowed.
    #[inline]
    pub const fn can_read(self) -> bool {
        self.0 & Self::READ.0 != 0
    }

    /// Whether stores are allowed.
    #[inline]
    pub const fn can_write(self) -> bool {
        self.0 & Self::WRITE.0 != 0
    }

    /// Whether instruction fetches are allowed.
    #[inline]
    pub const fn can_execute(self) -> bool {
        self.0 & Self::EXECUTE.0 != 0
    }

    /// Whether all rights of the other are among these.
    #[inline]
    pub(crate) const fn includes(self, other: Prot) -> bool {
        other.0 & 7 & !self.0 == 0
    }

    /// Whether nothing is allowed.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 & 7 == 0
    }

    /// Whether `access` is allowed.
    #[inline]
    pub const fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.can_read(),
            Access::Write => self.can_write(),
            Access::Execute => self.can_execute(),
        }
    }

    /// The value packed into a byte, and back.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// From [`Prot::bits`]; unknown bits are dropped.
    #[inline]
    pub const fn from_bits(bits: u8) -> Prot {
        Prot(bits & 0x37)
    }
}

impl fmt::Debug for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |on, letter| if on { letter } else { '-' };
        write!(
            f,
            "{}{}{}",
            flag(self.can_read(), 'r'),
            flag(self.can_write(), 'w'),
            flag(self.can_execute(), 'x')
        )?;
        match self.memory_type() {
            MemoryType::WriteBack => Ok(()),
            MemoryType::WriteCombining => f.write_str(" wc"),
            MemoryType::Uncached => f.write_str(" uc"),
        }
    }
}

/// The numbers of the bits of a word that are set, ascending.
pub(crate) fn set_bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.checked_sub(1)?;
        Some(bit)
    })
}
