//! Named accessors for the bytes of page frames.

use core::ptr::NonNull;

use super::atomic::AtomicU64;

/// Asks the processor to bring the cache line of `value` near, because it
/// will be written soon. Costs little if it is there, and may do nothing.
#[inline]
pub fn prefetch<T>(value: &T) {
    prefetch_at(core::ptr::from_ref(value).cast());
}

/// The same for the line at an address, which may be no memory's.
#[inline]
pub fn prefetch_at(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect on memory and never faults, and the
    // instruction exists on every x86-64 processor.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for the cache line at `address`, as far as the second cache: the first
/// has too little room for what is used only after many others.
#[inline]
fn prefetch_later(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect on memory and never faults, and the
    // instruction exists on every x86-64 processor.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Fills a frame of `size` bytes with zeroes.
///
/// # Safety
/// `frame` is the address of `size` writable bytes, a multiple of 8, aligned
/// to 8, and nobody else uses them.
#[inline]
pub unsafe fn zero(frame: NonNull<u8>, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { frame.as_ptr().write_bytes(0, size) }
}

/// [`zero`], which asks for the lines of another frame, at `next`, as it goes: if
/// that is the one to be filled next, it is near by then. Asked for all at once,
/// the lines would stop the processor until the first had come.
///
/// # Safety
/// As for [`zero`], with `size` a multiple of 64. Nothing is read or written at
/// `next`, which may be any address.
#[inline(never)]
pub unsafe fn zero_towards(frame: NonNull<u8>, size: usize, next: NonNull<u8>) {
    for line in (0..size).step_by(LINE) {
        prefetch_later(next.as_ptr().wrapping_add(line));
        // SAFETY: inside what the caller promises.
        unsafe { frame.as_ptr().add(line).write_bytes(0, LINE) };
    }
}

/// [`zero`] with stores that pass the caches by, where the processor has such:
/// for frames that nobody will use soon. They are visible to others by the time
/// it returns.
///
/// # Safety
/// As for [`zero`], with `size` a multiple of 64 and `frame` aligned to 64.
#[inline]
pub unsafe fn zero_around_caches(frame: NonNull<u8>, size: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};
        let start = frame.cast::<__m128i>().as_ptr();
        // SAFETY: every x86-64 processor has SSE2; the places are those the
        // caller promises, each aligned to 16.
        unsafe {
            let zeroes = _mm_setzero_si128();
            for place in 0..size / 16 {
                _mm_stream_si128(start.add(place), zeroes);
            }
            // Such stores are ordered by nothing but this.
            _mm_sfence();
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise.
    unsafe {
        zero(frame, size);
    }
}

/// Whether all of a frame of `size` bytes is zero.
///
/// # Safety
/// `frame` is the address of `size` readable bytes, a multiple of 8, aligned
/// to 8, that nobody writes meanwhile.
pub unsafe fn is_zero(frame: NonNull<u8>, size: usize) -> bool {
    let start = frame.cast::<u64>().as_ptr();
    // SAFETY: the caller's promise.
    (0..size / 8).all(|word| unsafe { start.add(word).read() } == 0)
}

/// Copies a frame of `size` bytes.
///
/// # Safety
/// `from` is readable, `to` is writable for `size` bytes; they do not overlap;
/// nobody else uses `to`. `from` may be written by others at the same time (a
/// task may store to a page that is being copied), in which case the copy holds
/// some mix of old and new bytes.
#[inline]
pub unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, size: usize) {
    // SAFETY: the caller's promise. Concurrent stores come from simulated or
    // real user code, outside of this program's memory model.
    unsafe { from.as_ptr().copy_to_nonoverlapping(to.as_ptr(), size) }
}

/// A frame as an array of atomic words, for page tables.
///
/// # Safety
/// `frame` is the address of `words * 8` bytes aligned to 8 that live for `'a`
/// and are accessed as atomic words, and in no other way, for as long.
#[inline]
pub unsafe fn words<'a>(frame: NonNull<u8>, words: usize) -> &'a [AtomicU64] {
    // SAFETY: the caller's promise; `AtomicU64` has the layout of `u64`, and
    // every bit pattern is valid.
    unsafe { core::slice::from_raw_parts(frame.cast::<AtomicU64>().as_ptr(), words) }
}

/// Puts `word` into each of `words` 8-byte words.
///
/// # Safety
/// `frame` is the address of `words * 8` writable bytes aligned to 8. Others
/// may load and store there meanwhile, as user code does.
#[inline]
pub unsafe fn fill(frame: NonNull<u8>, words: usize, word: u64) {
    let start = frame.cast::<u64>().as_ptr();
    for index in 0..words {
        // SAFETY: the caller's promise.
        unsafe { start.add(index).write(word) }
    }
}
