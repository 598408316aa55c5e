//! Numbers for chunks, from 1, each with an entry of the directory.

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::bytes::prefetch_to_write;

/// Hands out numbers by one addition each, so that CPUs whose arenas grow at once do not wait for
/// each other.
///
/// A number must have a leaf of the directory before it is anybody's. So whoever takes one first
/// sees to leaves for as many further numbers as there are other CPUs. That is enough: when a
/// number is taken, either that many or fewer have been taken since its taker looked; or one CPU
/// has taken two of the last ones, and saw to a leaf for this number before the second.
pub(crate) struct Numbers {
    next: AtomicU32,
    /// CPUs but one.
    others: u32,
    /// The highest number.
    most: u32,
}

impl Numbers {
    /// Numbers up to `most` for `cpus` CPUs.
    pub(crate) fn new(most: u32, cpus: usize) -> Numbers {
        Numbers {
            next: AtomicU32::new(1),
            others: (cpus as u32).saturating_sub(1),
            most,
        }
    }

    /// The next number; `None` if there are no more. The caller is pinned.
    ///
    /// `see_to_leaves(from, to)` has all leaves there when it returns that the numbers `from` to
    /// `to` need; if the last of them has its leaf, so have the others.
    ///
    /// # Errors
    /// What `see_to_leaves` fails with.
    pub(crate) fn take<E>(
        &self,
        see_to_leaves: impl FnOnce(u32, u32) -> Result<(), E>,
    ) -> Result<Option<u32>, E> {
        prefetch_to_write(&self.next);
        let seen = self.next.load(Ordering::Relaxed);
        if seen > self.most {
            return Ok(None);
        }
        see_to_leaves(seen, seen.saturating_add(self.others).min(self.most))?;
        // Acquires what those have seen who took earlier numbers.
        let number = self.next.fetch_add(1, Ordering::AcqRel);
        // Of the numbers behind the last, each CPU takes one at the most.
        Ok((number <= self.most).then_some(number))
    }

    /// Numbers that have been handed out: all up to this one.
    pub(crate) fn taken(&self) -> u32 {
        (self.next.load(Ordering::Relaxed) - 1).min(self.most)
    }
}
