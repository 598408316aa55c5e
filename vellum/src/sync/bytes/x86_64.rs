//! Frame bytes by the string instructions of x86-64 and, where lines are written
//! one by one, by whole lines.
//!
//! Every block of assembly here stands for relaxed atomic stores to each word of
//! the slice it is given, and relaxed loads of each word of the slice it copies
//! from. The direction flag is clear, as Rust's assembly finds and leaves it.

use core::arch::asm;

use super::{LINE, WORD, Word, portable};

/// Words up to which starting a string instruction takes longer than the copy.
const SHORT: usize = 64;

#[inline]
pub(super) fn fill(words: &[Word], word: u64) {
    // SAFETY: relaxed stores to the words of the slice, and nothing else.
    unsafe {
        asm!(
            "rep stosq",
            inout("rcx") words.len() => _,
            inout("rdi") words.as_ptr() => _,
            in("rax") word,
            options(nostack, preserves_flags),
        );
    }
}

/// Zeroes line by line: a string instruction would be started anew for each.
#[inline(never)]
pub(super) fn zero_towards(words: &[Word], next: *const u8) {
    // The stores below are of 16 bytes.
    let aligned = words.as_ptr().addr().is_multiple_of(16);
    let lines = words.len() * WORD / LINE;
    if cfg!(not(target_feature = "sse2")) || !aligned || lines == 0 {
        portable::zero_towards(words, next);
        return;
    }
    let (words, rest) = words.split_at(lines * LINE / WORD);
    #[cfg(target_feature = "sse2")]
    // SAFETY: relaxed stores to the words of the slice, which are a whole number of
    // lines and at least one, by aligned 16-byte stores, which processors make whole
    // or as two words. Prefetching has no effect on memory and never faults.
    // It asks as far as the second cache, for the reason `prefetch_later` gives.
    unsafe {
        asm!(
            "xorps {zeroes}, {zeroes}",
            "2:",
            "prefetcht1 [{next_end} + {before_end}]",
            "movaps [{end} + {before_end}], {zeroes}",
            "movaps [{end} + {before_end} + 16], {zeroes}",
            "movaps [{end} + {before_end} + 32], {zeroes}",
            "movaps [{end} + {before_end} + 48], {zeroes}",
            "add {before_end}, 64",
            "jne 2b",
            zeroes = out(xmm_reg) _,
            next_end = in(reg) next.wrapping_add(lines * LINE),
            end = in(reg) words.as_ptr_range().end,
            before_end = inout(reg) (lines * LINE).wrapping_neg() => _,
            options(nostack),
        );
    }
    portable::fill(rest, 0);
}

#[inline]
pub(super) fn zero_around_caches(words: &[Word]) {
    let lines = words.len() * WORD / LINE;
    let (words, rest) = words.split_at(lines * LINE / WORD);
    if lines > 0 {
        // SAFETY: relaxed stores to the words of the slice, which are a whole number
        // of lines and at least one. Such stores are ordered by nothing but the fence
        // at their end, so they are made ordinary ones before anybody relies on it.
        unsafe {
            asm!(
                "2:",
                "movnti [{place}], {zero}",
                "movnti [{place} + 8], {zero}",
                "movnti [{place} + 16], {zero}",
                "movnti [{place} + 24], {zero}",
                "movnti [{place} + 32], {zero}",
                "movnti [{place} + 40], {zero}",
                "movnti [{place} + 48], {zero}",
                "movnti [{place} + 56], {zero}",
                "add {place}, 64",
                "cmp {place}, {end}",
                "jne 2b",
                "sfence",
                zero = in(reg) 0u64,
                place = inout(reg) words.as_ptr() => _,
                end = in(reg) words.as_ptr_range().end,
                options(nostack),
            );
        }
    }
    portable::fill(rest, 0);
}

