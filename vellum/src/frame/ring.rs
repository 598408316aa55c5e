//! Lists of frame numbers that one CPU has: single frames in runs, and a few blocks.
//!
//! Only the CPU itself changes them, so every access is a plain load or store;
//! they are atomics so that statistics can be read from elsewhere. A list holds
//! frame numbers, not links: a free frame's record and bytes stay untouched
//! until it is handed out.

use alloc::boxed::Box;

use crate::addr::Pfn;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots of a list, a power of two: enough for frames none of which follows another.
const CAPACITY: usize = 4096;
/// Most frames moved between a list and the buddy lists at once, a power of
/// two: the longer the runs, the faster their frames are zeroed.
pub(super) const MAX_BATCH: u32 = 512;
/// Batches that a list keeps, so that what a process frees is still there when
/// the next one asks for frames.
pub(super) const HIGH_BATCHES: u32 = 4;
/// Most frames that a list keeps for all that. A longer one would keep frames
/// that processes freed in an order of their own from becoming runs again, while
/// most of them are in no cache any more.
pub(super) const MAX_HIGH: u32 = 512;

/// A list of frames: used last in first out, given back oldest first.
///
/// Frames in a row that were pushed one after the other stand in one slot as a
/// run, and a run is used from its lowest frame up. Frames out of the caches are
/// zeroed two to three times as fast where each follows the one before
/// (`cargo bench -p vellum --bench zeroing`), since the processor then fetches
/// ahead.
pub(crate) struct Ring {
    /// Runs ever pushed minus popped at the young end.
    top: AtomicU32,
    /// Runs ever taken at the old end.
    bottom: AtomicU32,
    /// Frames in all runs.
    frames: AtomicU32,
    /// Frames above which the list gives some back.
    pub(super) high: u32,
    /// Frames to move at once.
    pub(super) batch: u32,
    slots: [AtomicU64; CAPACITY],
}

/// Frames in a row, as a slot holds them.
#[derive(Clone, Copy)]
struct FrameRun {
    first: u32,
    frames: u32,
}

impl FrameRun {
    #[inline]
    fn load(slot: &AtomicU64) -> FrameRun {
        let word = slot.load(Ordering::Relaxed);
        FrameRun {
            first: word as u32,
            frames: (word >> 32) as u32,
        }
    }

    #[inline]
    fn store(self, slot: &AtomicU64) {
        let word = u64::from(self.frames) << 32 | u64::from(self.first);
        slot.store(word, Ordering::Relaxed);
    }

    /// Takes the lowest frame out of the run in `slot`; whether that was its last.
    #[inline]
    fn take_first(slot: &AtomicU64) -> (Pfn, bool) {
        let FrameRun { first, frames } = FrameRun::load(slot);
        let rest = FrameRun {
            first: first.wrapping_add(1),
            frames: frames - 1,
        };
        rest.store(slot);
        (Pfn(first), frames == 1)
    }

    /// The run with `other` before it or after it, if they are one.
    #[inline]
    fn with(self, other: FrameRun) -> Option<FrameRun> {
        let first = if self.first.wrapping_add(self.frames) == other.first {
            self.first
        } else if other.first.wrapping_add(other.frames) == self.first {
            other.first
        } else {
            return None;
        };
        let frames = self.frames + other.frames;
        Some(FrameRun { first, frames })
    }
}

impl Ring {
    /// A list on its own, made in the heap: it is too large for many a stack.
    pub(crate) fn boxed(batch: u32, high: u32) -> Box<Ring> {
        let mut ring = Box::<Ring>::new_uninit();
        let place = ring.as_mut_ptr();
        // SAFETY: the memory is the box's, and holds a list when `init` has returned.
        unsafe {
            place.write_bytes(0, 1);
            Ring::init(place, batch, high);
            ring.assume_init()
        }
    }

    /// Makes an empty list.
    ///
    /// # Safety
    /// `place` can be written, nobody else uses it, and all of its bytes are zero.
    pub(crate) unsafe fn init(place: *mut Ring, batch: u32, high: u32) {
        debug_assert!(
            batch >= 1 && high >= batch && (high as usize) < CAPACITY - MAX_BATCH as usize
        );
        // SAFETY: the caller's promise. The other fields are atomic numbers, which are
        // zero in an empty list.
        unsafe {
            (&raw mut (*place).high).write(high);
            (&raw mut (*place).batch).write(batch);
        }
    }

    /// Keeps no frame from now on. The list is empty.
    #[cfg(feature = "published")]
    pub(super) fn close(&mut self) {
        self.high = 0;
    }

    #[inline]
    fn slot(&self, place: u32) -> &AtomicU64 {
        &self.slots[place as usize % CAPACITY]
    }

    /// Frames in the list.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Adds the youngest frame. There is room.
    #[inline]
    pub(crate) fn push(&self, pfn: Pfn) {
        self.push_run(pfn, 1);
    }

    /// Adds `frames` frames in a row, to be used from `first` up. There is room.
    #[inline]
    pub(crate) fn push_run(&self, first: Pfn, frames: u32) {
        let run = FrameRun {
            first: first.0,
            frames,
        };
        let length = self.len();
        self.frames.store(length + frames, Ordering::Relaxed);
        let top = self.top.load(Ordering::Relaxed);
        if length > 0 {
            let youngest = self.slot(top.wrapping_sub(1));
            if let Some(longer) = FrameRun::load(youngest).with(run) {
                longer.store(youngest);
                return;
            }
        }
        run.store(self.slot(top));
        self.top.store(top.wrapping_add(1), Ordering::Relaxed);
    }

