//! The smallest platform there is: memory in a row, reached by adding a
//! constant, as a kernel reaches it through its direct map and as the peers
//! reach theirs. No TLB, no devices, two CPUs.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::ptr::NonNull;

use vellum::addr::Pfn;
use vellum::platform::{
    CpuId, CpuSet, Flush, IoError, Machine, MemoryRange, NodeId, Policy, Sleep, Store, TaskToken,
};

use crate::Failure;

const FRAME: usize = 4096;

thread_local! {
    static CPU: Cell<u16> = const { Cell::new(0) };
}

/// Memory, and the thread that calls for a CPU.
pub struct Board {
    map: [MemoryRange; 1],
    memory: NonNull<u8>,
    layout: Layout,
}

impl Board {
    /// A board with `bytes` of memory, of which only what is used is touched.
    pub fn new(bytes: u64) -> Result<Board, Failure> {
        let layout = Layout::from_size_align(bytes as usize, FRAME)
            .map_err(Failure::because("a board's memory"))?;
        assert!(layout.size() >= FRAME, "a board has memory");
        // SAFETY: the layout is not of size 0.
        let memory = unsafe { alloc(layout) };
        let memory = NonNull::new(memory)
            .ok_or_else(|| Failure(format!("no memory for a board of {bytes} bytes")))?;
        let range = MemoryRange::new(Pfn(0), (layout.size() / FRAME) as u32);
        Ok(Board {
            map: [range],
            memory,
            layout,
        })
    }

    /// Calls `work` on a CPU. Two threads are never on one at a time: rows
    /// with one thread use CPU 0, those with two 0 and 1.
    pub fn run_on<T>(&self, cpu: CpuId, work: impl FnOnce() -> T) -> T {
        CPU.set(cpu.0);
        work()
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

// SAFETY: the memory is the board's own, and handed out by its rules.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

// SAFETY: frames are distinct parts of the board's memory, aligned to their
// size; a CPU has one thread at a time (see `run_on`); there is no TLB.
unsafe impl Machine for Board {
    fn cpus(&self) -> usize {
        2
    }
    fn nodes(&self) -> usize {
        1
    }
    fn node_of(&self, _: CpuId) -> NodeId {
        NodeId(0)
    }
    fn frame_shift(&self) -> u32 {
        FRAME.ilog2()
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &self.map
    }
    #[inline]
    fn pin(&self) -> CpuId {
        CpuId(CPU.get())
    }
    #[inline]
    fn unpin(&self, _: CpuId) {}
    #[inline]
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        // SAFETY: frames of the map are inside of the allocation.
        unsafe { self.memory.add(frame.index() * FRAME) }
    }
    fn flush(&self, _: CpuId, _: CpuSet<'_>, _: &Flush) {}
}

impl Sleep for Board {
    fn current_task(&self) -> TaskToken {
        TaskToken(u64::from(CPU.get()))
    }
    /// Nobody here ever waits for a lock whose waiters sleep.
    fn park(&self) {
        std::thread::yield_now();
    }
    fn unpark(&self, _: TaskToken) {}
}

impl Store for Board {
    unsafe fn read_page(&self, _: u64, _: u64, _: Pfn) -> Result<(), IoError> {
        Err(IoError)
    }
    fn write_page(&self, _: u64, _: u64, _: Pfn) -> Result<(), IoError> {
        Err(IoError)
    }
}

impl Policy for Board {}
