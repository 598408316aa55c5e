//! The machine, as C describes it.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::NonNull;

use vellum::addr::{Access, Geometry, PageRange, Pfn};
use vellum::platform::Machine as _;
use vellum::platform::{
    CpuId, CpuSet, CpuWords, Flush as Forget, HookAnswer, HookKind, HookedFault, IoError,
    MemoryRange, NodeId, TaskToken, Zone,
};

use crate::hooks::{VELLUM_HOOK_MINOR, VELLUM_HOOK_MISSING, VELLUM_HOOK_STORES};
use crate::spaces::{VELLUM_EXECUTE, VELLUM_READ, VELLUM_WRITE};

use crate::Paging;
use crate::status::Status;

/// CPUs that a set holds exactly.
const MOST_CPUS: usize = CpuWords::COUNT * 64;

/// A run of page frames for the manager's use alone.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Memory {
    /// The first: its address divided by the size of a page.
    pub first_frame: u32,
    /// How many.
    pub frames: u32,
    /// The node that the memory belongs to.
    pub node: u32,
}

/// Translations to forget.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Flush {
    /// The tag of the space whose translations they are (`struct vellum_loaded`).
    pub space: u32,
    /// Whether all translations of the space are meant; the next two are 0 then.
    pub all: bool,
    /// Whether page tables were unlinked, too: entries of upper levels that the processor
    /// caches must go.
    pub tables: bool,
    /// Address of the first page.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The machine under the manager. vellum_create() copies it; what it points to stays there
