//! The buddy lists of one zone: free blocks of `1 << order` frames, aligned to
//! their size.
//!
//! Two blocks that differ in one bit of their number are buddies; when both
//! are free they become one block. A frame is [`Kind::Free`](super::Kind::Free)
//! if and only if it is the first of a block on one of these lists, so one look
//! at a record, under the zone's lock, decides whether the buddy is free. A
//! block is known to be zero if both halves were when it was put together.
//!
//! Single frames are taken in runs ([`FreeLists::take_frames`]): frames in a row
//! are zeroed two to three times as fast as frames here and there. A
//! share of the zone is kept whole for those who want large blocks, and is
//! broken up only when small blocks are used up.
//!
//! Where zero frames are worth keeping ([`FreeLists::keep_zeroed`]) there is a
//! second set of lists for blocks known to be zero. Buddies then merge only
//! with their like, and a request takes from the set it prefers before it takes
//! from the other. A request that neither set can serve makes zero blocks
//! ordinary ones, smallest first, until it can be served or none is left.

use super::MAX_ORDER;
use super::record::{Frame, FreeFlags};
use super::table::FrameTable;
use crate::addr::Pfn;
use crate::sync::bytes::prefetch;

const ORDERS: usize = MAX_ORDER as usize + 1;
/// The smallest blocks that single frames are taken from while there is a choice.
const RUN_ORDER: u32 = 5;
/// The share of a zone that stays in whole blocks while there is a choice: one in this many.
const WHOLE_SHARE: u64 = 2;

/// Free blocks of one zone, under the zone's lock. Aligned so that the lock's word is
/// on a line of its own: CPUs that wait read it all the time, and would take away the
/// lines that the holder writes.
#[repr(align(128))]
pub(crate) struct FreeLists {
    zone: u16,
    keeps_zeroed: bool,
    /// Frames of blocks of the largest order that runs are not taken from.
    kept_whole: u64,
    plain: Blocks,
    /// Empty unless zero blocks are kept apart.
    zeroed: Blocks,
}

/// One set of lists, a list for each order.
struct Blocks {
    /// Bit `order` is set if the list of that order is not empty.
    orders: u32,
    heads: [Pfn; ORDERS],
    counts: [u32; ORDERS],
    /// Frames in all of them.
    free: u64,
}

impl Blocks {
    const EMPTY: Blocks = Blocks {
        orders: 0,
        heads: [Pfn::NONE; ORDERS],
        counts: [0; ORDERS],
        free: 0,
    };

    /// The smallest order, `order` or more, with a block.
    fn fitting(&self, order: u32) -> Option<u32> {
        let large_enough = self.orders >> order << order;
        (large_enough != 0).then(|| large_enough.trailing_zeros())
    }
}

impl FreeLists {
    /// Empty lists of zone number `zone`, for a zone of `frames`.
    pub(super) fn new(zone: u16, frames: u64) -> FreeLists {
        FreeLists {
            zone,
            keeps_zeroed: false,
            kept_whole: frames / WHOLE_SHARE,
            plain: Blocks::EMPTY,
            zeroed: Blocks::EMPTY,
        }
    }

    /// The zone's number.
    pub(super) fn zone(&self) -> u16 {
        self.zone
    }

    /// Keeps blocks known to be zero apart from now on.
    pub(super) fn keep_zeroed(&mut self) {
        self.keeps_zeroed = true;
    }

    /// Free frames.
    #[inline]
    pub(super) fn free(&self) -> u64 {
        self.plain.free + self.zeroed.free
    }

    /// Free frames in blocks known to be zero, if those are kept apart.
    #[inline]
    pub(super) fn zeroed(&self) -> u64 {
        self.zeroed.free
    }

    /// Free blocks of each order.
    pub(super) fn blocks(&self) -> [u32; ORDERS] {
        let mut sums = self.plain.counts;
        for (sum, count) in sums.iter_mut().zip(self.zeroed.counts) {
            *sum += count;
        }
        sums
    }

    /// First block of each list of an order and how many it has, for the audit.
    pub(super) fn lists(&self, order: u32) -> [(Pfn, u32); 2] {
        [&self.plain, &self.zeroed]
            .map(|set| (set.heads[order as usize], set.counts[order as usize]))
    }

    /// Whether two free blocks may stay apart although they are buddies.
    pub(super) fn may_stay_apart(&self, block: &Frame, buddy: &Frame) -> bool {
        self.keeps_zeroed
            && block.unused().has(FreeFlags::ZEROED) != buddy.unused().has(FreeFlags::ZEROED)
    }

