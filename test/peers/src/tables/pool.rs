//! Table pages for the peers, and for the floor: a stack of free pages, the
//! cheapest allocator there is. Its memory lies on large pages of the host
//! where there are any, as that of our machines does. Physical addresses are
//! the host's addresses.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::RefCell;

/// Bytes of a table.
pub const PAGE: usize = 4096;
/// Bytes that the stack grows by, aligned to themselves.
const CHUNK: usize = 8 << 20;

thread_local! {
    static FREE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A page of unspecified content.
#[inline]
pub fn take() -> usize {
    FREE.with_borrow_mut(|free| {
        if free.is_empty() {
            grow(free);
        }
        free.pop().expect("the stack has grown")
    })
}

/// A page of zeroes.
#[inline]
pub fn take_zeroed() -> usize {
    let page = take();
    // SAFETY: the page is one of the stack's, handed out to nobody else.
    unsafe { std::ptr::write_bytes(page as *mut u8, 0, PAGE) };
    page
}

/// Takes back a page that was handed out and is not used any more.
#[inline]
pub fn give(page: usize) {
    FREE.with_borrow_mut(|free| free.push(page));
}

/// Memory for good: the pool lasts as long as the program.
#[cold]
fn grow(free: &mut Vec<usize>) {
    let layout = Layout::from_size_align(CHUNK, CHUNK).expect("a power of two");
    // SAFETY: the layout is not of size 0.
    let chunk = unsafe { alloc_zeroed(layout) };
    if chunk.is_null() {
        handle_alloc_error(layout);
    }
    // Only a hint: a host without large pages refuses it, which changes nothing.
    // SAFETY: the range was allocated just now, and the advice changes no byte.
    unsafe { libc::madvise(chunk.cast(), CHUNK, libc::MADV_HUGEPAGE) };
    let first = chunk.expose_provenance();
    free.extend((first..first + CHUNK).step_by(PAGE).rev());
}
