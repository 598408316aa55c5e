//! Frame bytes as loops over relaxed atomic words.

use super::{LINE, WORD, Word, prefetch_later};
use core::sync::atomic::Ordering::Relaxed;

#[inline]
pub(super) fn fill(words: &[Word], word: u64) {
    words.iter().for_each(|place| place.store(word, Relaxed));
}

#[cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    allow(
        dead_code,
        reason = "the processor has a better way; tests compare both"
    )
)]
pub(super) fn zero_towards(words: &[Word], next: *const u8) {
    for (number, line) in words.chunks(LINE / WORD).enumerate() {
        prefetch_later(next.wrapping_add(number * LINE));
        fill(line, 0);
    }
}

#[cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    allow(
        dead_code,
        reason = "the processor has a better way; tests compare both"
    )
)]
pub(super) fn zero_around_caches(words: &[Word]) {
    fill(words, 0);
}

/// Copies as many words as the shorter of the two has.
#[inline]
pub(super) fn copy(from: &[Word], to: &[Word]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Relaxed), Relaxed);
    }
}

/// Copies as many words as the shorter of the two has.
#[inline]
pub(super) fn copy_in(from: &[u8], to: &[Word]) {
    for (from, to) in from.as_chunks().0.iter().zip(to) {
        to.store(u64::from_ne_bytes(*from), Relaxed);
    }
}

/// Copies as many words as the shorter of the two has.
#[inline]
pub(super) fn copy_out(from: &[Word], to: &mut [u8]) {
    for (from, to) in from.iter().zip(to.as_chunks_mut().0) {
        *to = from.load(Relaxed).to_ne_bytes();
    }
}
