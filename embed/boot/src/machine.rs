//! The machine as the manager's platform.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use vellum::addr::{Geometry, Pfn};
use vellum::platform::{
    CpuId, CpuSet, Flush, IoError, Machine as _, MemoryRange, Parts, Policy, Sleep, SpaceTag,
    Store, TaskToken,
};
use vellum::sync::bytes::FrameBytes;

use crate::arch::cpu::{CPUS, Cpu};
use crate::arch::{self, DIRECT_BYTES, Paging, direct, flush};
use crate::{disk, task};

use crate::PAGE;
use crate::physical::each_free;

/// Processors, memory, and the RAM disk.
pub struct Machine {
    cpus: usize,
    memory: alloc::vec::Vec<MemoryRange>,
}

impl Machine {
    /// `cpus` CPUs and the usable memory, without what `taken` says is in use.
    pub fn new(
        cpus: usize,
        usable: impl Iterator<Item = (u64, u64)>,
        taken: &[(u64, u64)],
    ) -> Machine {
        let mut memory = alloc::vec::Vec::new();
        each_free(usable, taken, |start, end| {
            let (start, end) = (start.div_ceil(PAGE), end / PAGE);
            if start < end {
                memory.push(MemoryRange::new(Pfn(start as u32), (end - start) as u32));
            }
        });
        Machine { cpus, memory }
    }
}

// SAFETY: the conditions of the trait, by number:
//
// 1. The ranges are what the boot loader says is RAM, less kernel, heap and RAM disk.
// 2. Every frame has its own place in the direct map.
// 3. Interrupts are off in the kernel, so that a caller stays on its CPU, where nothing else
//    runs; `park`, which gives the CPU up, is not called pinned.
// 4. `flush` says how CPUs forget. Programs use translations of the space that is loaded
//    only, and loading waits for nothing that it might miss. (`defect` breaks this.)
// 5. Programs touch pages as they like; the RAM disk uses `FrameBytes`.
// 6. Only the root's entries for the kernel's half are touched.
unsafe impl vellum::platform::Machine for Machine {
    const PARTS: Parts = Parts::LEAST;

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn frame_shift(&self) -> u32 {
        Paging::FRAME_SHIFT
    }

    fn memory_map(&self) -> &[MemoryRange] {
        &self.memory
    }

    #[inline]
    fn pin(&self) -> CpuId {
        CpuId(Cpu::this().number.load(Ordering::Relaxed) as u16)
    }

    #[inline]
    fn unpin(&self, _: CpuId) {}

    #[inline]
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        debug_assert!(u64::from(frame.0) < DIRECT_BYTES / PAGE);
        // SAFETY: not null: the direct map is far from zero.
        unsafe { NonNull::new_unchecked(direct(u64::from(frame.0) * PAGE)) }
    }

    fn flush(&self, _: CpuId, cpus: CpuSet, request: &Flush) {
        flush::flush(cpus, self.cpus, request);
    }

    fn root_made(&self, root: Pfn) {
        arch::fill_root(self.words(root));
    }

    fn root_ends(&self, root: Pfn) {
        arch::clear_root(self.words(root));
    }

    fn is_loaded(&self, space: SpaceTag) -> bool {
        let loaded = |cpu: &Cpu| cpu.loaded.load(Ordering::Relaxed) == u64::from(space.0);
        CPUS.iter().take(self.cpus).any(loaded)
    }

    fn relax(&self, _: u32) {
        flush::answer();
        core::hint::spin_loop();
    }
}

impl Sleep for Machine {
    fn current_task(&self) -> TaskToken {
        TaskToken(task::current().number())
    }

    fn park(&self) {
        task::park();
    }

    fn unpark(&self, task: TaskToken) {
        task::unpark(task.0);
    }
}

impl Store for Machine {
    unsafe fn read_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        disk::read(store, index, self.bytes(frame))
    }

    fn write_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        disk::write(store, index, self.bytes(frame))
    }

    fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError> {
        disk::discard(store, &pages)
    }
}

impl Policy for Machine {}

impl Machine {
    /// A root as words.
    fn words(&self, root: Pfn) -> &[AtomicU64] {
        self.bytes(root).words()
    }

    fn bytes(&self, frame: Pfn) -> FrameBytes<'_> {
        // SAFETY: a frame of the memory map, in the direct map; whoever else touches it is
        // the manager, or a program.
        unsafe { FrameBytes::new(self.frame(frame), PAGE as usize) }
    }
}
