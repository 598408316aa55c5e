//! The free blocks of one zone, as Linux 3.15 kept them: for each order a list for each
//! kind of page, frame by frame, and a fallback from one kind to the other.

use super::blocks::{BLOCK_ORDER, BlockKinds};
use super::list::{FrameList, Mobility};
use crate::addr::Pfn;
use crate::design::BuddyCheck;
use crate::frame::MAX_ORDER;
use crate::frame::table::FrameTable;
use crate::frame::{Frame, Kind};

const ORDERS: usize = MAX_ORDER as usize + 1;

/// Free blocks of one zone, under the zone's lock. Aligned as
/// [`FreeLists`](crate::frame::buddy::FreeLists) are, for the same reason.
#[repr(align(128))]
pub(super) struct TypedLists {
    zone: u16,
    check: BuddyCheck,
    lists: [[FrameList; 2]; ORDERS],
    free: u64,
}

impl TypedLists {
    pub(super) fn new(zone: u16, check: BuddyCheck) -> TypedLists {
        TypedLists {
            zone,
            check,
            lists: Default::default(),
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
        let mut sums = [0; ORDERS];
        for (sum, kinds) in sums.iter_mut().zip(&self.lists) {
            *sum = kinds.iter().map(FrameList::len).sum();
        }
        sums
    }

    /// The lists of an order, for the audit.
    pub(super) fn lists(&self, order: u32) -> &[FrameList; 2] {
        &self.lists[order as usize]
    }

    fn list(&self, order: u32, kind: Mobility) -> &FrameList {
        &self.lists[order as usize][kind as usize]
    }

    fn link(&mut self, table: &FrameTable, pfn: Pfn, order: u32, kind: Mobility) {
        self.mark_free(table, pfn, order, kind);
        self.list(order, kind).push(table, pfn);
    }

    fn mark_free(&mut self, table: &FrameTable, pfn: Pfn, order: u32, kind: Mobility) {
        let frame = table.frame(pfn);
        frame.set_free(self.zone, order, false);
        frame.set_owner(kind as u32);
        self.free += 1 << order;
    }

    fn unlink(&mut self, table: &FrameTable, pfn: Pfn, order: u32) {
        let kind = Mobility::of_listed(table.frame(pfn));
        self.list(order, kind).remove(table, pfn);
        self.free -= 1 << order;
    }

    /// Takes a block of `order` for a page of a kind. Its first frame is left `Cached`.
    pub(super) fn take(
        &mut self,
        table: &FrameTable,
        kinds: &BlockKinds,
        (order, kind): (u32, Mobility),
    ) -> Option<Pfn> {
        let fitting = (order..=MAX_ORDER).find(|&size| self.list(size, kind).len() > 0);
        let (size, of) = match fitting {
            Some(size) => (size, kind),
            None => self.steal(table, kinds, order, kind)?,
        };
        let pfn = self.list(size, of).first();
        self.unlink(table, pfn, size);
        for part in (order..size).rev() {
            self.link(table, pfn.offset(1 << part), part, of);
        }
        table.frame(pfn).set_cached_in(self.zone, false);
        Some(pfn)
    }

    /// Finds the largest block of the other kind. If it is a large part of its page block,
    /// what is free there changes its kind, and with most of the block free
    /// the block does. Returns the block's order, and the kind whose list has it first.
    fn steal(
        &mut self,
        table: &FrameTable,
        kinds: &BlockKinds,
        order: u32,
        kind: Mobility,
    ) -> Option<(u32, Mobility)> {
        let other = kind.fallback();
        let size = (order..=MAX_ORDER)
            .rev()
            .find(|&size| self.list(size, other).len() > 0)?;
        let pfn = self.list(size, other).first();
        if size >= BLOCK_ORDER {
            for block in (0..1 << size).step_by(1 << BLOCK_ORDER) {
                kinds.set(pfn.offset(block), kind);
            }
            self.change_kind(table, pfn, size, kind);
            return Some((size, kind));
        }
        if size >= BLOCK_ORDER / 2 {
            let start = Pfn(pfn.0 & !((1 << BLOCK_ORDER) - 1));
            let moved = self.move_free(table, start, kind);
            if moved >= 1 << (BLOCK_ORDER - 1) {
                kinds.set(pfn, kind);
            }
            // What was moved last is first in its list; the block is to be.
            self.change_kind(table, pfn, size, kind);
            return Some((size, kind));
        }
        Some((size, other))
    }

    /// Puts a free block at the head of the list of a kind.
    fn change_kind(&mut self, table: &FrameTable, pfn: Pfn, order: u32, kind: Mobility) {
        self.unlink(table, pfn, order);
        self.link(table, pfn, order, kind);
    }

    /// Gives all that is free in a page block another kind. Returns the frames.
    fn move_free(&mut self, table: &FrameTable, start: Pfn, kind: Mobility) -> u32 {
        let (mut at, mut moved) = (0, 0);
        while at < 1 << BLOCK_ORDER {
            let pfn = start.offset(at);
            let order = table.get(pfn).filter(|frame| self.is_free(frame));
            let Some(order) = order.map(Frame::order) else {
                at += 1;
                continue;
            };
            self.change_kind(table, pfn, order, kind);
            moved += 1 << order;
            at += 1 << order;
        }
        moved
    }

    fn is_free(&self, frame: &Frame) -> bool {
        frame.kind() == Kind::Free && frame.zone() == usize::from(self.zone)
    }

    /// Whether the frame at `buddy` is the first of a free block of `order` in the zone
    /// of `page`.
    #[inline]
    fn is_buddy(&self, page: &Frame, buddy: &Frame, order: u32) -> bool {
        match self.check {
            BuddyCheck::Early => {
                page.zone() == buddy.zone() && buddy.kind() == Kind::Free && buddy.order() == order
            }
            BuddyCheck::Late => {
                buddy.kind() == Kind::Free && buddy.order() == order && page.zone() == buddy.zone()
            }
        }
    }

    /// Puts a block on the lists, merged with its buddy as long as that is free too. Nobody
    /// uses the block; its frames but the first are tails.
    pub(super) fn give(&mut self, table: &FrameTable, pfn: Pfn, order: u32, kind: Mobility) {
        let (mut pfn, mut order) = (pfn, order);
        while order < MAX_ORDER {
            let buddy = Pfn(pfn.0 ^ 1 << order);
            let Some(other) = table.get(buddy) else { break };
            if !self.is_buddy(table.frame(pfn), other, order) {
                break;
            }
            self.unlink(table, buddy, order);
            table.frame(pfn.max(buddy)).set_tail(self.zone);
            pfn = pfn.min(buddy);
            order += 1;
        }
        self.mark_free(table, pfn, order, kind);
        let list = self.list(order, kind);
        // One that will soon be part of a larger block is to be used last.
        if order + 2 <= MAX_ORDER && self.may_merge_soon(table, pfn, order) {
            list.push_last(table, pfn);
        } else {
            list.push(table, pfn);
        }
    }

    /// Whether the block above, of which this is a half, has a free buddy.
    fn may_merge_soon(&self, table: &FrameTable, pfn: Pfn, order: u32) -> bool {
        let above = Pfn(pfn.0 & !(1 << order));
        let buddy = Pfn(above.0 ^ 1 << (order + 1));
        match (table.get(above), table.get(buddy)) {
            (Some(page), Some(other)) => self.is_buddy(page, other, order + 1),
            _ => false,
        }
    }
}
