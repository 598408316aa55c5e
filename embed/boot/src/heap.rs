//! The kernel's own memory: taken once, never given back. The manager allocates when it is
//! made and never again, and everything else here is as long as the kernel.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::direct;

struct Heap {
    next: AtomicU64,
    end: AtomicU64,
}

#[global_allocator]
static HEAP: Heap = Heap {
    next: AtomicU64::new(0),
    end: AtomicU64::new(0),
};

// SAFETY: every call gets memory that no other call gets.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let align = layout.align() as u64;
        let place = |next: u64| next.next_multiple_of(align);
        let take = |next| Some(place(next) + layout.size() as u64);
        let Ok(next) = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        else {
            return null_mut();
        };
        let start = place(next);
        match start + layout.size() as u64 <= self.end.load(Ordering::Relaxed) {
            true => direct(start),
            false => null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// Gives the heap its memory, which nobody else uses.
pub fn init(start: u64, bytes: u64) {
    HEAP.next.store(start, Ordering::Relaxed);
    HEAP.end.store(start + bytes, Ordering::Relaxed);
}

/// A stack of so many bytes: the address at which it ends.
pub fn stack(bytes: usize) -> u64 {
    alloc::vec![0u128; bytes / 16].leak().as_ptr_range().end as u64
}
