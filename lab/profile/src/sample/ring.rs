//! Where the signal handler leaves samples: a ring of words between the handler,
//! which writes, and whoever drains it, one at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Counts, lock};

/// Words in a ring, a power of two: some thousand samples.
const WORDS: usize = 1 << 16;

/// Return addresses in a sample, at most.
pub(super) const DEPTH: usize = 128;

/// A sample is a word of tag and length, then the addresses, innermost first.
pub(super) struct Ring {
    words: Box<[AtomicU64]>,
    /// Words ever written; only the handler advances it.
    head: AtomicUsize,
    /// Words ever read; advanced under `reader`.
    tail: AtomicUsize,
    reader: Mutex<()>,
    taken: AtomicU64,
    lost: AtomicU64,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self {
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            reader: Mutex::new(()),
            taken: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Adds a sample, or counts it as lost if there is no room. Called by one
    /// thread at a time; safe in a signal handler.
    pub(super) fn push(&self, tag: u32, addresses: &[u64]) {
        let head = self.head.load(Ordering::Relaxed);
        let used = head.wrapping_sub(self.tail.load(Ordering::Acquire));
        if used + 1 + addresses.len() > WORDS {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let first = u64::from(tag) << 32 | addresses.len() as u64;
        let words = std::iter::once(&first).chain(addresses);
        for (place, word) in words.enumerate() {
            self.word(head.wrapping_add(place))
                .store(*word, Ordering::Relaxed);
        }
        let head = head.wrapping_add(1 + addresses.len());
        self.head.store(head, Ordering::Release);
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_half_full(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        head.wrapping_sub(self.tail.load(Ordering::Relaxed)) > WORDS / 2
    }

    /// Moves all samples into `counts`.
    pub(super) fn drain(&self, counts: &mut Counts) {
        let _reader = lock(&self.reader);
        let head = self.head.load(Ordering::Acquire);
        let mut tail = self.tail.load(Ordering::Relaxed);
        while tail != head {
            let first = self.word(tail).load(Ordering::Relaxed);
            let (tag, length) = ((first >> 32) as u32, first as u32 as usize);
            let addresses = (1..=length)
                .map(|place| self.word(tail.wrapping_add(place)).load(Ordering::Relaxed))
                .collect();
            *counts.entry((tag, addresses)).or_default() += 1;
            tail = tail.wrapping_add(1 + length);
        }
        self.tail.store(tail, Ordering::Release);
    }

    /// Samples that were added.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn word(&self, place: usize) -> &AtomicU64 {
        &self.words[place & (WORDS - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_drained_across_the_end_of_the_ring() {
        let ring = Ring::new();
        let mut counts = Counts::new();
        for round in 0..5 * WORDS / 4 {
            ring.push(1 + (round % 2) as u32, &[7, 8, 9]);
            if ring.is_half_full() {
                ring.drain(&mut counts);
            }
        }
        ring.drain(&mut counts);
        let half = (5 * WORDS / 8) as u64;
        let stack: Box<[u64]> = Box::new([7, 8, 9]);
        assert_eq!(
            counts,
            Counts::from([((1, stack.clone()), half), ((2, stack), half)])
        );
        assert_eq!(ring.lost(), 0);
    }

    #[test]
    fn samples_without_room_are_counted_as_lost() {
        let ring = Ring::new();
        for _ in 0..WORDS / 4 + 10 {
            ring.push(1, &[1, 2, 3]);
        }
        assert_eq!(ring.lost(), 10);
        let mut counts = Counts::new();
        ring.drain(&mut counts);
        assert_eq!(counts.values().sum::<u64>(), WORDS as u64 / 4);
        ring.push(1, &[1, 2, 3]);
        assert_eq!(ring.lost(), 10);
    }
}
