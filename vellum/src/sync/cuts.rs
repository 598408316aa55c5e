//! A count of changes that may go on side by side.

use super::atomic::{AtomicU32, Ordering, fence};

/// Counts changes that several may be making at once, and may sleep meanwhile. Readers take
/// the writers' lock too rather than wait for the count.
///
/// The low bits count changes in progress, the others those that are complete.
#[derive(Debug)]
pub struct CutCount(AtomicU32);

/// One complete change.
const CUT: u32 = 1 << 8;

impl Default for CutCount {
    fn default() -> Self {
        CutCount(AtomicU32::new(0))
    }
}

impl CutCount {
    /// Starts a read; `None` while a change is in progress.
    #[inline]
    pub fn begin(&self) -> Option<u32> {
        let value = self.0.load(Ordering::Acquire);
        (value & (CUT - 1) == 0).then_some(value)
    }

    /// Whether everything read since [`CutCount::begin`] belongs together.
    #[inline]
    pub fn valid(&self, begun: u32) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == begun
    }

    /// Starts a change. There are never more than 255 at once, since each holds a range of the
    /// object.
    pub fn cut(&self) -> Cut<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        Cut(self)
    }

    /// Counts a change that is made in one step: before, what comes after it cannot be read.
    pub(crate) fn count_one(&self) {
        self.0.fetch_add(CUT, Ordering::AcqRel);
    }
}

/// A change in progress; dropping it completes the change.
pub struct Cut<'a>(&'a CutCount);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(CUT - 1, Ordering::Release);
    }
}

#[cfg(all(test, not(vellum_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_ends_does_not_hide_one_that_goes_on() {
        let count = CutCount::default();
        let begun = count.begin();
        let (first, second) = (count.cut(), count.cut());
        assert_eq!(count.begin(), None);
        drop(first);
        assert_eq!(count.begin(), None, "the second goes on");
        count.count_one();
        assert_eq!(count.begin(), None);
        drop(second);
        let now = count.begin();
        assert!(now.is_some() && now != begun);
        assert!(!count.valid(begun.unwrap()));
        count.count_one();
        assert!(!count.valid(now.unwrap()));
    }
}
