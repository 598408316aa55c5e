//! Which pages a space can map.

use super::error::MapError;
use super::manager::Vm;
use crate::addr::{PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::table::Format;

/// Lowest page that is handed out unasked, so that null pointers fault.
const LOWEST: Vpn = Vpn(16);

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

    /// All pages.
    pub(in crate::space) fn all_pages() -> PageRange {
        PageRange {
            start: Vpn(0),
            end: F::USER_END,
        }
    }
}
