//! What the embedder supplies: CPUs, nodes, memory, flushes and sleep.
//!
//! The platform is an instance, so that one process can hold several machines.
//! In a kernel the implementing type is zero-sized and every method compiles
//! to the architecture's own instruction or per-CPU variable.

// The model checker takes this file from elsewhere.
#[path = "platform/cpu_set.rs"]
mod cpu_set;
#[path = "platform/errors.rs"]
mod errors;
#[path = "platform/forward.rs"]
mod forward;
#[path = "platform/group.rs"]
mod group;
#[path = "platform/hook.rs"]
mod hook;
#[path = "platform/parts.rs"]
mod parts;

use core::ops::Range;
use core::ptr::NonNull;

pub use self::cpu_set::{CpuIter, CpuSet, CpuWords};
pub use self::errors::{IoError, SlotError};
pub use self::group::GroupId;
pub use self::hook::{HookAnswer, HookKind, HookedFault};
pub use self::parts::Parts;
use crate::addr::{Access, PageRange, Pfn};

/// A CPU, numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(pub u16);

/// A NUMA node, numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u16);

/// A space that could end because memory has run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victim {
    /// Its name, from [`SpaceId::to_bits`](crate::SpaceId::to_bits).
    pub space: u64,
    /// Pages that its end would free, shared ones among them: private pages in memory and in
    /// swap, page tables, and frames' worth of what the manager keeps for its regions and entries,
    /// which others can then have.
    pub pages: u64,
}

/// What a platform has done when memory ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rescue {
    /// Nothing: the call fails.
    Fail,
    /// Memory has been freed: the call is tried again. If it runs out as often as a call may
    /// reclaim (16 times), it fails all the same.
    Again,
}

/// Whether the core can reach memory at any time or only through a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Zone {
    /// In the direct map: [`Machine::frame`] works.
    Low,
    /// Only through [`Machine::window`].
    High,
}

/// One of the windows of a CPU. There are two for the bytes of pages and two for page
/// tables, so that a page can be copied while two tables are in use, and nothing waits
/// for a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowSlot(u8);

impl WindowSlot {
    /// Windows of a CPU.
    pub const COUNT: usize = 4;
    /// Those for bytes of pages.
    pub const PAGES: [WindowSlot; 2] = [WindowSlot(0), WindowSlot(1)];
    /// Those for page tables.
    pub const TABLES: [WindowSlot; 2] = [WindowSlot(2), WindowSlot(3)];

    /// Its number, less than [`WindowSlot::COUNT`].
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether it is one for page tables.
    #[inline]
    pub const fn is_for_tables(self) -> bool {
        self.index() >= Self::PAGES.len()
    }
}

/// A run of usable page frames of one node and zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRange {
    /// First frame.
    pub start: Pfn,
    /// Number of frames.
    pub frames: u32,
    /// The node the memory belongs to.
    pub node: NodeId,
    /// How it is reached.
    pub zone: Zone,
}

impl MemoryRange {
    /// So many frames from `start` on, of node 0 and reached without a window.
    pub const fn new(start: Pfn, frames: u32) -> MemoryRange {
        MemoryRange {
            start,
            frames,
            node: NodeId(0),
            zone: Zone::Low,
        }
    }
}

/// The hardware tag of an address space (ASID, PCID). Unique among live spaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceTag(pub u32);

/// A request to forget translations, complete when [`Machine::flush`] returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// Whose translations.
    pub space: SpaceTag,
    /// Which pages; `None` means all of the space.
    pub range: Option<PageRange>,
    /// Table pages were unlinked too: cached upper-level entries must go.
    pub tables: bool,
}

/// A task that can sleep, as the embedder's scheduler names it. It may be an address: the manager
/// uses it while its task is inside of the call that asked for it ([`Sleep::current_task`]),
/// and not afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskToken(pub u64);

