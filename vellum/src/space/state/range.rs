//! Which pages a space can map.

use super::common::Common;
use super::error::MapError;
use super::manager::Vm;
use crate::addr::{PageRange, Vpn};
use crate::object::INDEX_END;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::table::Format;

/// Lowest page that is handed out unasked, so that null pointers fault.
pub(super) const LOWEST: Vpn = Vpn(16);

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Where pages may be mapped when the caller does not say.
    pub(in crate::space) fn bounds() -> PageRange {
        PageRange {
            start: LOWEST,
            // One page stays free, so that the end of a range is an address.
            end: Vpn(F::USER_END.0 - 1),
        }
    }

    /// A range that the format can map, if it is one.
    pub(in crate::space) fn checked_range(start: Vpn, pages: u64) -> Result<PageRange, MapError> {
        let end = start.0.checked_add(pages).ok_or(MapError::BadRange)?;
        if pages == 0 || end > F::USER_END.0 {
            return Err(MapError::BadRange);
        }
        Ok(PageRange {
            start,
            end: Vpn(end),
        })
    }

    /// The same of a range that a caller made, which may end before it begins.
    pub(in crate::space) fn checked(range: PageRange) -> Result<PageRange, MapError> {
        let pages = range.end.0.checked_sub(range.start.0);
        Self::checked_range(range.start, pages.ok_or(MapError::BadRange)?)
    }

    /// All pages.
    pub(in crate::space) fn all_pages() -> PageRange {
        PageRange {
            start: Vpn(0),
            end: F::USER_END,
        }
    }

    /// Most bytes of an object: what its tree of pages holds, and no more than a signed
    /// offset of 64 bits can name.
    pub const MAX_SIZE: u64 = most_bytes(F::FRAME_SHIFT);
}

/// [`Vm::MAX_SIZE`], for pages of this size.
const fn most_bytes(frame_shift: u32) -> u64 {
    let pages = (i64::MAX as u64) >> frame_shift;
    match pages < INDEX_END {
        true => i64::MAX as u64,
        false => INDEX_END << frame_shift,
    }
}

impl<P: Platform> Common<P> {
    /// [`Vm::MAX_SIZE`].
    pub(in crate::space) fn most_bytes(&self) -> u64 {
        most_bytes(self.memory.frame_shift())
    }

    /// The page of a byte.
    pub(in crate::space) fn page_of(&self, byte: u64) -> u64 {
        byte >> self.memory.frame_shift()
    }

    /// Pages that so many bytes need.
    pub(in crate::space) fn pages_for(&self, bytes: u64) -> u64 {
        self.page_of(bytes) + u64::from(self.within_page(bytes) != 0)
    }

    /// Bytes in so many pages, as far as an object holds.
    pub(in crate::space) fn bytes_in(&self, pages: u64) -> u64 {
        let (most, shift) = (self.most_bytes(), self.memory.frame_shift());
        match pages > most >> shift {
            true => most,
            false => pages << shift,
        }
    }

    /// Where a byte lies in its page.
    pub(in crate::space) fn within_page(&self, byte: u64) -> usize {
        byte as usize & (self.memory.frame_size() - 1)
    }
}
