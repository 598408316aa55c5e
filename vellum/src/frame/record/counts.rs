//! How often a frame is referenced, mapped and pinned, in one word (invariant 2).

use super::Frame;
use crate::sync::Turn;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::bytes::prefetch_to_write;

const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
pub(super) const ONE_REF: u64 = 1;
const ONE_MAP: u64 = 1 << COUNT_BITS;
const ONE_PIN: u64 = 1 << (2 * COUNT_BITS);
/// The counts are those of a whole run ([`Counts::is_whole`]).
const WHOLE: u64 = 1 << 63;

/// Most mappings of one frame. Beyond it a mapping is refused, far enough
/// from the end of the field that racing increments cannot reach it.
pub const MAX_MAPPINGS: u32 = (COUNT_MASK as u32) - (1 << 16);
/// Most pins of one frame, likewise.
pub const MAX_PINS: u32 = (u16::MAX as u32 >> 1) - (1 << 13);

/// Reference, mapping and pin counts at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts(u64);

impl Counts {
    /// Everything that keeps the frame: mappings, the object's own, others.
    #[inline]
    pub fn refs(self) -> u32 {
        (self.0 & COUNT_MASK) as u32
    }

    /// PTEs that map the frame.
    #[inline]
    pub fn maps(self) -> u32 {
        (self.0 >> COUNT_BITS & COUNT_MASK) as u32
    }

    /// Users that need the frame to stay where it is mapped. Each holds a
    /// reference too.
    #[inline]
    pub fn pins(self) -> u32 {
        ((self.0 & !WHOLE) >> (2 * COUNT_BITS)) as u32
    }

    /// Whether they stand for all frames of a run of which this is the first
    /// (as private superpages have).
    #[inline]
    pub fn is_whole(self) -> bool {
        self.0 & WHOLE != 0
    }
}

/// Mappings have been counted, and what is loaded from here on is loaded after.
///
/// Whoever maps a page of an object counts the mapping and then looks whether the
/// page is locked or has left the object; whoever takes it out locks it and then
/// looks at the count (`Frame::maps_after_lock`). One of the two sees the other.
#[derive(Clone, Copy, Debug)]
pub struct MappingsCounted(());

impl MappingsCounted {
    /// After `Frame::adopt_mapping` or [`Frame::try_map`], once for all.
    #[inline]
    pub fn now() -> Self {
        fence(Ordering::SeqCst);
        MappingsCounted(())
    }
}

/// Counts of frames in use.
impl Frame {
    /// The counts now.
    #[inline]
    pub fn counts(&self) -> Counts {
        Counts(self.counts.load(Ordering::Acquire))
    }

    /// Sets the counts of a frame that nobody else uses.
    #[inline]
    pub fn init_counts(&self, refs: u32, maps: u32) {
        self.counts.store(
            u64::from(refs) * ONE_REF + u64::from(maps) * ONE_MAP,
            Ordering::Release,
        );
    }

    /// Sets the counts of a whole run that nobody else uses, mapped once, in its first record.
    #[inline]
    pub(crate) fn init_whole(&self) {
        (self.counts).store(ONE_REF + ONE_MAP + WHOLE, Ordering::Release);
    }

    /// From now on a reference keeps this frame alone, and no longer the run. Returns the
    /// counts that the run had: references taken before are to all of its frames. Under the
    /// run's lock.
    #[inline]
    pub(crate) fn end_whole(&self) -> Counts {
        Counts(self.counts.fetch_and(!WHOLE, Ordering::AcqRel))
    }