/// The machine under the memory manager.
///
/// Its methods run on the stack of whoever calls the manager. Built with optimisation, the
/// manager takes less than 16 KiB of it in any call, [`Vm::new`](crate::Vm::new) included
/// (`embed/c/tests/border.c` measures it); what the platform's own methods take comes on top.
///
/// # Safety
/// The core turns what these methods say into memory accesses, so:
///
/// 1. The frames of [`Machine::memory_map`] are memory that nobody else uses
///    for as long as the platform lives; the ranges do not overlap. They, and the
///    other figures called constant, do not change.
/// 2. [`Machine::frame`] and [`Machine::window`] return an address, aligned
///    to the frame size, at which the whole frame can be read and written, for good or
///    until the window is closed. What is reached at one time through addresses of
///    distinct frames does not overlap.
/// 3. Between [`Machine::pin`] and the matching [`Machine::unpin`] the
///    caller stays on the CPU that `pin` named, one of the first
///    [`Machine::cpus`], and no other caller is pinned to that CPU. Pins of one
///    caller may nest, and end in any order. An interrupt handler that calls the
///    manager is another caller: either none does, or `pin` keeps interrupts off.
///    No method calls the manager that the platform serves.
/// 4. When [`Machine::flush`] returns, none of the named CPUs uses or will
///    use a translation that the request covers and that was read from the
///    tables before the call, and accesses made with them have completed.
/// 5. While the core may use a frame, the rest of the program touches its bytes
///    only as relaxed atomic words of 8 bytes, through
///    [`FrameBytes`](crate::sync::bytes::FrameBytes): user code and devices store
///    to pages without asking. Only the frame that [`Store::read_page`] is to
///    fill is the platform's alone, until that returns.
/// 6. [`Machine::root_made`] and [`Machine::root_ends`] touch no other frame of the
///    memory map than the root, and of that no entry for pages of programs.
pub unsafe trait Machine: Sync {
    /// The optional parts of the core that may be used: others are not linked.
    const PARTS: Parts = Parts::ALL;

    /// Number of CPUs, at least 1 and at most 4096. Constant.
    fn cpus(&self) -> usize;

    /// Number of nodes, at least 1 and at most 1024. Constant. The default is for machines with one.
    fn nodes(&self) -> usize {
        1
    }

    /// The node of a CPU. Constant. The default is for machines with one node.
    fn node_of(&self, cpu: CpuId) -> NodeId {
        let _ = cpu;
        NodeId(0)
    }

    /// Log2 of the frame size that frame numbers are counted in. Constant. The default is for
    /// frames of 4 KiB.
    fn frame_shift(&self) -> u32 {
        12
    }

    /// The memory to manage, ascending. Constant.
    fn memory_map(&self) -> &[MemoryRange];

    /// Distance between two nodes, 10 for a node to itself, larger is farther.
    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        if from == to { 10 } else { 20 }
    }

    /// Binds the caller to its CPU (disables preemption) and names the CPU.
    fn pin(&self) -> CpuId;

    /// Ends the innermost [`Machine::pin`].
    fn unpin(&self, cpu: CpuId);

    /// Address of a frame of the [`Zone::Low`] zone.
    fn frame(&self, frame: Pfn) -> NonNull<u8>;

    /// Makes a [`Zone::High`] frame reachable through window `slot` of the pinned `cpu`
    /// until [`Machine::close_window`]. The window is closed; nothing sleeps or unpins
    /// while one is open.
    fn window(&self, cpu: CpuId, slot: WindowSlot, frame: Pfn) -> NonNull<u8> {
        let _ = (cpu, slot);
        self.frame(frame)
    }

    /// Ends a window.
    fn close_window(&self, cpu: CpuId, slot: WindowSlot) {
        let _ = (cpu, slot);
    }

    /// Makes every CPU in `cpus` forget the translations of `request`, and
    /// returns when they have. Called pinned, by `from`. No spin lock is held
    /// but, when a store replaces a page, that of the page's table: whoever
    /// waits for one is pinned, and must be able to answer meanwhile (with
    /// interrupts on, if the request is sent as one).
    fn flush(&self, from: CpuId, cpus: CpuSet<'_>, request: &Flush);

    /// A root table was made, for a space that nobody can load yet. A kernel that is
    /// mapped in every space fills the entries of its half here: those at and past the
    /// index of [`Format::USER_END`](crate::table::Format::USER_END), which the core
    /// neither reads nor writes. If those entries never change afterwards, no root has
    /// to be found again. Called pinned; does not fail. The default is for machines
    /// with a root of its own for the kernel.
    #[inline]
    fn root_made(&self, root: Pfn) {
        let _ = root;
    }

    /// A root table is given up, and no CPU has it loaded: clears the entries that
    /// [`Machine::root_made`] filled. Called pinned.
    #[inline]
    fn root_ends(&self, root: Pfn) {
        let _ = root;
    }

    /// Whether a CPU runs in this space, or may: it was loaded there
    /// ([`Space::load`](crate::space::Space::load)),
    /// and nothing else has been since. Asked when the space would end, which it then does not
    /// ([`MapError::Loaded`](crate::space::MapError::Loaded)). The default is for embedders who
    /// see to it that no space ends that is loaded.
    #[inline]
    fn is_loaded(&self, space: SpaceTag) -> bool {
        let _ = space;
        false
    }

    /// Called while spinning; `spins` counts the calls of one wait from 0. Whoever is waited for is
    /// pinned to another CPU, or able to run: who waits for a task that sleeps, sleeps as well. So
    /// nothing is owed here, on one CPU without preemption either.
    fn relax(&self, spins: u32) {
        let _ = spins;
        core::hint::spin_loop();
    }

    /// A node has less free memory than its low watermark: the embedder's task that calls
    /// [`Vm::reclaim_node`](crate::Vm::reclaim_node) for it should run. Told once until that has
    /// been called, and only with `reclaim=on`. Called pinned, perhaps with locks held: it wakes
    /// somebody and does nothing else. The default is for embedders without such a task, where
    /// calls that run out of memory reclaim by themselves.
    fn wake_reclaim(&self, node: NodeId) {
        let _ = node;
    }
}

