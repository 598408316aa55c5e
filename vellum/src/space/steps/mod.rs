//! The steps of a fault that other rooms take as well: what a fault knows on its way, how an entry
//! is made or replaced, and how pages of files are filled.

pub(super) mod entry;
pub(super) mod fault;
pub(super) mod fill;
pub(super) mod placed;
pub(super) mod private;
