//! The calls that change regions: map, unmap, protect, remap, mlock, heap and stack.

pub(super) mod change;
pub(super) mod guards;
pub(super) mod heap;
pub(super) mod limits;
pub(super) mod map;
pub(super) mod map_request;
pub(super) mod maps;
pub(super) mod mlock;
pub(super) mod nodes;
mod protect;
pub(super) mod remap;
pub(super) mod rules;
pub(super) mod track;
pub(super) mod undivide;
pub(super) mod unmap;
pub(super) mod unshare;
