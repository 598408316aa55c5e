//! The global allocator: large blocks lie on large pages of the host.
//!
//! A kernel reaches its tables through a map of large pages, so nobody here
//! shall pay for misses of the host's TLB in an array of records, a bitmap or a
//! hash table. It is the same for every arm.

use std::alloc::{GlobalAlloc, Layout, System};

/// The host's large page.
const LARGE: usize = 2 << 20;

/// The system's allocator, with blocks of a large page or more aligned to it.
pub struct LargePages;

fn widened(layout: Layout) -> Layout {
    match layout.align_to(LARGE) {
        Ok(aligned) if layout.size() >= LARGE => aligned,
        _ => layout,
    }
}

fn advise(block: *mut u8, size: usize) {
    if !block.is_null() && size >= LARGE {
        // Only a hint: a host without large pages refuses it, which changes nothing.
        // SAFETY: the block was allocated just now, and the advice changes no byte.
        unsafe { libc::madvise(block.cast(), size, libc::MADV_HUGEPAGE) };
    }
}

// SAFETY: every call goes to the system's allocator with a layout that follows
// from the caller's alone, and is at least as large and as aligned.
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc(widened(layout)) };
        advise(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc(widened(layout)) };
        advise(block, layout.size());
        if !block.is_null() {
            // SAFETY: that many bytes were allocated just now.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: allocated above with the same layout.
        unsafe { System.dealloc(block, widened(layout)) };
    }
}
