//! Address spaces: regions, faults, and the calls that change them.
//!
//! The path of a page fault begins in `fault.rs`. Everything else is a change of
//! a space: it takes the space's lock (a lock whose waiters sleep), closes the
//! gates of the regions concerned, edits regions and tables, gathers what
//! became free, flushes, and opens the gates. A call that fails leaves the
//! space as it was, because everything that can fail is done first.
//!
//! Names ([`SpaceId`], [`ObjectId`](crate::ObjectId)) that are stale when a call begins are
//! refused. What a call names must not end while it runs: a space has a task in it, an object a
//! user, on whose behalf the call is made.
//!
//! Order of locks: space lock, page lock, region gate, table lock, then the
//! spin locks of rmap designs, objects, arenas and frames.

// `tests/rooms.rs` says which may use which.
mod files;
mod handle;
mod leaves;
mod leaving;
mod life;
mod locks;
mod path;
mod regions;
mod state;
mod steps;

#[cfg(test)]
mod flush_tests;
#[cfg(test)]
mod tests;

pub use files::allocate::Allocation;
pub use files::create::{Backing, FileRequest};
pub use files::open::OpenFile;
pub use files::parts::{FilePart, Filling};
pub use files::pin::PinError;
pub use files::tmpfs::FileStats;
pub use handle::{
    FaultHooks, File, Group, Mount, PinnedPages, ReadRequest, Reads, Space, WriteRequest, Writes,
};
pub use leaves::collapse::Collapse;
pub use leaving::advise::Advice;
pub use leaving::migrate::PagesMoved;
pub use leaving::scan::ScanReport;
pub use leaving::withdraw::{FrameHealth, WithdrawError, Withdrawn};
pub use life::group::{GroupError, GroupStats};
pub use path::access::UpdateError;
pub use path::supply::Supply;
pub use regions::map_request::{MapRequest, Placement, Source};
pub use regions::maps::MapEntry;
pub use regions::remap::{RemapPlacement, Remapped};
pub use regions::track::TakeDirty;
pub use state::account::{Limits, Rss, SpaceStats};
pub use state::error::{CreateError, FaultError, FileError, MapError};
pub use state::hooks::HookError;
pub use state::layout::{Entropy, Layout};
pub use state::manager::Vm;
pub use state::page::PageBytes;
pub use state::region::{Region, RegionView, Traits};
pub use state::spaces::{Loaded, SpaceId};
pub use steps::fault::Resolved;
