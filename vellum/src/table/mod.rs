//! Page tables: formats, walking, editing, and batched unmapping.
//!
//! Locking. Every table has a spin lock in its frame record. A walk reads
//! entries without locks under the caller's pin and locks only the table it
//! will edit, then checks that the table is still linked ([`LockedTable::lock`]
//! says so). Where two tables of one space are locked, the lower level comes
//! first: unlinking an empty table locks it and then its parent. A table that
//! is unlinked is marked dead under its lock, flushed, and freed when its
//! epoch has passed.
//!
//! An empty table is freed by whoever empties it, found by its count of live
//! entries and not by a scan.

mod format;
mod gather;
mod locked;
mod pages;
mod pte;
mod walk;
mod x86_64;

#[cfg(test)]
mod tests;

pub use format::{Format, Marks};
pub use gather::{FlushTarget, Gather};
pub use locked::{LockedTable, Users};
pub use pages::{Fresh, TablePages};
pub use pte::PteRef;
pub use walk::{Span, Spans, Tables};
pub use x86_64::X86_64;

pub(crate) use locked::table_words;

/// A lock that could only be had by waiting.
#[derive(Clone, Copy, Debug)]
pub struct Contended;
