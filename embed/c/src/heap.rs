//! The memory for what the manager allocates when it is made, or gets a swap area, and never
//! otherwise.
//!
//! The kernel hands over a piece of memory; it is used from its start on, and comes back as
//! a whole when the manager is destroyed. Rust's allocation ends the program if there is
//! none left, so `needed` says beforehand how much there must be, and `embed/c/tests/border.c`
//! checks over many machines and designs that this is enough.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::platform::Platform;

struct Heap {
    /// Whether a manager is being made.
    busy: AtomicBool,
    next: AtomicUsize,
    end: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap {
    busy: AtomicBool::new(false),
    next: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
};

// SAFETY: `next` only grows while memory is handed out of a piece, so that every call gets
// bytes that no other call gets; `Using` sees to it that there is one piece at a time.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (next, end) = (
            self.next.load(Ordering::Relaxed),
            self.end.load(Ordering::Relaxed),
        );
        let start = next.checked_next_multiple_of(layout.align());
        match start.and_then(|start| Some((start, start.checked_add(layout.size())?))) {
            Some((start, stop)) if stop <= end => {
                self.next.store(stop, Ordering::Relaxed);
                with_exposed_provenance_mut(start)
            }
            _ => null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// A piece of memory in use for allocations, until this is dropped.
pub struct Using {
    start: usize,
}

impl Using {
    /// Uses `bytes` bytes at `start`. `None` if another piece is in use, on another CPU.
    ///
    /// # Safety
    /// Nobody else uses the memory, now or while something lives that was allocated there.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> Option<Using> {
        if HEAP.busy.swap(true, Ordering::Acquire) {
            return None;
        }
        let start = start.expose_provenance();
        HEAP.next.store(start, Ordering::Relaxed);
        HEAP.end
            .store(start.saturating_add(bytes), Ordering::Relaxed);
        Some(Using { start })
    }

    /// Bytes handed out so far.
    pub fn used(&self) -> usize {
        HEAP.next.load(Ordering::Relaxed) - self.start
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        // Nobody allocates from now on.
        HEAP.end.store(0, Ordering::Relaxed);
        HEAP.busy.store(false, Ordering::Release);
    }
}

/// Bytes with which a manager can be made for a machine, whatever else its design says, with or
/// without reclaim.
///
/// A record of 32 bytes for each frame from the first to the last, and up to 12 more for page
/// locks, lists of pages and the directories of the manager's own nodes; the lists of free
/// frames of each CPU, which have room for frames in any order; little for each zone; and
/// tables that do not grow. With reclaim the places of pages on its lists, by frame, and what
/// there may be of each group, by node and by CPU.
pub fn needed(platform: &Platform, frames: u64, reclaims: bool) -> Option<usize> {
    const FRAME: u64 = 44;
    const CPU: u64 = 176 << 10;
    const ZONE: u64 = 4 << 10;
    const CPU_ZONE: u64 = 64;
    const RANGE: u64 = 64;
    const FIXED: u64 = 128 << 10;
    const RECLAIM_FRAME: u64 = 24;
    const RECLAIM_CPU: u64 = 32 << 10;
    const RECLAIM_NODE: u64 = 64 << 10;
    const RECLAIM_FIXED: u64 = 96 << 10;
    let (cpus, nodes) = (u64::from(platform.cpus), u64::from(platform.nodes));
    let ranges = u64::from(platform.memory_ranges);
    let small = cpus * CPU + nodes * (ZONE + cpus * CPU_ZONE) + ranges * RANGE + FIXED;
    let (frame, more) = match reclaims {
        false => (FRAME, 0),
        true => (
            FRAME + RECLAIM_FRAME,
            cpus * RECLAIM_CPU + nodes * RECLAIM_NODE + RECLAIM_FIXED,
        ),
    };
    usize::try_from(frames.checked_mul(frame)?.checked_add(small + more)?).ok()
}

/// Bytes with which a swap area of so many slots can be made: a word for each slot, and little for
/// each 64 of them.
pub fn needed_for_swap(slots: u64) -> Option<usize> {
    const CLUSTER: u64 = 64 * 8 + 128;
    const FIXED: u64 = 1 << 10;
    let clusters = slots.div_ceil(64);
    let bytes = clusters.checked_mul(CLUSTER)?.checked_add(FIXED)?;
    let is_size = (1..=vellum::swap::Swap::MAX_SLOTS).contains(&slots);
    is_size.then(|| usize::try_from(bytes).ok()).flatten()
}
