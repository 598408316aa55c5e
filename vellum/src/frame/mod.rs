//! Physical memory: the frame table, nodes and zones, the buddy allocator and
//! per-CPU lists.
//!
//! A frame is in exactly one place at any time: a buddy list of its zone, a
//! list of one CPU, waiting for its epoch, or handed out. Single frames move
//! between the last three without a lock or a read-modify-write; everything
//! else is under the zone's lock, of which a CPU holds one at most and takes
//! nothing under it.
//!
//! # Who may do what
//! Everything above this layer trusts that a frame has one owner: arenas hold
//! addresses in their frames, walks follow page tables without a lock. So what
//! frees, copies, zeroes or relabels a frame by its number is the core's own
//! (`pub(crate)`). Others have three ways:
//!
//! * [`MemoryView`], which is all that a [`Vm`](crate::Vm) hands out: statistics,
//!   records to read, planned failures, and blocks of one's own.
//! * [`OwnedBlock`], a block as a value. It can be given back once, to the memory that
//!   it came from, and its bytes are reached through it: nothing else of an allocator
//!   can go wrong in safe code. It costs a kernel that only wants an allocator what a
//!   frame number costs.
//! * For those who keep frame numbers all the same, or use the layers above without a
//!   `Vm`: [`PhysicalMemory::alloc`], whose frame is lost at worst, and `unsafe`
//!   calls beside it, each with a condition on that one frame:
//!   [`OwnedBlock::from_raw`], [`PhysicalMemory::get_raw`],
//!   [`PhysicalMemory::put_raw`], [`PhysicalMemory::record`].
//!
//! A memory whose every method is safe behind one unsafe constructor would be less to
//! write, but its condition would bind all code that ever gets a reference to it, and
//! nobody can check that where the call is. A frame number that is checked against its
//! record does not tell an owner from a stranger.
//!
//! The memory of a manager can be looked at, and given out:
//!
//! ```
//! # use vellum::{Vm, addr::Pfn, frame::*, platform::Platform, rmap::ReverseMap, table::Format};
//! # fn look<P: Platform, F: Format, R: ReverseMap>(vm: &Vm<P, F, R>, frame: Pfn) -> Result<u32, OutOfMemory> {
//! let stack = vm.memory().alloc(&vm.pin(), Request::page(Site::AnonymousPage))?;
//! stack.write(&vm.pin(), 0, b"mine");
//! stack.free(&vm.pin());
//! # Ok(
//! vm.memory().frame(frame).owner()
//! # )
//! # }
//! ```
//!
//! None of its frames can be copied over, freed or relabelled:
//!
//! ```compile_fail,E0599
//! # use vellum::{Vm, addr::Pfn, platform::Platform, rmap::ReverseMap, table::Format};
//! # fn forge<P: Platform, F: Format, R: ReverseMap>(vm: &Vm<P, F, R>, frame: Pfn, other: Pfn) {
//! vm.memory().copy(&vm.pin(), frame, other);
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use vellum::{Vm, addr::Pfn, platform::Platform, rmap::ReverseMap, table::Format};
//! # fn forge<P: Platform, F: Format, R: ReverseMap>(vm: &Vm<P, F, R>, frame: Pfn) {
//! vm.memory().free(&vm.pin(), frame, 0);
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use vellum::{Vm, addr::Pfn, platform::Platform, rmap::ReverseMap, table::Format};
//! # fn forge<P: Platform, F: Format, R: ReverseMap>(vm: &Vm<P, F, R>, frame: Pfn) {
//! vm.memory().frame(frame).set_owner(1);
//! # }
//! ```
//!
//! ```compile_fail,E0133
//! # use vellum::{Vm, addr::Pfn, platform::Platform, rmap::ReverseMap, table::Format};
//! # fn forge<P: Platform, F: Format, R: ReverseMap>(vm: &Vm<P, F, R>, frame: Pfn) {
//! vm.platform().read_page(1, 0, frame);
//! # }
//! ```
//!
//! Without a manager, a block goes back once, while its memory exists:
//!
//! ```
//! # use vellum::{frame::*, platform::Machine};
//! # fn pair<P: Machine>(memory: PhysicalMemory<P>) -> Result<(), OutOfMemory> {
//! let block = memory.alloc_owned(&memory.pin(), Request::page(Site::AnonymousPage).order(3))?;
//! block.free(&memory.pin());
//! drop(memory);
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # use vellum::{frame::*, platform::Machine};
//! # fn pair<P: Machine>(memory: PhysicalMemory<P>) -> Result<(), OutOfMemory> {
//! let block = memory.alloc_owned(&memory.pin(), Request::page(Site::AnonymousPage).order(3))?;
//! block.free(&memory.pin());
//! block.free(&memory.pin());
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0505
//! # use vellum::{frame::*, platform::Machine};
//! # fn pair<P: Machine>(memory: PhysicalMemory<P>) -> Result<(), OutOfMemory> {
//! let block = memory.alloc_owned(&memory.pin(), Request::page(Site::AnonymousPage).order(3))?;
//! drop(memory);
//! drop(block);
//! # Ok(())
//! # }
//! ```
//!
//! Frame numbers take `unsafe`:
//!
//! ```
//! # use vellum::{addr::Pfn, frame::*, platform::Machine};
//! # fn pair<P: Machine>(memory: &PhysicalMemory<P>) -> Result<(), OutOfMemory> {
//! let frame: Pfn = memory.alloc(&memory.pin(), Request::page(Site::AnonymousPage))?;
//! // SAFETY: the reference that it was handed out with.
//! unsafe { memory.put_raw(&memory.pin(), frame, 0) };
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0133
//! # use vellum::{addr::Pfn, frame::*, platform::Machine};
//! # fn pair<P: Machine>(memory: &PhysicalMemory<P>, frame: Pfn) {
//! memory.put_raw(&memory.pin(), frame, 0);
//! # }
//! ```
//!
//! ```compile_fail,E0624
//! # use vellum::{addr::Pfn, frame::*, platform::Machine};
//! # fn pair<P: Machine>(memory: &PhysicalMemory<P>, frame: Pfn) {
//! memory.zero(&memory.pin(), frame);
//! # }
//! ```

