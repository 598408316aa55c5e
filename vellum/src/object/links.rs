//! Lists of frames that are linked by number through records beside the frames' own.
//!
//! A record says which list its frame is on, of up to four: one bit of the number stands
//! beside the link to the next frame, one beside the link back. Links are changed under a
//! lock of their lists.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Instead of a link: nothing follows.
pub(crate) const END: u32 = u32::MAX >> 1;
/// Instead of a link back: on no list.
const OUT: u32 = END - 1;
/// Instead of a link back: on no list, but about to be put on one.
const WAITING: u32 = END - 2;
/// Beside a link: a bit of the list's number.
const BIT: u32 = 1 << 31;

/// A frame's place.
pub(crate) struct PageLinks {
    next: AtomicU32,
    previous: AtomicU32,
}

impl Default for PageLinks {
    fn default() -> Self {
        PageLinks {
            next: AtomicU32::new(END),
            previous: AtomicU32::new(OUT),
        }
    }
}

/// A record that has links.
pub(crate) trait Linked {
    /// They.
    fn links(&self) -> &PageLinks;
}

impl Linked for PageLinks {
    #[inline]
    fn links(&self) -> &PageLinks {
        self
    }
}

impl PageLinks {
    fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed) & !BIT
    }

    fn set_next(&self, next: u32) {
        let bit = self.next.load(Ordering::Relaxed) & BIT;
        self.next.store(bit | next, Ordering::Relaxed);
    }

    fn previous(&self) -> u32 {
        self.previous.load(Ordering::Relaxed) & !BIT
    }

    fn set_previous(&self, previous: u32) {
        let bit = self.previous.load(Ordering::Relaxed) & BIT;
        self.previous.store(bit | previous, Ordering::Relaxed);
    }

    /// The list that the frame is on, or is to be put on.
    #[inline]
    pub(crate) fn list(&self) -> usize {
        let low = self.next.load(Ordering::Relaxed) >> 31;
        let high = self.previous.load(Ordering::Relaxed) >> 31;
        (high << 1 | low) as usize
    }

    /// Whether the frame is on a list.
    #[inline]
    pub(crate) fn is_listed(&self) -> bool {
        !matches!(self.previous(), OUT | WAITING)
    }

    /// Whether the frame is on no list and about to be put on none.
    #[cfg(feature = "published")]
    #[inline]
    pub(crate) fn is_out(&self) -> bool {
        self.previous() == OUT
    }

    /// Whether the frame is about to be put on a list.
    #[cfg(feature = "published")]
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.previous() == WAITING
    }

    /// Makes a frame that is on no list one that waits for list 0; false if it is on one or
    /// waits already. Needs no lock.
    #[cfg(feature = "published")]
    pub(crate) fn begin_waiting(&self) -> bool {
        let entered =
            self.previous
                .compare_exchange(OUT, WAITING, Ordering::Relaxed, Ordering::Relaxed);
        entered.is_ok()
    }

    /// Which list a frame that waits is to be put on: 0 or 1.
    #[cfg(feature = "published")]
    pub(crate) fn wait_for(&self, list: usize) {
        self.next
            .store(END | (list as u32) << 31, Ordering::Relaxed);
    }
}

/// A list: its youngest and oldest frame.
#[derive(Clone, Copy)]
pub(crate) struct PageList {
    youngest: u32,
    oldest: u32,
    count: u64,
}

impl PageList {
    pub(crate) const EMPTY: PageList = PageList {
        youngest: END,
        oldest: END,
        count: 0,
    };

    /// Frames on it.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The frame that has been on it for longest.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != END).then_some(self.oldest)
    }
}

/// Makes a frame, which is on no list, the youngest of one.
#[cfg(feature = "published")]
pub(crate) fn link<T: Linked>(records: &[T], lists: &mut [PageList], frame: u32, to: usize) {
    join(records, &mut lists[to], frame, to);
}

/// The same for a caller who knows the list. The record keeps two bits of its number.
pub(crate) fn join<T: Linked>(records: &[T], list: &mut PageList, frame: u32, number: usize) {
    let links = records[frame as usize].links();
    let (low, high) = ((number as u32 & 1) << 31, (number as u32 >> 1 & 1) << 31);
    links.next.store(list.youngest | low, Ordering::Relaxed);
    links.previous.store(END | high, Ordering::Relaxed);
    match list.youngest {
        END => list.oldest = frame,
        youngest => records[youngest as usize].links().set_previous(frame),
    }
    list.youngest = frame;
    list.count += 1;
}

/// Takes a frame off its list, if it is on one. It does not wait for one, either.
#[cfg(feature = "published")]
pub(crate) fn unlink<T: Linked>(records: &[T], lists: &mut [PageList], frame: u32) {
    let list = records[frame as usize].links().list();
    leave(records, &mut lists[list], frame);
}

/// The same for a caller who knows the list.
pub(crate) fn leave<T: Linked>(records: &[T], list: &mut PageList, frame: u32) {
    let links = records[frame as usize].links();
    if links.is_listed() {
        let (next, previous) = (links.next(), links.previous());
        match previous {
            END => list.youngest = next,
            previous => records[previous as usize].links().set_next(next),
        }
        match next {
            END => list.oldest = previous,
            next => records[next as usize].links().set_previous(previous),
        }
        list.count -= 1;
    }
    links.next.store(END, Ordering::Relaxed);
    links.previous.store(OUT, Ordering::Relaxed);
}

/// Checks the links of all frames while nobody changes them. Counts in `counts` how many are
/// on each list; `list_of` says on which a listed frame is.
///
/// # Errors
/// What is wrong, with the frame.
pub(crate) fn check<T: Linked>(
    records: &[T],
    list_of: impl Fn(u32) -> usize,
    counts: &mut [u64],
) -> Result<(), (&'static str, u32)> {
    for (frame, record) in (0..).zip(records) {
        let links = record.links();
        if !links.is_listed() {
            continue;
        }
        let list = list_of(frame);
        let Some(count) = counts.get_mut(list) else {
            return Err(("a list of aging that does not exist, at", frame));
        };
        *count += 1;
        let (next, previous) = (links.next(), links.previous());
        let fits = |other: u32, back: fn(&PageLinks) -> u32| {
            other == END
                || records.get(other as usize).is_some_and(|record| {
                    let links = record.links();
                    links.is_listed() && list_of(other) == list && back(links) == frame
                })
        };
        if !fits(next, PageLinks::previous) || !fits(previous, PageLinks::next) {
            return Err(("links of a list of aging do not fit, at", frame));
        }
    }
    Ok(())
}