    /// From now on the counts stand for the run, if the frame has one mapping and no other
    /// reference; otherwise nothing changes. Under the run's lock.
    #[inline]
    pub(crate) fn begin_whole(&self) -> bool {
        let one = ONE_REF + ONE_MAP;
        self.counts
            .compare_exchange(one, one + WHOLE, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// One more PTE maps the frame; it holds a reference. Refuses, changing
    /// nothing, beyond `MAX_MAPPINGS`.
    #[inline]
    pub fn add_mapping(&self) -> Option<Counts> {
        let old = Counts(self.counts.fetch_add(ONE_REF + ONE_MAP, Ordering::Relaxed));
        if old.maps() >= MAX_MAPPINGS {
            self.counts.fetch_sub(ONE_REF + ONE_MAP, Ordering::Relaxed);
            return None;
        }
        Some(old)
    }

    /// A reference that the caller holds becomes that of a PTE.
    #[inline]
    pub(crate) fn adopt_mapping(&self) {
        self.counts.fetch_add(ONE_MAP, Ordering::Relaxed);
    }

    /// One more PTE maps a frame that may be on its way out, or that may have
    /// too many mappings: fails in either case.
    #[inline]
    pub fn try_map(&self, turn: Turn<'_>) -> bool {
        self.try_add(turn, ONE_REF + ONE_MAP, |counts| counts.refs() != 0)
            .is_some()
    }

    /// A PTE that mapped the frame is gone; its reference stays with the
    /// caller, who drops it after the flush. Returns the counts before.
    #[inline]
    pub fn remove_mapping(&self) -> Counts {
        Counts(self.counts.fetch_sub(ONE_MAP, Ordering::Release))
    }

    /// A PTE that mapped the frame is gone, and no CPU has its translation: its
    /// reference goes with it. True if that was the last reference, and the
    /// frame is the caller's.
    #[inline]
    pub(crate) fn put_mapping(&self) -> bool {
        let old = Counts(self.counts.fetch_sub(ONE_REF + ONE_MAP, Ordering::AcqRel));
        debug_assert!(old.refs() > 0 && old.maps() > 0, "mapping dropped twice");
        old.refs() == 1
    }

    /// The only PTE that maps the frame is gone, and nothing else keeps it: both
    /// go in one step, and the frame is the caller's. False, and nothing
    /// changed, if there is another mapping or reference.
    #[inline]
    pub fn take_last(&self) -> bool {
        self.counts
            .compare_exchange(ONE_REF + ONE_MAP, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// For a caller that has locked pages, before it reads their counts; see
    /// [`MappingsCounted`].
    #[inline]
    pub(crate) fn fence_after_locks() {
        fence(Ordering::SeqCst);
    }

    /// PTEs that map the frame, for a caller that has locked the page.
    #[inline]
    pub(crate) fn maps_after_lock(&self) -> u32 {
        Frame::fence_after_locks();
        self.counts().maps()
    }

    /// The owner, for a caller that took away the last mapping. Before another
    /// mapping went, a visit may have renamed the frame under the lock of that
    /// entry's table.
    #[cfg(feature = "published")]
    #[inline]
    pub(crate) fn owner_after_last_mapping(&self) -> u32 {
        fence(Ordering::Acquire);
        self.owner()
    }

    /// Takes a reference on a frame that may be on its way out: fails if it
    /// has none.
    #[inline]
    pub(crate) fn try_get(&self, turn: Turn<'_>) -> bool {
        self.try_add(turn, ONE_REF, |counts| counts.refs() != 0)
            .is_some()
    }

    /// Takes a reference on a private page whose frame may be anything by now: fails unless an
    /// entry maps it. The counts of a page that is mapped change by read-modify-writes only, and
    /// those of one that is about to be by a store that this either sees or does not. Returns
    /// the counts before: if they are a whole run's, the reference is one to the run.
    #[inline]
    pub(crate) fn try_get_mapped(&self, turn: Turn<'_>) -> Option<Counts> {
        self.try_add(turn, ONE_REF, |counts| counts.maps() != 0)
    }

    /// Adds to the counts of a frame that may be anything by now: fails if they do not suit, or
    /// if there are too many references. Returns the counts before.
    #[inline]
    fn try_add(&self, turn: Turn<'_>, what: u64, suits: impl Fn(Counts) -> bool) -> Option<Counts> {
        // Other CPUs may have counted last.
        prefetch_to_write(&self.counts);
        turn.change(self.counts.load(Ordering::Relaxed), |old| {
            let counts = Counts(old);
            if !suits(counts) || counts.refs() >= MAX_MAPPINGS {
                return Ok(None);
            }
            let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
            let added = (self.counts).compare_exchange_weak(old, old + what, order, failed);
            added.map(|_| Some(counts))
        })
    }

    /// Takes a reference beside one that the caller knows of.
    #[inline]
    pub fn get(&self) {
        self.counts.fetch_add(ONE_REF, Ordering::Relaxed);
    }

    /// Drops a reference; true if it was the last and the frame is the caller's.
    #[inline]
    pub fn put(&self) -> bool {
        let old = Counts(self.counts.fetch_sub(ONE_REF, Ordering::AcqRel));
        debug_assert!(old.refs() > 0, "reference dropped twice");
        old.refs() == 1
    }

    /// Drops a reference if there is no other, and nothing else keeps the frame: it is the
    /// caller's then. False, and nothing changed, otherwise.
    #[inline]
    pub(crate) fn put_if_last(&self) -> bool {
        self.counts
            .compare_exchange(ONE_REF, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Pins the frame, with a reference. Refuses beyond `MAX_PINS`.
    #[inline]
    pub fn pin(&self) -> bool {
        let old = Counts(self.counts.fetch_add(ONE_REF + ONE_PIN, Ordering::Acquire));
        if old.pins() >= MAX_PINS {
            self.counts.fetch_sub(ONE_REF + ONE_PIN, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Drops a pin and its reference; true if that reference was the last.
    #[inline]
    pub fn unpin(&self) -> bool {
        Counts(self.counts.fetch_sub(ONE_REF + ONE_PIN, Ordering::AcqRel)).refs() == 1
    }
}
