//! How often a test calls the global allocator.

use core::cell::Cell;
use std::alloc::{GlobalAlloc, Layout, System};

/// Counts what a thread asks of the global allocator inside of [`allocations`].
struct Counting;

std::thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

impl Counting {
    fn note() {
        // A thread that is ending has no flag any more, and is not watched.
        if WATCHED.try_with(Cell::get).unwrap_or(false) {
            CALLS.set(CALLS.get() + 1);
        }
    }
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::note();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::note();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls of the global allocator by `work` on this thread. What the machine
/// allocates itself is not counted.
pub(crate) fn allocations(work: impl FnOnce()) -> u64 {
    CALLS.set(0);
    WATCHED.set(true);
    work();
    WATCHED.set(false);
    CALLS.get()
}

/// Runs what belongs to the machine, not to the core under test.
pub(super) fn unwatched<T>(work: impl FnOnce() -> T) -> T {
    let watched = WATCHED.replace(false);
    let value = work();
    WATCHED.set(watched);
    value
}
