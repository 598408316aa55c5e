//! What stores answer that could not do their work.

use core::fmt;

/// Why the backing store could not do its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoError;

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the backing store failed")
    }
}

/// Why a page was not taken by the store of a swap area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotError {
    /// The store failed: the slot is not used again.
    Io,
    /// The store has no room for the page, as one in memory that is at its limit: nothing is
    /// wrong with the slot.
    NoRoom,
}

impl From<IoError> for SlotError {
    fn from(IoError: IoError) -> Self {
        SlotError::Io
    }
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SlotError::Io => "the store of the swap area failed",
            SlotError::NoRoom => "the store of the swap area has no room for the page",
        })
    }
}

impl core::error::Error for SlotError {}
