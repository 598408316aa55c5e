//! The buddy lists of one zone: free blocks of `1 << order` frames, aligned to
//! their size.
//!
//! Two blocks that differ in one bit of their number are buddies; when both
//! are free they become one block. A frame is [`Kind::Free`](super::Kind::Free)
//! if and only if it is the first of a block on one of these lists, so one look
//! at a record, under the zone's lock, decides whether the buddy is free. A
//! block is known to be zero if both halves were when it was put together.

use super::MAX_ORDER;
use super::table::FrameTable;
use crate::addr::Pfn;

const ORDERS: usize = MAX_ORDER as usize + 1;

/// Free blocks of one zone, under the zone's lock.
pub(super) struct FreeLists {
    zone: u16,
    /// Bit `order` is set if the list of that order is not empty.
    orders: u32,
    heads: [Pfn; ORDERS],
    blocks: [u32; ORDERS],
    free: u64,
}

impl FreeLists {
    /// Empty lists of zone number `zone`.
    pub(super) fn new(zone: u16) -> FreeLists {
        FreeLists {
            zone,
            orders: 0,
            heads: [Pfn::NONE; ORDERS],
            blocks: [0; ORDERS],
            free: 0,
        }
    }

    /// Free frames.
    #[inline]
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Free blocks of each order.
    pub(super) fn blocks(&self) -> [u32; ORDERS] {
        self.blocks
    }

    /// First block of a list.
    pub(super) fn head(&self, order: u32) -> Pfn {
        self.heads[order as usize]
    }

    fn link(&mut self, table: &FrameTable, pfn: Pfn, order: u32, zeroed: bool) {
        let frame = table.frame(pfn);
        let head = self.heads[order as usize];
        frame.set_free(self.zone, order, zeroed);
        frame.set_links(head, Pfn::NONE);
        if head.is_none() {
            self.orders |= 1 << order;
        } else {
            let next = table.frame(head);
            next.set_links(next.links().0, pfn);
        }
        self.heads[order as usize] = pfn;
        self.blocks[order as usize] += 1;
    }

    fn unlink(&mut self, table: &FrameTable, pfn: Pfn, order: u32) {
        let (next, previous) = table.frame(pfn).links();
        if previous.is_none() {
            self.heads[order as usize] = next;
            if next.is_none() {
                self.orders &= !(1 << order);
            }
        } else {
            let frame = table.frame(previous);
            frame.set_links(next, frame.links().1);
        }
        if !next.is_none() {
            let frame = table.frame(next);
            frame.set_links(frame.links().0, previous);
        }
        self.blocks[order as usize] -= 1;
    }

    /// Takes a free block of at least `order`, the smallest there is, and
    /// splits it down to `order`. The block's first frame is left `Cached`.
    pub(super) fn take(&mut self, table: &FrameTable, order: u32) -> Option<Pfn> {
        let large_enough = self.orders >> order << order;
        if large_enough == 0 {
            return None;
        }
        let mut size = large_enough.trailing_zeros();
        let pfn = self.heads[size as usize];
        self.unlink(table, pfn, size);
        let frame = table.frame(pfn);
        let zeroed = frame.has(super::Flags::ZEROED);
        while size > order {
            size -= 1;
            self.link(table, pfn.offset(1 << size), size, zeroed);
        }
        frame.set_cached_in(self.zone, zeroed);
        self.free -= 1 << order;
        Some(pfn)
    }

    /// Takes up to `count` single frames, whole blocks at a time and small
    /// blocks first, and passes each to `each`, left `Cached`. Returns how many.
    pub(super) fn take_frames(
        &mut self,
        table: &FrameTable,
        count: u32,
        mut each: impl FnMut(Pfn),
    ) -> u32 {
        let mut left = count;
        while left > 0 && self.orders != 0 {
            let order = self.orders.trailing_zeros().min(left.ilog2());
            let Some(pfn) = self.take(table, order) else {
                break;
            };
            let zeroed = table.frame(pfn).has(super::Flags::ZEROED);
            // Descending, so that the list hands them out ascending.
            for index in (0..1 << order).rev() {
                let one = pfn.offset(index);
                table.frame(one).set_cached_in(self.zone, zeroed);
                each(one);
            }
            left -= 1 << order;
        }
        count - left
    }

    /// Puts a block on the lists, merged with its buddy as long as that is
    /// free too. Nobody uses the block; its frames but the first are tails.
    pub(super) fn give(&mut self, table: &FrameTable, pfn: Pfn, order: u32, zeroed: bool) {
        self.free += 1 << order;
        let (mut pfn, mut order, mut zeroed) = (pfn, order, zeroed);
        while order < MAX_ORDER {
            let buddy = Pfn(pfn.0 ^ 1 << order);
            let Some(other) = table.get(buddy) else { break };
            if !other.is_free_block(self.zone, order) {
                break;
            }
            self.unlink(table, buddy, order);
            zeroed &= other.has(super::Flags::ZEROED);
            table.frame(pfn.max(buddy)).set_tail(self.zone);
            pfn = pfn.min(buddy);
            order += 1;
        }
        self.link(table, pfn, order, zeroed);
    }
}
