//! Doubly linked lists of free frames, threaded through their records.

use crate::addr::Pfn;
use crate::frame::Frame;
use crate::frame::table::FrameTable;
use crate::sync::atomic::{AtomicU32, Ordering};

/// What may be done with a page once it is in use: pages of one kind are kept together, so
/// that blocks of pages that could be moved stay free of others (Linux's migrate types,
/// without those that nothing here would be).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mobility {
    /// Page tables and the manager's own nodes.
    Unmovable = 0,
    /// Pages of programs and files.
    Movable = 1,
}

impl Mobility {
    pub(super) const ALL: [Mobility; 2] = [Mobility::Unmovable, Mobility::Movable];

    pub(super) fn from_bits(bits: u32) -> Mobility {
        match bits & 1 {
            0 => Mobility::Unmovable,
            _ => Mobility::Movable,
        }
    }

    /// Whose blocks to take when there are none of this kind.
    pub(super) fn fallback(self) -> Mobility {
        match self {
            Mobility::Unmovable => Mobility::Movable,
            Mobility::Movable => Mobility::Unmovable,
        }
    }

    /// The kind of the list that a free frame is on.
    pub(super) fn of_listed(frame: &Frame) -> Mobility {
        Mobility::from_bits(frame.owner())
    }
}

/// A list. Its words are atomics because statistics read them from elsewhere; one thread
/// at a time changes them.
#[derive(Debug)]
pub(super) struct FrameList {
    head: AtomicU32,
    tail: AtomicU32,
    count: AtomicU32,
}

impl Default for FrameList {
    fn default() -> Self {
        FrameList {
            head: AtomicU32::new(Pfn::NONE.0),
            tail: AtomicU32::new(Pfn::NONE.0),
            count: AtomicU32::new(0),
        }
    }
}

impl FrameList {
    pub(super) fn len(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    fn add(&self, more: i32) {
        let count = self.len().wrapping_add_signed(more);
        self.count.store(count, Ordering::Relaxed);
    }

    pub(super) fn first(&self) -> Pfn {
        Pfn(self.head.load(Ordering::Relaxed))
    }

    pub(super) fn last(&self) -> Pfn {
        Pfn(self.tail.load(Ordering::Relaxed))
    }

    fn set_first(&self, pfn: Pfn) {
        self.head.store(pfn.0, Ordering::Relaxed);
    }

    fn set_last(&self, pfn: Pfn) {
        self.tail.store(pfn.0, Ordering::Relaxed);
    }

    /// Puts a frame at the head.
    #[inline]
    pub(super) fn push(&self, table: &FrameTable, pfn: Pfn) {
        let first = self.first();
        table.frame(pfn).set_links(first, Pfn::NONE);
        if first.is_none() {
            self.set_last(pfn);
        } else {
            let frame = table.frame(first);
            frame.set_links(frame.links().0, pfn);
        }
        self.set_first(pfn);
        self.add(1);
    }

    /// Puts a frame at the tail.
    #[inline]
    pub(super) fn push_last(&self, table: &FrameTable, pfn: Pfn) {
        let last = self.last();
        table.frame(pfn).set_links(Pfn::NONE, last);
        if last.is_none() {
            self.set_first(pfn);
        } else {
            let frame = table.frame(last);
            frame.set_links(pfn, frame.links().1);
        }
        self.set_last(pfn);
        self.add(1);
    }

    /// Takes a frame that is on the list off it.
    #[inline]
    pub(super) fn remove(&self, table: &FrameTable, pfn: Pfn) {
        let (next, previous) = table.frame(pfn).links();
        if previous.is_none() {
            self.set_first(next);
        } else {
            let frame = table.frame(previous);
            frame.set_links(next, frame.links().1);
        }
        if next.is_none() {
            self.set_last(previous);
        } else {
            let frame = table.frame(next);
            frame.set_links(frame.links().0, previous);
        }
        self.add(-1);
    }

    /// Every frame of the list, for the audit: `None` after one whose neighbour does not
    /// link back to it, or beyond the count.
    pub(super) fn frames<'a>(
        &self,
        table: &'a FrameTable,
    ) -> impl Iterator<Item = Option<Pfn>> + use<'a> {
        let (count, last) = (self.len(), self.last());
        let mut at = (self.first(), Pfn::NONE, 0);
        core::iter::from_fn(move || {
            let (pfn, previous, seen) = at;
            if pfn.is_none() && seen == count && previous == last {
                return None;
            }
            let frame = table.get(pfn)?;
            if seen > count {
                return None;
            }
            at = (frame.links().0, pfn, seen + 1);
            Some((frame.links().1 == previous && seen < count).then_some(pfn))
        })
    }
}
