//! The bytes of page frames, which others may touch at any time.
//!
//! A page of memory is nobody's alone for long: tasks store to a page while it
//! is copied for one of them, read through the page cache, or written to its
//! backing store, and they do so without a lock. As ordinary accesses these
//! would be data races, which are undefined behaviour in Rust. So the core, and
//! a platform that is written in Rust, reach the bytes of frames through
//! [`FrameBytes`] and in no other way while somebody else might.
//!
//! # What an access means
//! Every method of [`FrameBytes`] means: *each aligned 8-byte word is read or
//! written once, as a relaxed atomic word, in no particular order.* All accesses
//! have the same size, because the memory model does not define what races of
//! different sizes do. Bytes that do not fill a word are replaced in it by a
//! compare-and-exchange, so that a store to the bytes beside them is not undone.
//!
//! A reader that races with a writer therefore gets each word as it was before or
//! after, and some words of either kind: as on the machine itself. Nothing is
//! ordered with anything else; whoever needs that uses a lock or a fence.
//!
//! # How it is done
//! Compilers neither join nor vectorise atomic accesses, so that a loop over
//! relaxed words takes about twice as long for a page as `memset` and `memcpy`.
//! Volatile accesses are as slow, and still race. On x86-64 the work is therefore
//! done in assembly, about which the compiler knows no more than that it did
//! something that Rust code could do: here, the accesses above. The instructions
//! keep that promise: `rep movsq` and `rep stosq` access aligned words whole, and
//! so do 16-byte stores by halves at least. They are chosen over `rep movsb` and
//! `rep stosb`, which are as fast but are made of single bytes, and which are slow
//! on processors without ERMS. They need no registers but the general ones, which
//! kernels use without asking. Where `rep movsq` is slow, or lines are asked for one
//! by one, loops stand in its place, which use 16-byte registers only if the target
//! allows them everywhere.
//!
//! Other architectures, and Miri, run the loop over relaxed words
//! (`bytes/portable.rs`), which is also what short copies take.

mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(all(test, not(vellum_loom)))]
mod tests;

use core::fmt;
use core::ptr::NonNull;
// The processor's own: an instrumented build reports the bytes of a page as a
// whole and not word by word.
use core::sync::atomic::{AtomicU64 as Word, Ordering};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use self::portable as machine;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use self::x86_64 as machine;
#[cfg(not(vellum_loom))]
use super::atomic::AtomicU64;
use super::report::{Kind, is_spared, report};

/// Bytes of a cache line.
const LINE: usize = 64;
const WORD: usize = size_of::<Word>();

/// Asks the processor to bring the cache line of `value` near, because it
/// will be written soon. Costs little if it is there, and may do nothing.
#[inline]
pub fn prefetch<T>(value: &T) {
    prefetch_at(core::ptr::from_ref(value).cast());
}

