//! Pages of one object in runs: one descent of the radix tree, one lock and one
//! count for as many as a node holds.
//!
//! Whoever uses these holds the pages' range of the object ([`Object::writers`]), so
//! that no page there leaves the cache but by the caller's own doing.

use core::ops::Range;

use super::page_lock::PageLock;
use super::radix::{LEAF_PAGES, leaf_end};
use super::{CacheError, Object, Objects};
use crate::addr::Pfn;
use crate::frame::{Kind, NoPage, PageFlags, Payer, PhysicalMemory, Request, Site};
use crate::platform::Platform;
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, bytes};

/// Most pages of a run.
pub(crate) const RUN_PAGES: usize = LEAF_PAGES as usize;

/// What new pages enter the cache as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewPages {
    /// Filled. Of a file, they are dirty.
    Written,
    /// Locked by the caller, who has a reference to each, and fills them.
    ToFill,
}

/// Frames of nobody else's that are to become pages of an object.
pub(crate) struct NewRun<'a> {
    /// The object's handle.
    pub(crate) object: u32,
    /// The index of the first page; the others follow.
    pub(crate) first: u64,
    pub(crate) frames: &'a [Pfn],
    pub(crate) pages: NewPages,
}

/// How many of the pages from `first` on, `pages` in all, one run holds.
#[inline]
pub(crate) fn run_length(first: u64, pages: u64) -> u64 {
    pages.min(leaf_end(first) - first)
}

