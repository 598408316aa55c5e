//! Where what a manager allocates lies: an allocator whose memory can be placed.
//!
//! The core asks the global allocator for memory only while a manager is made
//! (invariant 13). With [`PlacedHeap`] as the global allocator, whatever is allocated in
//! [`PlacedHeap::fill`] lies one thing after the other in one range of memory, which
//! can be placed: where a thing lies in it does not depend on the host. All else goes
//! to the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Address space for all ranges of a process, which take up memory as they are used.
const RESERVED: usize = 1 << 40;
/// Alignment of a range.
const ALIGNMENT: usize = 2 << 20;

/// First address of the reserved space; 0 before the first range is made.
static START: AtomicUsize = AtomicUsize::new(0);
/// Bytes of it that ranges have.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What is left of the range that this thread fills: next address and end.
    static FILLING: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// A global allocator that can fill ranges of memory in order.
///
/// ```
/// #[global_allocator]
/// static HEAP: vellum_sim::PlacedHeap = vellum_sim::PlacedHeap;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PlacedHeap;

/// Memory that was filled in order. It stays for as long as the process, or until it is
/// discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// Its first byte.
    pub start: *const u8,
    /// How many bytes were used.
    pub bytes: usize,
    /// Bytes of its range.
    room: usize,
}

/// Ranges that were discarded, by address and bytes.
static DISCARDED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

impl Filled {
    /// Gives the memory back to the host. The range may be filled anew.
    ///
    /// # Safety
    /// Nothing that was allocated there is used any more, in whatever copy of this.
    pub unsafe fn discard(self) {
        let start: *mut libc::c_void = ptr::with_exposed_provenance_mut(self.start.addr());
        // SAFETY: the range was mapped by `range` and is nobody else's; private memory
        // without a file reads as zero afterwards.
        let gone = unsafe { libc::madvise(start, self.room, libc::MADV_DONTNEED) } == 0;
        if gone {
            let mut ranges = DISCARDED.lock().unwrap_or_else(PoisonError::into_inner);
            ranges.push((self.start.addr(), self.room));
        }
    }
}

/// Why nothing was filled.
#[derive(Debug, thiserror::Error)]
pub enum HeapError {
    /// [`PlacedHeap`] is not the global allocator of the program.
    #[error("the program's global allocator is not `vellum_sim::PlacedHeap`")]
    NotInstalled,
    /// The host has no such range.
    #[error("no address space for {bytes} bytes of placed memory: {source}")]
    NoSpace {
        /// Bytes asked for.
        bytes: usize,
        /// Why.
        source: std::io::Error,
    },
}

impl PlacedHeap {
    /// Does `make` with everything that the calling thread allocates meanwhile in one
    /// range of at most `bytes` bytes. What is freed is not used again, even later.
    ///
    /// # Errors
    /// [`HeapError`].
    pub fn fill<T>(bytes: usize, make: impl FnOnce() -> T) -> Result<(T, Filled), HeapError> {
        let start = range(bytes).map_err(|source| HeapError::NoSpace { bytes, source })?;
        let before = Filling::begin((start, start + bytes));
        let probe = Box::new([0u64; 8]);
        let installed = is_ours(ptr::from_ref(&*probe).addr());
        let made = installed.then(make);
        let (next, _) = FILLING.get();
        drop(before);
        let made = made.ok_or(HeapError::NotInstalled)?;
        let filled = Filled {
            start: ptr::with_exposed_provenance(start),
            bytes: next - start,
            room: bytes.next_multiple_of(ALIGNMENT),
        };
        Ok((made, filled))
    }

    /// Gives the host back what the system's allocator has left, as far as it can: what is needed
    /// to prepare a large run is not needed during it.
    pub fn trim() {
        // SAFETY: without conditions; only memory that nobody has is given back.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// What a thread filled before, until this is dropped.
struct Filling((usize, usize));

impl Filling {
    fn begin(range: (usize, usize)) -> Filling {
        Filling(FILLING.replace(range))
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        FILLING.set(self.0);
    }
}

/// Does `work`, which allocates for itself, while a range may be being filled.
pub(crate) fn beside_filling<T>(work: impl FnOnce() -> T) -> T {
    let _before = Filling::begin((0, 0));
    work()
}

/// A range that nobody else has, readable and writable, all zero.
fn range(bytes: usize) -> std::io::Result<usize> {
    static MADE: OnceLock<Result<usize, i32>> = OnceLock::new();
    let reserved = MADE.get_or_init(|| {
        // SAFETY: a new mapping at an address of the host's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                RESERVED,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        let start = start.expose_provenance().next_multiple_of(ALIGNMENT);
        START.store(start, Ordering::Release);
        Ok(start)
    });
    let start = reserved.map_err(std::io::Error::from_raw_os_error)?;
    let size = bytes.next_multiple_of(ALIGNMENT);
    let mut discarded = DISCARDED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = discarded.iter().position(|(_, room)| *room == size) {
        return Ok(discarded.swap_remove(place).0);
    }
    drop(discarded);
    let taken = TAKEN.fetch_add(size, Ordering::Relaxed);
    if taken + size > RESERVED - ALIGNMENT {
        TAKEN.fetch_sub(size, Ordering::Relaxed);
        return Err(std::io::Error::from_raw_os_error(libc::ENOMEM));
    }
    let address: *mut libc::c_void = ptr::with_exposed_provenance_mut(start + taken);
    // SAFETY: the range is inside of the reservation, and nobody else's.
    let result = unsafe { libc::mprotect(address, size, libc::PROT_READ | libc::PROT_WRITE) };
    if result == 0 {
        Ok(start + taken)
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Whether the address is in the reserved space.
#[inline]
fn is_ours(address: usize) -> bool {
    let start = START.load(Ordering::Relaxed);
    start != 0 && address.wrapping_sub(start) < RESERVED - ALIGNMENT
}

// SAFETY: what is allocated is either the system allocator's, or the next bytes of a
// range that the calling thread alone fills and that stays for good. Which of the two it
// is its address tells.
unsafe impl GlobalAlloc for PlacedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (next, end) = FILLING.get();
        if end == 0 {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        }
        let at = next.next_multiple_of(layout.align());
        if at > end || end - at < layout.size() {
            return ptr::null_mut();
        }
        FILLING.set((at + layout.size(), end));
        ptr::with_exposed_provenance_mut(at)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match FILLING.get() {
            // SAFETY: the caller's promise.
            (_, 0) => unsafe { System.alloc_zeroed(layout) },
            // SAFETY: the caller's promise. What a range has not handed out yet is zero,
            // and it hands out nothing twice.
            _ => unsafe { self.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !is_ours(pointer.addr()) {
            // SAFETY: the caller's promise; not from a range, so the system's.
            unsafe { System.dealloc(pointer, layout) }
        }
    }
}
