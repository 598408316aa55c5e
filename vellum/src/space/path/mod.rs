//! The path of a page fault, from the address to the entry: `fault.rs` has the steps, the
//! others what a step does for private memory, files, folios and swap.

pub(super) mod access;
pub(super) mod cow;
pub(super) mod fault;
pub(super) mod file;
pub(super) mod folio;
pub(super) mod hooks;
pub(super) mod populate;
pub(super) mod supply;
pub(super) mod swap_in;
pub(super) mod swap_shared;
