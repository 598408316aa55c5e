//! The calls that change regions: map, unmap, protect, remap, advise, mlock.

pub(super) mod advise;
pub(super) mod change;
pub(super) mod limits;
pub(super) mod map;
pub(super) mod maps;
pub(super) mod mlock;
pub(super) mod protect;
pub(super) mod remap;
pub(super) mod unmap;
pub(super) mod unshare;
pub(super) mod zap;