/// The same for the line at an address, which may be no memory's.
#[inline]
pub(crate) fn prefetch_at(address: *const u8) {
    report(Kind::Prefetch, address, 1);
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

/// Asks for the line of a value that is read next and then changed. Whoever else has it gives it up
/// at once: it moves once, not first to be read and again to be written.
#[inline]
pub fn prefetch_to_write<T>(value: &T) {
    let address = core::ptr::from_ref(value);
    report(Kind::PrefetchToWrite, address.cast(), 1);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect on memory and never faults. Every x86-64 processor
    // decodes the instruction; those that do not implement it do nothing.
    unsafe {
        core::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: prefetching has no effect on memory and never faults.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

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

/// The bytes of a frame, or of some of its words, while others may load and store
/// there.
///
/// A copy of this is a reference: it is as long as a slice, and is passed by value.
#[derive(Clone, Copy)]
pub struct FrameBytes<'a> {
    words: &'a [Word],
}

impl<'a> FrameBytes<'a> {
    /// The `size` bytes at `start`.
    ///
    /// # Safety
    /// For all of `'a` there is memory of `size` bytes at `start`, aligned to 8, and
    /// `size` is a multiple of 8. Nobody holds a Rust reference to any of it meanwhile
    /// but as atomic words, and whoever reads or writes there without ordering it
    /// with what is done through the result does so through another `FrameBytes`, as
    /// relaxed atomic words of 8 bytes, or from outside of this program: from user
    /// code that a page is mapped for, or a device.
    #[inline]
    pub unsafe fn new(start: NonNull<u8>, size: usize) -> Self {
        debug_assert!(start.cast::<Word>().is_aligned() && size.is_multiple_of(WORD));
        // SAFETY: the caller's promise; every bit pattern is a valid word, and the
        // words may change behind the reference, being atomic.
        let words = unsafe { core::slice::from_raw_parts(start.cast().as_ptr(), size / WORD) };
        FrameBytes { words }
    }

    /// The bytes of atomic words.
    #[cfg(not(vellum_loom))]
    #[inline]
    pub fn of_words(words: &'a [AtomicU64]) -> Self {
        // SAFETY: the words are memory for `'a`, and are accessed as atomics by
        // whoever else has the reference.
        unsafe { Self::new(NonNull::from(words).cast(), size_of_val(words)) }
    }

    /// Number of bytes.
    #[inline]
    pub fn size(self) -> usize {
        size_of_val(self.words)
    }

    /// The bytes as atomic words: what page tables are, and what a processor loads
    /// and stores.
    #[cfg(not(vellum_loom))]
    #[inline]
    pub fn words(self) -> &'a [AtomicU64] {
        let start = core::ptr::from_ref(self.words).cast::<AtomicU64>();
        // SAFETY: the same words; `AtomicU64` is that of the processor, or, in an
        // instrumented build, a transparent wrapper of it.
        unsafe { core::slice::from_raw_parts(start, self.words.len()) }
    }

    /// Reports an access to all bytes.
    #[inline]
    fn report(self, kind: Kind) {
        self.report_part(kind, 0, self.size());
    }

    /// Reports an access to `count` bytes from byte `offset` on, which there are.
    #[inline]
    fn report_part(self, kind: Kind, offset: usize, count: usize) {
        report(kind, self.at(offset), count);
    }

    /// Reports that `count` bytes from byte `offset` on are being written. Returns whether they
    /// have to be.
    #[inline]
    fn begin_write(self, kind: Kind, offset: usize, count: usize) -> bool {
        self.report_part(kind, offset, count);
        !is_spared(self.at(offset), count)
    }

    #[inline]
    fn at(self, offset: usize) -> *const u8 {
        self.words.as_ptr().cast::<u8>().wrapping_add(offset)
    }

    /// Fills the bytes with zeroes.
    #[inline]
    pub fn zero(self) {
        if self.begin_write(Kind::BytesZeroed, 0, self.size()) {
            machine::fill(self.words, 0);
        }
    }

    /// [`FrameBytes::zero`], which asks for the lines of another frame, at `next`, as
    /// it goes: if that is the one to be filled next, it is near by then. Asked for
    /// all at once, the lines would stop the processor until the first had come.
    /// Nothing is read or written at `next`, which may be any address.
    #[inline]
    pub fn zero_towards(self, next: *const u8) {
        report(Kind::Prefetch, next, self.size());
        if self.begin_write(Kind::BytesZeroed, 0, self.size()) {
            machine::zero_towards(self.words, next);
        }
    }

    /// [`FrameBytes::zero`] with stores that pass the caches by, where the processor
    /// has such: for frames that nobody will use soon. They are ordered as other
    /// stores by the time it returns.
    #[inline]
    pub fn zero_around_caches(self) {
        if self.begin_write(Kind::BytesZeroedAround, 0, self.size()) {
            machine::zero_around_caches(self.words);
        }
    }

    /// Whether all bytes are zero.
    pub fn is_zero(self) -> bool {
        self.report(Kind::BytesRead);
        let is_zero = |word: &Word| word.load(Ordering::Relaxed) == 0;
        self.words.iter().all(is_zero)
    }

    /// Puts `word` into each 8-byte word.
    #[inline]
    pub fn fill(self, word: u64) {
        if self.begin_write(Kind::BytesFilled, 0, self.size()) {
            machine::fill(self.words, word);
        }
    }

    /// Copies all of `from`, or as much of it as fits, to the start of this.
    #[inline]
    pub fn copy_from(self, from: FrameBytes<'_>) {
        let count = from.words.len().min(self.words.len());
        from.report_part(Kind::BytesRead, 0, count * WORD);
        if self.begin_write(Kind::BytesWritten, 0, count * WORD) {
            machine::copy(&from.words[..count], &self.words[..count]);
        }
    }

    /// Copies `data` to byte `offset`, as much of it as fits. Returns the bytes
    /// copied.
    pub fn write(self, offset: usize, data: &[u8]) -> usize {
        let count = self.part(offset, data.len());
        if !self.begin_write(Kind::BytesWritten, offset, count) {
            return count;
        }
        let edge = count.min(offset.wrapping_neg() % WORD);
        let (head, rest) = data[..count].split_at(edge);
        self.put_part(offset, head);
        let (first, words) = ((offset + edge) / WORD, rest.len() / WORD);
        let (whole, tail) = rest.split_at(words * WORD);
        if words > 0 {
            machine::copy_in(whole, &self.words[first..first + words]);
        }
        self.put_part((first + words) * WORD, tail);
        count
    }

    /// Puts zeroes into the bytes of `range`, as far as there are such bytes.
    pub fn zero_range(self, range: core::ops::Range<usize>) {
        let count = self.part(range.start, range.len());
        if !self.begin_write(Kind::BytesZeroed, range.start, count) {
            return;
        }
        let edge = count.min(range.start.wrapping_neg() % WORD);
        self.put_part(range.start, &[0; WORD][..edge]);
        let (first, words) = ((range.start + edge) / WORD, (count - edge) / WORD);
        if words > 0 {
            machine::fill(&self.words[first..first + words], 0);
        }
        let tail = (count - edge) % WORD;
        self.put_part((first + words) * WORD, &[0; WORD][..tail]);
    }

    /// Copies from byte `offset` to `data`, as much as there is. Returns the bytes
    /// copied.
    pub fn read(self, offset: usize, data: &mut [u8]) -> usize {
        let count = self.part(offset, data.len());
        self.report_part(Kind::BytesRead, offset, count);
        let edge = count.min(offset.wrapping_neg() % WORD);
        let (head, rest) = data[..count].split_at_mut(edge);
        self.get_part(offset, head);
        let (first, words) = ((offset + edge) / WORD, rest.len() / WORD);
        let (whole, tail) = rest.split_at_mut(words * WORD);
        if words > 0 {
            machine::copy_out(&self.words[first..first + words], whole);
        }
        self.get_part((first + words) * WORD, tail);
        count
    }

    /// How many of `count` bytes from `offset` on there are.
    #[inline]
    fn part(self, offset: usize, count: usize) -> usize {
        count.min(self.size().saturating_sub(offset))
    }

    /// Replaces bytes inside of one word.
    fn put_part(self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let within = offset % WORD..offset % WORD + data.len();
        let (mut new, mut mask) = ([0; WORD], [0; WORD]);
        new[within.clone()].copy_from_slice(data);
        mask[within].fill(u8::MAX);
        let (new, mask) = (u64::from_ne_bytes(new), u64::from_ne_bytes(mask));
        let word = &self.words[offset / WORD];
        let mut old = word.load(Ordering::Relaxed);
        while let Err(now) =
            word.compare_exchange_weak(old, old & !mask | new, Ordering::Relaxed, Ordering::Relaxed)
        {
            old = now;
        }
    }

    /// Reads bytes inside of one word.
    fn get_part(self, offset: usize, data: &mut [u8]) {
        if data.is_empty() {
            return;
        }
        let word = self.words[offset / WORD].load(Ordering::Relaxed);
        let within = offset % WORD..offset % WORD + data.len();
        data.copy_from_slice(&word.to_ne_bytes()[within]);
    }
}

impl fmt::Debug for FrameBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:p}", self.size(), self.words.as_ptr())
    }
}
