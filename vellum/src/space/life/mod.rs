//! Spaces and groups from their creation to their end, and what can be asked of them.

pub(super) mod create;
pub(super) mod exit;
pub(super) mod fork;
pub(super) mod group;
pub(super) mod inspect;