mod alloc;
pub(crate) mod audit;
pub(crate) mod buddy;
mod charge;
mod commit;
mod content;
pub(crate) mod cpu;
mod dirty;
mod free;
mod give_back;
mod group;
mod inject;
mod keeper;
mod memory;
mod owned;
mod placed;
mod policy;
mod record;
mod report;
mod request;
mod reservation;
mod reserve;
mod ring;
mod run;
mod short;
mod site;
pub(crate) mod table;
mod table_zone;
mod view;
mod waiting;
mod window;
mod withdraw;
mod zeroed;
pub(crate) mod zones;

#[cfg(test)]
mod tests;

pub use charge::NoPage;
pub(crate) use commit::{Commit, Committer};
pub use commit::{CommitLimits, CommitPolicy, CommitShare, CommitStats};
pub use group::GroupLimits;
pub(crate) use group::Groups;
pub(crate) use group::Places;
pub use keeper::Keeper;
#[cfg(feature = "published")]
pub(crate) use keeper::KeepsFrames;
pub use memory::PhysicalMemory;
pub use owned::{OwnedBlock, OwnedFrames};
pub(crate) use policy::PolicyWord;
pub use policy::{NodePolicy, NodeSet, Payer};
pub use record::{
    Counts, Flags, Frame, FreeFlags, Kind, MAX_MAPPINGS, MAX_PINS, MappingsCounted, ObjectFlags,
    PageFlags, PageFrame, PrivateFlags, TableFlags, TableFrame, View, role,
};
pub use report::{AuditError, AuditPlace, FrameCensus, FrameStats, SetupError, ZoneStats};
pub use request::{FailAt, OutOfMemory, Request};
pub use reservation::ReservationStats;
pub(crate) use reservation::{MOST_ORDER as MOST_RESERVED, Owner};
#[cfg(any(test, feature = "published"))]
pub(crate) use ring::Ring;
pub use short::Relief;
pub use site::Site;
pub(crate) use table_zone::TableZone;
pub use view::{FrameView, MemoryView};
pub use zeroed::FreedTables;

/// Log2 of the frames in the largest block.
pub const MAX_ORDER: u32 = 10;
