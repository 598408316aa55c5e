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

mod account;
mod advise;
mod age;
mod change;
mod collapse;
mod contiguous;
mod cow;
mod divide;
mod entries;
mod error;
mod evict;
mod exit;
mod fault;
mod file;
mod flush;
mod folio;
mod fork;
mod group;
mod heap;
mod huge;
mod huge_file;
mod inspect;
mod io;
mod life;
mod lift;
mod lock;
mod lookup;
mod manager;
mod map;
mod maps;
mod mlock;
mod page;
mod pin;
mod populate;
mod pressure;
mod promote;
mod protect;
mod region;
mod regions;
mod remap;
mod reserve;
mod room;
mod scan;
mod spaces;
mod superpage;
mod swap_in;
mod swap_off;
mod swap_out;
mod swap_shared;
mod throttle;
mod topology;
mod tract;
mod truncate;
mod unmap;
mod unshare;
mod unwanted;
mod victim;
mod writeback;
mod zap;

#[cfg(test)]
mod flush_tests;
#[cfg(test)]
mod tests;

pub use account::{Limits, Rss, SpaceStats};
pub use advise::Advice;
pub use collapse::Collapse;
pub use error::{CreateError, FaultError, FileError, MapError};
pub use fault::Resolved;
pub use group::{GroupError, GroupStats};
pub use io::{FilePart, Filling, ObjectStats, OpenFile};
pub use manager::{Layers, Vm};
pub use map::{MapRequest, Placement, Source};
pub use maps::MapEntry;
pub use page::PageBytes;
pub use pin::PinError;
pub use region::{Region, RegionView, Traits};
pub use remap::Remapped;
pub use scan::ScanReport;
pub use spaces::{Loaded, Space, SpaceId};
