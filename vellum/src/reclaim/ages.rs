//! When each page was used last, for `aging=generations`.
//!
//! Time is counted in walks of the page tables. A use falls into the interval between two walks:
//! its number is that of the walks that had ended before. Whoever finds an accessed mark, or
//! uses a page by a call, notes the interval beside the page's frame, by plain stores and
//! without a lock: a note that is lost costs one wrong guess.

use alloc::boxed::Box;

use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};
use crate::sync::report::name;

/// Bits of an interval's number that are noted. After so many walks without a use, a page that
/// nobody has looked at meanwhile seems young.
const INTERVAL: u16 = (1 << 14) - 1;
/// The page was used since its first use was seen.
const AGAIN: u16 = 1 << 14;
/// Nobody has seen yet the use that brought the page.
const NEW: u16 = 1 << 15;

/// What is noted of a frame's page, and the list that the frame is on, which changes under the
/// lock of the node's lists.
#[derive(Default)]
struct Age {
    word: AtomicU16,
    list: AtomicU8,
}

/// The time of a group.
#[derive(Default)]
struct WalkClock {
    /// Walks that have ended.
    walks: AtomicU32,
    /// 1 while somebody walks.
    walking: AtomicU32,
    /// Pages that have come since the last walk began.
    arrived: AtomicU32,
}

/// The ages of all frames, by number. Each group has walks, and so a time, of its own.
pub(super) struct Ages {
    frames: Box<[Age]>,
    clocks: Box<[CachePadded<WalkClock>]>,
}

impl Ages {
    pub(super) fn new(frames: usize, groups: usize) -> Ages {
        let frames: Box<[Age]> = (0..frames).map(|_| Age::default()).collect();
        name("ages", &[], frames.as_ptr(), frames.len());
        Ages {
            frames,
            clocks: (0..groups).map(|_| CachePadded::default()).collect(),
        }
    }

    /// The interval of a group that lasts.
    pub(super) fn now(&self, group: usize) -> u32 {
        self.clocks[group].walks.load(Ordering::Relaxed)
    }

    /// Pages of a group have been listed.
    pub(super) fn count_arrived(&self, group: usize, pages: u32) {
        self.clocks[group]
            .arrived
            .fetch_add(pages, Ordering::Relaxed);
    }

    /// Begins a walk of a group if `due` pages have come since the last one began, and nobody else
    /// walks. Returns the interval that it ends.
    pub(super) fn begin_walk(&self, group: usize, due: u32) -> Option<u32> {
        let clock = &self.clocks[group];
        let is_due = clock.arrived.load(Ordering::Relaxed) >= due;
        if !is_due || clock.walking.swap(1, Ordering::Acquire) != 0 {
            return None;
        }
        clock.arrived.store(0, Ordering::Relaxed);
        Some(self.now(group))
    }

    /// Ends it.
    pub(super) fn end_walk(&self, group: usize) {
        let clock = &self.clocks[group];
        clock.walks.fetch_add(1, Ordering::Relaxed);
        clock.walking.store(0, Ordering::Release);
    }

    /// The list that a frame is on, if it is on one.
    pub(super) fn list(&self, number: u32) -> usize {
        usize::from(self.frames[number as usize].list.load(Ordering::Relaxed))
    }

    pub(super) fn set_list(&self, number: u32, list: usize) {
        let place = &self.frames[number as usize].list;
        place.store(list as u8, Ordering::Relaxed);
    }

    fn word(&self, number: u32) -> u16 {
        self.frames[number as usize].word.load(Ordering::Relaxed)
    }

    fn set_word(&self, number: u32, word: u16) {
        let place = &self.frames[number as usize].word;
        place.store(word, Ordering::Relaxed);
    }

    /// A page comes, for a use that is still to be seen.
    pub(super) fn begin(&self, number: u32, group: usize) {
        self.set_word(number, NEW | self.now(group) as u16 & INTERVAL);
    }

    /// A page was used last in this interval.
    pub(super) fn set_last_use(&self, number: u32, interval: u32) {
        self.set_word(number, interval as u16 & INTERVAL);
    }

    /// Whether this is the number of a frame.
    pub(super) fn has(&self, number: u32) -> bool {
        (number as usize) < self.frames.len()
    }

    /// A use of a page is found. The first is the one that brought it.
    pub(super) fn note_use(&self, number: u32, group: usize) {
        let Some(age) = self.frames.get(number as usize) else {
            return;
        };
        let before = age.word.load(Ordering::Relaxed);
        let after = match before & NEW {
            0 => AGAIN | self.now(group) as u16 & INTERVAL,
            _ => before & !NEW,
        };
        if after != before {
            age.word.store(after, Ordering::Relaxed);
        }
    }

    /// Whether the use that brought the page has not been seen yet.
    pub(super) fn is_new(&self, number: u32) -> bool {
        self.word(number) & NEW != 0
    }

    /// Whether the page was used after that.
    pub(super) fn is_used_again(&self, number: u32) -> bool {
        self.word(number) & AGAIN != 0
    }

    /// A page goes on as one of another group, as old as it was in its own.
    pub(super) fn move_to(&self, number: u32, group: usize, other: usize) {
        let age = self.now(group) - self.last_use(number, group);
        let flags = self.word(number) & !INTERVAL;
        let last_use = self.now(other).saturating_sub(age) as u16 & INTERVAL;
        self.set_word(number, flags | last_use);
    }

    /// The interval of the last use that is known, in the time of the page's group.
    pub(super) fn last_use(&self, number: u32, group: usize) -> u32 {
        let now = self.now(group);
        let since = (now as u16).wrapping_sub(self.word(number)) & INTERVAL;
        now.saturating_sub(u32::from(since))
    }
}
