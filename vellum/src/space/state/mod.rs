//! What the manager, a space, a tract and a region are: their records, counts and errors, and the tree
//! of regions by address.
//!
//! Below all other rooms.

pub(super) mod account;
pub(super) mod aging;
pub(super) mod charge;
pub(super) mod closed;
pub(super) mod commit;
pub(super) mod common;
pub(super) mod entries;
pub(super) mod error;
pub(super) mod extras;
pub(super) mod hooks;
pub(super) mod layout;
pub(super) mod locked;
pub(super) mod manager;
pub(super) mod page;
pub(super) mod range;
pub(super) mod records;
pub(super) mod region;
pub(super) mod shortage;
pub(super) mod spaces;
pub(super) mod tract;
pub(super) mod tree;