    /// Adds frames, the youngest last. There is room.
    #[cfg(feature = "published")]
    #[inline]
    pub(crate) fn extend(&self, frames: impl Iterator<Item = Pfn>) {
        let push = |run: FrameRun| {
            if run.frames > 0 {
                self.push_run(Pfn(run.first), run.frames);
            }
        };
        let mut run = FrameRun {
            first: 0,
            frames: 0,
        };
        for pfn in frames {
            let one = FrameRun {
                first: pfn.0,
                frames: 1,
            };
            let longer = run.with(one).filter(|_| run.frames > 0);
            run = longer.unwrap_or_else(|| {
                push(run);
                one
            });
        }
        push(run);
    }

    /// Takes the first frame of the youngest run.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Pfn> {
        self.pop_and_peek().map(|(pfn, _)| pfn)
    }

    /// The same, and the frame that would be next.
    #[inline]
    pub(super) fn pop_and_peek(&self) -> Option<(Pfn, Option<Pfn>)> {
        let length = self.len();
        if length == 0 {
            return None;
        }
        self.frames.store(length - 1, Ordering::Relaxed);
        let top = self.top.load(Ordering::Relaxed).wrapping_sub(1);
        let FrameRun { first, frames } = FrameRun::load(self.slot(top));
        let next = if frames > 1 {
            let rest = FrameRun {
                first: first + 1,
                frames: frames - 1,
            };
            rest.store(self.slot(top));
            Some(Pfn(rest.first))
        } else {
            // The slot keeps its run: above the top nobody looks at it.
            self.top.store(top, Ordering::Relaxed);
            let below = || FrameRun::load(self.slot(top.wrapping_sub(1)));
            (length > 1).then(|| Pfn(below().first))
        };
        Some((Pfn(first), next))
    }

    /// The frame that [`Ring::pop`] would take.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Pfn> {
        self.after(0)
    }

    /// The frame that [`Ring::pop`] would take after `others`.
    #[inline]
    pub(crate) fn after(&self, others: u32) -> Option<Pfn> {
        if self.len() <= others {
            return None;
        }
        let mut place = self.top.load(Ordering::Relaxed).wrapping_sub(1);
        let mut others = others;
        loop {
            let run = FrameRun::load(self.slot(place));
            if others < run.frames {
                return Some(Pfn(run.first + others));
            }
            others -= run.frames;
            place = place.wrapping_sub(1);
        }
    }

    /// Takes the first frame of the oldest run.
    #[inline]
    pub(crate) fn pop_oldest(&self) -> Option<Pfn> {
        let length = self.len();
        if length == 0 {
            return None;
        }
        self.frames.store(length - 1, Ordering::Relaxed);
        let bottom = self.bottom.load(Ordering::Relaxed);
        let (first, emptied) = FrameRun::take_first(self.slot(bottom));
        if emptied {
            self.bottom.store(bottom.wrapping_add(1), Ordering::Relaxed);
        }
        Some(first)
    }

    /// Every frame of the list, for the audit.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Pfn> {
        let bottom = self.bottom.load(Ordering::Relaxed);
        let runs = self.top.load(Ordering::Relaxed).wrapping_sub(bottom);
        (0..runs).flat_map(move |place| {
            let run = FrameRun::load(self.slot(bottom.wrapping_add(place)));
            (run.first..run.first + run.frames).map(Pfn)
        })
    }
}

/// Most blocks that a [`BlockStack`] keeps.
pub(super) const MAX_BLOCKS: usize = 2;

/// The few blocks of one order that a CPU keeps for its next requests: those
/// that one leaf above the lowest level maps. Taking and freeing such a block
/// then needs no zone's lock, and a block that is freed and wanted again is not
/// merged and split in between (Linux keeps such blocks on its lists for each
/// CPU since 5.13).
pub(super) struct BlockStack {
    pub(super) order: u32,
    most: u32,
    count: AtomicU32,
    slots: [AtomicU32; MAX_BLOCKS],
}

impl BlockStack {
    /// Keeps up to `most` blocks of `order`; none if the order is 0.
    pub(super) fn new(order: u32, most: u32) -> BlockStack {
        BlockStack {
            order,
            most: most.min(MAX_BLOCKS as u32),
            count: AtomicU32::new(0),
            slots: [const { AtomicU32::new(0) }; MAX_BLOCKS],
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Keeps no block from now on. There is none.
    #[cfg(feature = "published")]
    pub(super) fn close(&mut self) {
        self.most = 0;
    }

    /// Keeps a block of [`BlockStack::order`]; false if there is no room.
    #[inline]
    pub(super) fn push(&self, block: Pfn) -> bool {
        let count = self.len();
        if count >= self.most {
            return false;
        }
        self.slots[count as usize].store(block.0, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
        true
    }

    /// The block kept last.
    #[inline]
    pub(super) fn pop(&self) -> Option<Pfn> {
        let count = self.len().checked_sub(1)?;
        self.count.store(count, Ordering::Relaxed);
        Some(Pfn(self.slots[count as usize].load(Ordering::Relaxed)))
    }

    /// Every block, for the audit.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Pfn> {
        let kept = &self.slots[..self.len() as usize];
        kept.iter().map(|slot| Pfn(slot.load(Ordering::Relaxed)))
    }
}
