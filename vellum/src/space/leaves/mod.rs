//! Leaves of page tables: how they are cleared, and those larger than a page: superpages (THP), whole
//! huge regions, and runs of entries; and those of frames that are not managed.

pub(super) mod collapse;
pub(super) mod contiguous;
pub(super) mod huge;
pub(super) mod huge_file;
pub(super) mod promote;
pub(super) mod replace;
pub(super) mod reserve;
pub(super) mod superpage;
pub(super) mod unmanaged;
pub(super) mod zap;
