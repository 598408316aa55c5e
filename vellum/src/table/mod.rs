//! Page tables: formats, walking, editing, and batched unmapping.
//!
//! Locking. Every table has a spin lock in its frame record. A walk reads
//! entries without locks under the caller's pin and locks only the table it
//! will edit, then checks that the table is still linked (`LockedTable::lock`
//! says so). Where two tables of one space are locked, the lower level comes
//! first: unlinking an empty table locks it and then its parent. A table that
//! is unlinked is marked dead under its lock, flushed, and freed when its
//! epoch has passed. One whose entries were moved to another is marked that way, and
//! whoever locks it gets the other (`lift.rs`).
//!
//! The CPU that empties a table frees it. It finds the table empty by its count
//! of live entries and not by a scan.

mod aarch64;
mod aging;
mod contiguous;
mod cursor;
mod flush;
mod format;
mod fresh;
mod gather;
mod lift;
mod locked;
mod make;
mod pages;
mod pte;
mod reach;
mod riscv;
mod root;
mod walk;
mod x86_64;
mod x86_pae;

#[cfg(test)]
mod tests;

pub use aarch64::{Aarch64, Aarch64_4K, Aarch64_16K, Aarch64_64K, MAIR};
pub use cursor::Cursor;
pub use format::{Entry, Format, Marks, Swapped};
pub use fresh::Fresh;
pub use gather::{FlushTarget, Gather};
pub use locked::{LockedTable, SpaceLock, Users};
pub use pages::{Chain, TablePageStats, TablePages, Wanted, source_of};
pub use pte::PteRef;
pub use reach::{Direct, Reach, Windowed};
pub use riscv::{RiscV, Sv39, Sv48};
pub use walk::{Span, Spans, Tables};
pub use x86_64::{X86, X86_64, X86_64La57};
pub use x86_pae::X86Pae;

pub(crate) use aging::Step;
pub(crate) use lift::MovedEntry;
pub(crate) use locked::LINE_ENTRIES;
pub(crate) use make::Spares;
pub(crate) use reach::{table_words, uses_windows, with_table_words};

/// A lock that could only be had by waiting.
#[derive(Clone, Copy, Debug)]
pub struct Contended;
