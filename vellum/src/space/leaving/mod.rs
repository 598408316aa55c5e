//! What leaves memory: which pages, to where, how tables and swap areas are emptied, and whose memory
//! goes when nothing else helps.

pub(super) mod advise;
pub(super) mod age;
pub(super) mod evict;
pub(super) mod lift;
mod mappings;
pub(in crate::space) mod migrate;
pub(super) mod pressure;
pub(super) mod room;
pub(super) mod scan;
pub(super) mod swap_off;
pub(super) mod swap_out;
pub(super) mod swap_shared_out;
pub(super) mod topology;
pub(super) mod unwanted;
pub(super) mod victim;
pub(in crate::space) mod withdraw;
