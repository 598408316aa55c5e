//! Which cached pages of files are newer than their backing store.
//!
//! Whoever changes the marks holds the pages' range of the object, or the lock of the
//! page, so that no page there leaves the cache meanwhile.

use core::ops::Range;

use super::radix::{LEAF_PAGES, RadixNode, leaf_end};
use super::{Object, Objects};
use crate::addr::Pfn;
use crate::frame::PhysicalMemory;
use crate::platform::Platform;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

/// The frames of a node whose bits are set.
fn frames_of(leaf: &RadixNode, mut bits: u64) -> impl Iterator<Item = Pfn> {
    core::iter::from_fn(move || {
        let place = (bits != 0).then(|| u64::from(bits.trailing_zeros()))?;
        bits &= bits - 1;
        Some(leaf.frame(place))
    })
    .flatten()
}

impl<S: Default + Send + Sync + 'static> Objects<S> {
    /// The first index in `range` whose page is marked as newer than its backing store.
    pub(crate) fn next_marked(
        &self,
        pin: &Pin<'_>,
        object: &Object<S>,
        range: Range<u64>,
    ) -> Option<u64> {
        let radix = self.radix(pin, object);
        let mut from = range.start;
        loop {
            let (index, _) = radix.next(from)?;
            if index >= range.end {
                return None;
            }
            let end = leaf_end(index);
            let marks = radix.leaf(index).map_or(0, |leaf| leaf.dirty(index..end));
            if marks != 0 {
                let first = index - index % LEAF_PAGES;
                let marked = first + u64::from(marks.trailing_zeros());
                return (marked < range.end).then_some(marked);
            }
            from = end;
        }
    }

    /// Marks the cached pages at `range`, which is one run, as newer than their backing
    /// store, after bytes were stored to them. Writes nothing that is shared if all are
    /// marked already.
    pub(crate) fn mark_dirty<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        range: Range<u64>,
    ) {
        let Some(leaf) = self.radix(pin, object).leaf(range.start) else {
            return;
        };
        let marked = leaf.mark_dirty(range);
        if marked != 0 {
            let pages = u64::from(marked.count_ones());
            object.dirty.fetch_add(pages, Ordering::Relaxed);
            if memory.counts_dirty_pages() {
                let frames = (frames_of(leaf, marked), pages as usize);
                memory.count_dirty_pages(pin, frames, true);
            }
        }
    }

    /// Takes away the marks of the pages at `range`, which is one run; what is then read
    /// of them is at least as new. Returns whether any was marked.
    pub(crate) fn mark_clean<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        range: Range<u64>,
    ) -> bool {
        if !object.is_file() {
            return false;
        }
        let Some(leaf) = self.radix(pin, object).leaf(range.start) else {
            return false;
        };
        let cleaned = leaf.mark_clean(range);
        if cleaned != 0 {
            let pages = u64::from(cleaned.count_ones());
            object.dirty.fetch_sub(pages, Ordering::Relaxed);
            if memory.counts_dirty_pages() {
                let frames = (frames_of(leaf, cleaned), pages as usize);
                memory.count_dirty_pages(pin, frames, false);
            }
        }
        cleaned != 0
    }

    /// Whether the cached page at `index` is marked as newer than its backing store.
    pub(crate) fn is_marked_dirty(&self, pin: &Pin<'_>, object: &Object<S>, index: u64) -> bool {
        let leaf = self.radix(pin, object).leaf(index);
        leaf.is_some_and(|leaf| leaf.dirty(index..index + 1) != 0)
    }
}