    fn set_of(&mut self, zeroed: bool) -> &mut Blocks {
        if zeroed && self.keeps_zeroed {
            &mut self.zeroed
        } else {
            &mut self.plain
        }
    }

    /// Both sets, the preferred one first.
    fn sets(&self, zeroed: bool) -> [&Blocks; 2] {
        if zeroed {
            [&self.zeroed, &self.plain]
        } else {
            [&self.plain, &self.zeroed]
        }
    }

    fn link(&mut self, table: &FrameTable, pfn: Pfn, order: u32, zeroed: bool) {
        let frame = table.frame(pfn);
        frame.set_free(self.zone, order, zeroed);
        let set = self.set_of(zeroed);
        let head = set.heads[order as usize];
        frame.set_links(head, Pfn::NONE);
        if head.is_none() {
            set.orders |= 1 << order;
        } else {
            let next = table.frame(head);
            next.set_links(next.links().0, pfn);
        }
        set.heads[order as usize] = pfn;
        set.counts[order as usize] += 1;
        set.free += 1 << order;
    }

    fn unlink(&mut self, table: &FrameTable, pfn: Pfn, order: u32) {
        let frame = table.frame(pfn);
        let (next, previous) = frame.links();
        let set = self.set_of(frame.unused().has(FreeFlags::ZEROED));
        set.counts[order as usize] -= 1;
        set.free -= 1 << order;
        if set.heads[order as usize] == pfn {
            // The next block's link back is not cleared: a head's link back is
            // never looked at, and its record may be far away.
            set.heads[order as usize] = next;
            if next.is_none() {
                set.orders &= !(1 << order);
            } else {
                // Small blocks are mostly taken one after the other.
                prefetch(table.frame(next));
            }
            return;
        }
        let frame = table.frame(previous);
        frame.set_links(next, frame.links().1);
        if !next.is_none() {
            let frame = table.frame(next);
            frame.set_links(frame.links().0, previous);
        }
    }

    /// Takes a free block of at least `order`, the smallest there is among
    /// those known to be zero if `zeroed` is preferred and else among the
    /// others, and splits it down to `order`. The block's first frame is left
    /// `Cached`.
    pub(super) fn take(&mut self, table: &FrameTable, order: u32, zeroed: bool) -> Option<Pfn> {
        let [first, second] = self.sets(zeroed);
        let found = first
            .fitting(order)
            .map(|size| (first.heads[size as usize], size))
            .or_else(|| {
                let size = second.fitting(order)?;
                Some((second.heads[size as usize], size))
            });
        let (pfn, mut size) = match found {
            Some(found) => found,
            None => self.merge_unlike(table, order)?,
        };
        self.unlink(table, pfn, size);
        let frame = table.frame(pfn);
        let zeroed = frame.unused().has(FreeFlags::ZEROED);
        while size > order {
            size -= 1;
            self.link(table, pfn.offset(1 << size), size, zeroed);
        }
        frame.set_cached_in(self.zone, zeroed);
        Some(pfn)
    }

    /// Takes one frame out of the free block that has it; the rest of the block stays free, in blocks
    /// as large as can be. False if there is no such block. The frame is left `Cached`.
    pub(super) fn take_frame(&mut self, table: &FrameTable, pfn: Pfn) -> bool {
        let found = (0..=MAX_ORDER).find_map(|order| {
            let first = Pfn(pfn.0 & !((1 << order) - 1));
            let head = table.get(first)?;
            head.is_free_block(self.zone, order)
                .then_some((first, order))
        });
        let Some((mut first, mut order)) = found else {
            return false;
        };
        self.unlink(table, first, order);
        let zeroed = table.frame(first).unused().has(FreeFlags::ZEROED);
        while order > 0 {
            order -= 1;
            let (lower, upper) = (first, first.offset(1 << order));
            let (kept, rest) = match pfn < upper {
                true => (lower, upper),
                false => (upper, lower),
            };
            self.link(table, rest, order, zeroed);
            first = kept;
        }
        table.frame(pfn).set_cached_in(self.zone, false);
        true
    }

    /// Takes a block that is free as one of `order`.
    #[cfg(feature = "published")]
    pub(crate) fn take_exact(&mut self, table: &FrameTable, order: u32) -> Option<Pfn> {
        let pfn = self.plain.heads[order as usize];
        if pfn.is_none() {
            return None;
        }
        self.unlink(table, pfn, order);
        Some(pfn)
    }

    /// Takes a block not known to be zero, of `order` or else the largest
    /// below; returns it with its order.
    pub(super) fn take_plain(&mut self, table: &FrameTable, order: u32) -> Option<(Pfn, u32)> {
        let order = (0..=order)
            .rev()
            .find(|&order| self.plain.fitting(order).is_some())?;
        Some((self.take(table, order, false)?, order))
    }