/// Tasks that can sleep: locks whose waiters sleep, and calls that wait for a device or for another
/// call, need them.
pub trait Sleep {
    /// The calling task.
    fn current_task(&self) -> TaskToken;

    /// Sleeps until [`Sleep::unpark`] is called for this task. An unpark
    /// that came first is not lost. May return early. Never called pinned.
    fn park(&self);

    /// Wakes a task, which is inside of a call of the manager and does not leave that before this
    /// returns. Called pinned, perhaps with locks held: it wakes somebody and does nothing else.
    fn unpark(&self, task: TaskToken);
}

/// Where pages are read from and written to: stores of files, and swap areas. Numbers of stores are
/// the embedder's. An embedder without any leaves all as it is: `impl Store for Board {}`.
pub trait Store {
    /// Reads page `index` of the backing store `store` into `frame`. Pages
    /// never written read as the store defines. Not called pinned. The default is for embedders
    /// without stores, whose objects are all shared memory.
    ///
    /// # Safety
    /// The frame is the caller's, to be overwritten, and nobody else's until the call
    /// returns.
    ///
    /// # Errors
    /// [`IoError`] if the store cannot deliver; the frame's content is then unspecified.
    unsafe fn read_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        let _ = (store, index, frame);
        Err(IoError)
    }

    /// Writes `frame` to page `index` of the backing store `store`. Not called
    /// pinned; tasks may store to the frame meanwhile (condition 5). With `reclaim=on`, calls
    /// that need memory may wait until this one is over: it must not wait for them.
    ///
    /// # Errors
    /// [`IoError`] if the store did not take it; the page stays dirty.
    fn write_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        let _ = (store, index, frame);
        Err(IoError)
    }

    /// [`Store::read_page`] of pages in a row, from `first` on, into `frames`.
    ///
    /// # Safety
    /// As there, for each frame.
    ///
    /// # Errors
    /// [`IoError`] if a page could not be delivered; the content of all frames is then
    /// unspecified, and they are asked for one by one.
    unsafe fn read_pages(&self, store: u64, first: u64, frames: &[Pfn]) -> Result<(), IoError> {
        (first..).zip(frames).try_for_each(|(index, &frame)| {
            // SAFETY: the caller's promise.
            unsafe { self.read_page(store, index, frame) }
        })
    }

    /// [`Store::write_page`] of pages in a row, from `first` on.
    ///
    /// # Errors
    /// [`IoError`] if the store did not take all of them; they are then written one by
    /// one.
    fn write_pages(&self, store: u64, first: u64, frames: &[Pfn]) -> Result<(), IoError> {
        (first..)
            .zip(frames)
            .try_for_each(|(index, &frame)| self.write_page(store, index, frame))
    }

    /// [`Store::write_page`] to a slot of a swap area. The default is for stores that have
    /// room for a page in each slot.
    ///
    /// # Errors
    /// [`SlotError`] if the store did not take it; the page stays in memory.
    fn write_slot(&self, store: u64, slot: u64, frame: Pfn) -> Result<(), SlotError> {
        self.write_page(store, slot, frame).map_err(SlotError::from)
    }

    /// Whether the store of a swap area has room for a page now, whatever it holds. If not, pages
    /// go to the area that comes next, and to none if there is no other. The answer may be out
    /// of date at once. May be called pinned. The default is for stores that have room for a
    /// page in each slot.
    fn has_swap_room(&self, store: u64) -> bool {
        let _ = store;
        true
    }

    /// A slot of a swap area whose page was written is free: nobody wants the page any more, and
    /// the next that is written there is another. A store in memory gives back what the page
    /// took. Called pinned, perhaps with locks held: it waits for no device, and does nothing
    /// else. The default is for stores to which it makes no difference.
    fn slot_freed(&self, store: u64, slot: u64) {
        let _ = (store, slot);
    }

    /// Makes everything that the backing store took before the call survive a loss of
    /// power. Not called pinned. The default is for stores to which every write does.
    ///
    /// # Errors
    /// [`IoError`] if it did not; the pages are written again.
    fn flush_store(&self, store: u64) -> Result<(), IoError> {
        let _ = store;
        Ok(())
    }

    /// Makes pages of the backing store read as zeroes from now on, until they are
    /// written: a file was cut off or a hole was made in it. `pages` may go on far
    /// beyond what was ever written. Not called pinned, and only for a store of which
    /// [`File::set_size`](crate::space::File::set_size) or [`File::punch_hole`](crate::space::File::punch_hole)
    /// takes pages away.
    ///
    /// # Errors
    /// [`IoError`] if the store did not; what it holds there is then unspecified. That
    /// is also the answer of a platform without such stores.
    fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError> {
        let _ = (store, pages);
        Err(IoError)
    }

    /// Pages that the device of a store writes in a second, as far as that has been measured, for
    /// one file: if several are written to at once, each gets its part. With `reclaim=on`, writers
    /// of a file that has so many dirty pages write back themselves, and if more than a fifth of
    /// memory, or of what their group may have, are dirty pages of files. Asked by every call that
    /// writes to a file, not pinned: it waits for no device. `None`, the default: they are never
    /// throttled.
    #[inline]
    fn write_speed(&self, store: u64) -> Option<u64> {
        let _ = store;
        None
    }

    /// If `stored`, the first page at or after `index` that the backing store has bytes
    /// of; otherwise the first that it has none of, and that reads as zeroes. `None` if
    /// there is no such page. Not called pinned. The default is for stores that have
    /// bytes of every page.
    fn find_page(&self, store: u64, index: u64, stored: bool) -> Option<u64> {
        let _ = store;
        stored.then_some(index)
    }
}