/// until vellum_destroy().
///
/// What is promised by filling it in:
///
/// 1. The frames in `memory` are memory that nobody else uses. The ranges are ascending and
///    do not overlap.
/// 2. A frame's address is aligned to the frame's size, and the whole frame can be read and
///    written there, for good. Distinct frames do not overlap.
/// 3. Between `pin` and the matching `unpin` the caller stays on the CPU that `pin` named,
///    from 0 to `cpus - 1`, and nobody else is pinned there. Pins of one caller nest. An
///    interrupt handler that calls the manager is another caller: either none does, or `pin`
///    keeps interrupts off.
/// 4. When `flush` returns, none of the named CPUs uses or will use a translation that the
///    request covers and that was read from the tables before the call, and accesses made
///    with them have completed.
/// 5. The kernel touches the bytes of frames that the manager uses only as aligned words of
///    8 bytes, or while nobody else may store to them (user programs and devices may, at any
///    time). The frames that `read_page` is to fill are the platform's alone until it
///    returns.
/// 6. `root_made` and `root_ends` change no entry for pages of programs.
/// 7. No function but `fault_hook` calls the manager that the platform serves, and none leaves by longjmp() or
///    by a C++ exception.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Platform {
    /// sizeof(struct vellum_platform): tells a kernel and a library that were compiled with
    /// different headers apart.
    pub size: u32,
    /// CPUs, 1 to 512.
    pub cpus: u32,
    /// Nodes, 1 to 1024.
    pub nodes: u32,
    /// Ranges in `memory`.
    pub memory_ranges: u32,
    /// The memory to manage.
    pub memory: *const Memory,
    /// Handed to every function below.
    pub context: *mut c_void,
    /// Where frame 0 lies in the kernel's map of all memory, or would lie if there were one;
    /// used if `frame` is null.
    pub direct_map: *mut c_void,
    /// The address of a frame, for kernels without such a map; may be null.
    pub frame: Option<unsafe extern "C" fn(context: *mut c_void, frame: u32) -> *mut c_void>,
    /// The node of a CPU; null if there is one node.
    pub node_of: Option<unsafe extern "C" fn(context: *mut c_void, cpu: u32) -> u32>,
    /// Binds the caller to its CPU, and names it: disables preemption.
    pub pin: Option<unsafe extern "C" fn(context: *mut c_void) -> u32>,
    /// Ends the last pin.
    pub unpin: Option<unsafe extern "C" fn(context: *mut c_void, cpu: u32)>,
    /// Makes CPUs forget translations, and returns when they have. Bit `n % 64` of word
    /// `n / 64` of `cpus` stands for CPU `n`. Called pinned, by CPU `from`. Whoever waits for
    /// a lock of the manager is pinned, and must be able to answer meanwhile.
    pub flush: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            from: u32,
            cpus: *const u64,
            words: usize,
            request: *const Flush,
        ),
    >,
    /// A root table was made that nobody can have loaded: fills the entries for the kernel's
    /// half of the address space. May be null, as may the next one.
    pub root_made: Option<unsafe extern "C" fn(context: *mut c_void, root: u32)>,
    /// A root table is given up: clears the entries that `root_made` filled.
    pub root_ends: Option<unsafe extern "C" fn(context: *mut c_void, root: u32)>,
    /// Called while spinning; `spins` counts from 0. May be null.
    pub relax: Option<unsafe extern "C" fn(context: *mut c_void, spins: u32)>,
    /// The task that runs, as the scheduler names it. The next three may be null together:
    /// then whoever has to wait asks again and again.
    pub current_task: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// Sleeps until `unpark` is called for this task. A wake that comes first is not lost.
    /// May return early. Never called pinned.
    pub park: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Wakes a task.
    pub unpark: Option<unsafe extern "C" fn(context: *mut c_void, task: u64)>,
    /// Reads page `index` of a backing store into a frame; false if it cannot. Never called
    /// pinned. Null if there are no files, as are the next four.
    pub read_page: Option<
        unsafe extern "C" fn(context: *mut c_void, store: u64, index: u64, frame: u32) -> bool,
    >,
    /// Writes a frame to page `index` of a backing store; false if it was not taken.
    pub write_page: Option<
        unsafe extern "C" fn(context: *mut c_void, store: u64, index: u64, frame: u32) -> bool,
    >,
    /// Makes what a store took survive a loss of power. Null if every write does.
    pub flush_store: Option<unsafe extern "C" fn(context: *mut c_void, store: u64) -> bool>,
    /// Makes `pages` pages from `first` on read as zeroes until they are written: a file was
    /// cut off. `pages` may reach far beyond what was ever written. Null if no file is cut.
    pub discard_pages: Option<
        unsafe extern "C" fn(context: *mut c_void, store: u64, first: u64, pages: u64) -> bool,
    >,
    /// A hook caught an access of a space at an address (vellum_hooks()): has whoever supplies
    /// pages hear of it. True if the task is to sleep until its page has changed, false if the call
    /// is to fail with VELLUM_STATUS_HOOKED. Called again if the task is woken and the page is still
    /// caught. `space` has the bits of a
    /// struct vellum_space; `access` is VELLUM_READ and so on, `hook` VELLUM_HOOK_MISSING and so on. Not called pinned, and
    /// may call the manager. Null if all such calls fail.
    pub fault_hook: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            space: u64,
            address: u64,
            access: u32,
            hook: u32,
        ) -> bool,
    >,
}

/// What the manager sees.
pub struct Machine {
    platform: Platform,
    memory: Vec<MemoryRange>,
}

// SAFETY: the context is the kernel's, whose functions any CPU may call (the platform's
// promises, which are those of the trait).
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

impl Platform {
    /// The ranges of memory, and the frames from the first to the last of them.
    ///
    /// # Safety
    /// `memory` leads to `memory_ranges` ranges, or is null.
    pub unsafe fn frames(&self) -> Result<(&[Memory], u64), Status> {
        if self.memory.is_null() {
            return Err(Status::Argument);
        }
        // SAFETY: the caller's promise.
        let memory =
            unsafe { core::slice::from_raw_parts(self.memory, self.memory_ranges as usize) };
        let first = memory.first().map_or(0, |range| range.first_frame);
        let end = memory.last().map_or(0, |last| {
            u64::from(last.first_frame) + u64::from(last.frames)
        });
        Ok((memory, end.saturating_sub(u64::from(first))))
    }

