//! Where file pages come from and go to.
//!
//! A [`BackingStore`] holds pages by store number and page index. Two are
//! provided: [`PatternStore`], which makes up the contents of pages that were
//! never written, and [`DeviceStore`], which keeps written pages on a
//! [`BlockDevice`]. Both do as told by a [`FaultPlan`]. A [`TimedStore`] says of either what its
//! requests would take on a device, and a [`CompressedStore`] keeps the pages of a swap area in
//! memory, compressed.

mod compressed;
mod contents;
mod device;
mod fault;
mod holes;
mod pattern;
mod timed;

use std::ops::Range;

use vellum::platform::{IoError, SlotError};
use vellum::sync::bytes::FrameBytes;

pub use compressed::{CompressedArea, CompressedStore};
pub use contents::Contents;
pub use device::{BlockDevice, DeviceStore};
pub use fault::{FaultPlan, Transfer};
pub use pattern::{Pattern, PatternStore};
pub use timed::{DeviceModel, DeviceUse, TimedStore};
pub use vellum_compressed::Stats as CompressedStats;

/// A backing store. All methods may be called from many threads at a time.
pub trait BackingStore: Send + Sync {
    /// Bytes in a page.
    fn page_bytes(&self) -> usize;

    /// Reads page `index` of `store` into `bytes` (one page), which nobody else
    /// uses until the call returns.
    ///
    /// # Errors
    /// [`IoError`] if the page cannot be read; `bytes` is then unspecified.
    fn read_page(&self, store: u64, index: u64, bytes: FrameBytes<'_>) -> Result<(), IoError>;

    /// Writes `bytes` (one page) to page `index` of `store`.
    ///
    /// # Errors
    /// [`IoError`] if the page was not taken; the old contents stay.
    fn write_page(&self, store: u64, index: u64, bytes: &[u8]) -> Result<(), IoError>;

    /// [`BackingStore::write_page`] to a slot of a swap area.
    ///
    /// # Errors
    /// [`SlotError`] if the page was not taken.
    fn write_slot(&self, store: u64, slot: u64, bytes: &[u8]) -> Result<(), SlotError> {
        Ok(self.write_page(store, slot, bytes)?)
    }

    /// Whether a swap area has room for a page now.
    fn has_swap_room(&self, store: u64) -> bool {
        let _ = store;
        true
    }

    /// Pages that the device writes in a second, as far as that has been measured; `None` if
    /// no writer is to be throttled.
    fn write_speed(&self, store: u64) -> Option<u64> {
        let _ = store;
        None
    }

    /// The page in a slot of a swap area is not wanted any more.
    fn slot_freed(&self, store: u64, slot: u64) {
        let _ = (store, slot);
    }

    /// Makes pages read as zeroes until they are written. The range may go on far
    /// beyond the last page that was ever written. Survives a loss of power.
    ///
    /// # Errors
    /// [`IoError`] if the store cannot.
    fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError>;

    /// The first page at or after `index` that is not a discarded one, if `stored`; else
    /// the first that is: it reads as zeroes.
    fn find_page(&self, store: u64, index: u64, stored: bool) -> Option<u64>;

    /// Makes everything written survive a loss of power.
    ///
    /// # Errors
    /// [`IoError`] if not everything was made safe.
    fn flush(&self) -> Result<(), IoError>;

    /// The word at byte `offset` of `store` as it would be read, for checks by
    /// the host. No fault plan applies. `None` if `offset` is not a multiple
    /// of 8, or the word cannot be had.
    fn stored_word(&self, store: u64, offset: u64) -> Option<u64>;

    /// Forgets everything written to `store`: it reads as never written.
    fn discard(&self, store: u64);

    /// What a device was asked for, if the store stands for one whose time is counted.
    fn used(&self) -> Option<DeviceUse> {
        None
    }

    /// What a compressed store in front of the swap area holds and has done, if there is one.
    fn compressed(&self) -> Option<CompressedStats> {
        None
    }
}

/// Spreads a page's identity over `shards` (a power of two).
fn shard_of(store: u64, index: u64, shards: usize) -> usize {
    let hash = (store ^ index.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 40) as usize & (shards - 1)
}