impl<S: Default + Send + Sync + 'static> Objects<S> {
    /// The pages at `first` and the indices after it, which are one run and as many as
    /// `frames` has room for: those that are cached and up to date, without references,
    /// as [`Objects::peek_ready`], and [`Pfn::NONE`] for the others. Needs no range of
    /// the object. Returns how many were looked at: all, or those before the first that is in
    /// swap.
    #[inline]
    pub(crate) fn peek_run<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        first: u64,
        frames: &mut [Pfn],
    ) -> usize {
        let Some(leaf) = self.radix(pin, object).leaf(first) else {
            frames.fill(Pfn::NONE);
            return frames.len();
        };
        for (place, frame) in frames.iter_mut().enumerate() {
            let cell = leaf.cell(first + place as u64);
            *frame = cell.frame().unwrap_or(Pfn::NONE);
            if *frame == Pfn::NONE && cell.slot().is_some() {
                return place;
            }
        }
        // Shared memory is up to date as long as it is cached: its records need not
        // be looked at.
        if object.is_file() {
            let cached = |frame: &&mut Pfn| **frame != Pfn::NONE;
            for frame in frames.iter_mut().filter(cached) {
                bytes::prefetch(memory.frame(*frame));
            }
            for frame in frames.iter_mut().filter(cached) {
                if !memory.frame(*frame).page().has(PageFlags::UPTODATE) {
                    *frame = Pfn::NONE;
                }
            }
        }
        frames.len()
    }

    /// The first index at or after `from` without a page, in memory or in swap.
    pub(crate) fn next_hole(&self, pin: &Pin<'_>, object: &Object<S>, from: u64) -> u64 {
        self.radix(pin, object).next_hole(from)
    }

    /// Frames for the pages from `first` on, which are about to be made, as many as `frames` has
    /// room for at the most: charged to the object's mount and to `payer`, their bytes
    /// unspecified. They enter the cache as `new`. Returns how many there are, which is at least
    /// one; the caller
    /// gives them to [`Objects::insert_run`] or to [`Objects::drop_frames`].
    ///
    /// # Errors
    /// [`CacheError`] if there is not one.
    pub(crate) fn alloc_run<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (handle, first): (u32, u64),
        (new, payer): (NewPages, Payer),
        frames: &mut [Pfn],
    ) -> Result<usize, CacheError> {
        let object = self.get(handle);
        let asked = (frames.len() as u64, payer);
        let (granted, payer) = self.charge_payer(memory, pin, object, asked);
        if granted == 0 {
            return Err(CacheError::Full);
        }
        let (mut count, mut refused) = (0, NoPage::OutOfMemory);
        let dirty = object.is_file() && new == NewPages::Written;
        let request = Request::page(Site::CachePage).dirty(dirty);
        for (place, index) in frames[..granted as usize].iter_mut().zip(first..) {
            match self.alloc_for(memory, pin, (handle, index), (request, payer)) {
                Ok(frame) => *place = frame,
                Err(error) => {
                    refused = error;
                    break;
                }
            }
            count += 1;
        }
        self.uncharge(memory, pin, object, granted - count as u64);
        match count {
            0 => Err(refused.into()),
            _ => Ok(count),
        }
    }

    /// Gives back frames that no page was made of.
    pub(crate) fn drop_frames<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        handle: u32,
        frames: &[Pfn],
    ) {
        self.uncharge(memory, pin, self.get(handle), frames.len() as u64);
        for &frame in frames {
            self.give_back(memory, pin, handle, frame);
        }
    }

    /// Puts the run's frames into the cache, up to the first page that is there already;
    /// takes all of them over. Returns how many there was room for.
    ///
    /// # Errors
    /// [`CacheError`] if a node could not be had. None was put there.
    pub(crate) fn insert_run<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        run: &NewRun<'_>,
    ) -> Result<usize, CacheError> {
        let NewRun {
            object: handle,
            first,
            frames,
            pages,
        } = *run;
        let object = self.get(handle);
        if let Err(error) = self.prepare_insert(memory, pin, object, first) {
            self.drop_frames(memory, pin, handle, frames);
            return Err(error.into());
        }
        for (index, &page) in (first..).zip(frames) {
            let frame = memory.frame(page);
            match pages {
                NewPages::Written => frame.set_kind_with(Kind::Object, PageFlags::UPTODATE),
                NewPages::ToFill => {
                    frame.set_kind_with(Kind::Object, PageFlags::LOCKED);
                    frame.init_counts(2, 0);
                }
            }
            frame.set_owner(handle);
            frame.set_index(index, 0);
        }
        let dirty = object.is_file() && pages == NewPages::Written;
        let inserted = {
            let _guard = object.cache_lock.lock(pin);
            let inserted = self.radix(pin, object).insert_run(first, frames, dirty);
            object.count_cached(inserted as i64);
            inserted
        };
        if inserted > 0 && dirty {
            object.dirty.fetch_add(inserted as u64, Ordering::Relaxed);
            if memory.counts_dirty_pages() {
                let frames = (frames[..inserted].iter().copied(), inserted);
                memory.count_dirty_pages(pin, frames, true);
            }
        }
        let late = &frames[inserted..];
        for &page in late {
            memory.frame(page).init_counts(1, 0);
            memory.frame(page).set_kind(Kind::Allocated);
        }
        self.drop_frames(memory, pin, handle, late);
        Ok(inserted)
    }

    /// Unlocks pages that the caller has locked and taken out of the cache, and drops the
    /// cache's references. A page without another reference needs no unlocking: whoever
    /// waits for its lock has one.
    pub(crate) fn let_go_run<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        pages: &[Pfn],
    ) {
        let gone = pages.iter().copied().filter(|&page| {
            let is_last = memory.frame(page).put_if_last();
            if !is_last {
                self.locks.unlock(memory, pin, PageLock::held(page));
                memory.put(pin, page);
            }
            is_last
        });
        memory.retire_pages(pin, gone);
    }

    /// Takes `pages`, in the order of their places in `range`, which is one run, out of the
    /// cache. They are locked by the caller and mapped nowhere. Others there, which faults
    /// have made meanwhile, stay. The cache's references pass to the caller.
    pub(crate) fn detach_run<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        range: Range<u64>,
        pages: &[Pfn],
    ) {
        self.mark_clean(memory, pin, object, range.clone());
        let mut gone = 0;
        {
            let _guard = object.cache_lock.lock(pin);
            self.radix(pin, object).remove_run(range, |page| {
                let takes = pages.get(gone) == Some(&page);
                gone += usize::from(takes);
                takes
            });
            object.count_cached(-(gone as i64));
        }
        debug_assert!(gone == pages.len(), "a locked page left its object");
        for &page in pages {
            memory.frame(page).set_owner(0);
        }
        self.uncharge(memory, pin, object, gone as u64);
    }
}
