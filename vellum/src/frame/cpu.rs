//! What one CPU has of its own: lists of free frames, frames that wait for their
//! epoch, and counters.

use alloc::boxed::Box;

use super::ring::{BlockStack, Ring};
use crate::addr::Pfn;
use crate::platform::{NodeId, Zone};
use crate::sync::Counter;
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::limbo::Limbo;

/// Events of one CPU; see [`super::FrameStats`] for each.
#[derive(Default)]
pub(crate) struct Counters {
    pub(super) allocs: Counter,
    pub(super) frees: Counter,
    /// Frames taken from runs that are set aside.
    pub(super) populated: Counter,
    pub(crate) refills: Counter,
    pub(crate) drains: Counter,
    pub(crate) remote_allocs: Counter,
    pub(super) failed: Counter,
    pub(crate) below_low: Counter,
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

/// The number of no zone.
pub(super) const NO_ZONE: u16 = u16::MAX;

/// What a CPU keeps of the frames of one zone.
pub(super) struct ZoneLists {
    /// The zone that the lists are filled from; [`NO_ZONE`] if there is none, and
    /// then they stay empty.
    pub(super) zone: u16,
    /// The longest range of the zone's frames: those whose zone is known from their
    /// number, without a look at a record that may be in no cache.
    first: u32,
    frames_in_range: u32,
    /// Single frames.
    pub(super) frames: Ring,
    /// Single frames known to be zero, where those are kept apart.
    pub(super) zeroed: Option<Box<Ring>>,
    blocks: BlockStack,
}

/// How the lists of one zone are made on a CPU.
pub(super) struct ListsOf {
    /// Which zone; [`NO_ZONE`] for lists that stay empty.
    pub(super) zone: u16,
    /// The longest range of its frames: first frame, and how many.
    pub(super) range: (Pfn, u32),
    /// Frames moved at once, and above which some are given back.
    pub(super) batch: u32,
    pub(super) high: u32,
    pub(super) blocks: BlockStack,
}

impl ListsOf {
    fn no_zone() -> ListsOf {
        ListsOf {
            zone: NO_ZONE,
            range: (Pfn(0), 0),
            batch: 1,
            high: 1,
            blocks: BlockStack::new(0, 0),
        }
    }
}

impl ZoneLists {
    /// Makes empty lists.
    ///
    /// # Safety
    /// `place` can be written, nobody else uses it, and all of its bytes are zero.
    unsafe fn init(place: *mut ZoneLists, of: ListsOf) {
        // SAFETY: the caller's promise; every field is written, or zero where `Ring::init`
        // says so.
        unsafe {
            (&raw mut (*place).zone).write(of.zone);
            (&raw mut (*place).first).write(of.range.0.0);
            (&raw mut (*place).frames_in_range).write(of.range.1);
            Ring::init(&raw mut (*place).frames, of.batch, of.high);
            (&raw mut (*place).zeroed).write(None);
            (&raw mut (*place).blocks).write(of.blocks);
        }
    }

    /// Whether the frame is known to be of the zone. If not, its record says which
    /// zone it is of.
    #[inline]
    pub(super) fn covers(&self, pfn: Pfn) -> bool {
        pfn.0.wrapping_sub(self.first) < self.frames_in_range
    }

    /// Whether there is a zone that fills the lists.
    #[inline]
    pub(super) fn exist(&self) -> bool {
        self.zone != NO_ZONE
    }

    /// The blocks to take from and to give to, unless frames known to be zero are
    /// kept apart: which to take is then for the buddy lists to say.
    #[inline]
    pub(super) fn blocks(&self) -> Option<&BlockStack> {
        self.zeroed.is_none().then_some(&self.blocks)
    }