/// Copies words, `words` at most; returns how many.
///
/// A string instruction moves 32 bytes at a time if both places lie alike in such, and
/// otherwise half as many bytes a second (14 GB/s instead of 26 on AMD's Zen 4). Buffers
/// that an allocator has mapped begin 16 bytes into a page, so that is the usual case
/// between them and a frame. It is done line by line.
///
/// # Safety
/// That many words can be read at `from` and written at `to`; the side that others
/// may touch is aligned to 8, and to 16 if `shared_aligned`.
#[inline]
unsafe fn move_words(from: *const u8, to: *mut u8, words: usize, shared_aligned: bool) -> usize {
    let alike = (from.addr() ^ to.addr()).is_multiple_of(32);
    let lines = words * WORD / LINE;
    if !alike && shared_aligned && lines > 0 {
        // SAFETY: the caller's promise; there is a line.
        unsafe { move_lines(from, to, lines) };
        return lines * LINE / WORD;
    }
    // SAFETY: the caller's promise; the loads and stores of the side that others may
    // touch are relaxed ones of whole words.
    unsafe {
        asm!(
            "rep movsq",
            inout("rcx") words => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
    words
}

/// Copies `lines` lines of 64 bytes.
///
/// # Safety
/// There is at least one. They can be read at `from` and written at `to`; the side that
/// others may touch is aligned to 16.
#[inline(never)]
unsafe fn move_lines(from: *const u8, to: *mut u8, lines: usize) {
    let (from_end, to_end) = (
        from.wrapping_add(lines * LINE),
        to.wrapping_add(lines * LINE),
    );
    let before_end = (lines * LINE).wrapping_neg();
    #[cfg(target_feature = "sse2")]
    // SAFETY: the caller's promise. Accesses of the aligned side are of 16 bytes, which
    // processors make whole or as two words: relaxed loads or stores of its words.
    unsafe {
        asm!(
            "2:",
            "movups {a}, [{from} + {at}]",
            "movups {b}, [{from} + {at} + 16]",
            "movups {c}, [{from} + {at} + 32]",
            "movups {d}, [{from} + {at} + 48]",
            "movups [{to} + {at}], {a}",
            "movups [{to} + {at} + 16], {b}",
            "movups [{to} + {at} + 32], {c}",
            "movups [{to} + {at} + 48], {d}",
            "add {at}, 64",
            "jne 2b",
            from = in(reg) from_end,
            to = in(reg) to_end,
            at = inout(reg) before_end => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
    #[cfg(not(target_feature = "sse2"))]
    // SAFETY: the caller's promise; relaxed loads or stores of the words of the aligned
    // side.
    unsafe {
        asm!(
            "2:",
            "mov {a}, [{from} + {at}]",
            "mov {b}, [{from} + {at} + 8]",
            "mov {c}, [{from} + {at} + 16]",
            "mov {d}, [{from} + {at} + 24]",
            "mov [{to} + {at}], {a}",
            "mov [{to} + {at} + 8], {b}",
            "mov [{to} + {at} + 16], {c}",
            "mov [{to} + {at} + 24], {d}",
            "mov {a}, [{from} + {at} + 32]",
            "mov {b}, [{from} + {at} + 40]",
            "mov {c}, [{from} + {at} + 48]",
            "mov {d}, [{from} + {at} + 56]",
            "mov [{to} + {at} + 32], {a}",
            "mov [{to} + {at} + 40], {b}",
            "mov [{to} + {at} + 48], {c}",
            "mov [{to} + {at} + 56], {d}",
            "add {at}, 64",
            "jne 2b",
            from = in(reg) from_end,
            to = in(reg) to_end,
            at = inout(reg) before_end => _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            options(nostack),
        );
    }
}

/// Whether an address is as [`move_lines`] wants that of the side which others may
/// touch.
#[inline]
fn is_aligned(words: &[Word]) -> bool {
    words.as_ptr().addr().is_multiple_of(16)
}

/// Copies as many words as the shorter of the two has.
#[inline]
pub(super) fn copy(from: &[Word], to: &[Word]) {
    let words = from.len().min(to.len());
    if words < SHORT {
        return portable::copy(from, to);
    }
    let aligned = is_aligned(from) && is_aligned(to);
    let place = to.as_ptr().cast_mut().cast();
    // SAFETY: both slices have that many words, which may be written through shared
    // references, being atomic.
    let done = unsafe { move_words(from.as_ptr().cast(), place, words, aligned) };
    portable::copy(&from[done..words], &to[done..words]);
}

/// Copies as many words as the shorter of the two has.
#[inline]
pub(super) fn copy_in(from: &[u8], to: &[Word]) {
    let words = (from.len() / WORD).min(to.len());
    if words < SHORT {
        return portable::copy_in(from, to);
    }
    let place = to.as_ptr().cast_mut().cast();
    // SAFETY: as in `copy`; `from` is read as ordinary memory that nobody writes.
    let done = unsafe { move_words(from.as_ptr(), place, words, is_aligned(to)) };
    portable::copy_in(&from[done * WORD..], &to[done..words]);
}

/// Copies as many words as the shorter of the two has.
#[inline]
pub(super) fn copy_out(from: &[Word], to: &mut [u8]) {
    let words = from.len().min(to.len() / WORD);
    if words < SHORT {
        return portable::copy_out(from, to);
    }
    let place = to.as_mut_ptr();
    // SAFETY: as in `copy`; `to` is ordinary memory and the caller's alone.
    let done = unsafe { move_words(from.as_ptr().cast(), place, words, is_aligned(from)) };
    portable::copy_out(&from[done..words], &mut to[done * WORD..]);
}
