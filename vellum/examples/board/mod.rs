//! A board for the examples of parts: one CPU, some memory, and what is flushed.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ptr::NonNull;

use vellum::addr::Pfn;
use vellum::platform::{CpuId, CpuSet, Flush, Machine, MemoryRange};
use vellum::sync::bytes::FrameBytes;

/// Bytes of a frame.
pub const PAGE: usize = 4096;

/// The memory begins at this frame, so that frame numbers are not places in it.
const FIRST: u32 = 0x1000;

/// One CPU and some memory.
pub struct Board {
    memory: NonNull<u8>,
    map: [MemoryRange; 1],
    /// Calls of `flush`.
    pub flushes: Cell<u32>,
}

// SAFETY: the examples have one thread; `Machine` asks for `Sync` because kernels have
// more.
unsafe impl Sync for Board {}
// SAFETY: as above.
unsafe impl Send for Board {}

fn layout(frames: u32) -> Layout {
    Layout::from_size_align(frames as usize * PAGE, PAGE).expect("it fits")
}

impl Board {
    /// A board with so many frames of memory.
    pub fn new(frames: u32) -> Board {
        // SAFETY: the layout has a size.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout(frames)) });
        Board {
            memory: memory.expect("memory for the board"),
            map: [MemoryRange::new(Pfn(FIRST), frames)],
            flushes: Cell::new(0),
        }
    }

    /// The bytes of a frame.
    #[allow(dead_code, reason = "not every example looks at them")]
    pub fn bytes(&self, frame: Pfn) -> FrameBytes<'_> {
        // SAFETY: a frame of the memory, which lives as long as the board.
        unsafe { FrameBytes::new(self.frame(frame), PAGE) }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.memory.as_ptr(), layout(self.map[0].frames)) }
    }
}

// SAFETY: by the conditions of the trait, 1. the memory was allocated for the board alone;
// 2. `frame` gives aligned, distinct addresses inside of it; 3. there is one CPU and one
// thread; 4. nothing keeps translations; 5. bytes are reached through `bytes`.
unsafe impl Machine for Board {
    fn cpus(&self) -> usize {
        1
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &self.map
    }
    fn pin(&self) -> CpuId {
        CpuId(0)
    }
    fn unpin(&self, _: CpuId) {}
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        // SAFETY: the core passes frames of the memory map only.
        unsafe { self.memory.add((frame.0 - FIRST) as usize * PAGE) }
    }
    fn flush(&self, _: CpuId, _: CpuSet<'_>, _: &Flush) {
        self.flushes.set(self.flushes.get() + 1);
    }
}