/// What is decided outside of the manager. All of it has a default: `impl Policy for Board {}`.
pub trait Policy {
    /// A call is about to fail for want of memory: nothing else could be done, and it has
    /// changed nothing. `victim` is the space whose end would free most by the rules of
    /// [`Group::choose_victim`](crate::space::Group::choose_victim) of the root, if any would free something. The platform
    /// may have that space end, or another one, or free memory elsewhere, and then have the call
    /// tried again; the default has it fail.
    ///
    /// Not called pinned. The call may hold ranges of objects: what the platform does here reads,
    /// writes and cuts no object.
    fn out_of_memory(&self, victim: Option<Victim>) -> Rescue {
        let _ = victim;
        Rescue::Fail
    }

    /// The same for a call that fails because a group has as many pages as it may and none can
    /// leave. `victim` is one of the group's spaces
    /// ([`Group::choose_victim`](crate::space::Group::choose_victim)). The default asks
    /// [`Policy::out_of_memory`].
    fn group_out_of_memory(&self, group: GroupId, victim: Option<Victim>) -> Rescue {
        let _ = group;
        self.out_of_memory(victim)
    }

    /// A group has `pages` more than its `high` although pages of it were to leave, and a call is
    /// about to take it further: a place to delay the call in proportion (Linux's penalty), or to
    /// tell somebody. The default does nothing.
    ///
    /// Not called pinned. The call may hold ranges of objects, as with [`Policy::out_of_memory`].
    fn group_above_high(&self, group: GroupId, pages: u64) {
        let _ = (group, pages);
    }

    /// An access to a range with hooks ([`Space::hooks`](crate::space::Space::hooks)) needs what
    /// only the embedder has: it has whoever supplies pages hear of it, and says what the call does
    /// meanwhile. Called for each attempt of each task, so more than once for a page: when a task
    /// that waited begins again (a wake-up, or an early end of [`Sleep::park`]) and the page is
    /// still caught. A task that is to be killed is woken, and answered [`HookAnswer::Fail`] then.
    ///
    /// Not called pinned, and without locks; it may call the manager. The default has the call
    /// fail.
    fn fault_hook(&self, fault: &HookedFault) -> HookAnswer {
        let _ = fault;
        HookAnswer::Fail
    }
}

/// All that a [`Vm`](crate::Vm) needs. Frames, arenas and page tables alone need a [`Machine`]
/// only.
pub trait Platform: Machine + Sleep + Store + Policy {}

impl<T: Machine + Sleep + Store + Policy> Platform for T {}