    fn keep_zeroed(&mut self) {
        self.zeroed = Some(Ring::boxed(self.frames.batch, self.frames.high));
    }
}

/// What one CPU has of its own.
pub(crate) struct CpuFrames {
    pub(crate) node: NodeId,
    /// Windows that are open on this CPU, a bit for each.
    pub(super) windows: AtomicU32,
    /// The shortage up to which the lists were given back.
    pub(super) seen_shortage: AtomicU32,
    /// What a refusal that nobody has asked about yet needs ([`super::Relief`]).
    pub(super) relief: AtomicU32,
    /// The group that has refused a call a page table which nobody has asked about yet.
    pub(super) refused_by: AtomicU32,
    /// The nodes of which a call was refused a frame that nobody has asked about yet.
    pub(super) lacks: AtomicU64,
    pub(crate) counters: Counters,
    pub(super) limbo: Limbo,
    pub(super) low: ZoneLists,
    /// Of no zone if a request for high memory is best served from the low lists.
    pub(super) high: ZoneLists,
    /// Freed here, at home elsewhere.
    pub(super) remote: Ring,
}

impl CpuFrames {
    /// Makes what a CPU begins with.
    ///
    /// # Safety
    /// `place` can be written, nobody else uses it, and all of its bytes are zero.
    pub(super) unsafe fn init(
        place: *mut CpuFrames,
        node: NodeId,
        low: ListsOf,
        high: Option<ListsOf>,
    ) {
        let batch = low.batch;
        // SAFETY: the caller's promise; every field is written, or zero where `Ring::init`
        // says so.
        unsafe {
            (&raw mut (*place).node).write(node);
            (&raw mut (*place).windows).write(AtomicU32::new(0));
            (&raw mut (*place).seen_shortage).write(AtomicU32::new(0));
            (&raw mut (*place).relief).write(AtomicU32::new(0));
            (&raw mut (*place).refused_by).write(AtomicU32::new(0));
            (&raw mut (*place).lacks).write(AtomicU64::new(0));
            (&raw mut (*place).counters).write(Counters::default());
            (&raw mut (*place).limbo).write(Limbo::default());
            ZoneLists::init(&raw mut (*place).low, low);
            let high = high.unwrap_or_else(ListsOf::no_zone);
            ZoneLists::init(&raw mut (*place).high, high);
            Ring::init(&raw mut (*place).remote, batch, batch);
        }
    }

    /// Keeps frames known to be zero apart from now on.
    pub(super) fn keep_zeroed(&mut self) {
        self.low.keep_zeroed();
        self.high.keep_zeroed();
    }

    /// Keeps no free frames from now on: there are none, and all that come are for
    /// others to keep.
    #[cfg(feature = "published")]
    pub(crate) fn close(&mut self) {
        for lists in [&mut self.low, &mut self.high] {
            lists.frames.close();
            lists.blocks.close();
        }
        self.remote.close();
    }

    /// The lists that serve requests for `zone`.
    #[inline]
    pub(super) fn lists_for(&self, zone: Zone) -> &ZoneLists {
        if zone == Zone::High && self.high.exist() {
            &self.high
        } else {
            &self.low
        }
    }

    /// The lists that freed frames of zone number `zone` go to; `None` for those
    /// that are at home elsewhere.
    #[inline]
    pub(super) fn lists_of(&self, zone: u16) -> Option<&ZoneLists> {
        self.zones().into_iter().find(|lists| lists.zone == zone)
    }

    /// The lists of both zones.
    #[inline]
    pub(super) fn zones(&self) -> [&ZoneLists; 2] {
        [&self.low, &self.high]
    }

    /// Every list of single frames.
    pub(super) fn rings(&self) -> impl Iterator<Item = &Ring> {
        let own = self.zones().into_iter();
        own.flat_map(|lists| [Some(&lists.frames), lists.zeroed.as_deref()])
            .flatten()
            .chain([&self.remote])
    }

    /// Every list of blocks.
    pub(super) fn block_stacks(&self) -> [&BlockStack; 2] {
        self.zones().map(|lists| &lists.blocks)
    }
}
