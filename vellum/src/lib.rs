//! A virtual-memory manager to be linked into kernels, hypervisors,
//! unikernels and simulators.
//!
//! Frames, page tables, reverse mapping, address spaces with demand paging,
//! fork and copy-on-write, files and shared memory: the memory manager of an
//! operating system, without the operating system. The embedder supplies the
//! machine under it ([`platform::Machine`]), how tasks sleep ([`platform::Sleep`]), and, as far as
//! there are any, stores of files ([`platform::Store`]) and decisions of its own
//! ([`platform::Policy`]). Here is one CPU with 2 MiB of memory and a disk, and a process that
//! forks, maps a file, and uses more memory than there is:
//!
//! ```
//! use std::{cell::RefCell, collections::HashMap, ptr::NonNull};
//! use vellum::addr::{Access, Pfn, Prot};
//! use vellum::platform::*;
//! use vellum::space::{FileRequest, MapRequest};
//! use vellum::sync::bytes::FrameBytes;
//! use vellum::{Design, SpaceId, Vm, rmap::Family, swap::SwapArea, table::X86_64};
//!
//! struct Board {
//!     ram: NonNull<u8>,
//!     map: [MemoryRange; 1],
//!     disk: RefCell<HashMap<(u64, u64), [u8; 4096]>>,
//! }
//! # unsafe impl Sync for Board {}
//!
//! // SAFETY: one CPU, one thread; `ram` is 2 MiB that nobody else uses.
//! unsafe impl Machine for Board {
//!     fn cpus(&self) -> usize { 1 }
//!     fn memory_map(&self) -> &[MemoryRange] { &self.map }
//!     fn pin(&self) -> CpuId { CpuId(0) }
//!     fn unpin(&self, _: CpuId) {}
//!     fn frame(&self, frame: Pfn) -> NonNull<u8> { unsafe { self.ram.add(frame.index() << 12) } }
//!     fn flush(&self, _: CpuId, _: CpuSet<'_>, _: &Flush) { /* invlpg, or reload CR3 */ }
//! }
//! impl Sleep for Board {
//!     fn current_task(&self) -> TaskToken { TaskToken(0) }
//!     fn park(&self) {}
//!     fn unpark(&self, _: TaskToken) {}
//! }
//! impl Store for Board {
//!     unsafe fn read_page(&self, store: u64, index: u64, to: Pfn) -> Result<(), IoError> {
//!         let page = self.disk.borrow().get(&(store, index)).copied().unwrap_or([0; 4096]);
//!         unsafe { FrameBytes::new(self.frame(to), 4096) }.write(0, &page);
//!         Ok(())
//!     }
//!     fn write_page(&self, store: u64, index: u64, from: Pfn) -> Result<(), IoError> {
//!         let mut page = [0; 4096];
//!         unsafe { FrameBytes::new(self.frame(from), 4096) }.read(0, &mut page);
//!         self.disk.borrow_mut().insert((store, index), page);
//!         Ok(())
//!     }
//! }
//! impl Policy for Board {}
//!
//! # let layout = std::alloc::Layout::from_size_align(2 << 20, 4096)?;
//! # let ram = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or("no memory")?;
//! let board = Board { ram, map: [MemoryRange::new(Pfn(0), 512)], disk: RefCell::default() };
//! let design = Design::default().reclaim(true); // or Design::parse("reclaim=on")?
//! let vm: Vm<Board, X86_64, Family> = Vm::new(board, design)?;
//! vm.swap_on(SwapArea::new(1, 2048))?; // store 1, 8 MiB
//!
//! let parent = vm.create_space()?;
//! let memory = parent.map(&MapRequest::anonymous(600, Prot::READ_WRITE))?;
//! let file = vm.create_file(FileRequest::stored(2, 64 << 10))?;
//! let view = parent.map(&MapRequest::object(file.id(), 0, 16, Prot::READ))?;
//! let child = parent.fork()?;
//! for page in 0..600 {
//!     // What the page-fault handler calls.
//!     child.fault((memory.0 + page) << 12, Access::Write)?;
//! }
//! child.fault(view.0 << 12, Access::Read)?; // reads the file
//!
//! // Where no borrow of the manager can lie, its name does.
//! let task: SpaceId = child.id();
//! vm.space(task).exit()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What one writes
//! [`Vm`] makes spaces, files, groups and mounts, finds them by a name that was kept, and does what
//! concerns the whole: memory, swap areas, reclaim, statistics. All else is a method of what it
//! concerns: a [`Space`](space::Space), a [`File`](space::File), which may be shared memory, a
//! [`Group`](space::Group), a [`Mount`](space::Mount). These are a name and a borrow of the
//! manager, and can be copied. Each call looks whether what it names is still there. What the
//! manager does, and how, is a [`Design`]: options with values, set by methods or read from a
//! string as kernels have it on their command lines.
//!
//! # What may be relied on
//! * After [`Vm::new`] the crate asks the global allocator for nothing (invariant 13): its
//!   own nodes lie in frames of the platform ([`slab`]).
//! * Running out of memory is a result, and the call that reports it has
//!   changed nothing.
//! * A fault in the steady state writes no cache line that its space or the
//!   machine shares.
//! * There are no statics and no thread-locals: a process can hold any number
//!   of managers.
//! * Safe code cannot break the memory of the program, whatever addresses, ranges
//!   and names it passes. What that rests on, and what an embedder promises by
//!   implementing [`platform::Platform`], is in `docs/soundness.md`.
//!
//! # Layers
//! Each uses those above it: [`addr`], [`platform`], [`design`], [`sync`],
//! [`frame`], [`slab`], [`tree`], [`table`], [`rmap`], [`object`], [`swap`],
//! [`reclaim`], [`space`], [`vm`]; `probe` is for laboratories, and in `published` is what the default
//! has not. The path of a page fault begins
//! in `space/path/fault.rs`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod addr;
pub mod design;
pub mod frame;
pub mod object;
pub mod platform;
#[cfg(any(test, feature = "probe"))]
pub mod probe;
#[cfg(feature = "published")]
pub mod published;
pub mod reclaim;
pub mod rmap;
pub mod slab;
pub mod space;
pub mod swap;
pub mod sync;
pub mod table;
pub mod tree;
pub mod vm;

#[cfg(test)]
mod testing;

pub use design::Design;
pub use object::ObjectId;
pub use space::{SpaceId, Vm};
