//! What is known about each slot.

use crate::addr::Pfn;
use crate::frame::MAX_MAPPINGS;
use crate::sync::{CachePadded, Pin, SpinGuard, SpinLock};

/// Slots of a cluster.
pub(super) const SLOTS: usize = 64;

/// Most entries that may name a slot: as many as may map a frame.
pub const MAX_ENTRIES: u32 = MAX_MAPPINGS;

/// The page is being written or read, and its page lock held.
const BUSY: u32 = 1 << 31;
/// The store has the page.
const STORED: u32 = 1 << 30;
/// The store did not take the page: the slot is not used again.
const BAD: u32 = 1 << 29;
/// The page was read because a neighbour was wanted, and nobody has wanted it since.
const AHEAD: u32 = 1 << 28;
const COUNT: u32 = (1 << 24) - 1;

const _: () = assert!(MAX_ENTRIES < COUNT);

/// One slot: the frame that has its page, or none, and in another word the entries that name
/// it and what is known of the store's copy. All zero, with no frame, it is not in use.
#[derive(Clone, Copy)]
pub(super) struct SwapSlot {
    frame: Pfn,
    state: u32,
}

impl SwapSlot {
    const UNUSED: SwapSlot = SwapSlot {
        frame: Pfn::NONE,
        state: 0,
    };

    /// A slot taken for a page that is to be written.
    pub(super) fn taken_for(page: Pfn) -> SwapSlot {
        SwapSlot {
            frame: page,
            state: BUSY,
        }
    }

    /// A slot taken for a page that stays where it is until it is written.
    pub(super) fn taken() -> SwapSlot {
        SwapSlot {
            frame: Pfn::NONE,
            state: BUSY,
        }
    }

    /// Entries that name it.
    pub(super) fn count(&self) -> u32 {
        self.state & COUNT
    }

    pub(super) fn frame(&self) -> Option<Pfn> {
        (!self.frame.is_none()).then_some(self.frame)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.state & BUSY != 0
    }

    pub(super) fn is_stored(&self) -> bool {
        self.state & STORED != 0
    }

    pub(super) fn is_bad(&self) -> bool {
        self.state & BAD != 0
    }

    pub(super) fn is_unused(&self) -> bool {
        self.state == 0 && self.frame.is_none()
    }

    /// Counts one entry more; `false` if there are too many.
    pub(super) fn add(&mut self) -> bool {
        let fits = self.count() < MAX_ENTRIES;
        self.state += u32::from(fits);
        fits
    }

    /// Counts one entry less.
    pub(super) fn sub(&mut self) {
        debug_assert!(self.count() > 0, "an entry was dropped twice");
        self.state -= 1;
    }

    /// A frame is to be filled with the page, which is wanted, or only a neighbour of one.
    pub(super) fn begin_in(&mut self, frame: Pfn, is_wanted: bool) {
        self.frame = frame;
        self.state |= BUSY | if is_wanted { 0 } else { AHEAD };
    }

    /// The page is wanted; whether it was read ahead of that.
    pub(super) fn take_ahead(&mut self) -> bool {
        let ahead = self.state & AHEAD != 0;
        self.state &= !AHEAD;
        ahead
    }

    pub(super) fn end(&mut self) {
        self.state &= !BUSY;
    }

    pub(super) fn set_stored(&mut self) {
        self.state |= STORED;
    }

    pub(super) fn set_bad(&mut self) {
        self.state |= BAD;
    }

    /// Takes the frame out.
    pub(super) fn take_frame(&mut self) -> Option<Pfn> {
        let frame = self.frame();
        self.frame = Pfn::NONE;
        self.state &= !AHEAD;
        frame
    }

    /// If nothing needs the slot any more, makes it unused, and returns what it was.
    pub(super) fn give_up(&mut self) -> Option<SwapSlot> {
        if self.count() > 0 || self.is_busy() {
            return None;
        }
        Some(core::mem::replace(self, SwapSlot::UNUSED))
    }
}

/// Slots that have one lock.
pub(super) struct Cluster(CachePadded<SpinLock<[SwapSlot; SLOTS]>>);

impl Default for Cluster {
    fn default() -> Self {
        Cluster(CachePadded(SpinLock::new([SwapSlot::UNUSED; SLOTS])))
    }
}

impl Cluster {
    pub(super) fn lock<'a>(&'a self, pin: &'a Pin<'_>) -> SpinGuard<'a, [SwapSlot; SLOTS]> {
        self.0.lock(pin)
    }
}
