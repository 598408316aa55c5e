//! Records of frames that nobody uses, in the allocator's places.

use super::counts::ONE_REF;
use super::{Frame, FreeFlags, KIND_MASK, KIND_SHIFT, Kind, PageFlags, STATE_MASK, ZONE_SHIFT};
use crate::addr::Pfn;
use crate::sync::atomic::Ordering;

/// Links of the list that a frame is on.
impl Frame {
    /// The next and previous frame of a list.
    #[inline]
    pub(crate) fn links(&self) -> (Pfn, Pfn) {
        let word = self.rmap.load(Ordering::Relaxed);
        (Pfn(word as u32), Pfn((word >> 32) as u32))
    }

    /// Sets the links. Under the list's lock.
    #[inline]
    pub fn set_links(&self, next: Pfn, previous: Pfn) {
        self.rmap.store(
            u64::from(next.0) | u64::from(previous.0) << 32,
            Ordering::Relaxed,
        );
    }

    /// Sets only the next frame of a singly linked list.
    #[inline]
    pub fn set_next(&self, next: Pfn) {
        self.rmap.store(u64::from(next.0), Ordering::Relaxed);
    }
}

/// Steps between the allocator's places. The caller is the frame's only user,
/// or holds its zone's lock.
impl Frame {
    /// Whether the frame is inside a block and not its first.
    #[inline]
    pub(crate) fn is_tail(&self) -> bool {
        self.kind() == Kind::Reserved && self.counts.load(Ordering::Relaxed) == 0
    }

    /// Puts the frame inside a block.
    #[inline]
    pub(crate) fn set_tail(&self, zone: u16) {
        self.flags
            .store(u32::from(zone) << ZONE_SHIFT, Ordering::Relaxed);
    }

    /// Makes a frame inside of a block a private page. Its zone may never have been written.
    #[inline]
    pub(in crate::frame) fn set_part(&self, zone: u16) {
        self.flags.store(
            u32::from(zone) << ZONE_SHIFT | (Kind::Anonymous as u32) << KIND_SHIFT,
            Ordering::Relaxed,
        );
    }

    /// Makes a frame with a reference one that is out of use. Those who found it as a page before, and
    /// have not looked yet whether it is one, may take its page lock meanwhile.
    pub(in crate::frame) fn set_withdrawn(&self) {
        let lock = PageFlags::LOCKED.or(PageFlags::WAITERS).bits();
        let what = KIND_MASK | STATE_MASK & !lock;
        self.flags.fetch_and(!what, Ordering::AcqRel);
        self.flags
            .fetch_or(FreeFlags::WITHDRAWN.bits(), Ordering::AcqRel);
    }

    /// Makes a frame that is out of use one that was handed out, for one of several who would.
    pub(in crate::frame) fn end_withdrawal(&self) -> bool {
        let flag = FreeFlags::WITHDRAWN.bits();
        let is_ours =
            self.is_withdrawn() && self.flags.fetch_and(!flag, Ordering::AcqRel) & flag != 0;
        if is_ours {
            self.set_kind(Kind::Allocated);
        }
        is_ours
    }

    /// Whether the frame is out of use.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.kind() == Kind::Reserved && !self.is_tail() && self.unused().has(FreeFlags::WITHDRAWN)
    }

    /// Makes the frame the first of a free block.
    #[inline]
    pub(crate) fn set_free(&self, zone: u16, order: u32, zeroed: bool) {
        let state = if zeroed { FreeFlags::ZEROED.bits() } else { 0 };
        self.flags.store(
            u32::from(zone) << ZONE_SHIFT | (Kind::Free as u32) << KIND_SHIFT | state,
            Ordering::Relaxed,
        );
        self.set_index(0, order);
    }

    /// Whether the frame is the first of a free block of this zone and order.
    #[inline]
    pub(in crate::frame) fn is_free_block(&self, zone: u16, order: u32) -> bool {
        let word = self.flags.load(Ordering::Relaxed) & !STATE_MASK;
        word == u32::from(zone) << ZONE_SHIFT | (Kind::Free as u32) << KIND_SHIFT
            && self.order() == order
    }

    /// Puts the frame into a CPU's list; returns its zone. Only
    /// [`FreeFlags::ZEROED`] survives.
    #[inline]
    pub(in crate::frame) fn set_cached(&self) -> u16 {
        let word = self.flags.load(Ordering::Relaxed);
        let keep = word & !(STATE_MASK | KIND_MASK) | word & FreeFlags::ZEROED.bits();
        self.flags.store(
            keep | (Kind::Cached as u32) << KIND_SHIFT,
            Ordering::Relaxed,
        );
        (word >> ZONE_SHIFT) as u16
    }

    /// [`Frame::set_cached`] for the first frame of a block.
    #[inline]
    pub(in crate::frame) fn set_cached_block(&self, order: u32) {
        self.set_cached();
        let word = self.flags.load(Ordering::Relaxed);
        self.flags
            .store(word | FreeFlags::BLOCK.bits(), Ordering::Relaxed);
        self.set_index(0, order);
    }

    /// The order of the block in a CPU's list whose first frame this is.
    pub(crate) fn cached_block(&self) -> Option<u32> {
        (self.kind() == Kind::Cached && self.unused().has(FreeFlags::BLOCK)).then(|| self.order())
    }

    /// [`Frame::set_cached`] for a frame whose zone is known, such as one out of a
    /// block, whose record may never have been written. Reads nothing.
    #[inline]
    pub(crate) fn set_cached_in(&self, zone: u16, zeroed: bool) {
        let state = if zeroed { FreeFlags::ZEROED.bits() } else { 0 };
        self.flags.store(
            u32::from(zone) << ZONE_SHIFT | (Kind::Cached as u32) << KIND_SHIFT | state,
            Ordering::Relaxed,
        );
    }

    /// Hands the frame out, as the first of a block: one reference, nothing
    /// else. Returns whether its bytes are known to be zero.
    #[inline]
    pub(in crate::frame) fn hand_out(&self, order: u32) -> bool {
        let word = self.flags.load(Ordering::Relaxed);
        self.hand_out_in((word >> ZONE_SHIFT) as u16, order, 0);
        word & FreeFlags::ZEROED.bits() != 0
    }

    /// [`Frame::hand_out`] with an owner, for a frame whose zone is known and whose
    /// bytes may be anything. Reads nothing: a record that is in no cache then holds
    /// up no instruction.
    #[inline]
    pub(in crate::frame) fn hand_out_in(&self, zone: u16, order: u32, owner: u32) {
        self.flags.store(
            u32::from(zone) << ZONE_SHIFT | (Kind::Allocated as u32) << KIND_SHIFT,
            Ordering::Relaxed,
        );
        self.owner.store(owner, Ordering::Relaxed);
        self.set_index(0, order);
        self.rmap.store(0, Ordering::Relaxed);
        self.counts.store(ONE_REF, Ordering::Release);
    }
}