    /// Whether the numbers and functions that must be there are.
    pub fn is_complete(&self) -> bool {
        let tasks = [
            self.current_task.is_some(),
            self.park.is_some(),
            self.unpark.is_some(),
        ];
        self.size as usize == size_of::<Platform>()
            && (1..=MOST_CPUS).contains(&(self.cpus as usize))
            && (1..=1024).contains(&self.nodes)
            && (self.nodes == 1 || self.node_of.is_some())
            && (self.frame.is_some() || self.direct_map_is_aligned())
            && self.pin.is_some()
            && self.unpin.is_some()
            && self.flush.is_some()
            && (tasks == [true; 3] || tasks == [false; 3])
            && self.root_made.is_some() == self.root_ends.is_some()
    }

    /// Whether the first and the last frame of each range have an address, and, with a direct map,
    /// all frames between them.
    pub fn has_addresses(&self, memory: &[Memory]) -> bool {
        memory.iter().all(|range| {
            let last = range
                .first_frame
                .checked_add(range.frames.saturating_sub(1));
            // A range that reaches too far is refused by the manager, with the reason.
            last.is_none_or(|last| {
                let ends = (self.address(range.first_frame), self.address(last));
                let is_in_row = |(first, last)| self.frame.is_some() || first <= last;
                ends.0.zip(ends.1).is_some_and(is_in_row)
            })
        })
    }

    /// Where a frame lies.
    #[inline]
    fn address(&self, frame: u32) -> Option<NonNull<u8>> {
        let address = match self.frame {
            // SAFETY: the kernel's function, called as promised.
            Some(address) => unsafe { address(self.context, frame) }.cast(),
            None => {
                let start = self.direct_map.cast::<u8>();
                start.wrapping_add((frame as usize) << Paging::FRAME_SHIFT)
            }
        };
        NonNull::new(address)
    }

    fn direct_map_is_aligned(&self) -> bool {
        self.direct_map.addr().is_multiple_of(Paging::FRAME_SIZE)
    }
}

impl Machine {
    /// The machine of a platform that is complete.
    pub fn new(platform: Platform, memory: &[Memory]) -> Machine {
        let memory = memory.iter().map(|range| MemoryRange {
            start: Pfn(range.first_frame),
            frames: range.frames,
            // A node that does not exist is refused by the manager.
            node: NodeId(u16::try_from(range.node).unwrap_or(u16::MAX)),
            zone: Zone::Low,
        });
        Machine {
            platform,
            memory: memory.collect(),
        }
    }
}

/// The answer of a backing store.
fn done(taken: bool) -> Result<(), IoError> {
    if taken { Ok(()) } else { Err(IoError) }
}

// SAFETY: the promises of `struct vellum_platform`, with the same numbers, which who fills it
// in makes. Whether functions are there was checked; they are called with its context.
unsafe impl vellum::platform::Machine for Machine {
    fn cpus(&self) -> usize {
        self.platform.cpus as usize
    }
    fn nodes(&self) -> usize {
        self.platform.nodes as usize
    }
    fn node_of(&self, cpu: CpuId) -> NodeId {
        let node = self.platform.node_of.map_or(0, |node_of| {
            // SAFETY: the kernel's function, called as promised.
            unsafe { node_of(self.platform.context, u32::from(cpu.0)) }
        });
        NodeId(u16::try_from(node).unwrap_or(u16::MAX))
    }
    fn frame_shift(&self) -> u32 {
        Paging::FRAME_SHIFT
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &self.memory
    }
    #[inline]
    fn pin(&self) -> CpuId {
        // SAFETY: as in `node_of`; `is_complete` found it.
        let cpu = unsafe { self.platform.pin.unwrap_unchecked()(self.platform.context) };
        CpuId(cpu as u16)
    }
    #[inline]
    fn unpin(&self, cpu: CpuId) {
        // SAFETY: as in `pin`.
        unsafe {
            self.platform.unpin.unwrap_unchecked()(self.platform.context, u32::from(cpu.0));
        }
    }
    #[inline]
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        // Never with a direct map (`has_addresses`); the kernel's function promises one.
        let address = self.platform.address(frame.0);
        address.expect("the platform's `frame` returns an address")
    }
    fn flush(&self, from: CpuId, cpus: CpuSet<'_>, request: &Forget) {
        let mut words = [0u64; CpuWords::COUNT];
        let count = self.cpus();
        for cpu in cpus.iter(count) {
            words[usize::from(cpu.0) / 64] |= 1 << (cpu.0 % 64);
        }
        let range = request
            .range
            .unwrap_or(PageRange::new(Default::default(), 0));
        let request = Flush {
            space: request.space.0,
            all: request.range.is_none(),
            tables: request.tables,
            start: range.start.address::<Paging>(),
            bytes: range.pages() << Paging::FRAME_SHIFT,
        };
        // SAFETY: as in `pin`; the words and the request live until it returns.
        unsafe {
            self.platform.flush.unwrap_unchecked()(
                self.platform.context,
                u32::from(from.0),
                words.as_ptr(),
                count.div_ceil(64),
                &raw const request,
            );
        }
    }
    fn root_made(&self, root: Pfn) {
        if let Some(made) = self.platform.root_made {
            // SAFETY: as in `node_of`.
            unsafe { made(self.platform.context, root.0) }
        }
    }
    fn root_ends(&self, root: Pfn) {
        if let Some(ends) = self.platform.root_ends {
            // SAFETY: as in `node_of`.
            unsafe { ends(self.platform.context, root.0) }
        }
    }
    fn relax(&self, spins: u32) {
        match self.platform.relax {
            // SAFETY: as in `node_of`.
            Some(relax) => unsafe { relax(self.platform.context, spins) },
            None => core::hint::spin_loop(),
        }
    }
}