    /// Forgets of zero blocks that they are zero, so that they merge with
    /// their buddies, until there is a block of `order`.
    #[cold]
    fn merge_unlike(&mut self, table: &FrameTable, order: u32) -> Option<(Pfn, u32)> {
        while let Some(size) = self.zeroed.fitting(0) {
            let block = self.zeroed.heads[size as usize];
            self.unlink(table, block, size);
            self.give(table, block, size, false);
            if let Some(size) = self.plain.fitting(order) {
                return Some((self.plain.heads[size as usize], size));
            }
        }
        None
    }

    /// The order of the block to take single frames from, those known to be
    /// zero first if `zeroed` are preferred and else last: the smallest that is
    /// a run, unless that would break up the share kept whole; else the
    /// smallest.
    fn order_of_run(&self, zeroed: bool) -> Option<u32> {
        let [first, second] = self.sets(zeroed);
        let set = if first.orders != 0 { first } else { second };
        let run = set.fitting(RUN_ORDER).filter(|&order| {
            order < MAX_ORDER || u64::from(set.counts[ORDERS - 1]) << MAX_ORDER > self.kept_whole
        });
        run.or_else(|| set.fitting(0))
    }

    /// Takes up to `count` single frames, whole blocks at a time, and passes
    /// each run of them to `each`, with whether they are known to be zero. Of a run
    /// the first frame is left `Cached` and the others are tails, for the caller to
    /// mark when it has given up the lock. Frames known to be zero come
    /// last, or first if `zeroed` are preferred. Returns how many.
    pub(super) fn take_frames(
        &mut self,
        table: &FrameTable,
        count: u32,
        zeroed: bool,
        mut each: impl FnMut(Pfn, u32, bool),
    ) -> u32 {
        let mut left = count;
        while left > 0 {
            let Some(order) = self.order_of_run(zeroed) else {
                break;
            };
            let order = order.min(left.ilog2());
            let Some(pfn) = self.take(table, order, zeroed) else {
                break;
            };
            let zeroed = table.frame(pfn).unused().has(FreeFlags::ZEROED);
            each(pfn, 1 << order, zeroed);
            left -= 1 << order;
        }
        count - left
    }

    /// Puts `frames` single frames in a row, of which nobody uses one, on the lists, in blocks as
    /// large as alignment allows. The frames have been [marked](FreeLists::mark_run).
    pub(super) fn give_run(&mut self, table: &FrameTable, first: Pfn, frames: u32, zeroed: bool) {
        for (pfn, order) in blocks_of_run(first, frames) {
            self.give(table, pfn, order, zeroed);
        }
    }

    /// Makes those frames of a run tails that are not to be the first of a block. As nobody uses
    /// them, that needs no lock.
    pub(super) fn mark_run(table: &FrameTable, zone: u16, first: Pfn, frames: u32) {
        for (pfn, order) in blocks_of_run(first, frames) {
            for tail in &table.frames(pfn, 1 << order)[1..] {
                tail.set_tail(zone);
            }
        }
    }

    /// Puts a block on the lists, merged with its buddy as long as that is
    /// free too. Nobody uses the block; its frames but the first are tails.
    pub(super) fn give(&mut self, table: &FrameTable, pfn: Pfn, order: u32, zeroed: bool) {
        let (mut pfn, mut order, mut zeroed) = (pfn, order, zeroed);
        while order < MAX_ORDER {
            let buddy = Pfn(pfn.0 ^ 1 << order);
            let Some(other) = table.get(buddy) else { break };
            if !other.is_free_block(self.zone, order) {
                break;
            }
            let other_zeroed = other.unused().has(FreeFlags::ZEROED);
            if self.keeps_zeroed && other_zeroed != zeroed {
                break;
            }
            self.unlink(table, buddy, order);
            zeroed &= other_zeroed;
            table.frame(pfn.max(buddy)).set_tail(self.zone);
            pfn = pfn.min(buddy);
            order += 1;
        }
        self.link(table, pfn, order, zeroed);
    }
}

/// The blocks, as large as alignment allows, that frames in a row are, each with its order.
fn blocks_of_run(first: Pfn, frames: u32) -> impl Iterator<Item = (Pfn, u32)> {
    let (mut pfn, mut left) = (first, frames);
    core::iter::from_fn(move || {
        let order = pfn
            .0
            .trailing_zeros()
            .min(left.checked_ilog2()?)
            .min(MAX_ORDER);
        let block = (pfn, order);
        pfn = pfn.offset(1 << order);
        left -= 1 << order;
        Some(block)
    })
}
