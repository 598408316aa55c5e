//! One CPU's own frames: lists of single frames, frames that wait for their
//! epoch, and counters.
//!
//! Only the CPU itself changes them, so every access is a plain load or store;
//! they are atomics so that statistics can be read from elsewhere. A list holds
//! frame numbers, not links: a free frame's record and bytes stay untouched
//! until it is handed out.

use alloc::boxed::Box;

use crate::addr::Pfn;
use crate::platform::{NodeId, Zone};
use crate::sync::Counter;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::limbo::Limbo;

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
    pub(crate) fn new(batch: u32, high: u32) -> Ring {
        debug_assert!(
            batch >= 1 && high >= batch && (high as usize) < CAPACITY - MAX_BATCH as usize
        );
        Ring {
            top: AtomicU32::new(0),
            bottom: AtomicU32::new(0),
            frames: AtomicU32::new(0),
            high,
            batch,
            slots: [const { AtomicU64::new(0) }; CAPACITY],
        }
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
        let length = self.len();
        if length == 0 {
            return None;
        }
        self.frames.store(length - 1, Ordering::Relaxed);
        let top = self.top.load(Ordering::Relaxed).wrapping_sub(1);
        let (first, emptied) = FrameRun::take_first(self.slot(top));
        if emptied {
            self.top.store(top, Ordering::Relaxed);
        }
        Some(first)
    }

    /// The frame that [`Ring::pop`] would take.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Pfn> {
        if self.len() == 0 {
            return None;
        }
        let top = self.top.load(Ordering::Relaxed).wrapping_sub(1);
        Some(Pfn(FrameRun::load(self.slot(top)).first))
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

/// Events of one CPU; see [`super::FrameStats`] for each.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) allocs: Counter,
    pub(super) frees: Counter,
    pub(super) refills: Counter,
    pub(super) drains: Counter,
    pub(super) remote_allocs: Counter,
    pub(super) failed: Counter,
    pub(super) below_low: Counter,
    pub(super) bytes_zeroed: Counter,
    pub(super) bytes_copied: Counter,
    pub(super) waits: Counter,
    pub(super) zero_hits: Counter,
    pub(super) idle_zeroed: Counter,
    pub(super) tables: TableCounters,
}

/// What the sources of page tables did on one CPU; see
/// [`crate::table::TablePageStats`] for each.
#[derive(Default)]
pub(crate) struct TableCounters {
    pub(crate) taken: Counter,
    pub(crate) misses: Counter,
    pub(crate) bytes_zeroed: Counter,
    pub(crate) remote_frees: Counter,
    pub(crate) trimmed: Counter,
}

/// One CPU's frames that are known to be zero, where those are kept apart.
pub(super) struct ZeroFrames {
    pub(super) low: Ring,
    pub(super) high: Ring,
}

/// What one CPU has of its own.
pub(super) struct CpuFrames {
    pub(super) node: NodeId,
    /// Zone that [`CpuFrames::low`] is filled from.
    pub(super) low_zone: u16,
    /// Zone that [`CpuFrames::high`] is filled from; `u16::MAX` if a request
    /// for high memory is best served from the low list.
    pub(super) high_zone: u16,
    /// Windows open on this CPU.
    pub(super) windows: AtomicU32,
    /// The shortage up to which the lists were given back.
    pub(super) seen_shortage: AtomicU32,
    pub(super) counters: Counters,
    pub(super) limbo: Limbo,
    pub(super) low: Ring,
    pub(super) high: Ring,
    /// Blocks of the zones of `low` and `high`.
    pub(super) low_blocks: BlockStack,
    pub(super) high_blocks: BlockStack,
    /// Freed here, at home elsewhere.
    pub(super) remote: Ring,
    /// Known to be zero, of the zones of `low` and `high`.
    pub(super) zeroed: Option<Box<ZeroFrames>>,
}

impl CpuFrames {
    pub(super) fn new(
        node: NodeId,
        low: (u16, Ring, BlockStack),
        high: Option<(u16, Ring, BlockStack)>,
    ) -> CpuFrames {
        let (low_zone, low, low_blocks) = low;
        let no_high = || (u16::MAX, Ring::new(1, 1), BlockStack::new(0, 0));
        let (high_zone, high, high_blocks) = high.unwrap_or_else(no_high);
        let remote = Ring::new(low.batch, low.batch);
        CpuFrames {
            node,
            low_zone,
            high_zone,
            windows: AtomicU32::new(0),
            seen_shortage: AtomicU32::new(0),
            counters: Counters::default(),
            limbo: Limbo::default(),
            low,
            high,
            low_blocks,
            high_blocks,
            remote,
            zeroed: None,
        }
    }

    /// Keeps frames known to be zero apart from now on.
    pub(super) fn keep_zeroed(&mut self) {
        self.zeroed = Some(Box::new(ZeroFrames {
            low: Ring::new(self.low.batch, self.low.high),
            high: Ring::new(self.high.batch, self.high.high),
        }));
    }

    /// The list of zero frames that serves requests for `zone`, and the zone
    /// that fills it.
    #[inline]
    pub(super) fn zeroed_for(&self, zone: Zone) -> Option<(&Ring, u16)> {
        let zeroed = self.zeroed.as_deref()?;
        Some(if zone == Zone::High && self.high_zone != u16::MAX {
            (&zeroed.high, self.high_zone)
        } else {
            (&zeroed.low, self.low_zone)
        })
    }

    /// The list that a freed zero frame of `zone` goes to, if there is one.
    #[inline]
    pub(super) fn zeroed_of(&self, zone: u16) -> Option<&Ring> {
        let zeroed = self.zeroed.as_deref()?;
        if zone == self.low_zone {
            Some(&zeroed.low)
        } else if zone == self.high_zone {
            Some(&zeroed.high)
        } else {
            None
        }
    }

    /// The list that a freed frame of `zone` goes to.
    #[inline]
    pub(super) fn ring_of(&self, zone: u16) -> &Ring {
        if zone == self.low_zone {
            &self.low
        } else if zone == self.high_zone {
            &self.high
        } else {
            &self.remote
        }
    }

    /// The blocks that serve requests for `zone`, unless frames known to be
    /// zero are kept apart: which to take is then for the buddy lists to say.
    #[inline]
    pub(super) fn blocks_for(&self, zone: Zone) -> Option<&BlockStack> {
        if self.zeroed.is_some() {
            None
        } else if zone == Zone::High && self.high_zone != u16::MAX {
            Some(&self.high_blocks)
        } else {
            Some(&self.low_blocks)
        }
    }

    /// Where a freed block of `zone` is kept, if anywhere.
    #[inline]
    pub(super) fn blocks_of(&self, zone: u16) -> Option<&BlockStack> {
        if self.zeroed.is_some() {
            None
        } else if zone == self.low_zone {
            Some(&self.low_blocks)
        } else if zone == self.high_zone {
            Some(&self.high_blocks)
        } else {
            None
        }
    }

    pub(super) fn block_stacks(&self) -> [&BlockStack; 2] {
        [&self.low_blocks, &self.high_blocks]
    }

    pub(super) fn rings(&self) -> impl Iterator<Item = &Ring> {
        let zeroed = self.zeroed.iter();
        [&self.low, &self.high, &self.remote]
            .into_iter()
            .chain(zeroed.flat_map(|zeroed| [&zeroed.low, &zeroed.high]))
    }
}