impl vellum::platform::Sleep for Machine {
    fn current_task(&self) -> TaskToken {
        let task = self.platform.current_task;
        // SAFETY: as in `node_of`.
        TaskToken(task.map_or(0, |task| unsafe { task(self.platform.context) }))
    }
    fn park(&self) {
        match self.platform.park {
            // SAFETY: as in `node_of`.
            Some(park) => unsafe { park(self.platform.context) },
            None => self.relax(0),
        }
    }
    fn unpark(&self, task: TaskToken) {
        if let Some(unpark) = self.platform.unpark {
            // SAFETY: as in `node_of`.
            unsafe { unpark(self.platform.context, task.0) }
        }
    }
}

impl vellum::platform::Store for Machine {
    unsafe fn read_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        let read = self.platform.read_page.ok_or(IoError)?;
        // SAFETY: as in `node_of`.
        done(unsafe { read(self.platform.context, store, index, frame.0) })
    }
    fn write_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        let write = self.platform.write_page.ok_or(IoError)?;
        // SAFETY: as in `node_of`.
        done(unsafe { write(self.platform.context, store, index, frame.0) })
    }
    fn flush_store(&self, store: u64) -> Result<(), IoError> {
        self.platform.flush_store.map_or(Ok(()), |flush| {
            // SAFETY: as in `node_of`.
            done(unsafe { flush(self.platform.context, store) })
        })
    }
    fn discard_pages(&self, store: u64, pages: core::ops::Range<u64>) -> Result<(), IoError> {
        let discard = self.platform.discard_pages.ok_or(IoError)?;
        let count = pages.end.saturating_sub(pages.start);
        // SAFETY: as in `node_of`.
        done(unsafe { discard(self.platform.context, store, pages.start, count) })
    }
}

impl vellum::platform::Policy for Machine {
    fn fault_hook(&self, fault: &HookedFault) -> HookAnswer {
        let Some(hook) = self.platform.fault_hook else {
            return HookAnswer::Fail;
        };
        let access = match fault.access {
            Access::Read => VELLUM_READ,
            Access::Write => VELLUM_WRITE,
            Access::Execute => VELLUM_EXECUTE,
        };
        let kind = match fault.kind {
            HookKind::Missing => VELLUM_HOOK_MISSING,
            HookKind::Store => VELLUM_HOOK_STORES,
            HookKind::Minor => VELLUM_HOOK_MINOR,
        };
        let context = self.platform.context;
        // SAFETY: as in `node_of`.
        match unsafe { hook(context, fault.space, fault.address, access, kind) } {
            true => HookAnswer::Wait,
            false => HookAnswer::Fail,
        }
    }
}
