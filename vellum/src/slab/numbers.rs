//! Numbers for chunks, from 1, each with an entry of the directory.

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::bytes::prefetch_to_write;

/// CPUs for each number that one takes at a time.
const CPUS_A_NUMBER: u32 = 32;
/// Numbers that one takes at a time, at most.
const MOST_STEP: u32 = 16;

/// Hands out numbers by one addition each time, so that CPUs whose arenas grow at once do not wait
/// for each other. Where there are many CPUs, each takes several numbers for its next chunks.
///
/// A number must have a leaf of the directory before it is anybody's. So whoever takes some first
/// sees to leaves for as many further numbers as the other CPUs take. That is enough: when numbers
/// are taken, either each other CPU has taken some once at the most since their taker looked; or
/// one has done so twice, and saw to leaves for these numbers before the second time.
pub(crate) struct Numbers {
    next: AtomicU32,
    /// Numbers that are taken at a time.
    step: u32,
    /// The numbers that all CPUs take once.
    round: u32,
    /// The highest number.
    most: u32,
}

/// Numbers that a CPU has taken and not used.
#[derive(Default)]
pub(crate) struct Taken {
    first: AtomicU32,
    count: AtomicU32,
}

impl Taken {
    /// Uses the first of them, if there is one.
    pub(crate) fn next(&self) -> Option<u32> {
        let count = self.count.load(Ordering::Relaxed).checked_sub(1)?;
        let first = self.first.load(Ordering::Relaxed);
        self.first.store(first + 1, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        Some(first)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Numbers {
    /// Numbers for `chunks` chunks of `cpus` CPUs, and as many more as may lie unused, up to
    /// `most`.
    pub(crate) fn new(chunks: u32, most: u32, cpus: usize) -> Numbers {
        let cpus = cpus.max(1) as u32;
        let step = cpus.div_ceil(CPUS_A_NUMBER).min(MOST_STEP);
        let round = step.saturating_mul(cpus);
        Numbers {
            next: AtomicU32::new(1),
            step,
            round,
            most: chunks.saturating_add(round - step).min(most),
        }
    }

    /// The highest number.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// The next number of a CPU, which `taken` is of and which the caller is pinned to; `None` if
    /// there are no more.
    ///
    /// `see_to_leaves(from, to)` has all leaves there when it returns that the numbers `from` to
    /// `to` need; if the last of them has its leaf, so have the others.
    ///
    /// # Errors
    /// What `see_to_leaves` fails with.
    pub(crate) fn take<E>(
        &self,
        taken: &Taken,
        see_to_leaves: impl FnOnce(u32, u32) -> Result<(), E>,
    ) -> Result<Option<u32>, E> {
        if let Some(number) = taken.next() {
            return Ok(Some(number));
        }
        prefetch_to_write(&self.next);
        let seen = self.next.load(Ordering::Relaxed);
        if seen > self.most {
            return Ok(None);
        }
        see_to_leaves(seen, seen.saturating_add(self.round - 1).min(self.most))?;
        // Acquires what those have seen who took earlier numbers.
        let first = self.next.fetch_add(self.step, Ordering::AcqRel);
        // Behind the last number, each CPU takes some once at the most.
        let count = self.most.saturating_add(1).saturating_sub(first);
        taken.first.store(first, Ordering::Relaxed);
        taken.count.store(count.min(self.step), Ordering::Relaxed);
        Ok(taken.next())
    }

    /// Numbers that have been taken: all up to this one.
    pub(crate) fn taken(&self) -> u32 {
        (self.next.load(Ordering::Relaxed) - 1).min(self.most)
    }
}
