//! Pages of objects as Linux 3.15 had them (`fileio=pages`): found and made one at a time,
//! under their locks, and kept in two lists of each zone.

mod single;
mod two_lists;

#[cfg(test)]
mod tests;

pub(crate) use single::LockedPage;
pub use two_lists::{ListLengths, TwoLists};
