//! Reverse mapping: which page-table entries map a frame?
//!
//! One trait, several designs. A design owns its locking and the state that
//! regions, objects and spaces embed for it. Callers tell it about every entry
//! they make, copy, move or clear, in **runs**: consecutive entries of one
//! table that map consecutive frames. In return [`ReverseMap::visit`] finds
//! all entries of a frame and hands them out locked.
//!
//! Lock order: table lock, then the design's lock of a frame. A `visit` that
//! starts under the lock of a frame goes the other way, so it only *tries* table
//! locks, lets go where that fails, and goes on where it was. One that starts
//! under the lock of an object's regions, of an anon_vma or of a family waits.
//!
//! # Large leaves
//! A leaf above the lowest level maps `1 << order` frames: a [`Run`] with an `order`. The
//! frames of such a run are in one of two states.
//!
//! * **Whole**: the first frame's record has the order ([`Frame::order`]) and counts the
//!   leaves that map the run; the other frames have no record. `add`, `duplicate`,
//!   `remove` and `turn` are told of a run of one entry with that order, and visits are
//!   asked for the first frame.
//! * **Divided**: each frame has a record of its own with order 0, which counts all
//!   entries that map it, large or small. So it is once a mapping of the run was cut into
//!   single pages while others are still large, and after a leaf took the place of single
//!   pages. Visits are asked for each frame, and find
//!   the large leaves that cover it.
//!
//! [`TracksLeaves::divide`] leads from the first state to the second and
//! [`TracksLeaves::unite`] back; [`TracksLeaves::demote`] and [`TracksLeaves::promote`] replace
//! the leaf of one mapping, whose run is divided then. Fork copies large leaves only of
//! runs that are whole.
//!
//! [`Frame::order`]: crate::frame::Frame::order

pub(crate) mod counts;
mod family;
pub(crate) mod file_pages;
mod slot;
mod topology;
mod tracks;
mod types;

#[cfg(feature = "published")]
pub use crate::published::rmap::*;
pub use family::Family;
pub use slot::Slot;
pub use topology::{ClearsEntries, Topology};
pub use tracks::{
    Audited, DelaysFlushes, TracksEntries, TracksLeaves, TracksRegions, TracksSpaces,
};
pub use types::{Cleared, Env, Place, RegionRef, RmapStats, Run, Stretch, Verdict, VisitReport};

use crate::addr::Pfn;
use crate::platform::Platform;
use crate::table::Format;

/// A reverse-mapping design: it is told of every entry that is made, copied, moved or cleared,
/// and finds those of a frame.
///
/// What it keeps for spaces, regions, single entries and large leaves, it says by implementing
/// [`TracksSpaces`], [`TracksRegions`], [`TracksEntries`] and [`TracksLeaves`]; whether flushes
/// are waited for, by [`DelaysFlushes`]; what it has counted, by [`Audited`]. Of a trait that a
/// design has no use for it says nothing but the type of its state, `()`.
///
/// Each operation on mappings makes a [`TracksEntries::Ctx`] before it takes a
/// spin lock, passes it to every call, and ends it with
/// [`TracksEntries::finish`]; all while pinned once. [`TracksEntries::prepare`] is
/// the only call that can fail: what it prepared makes the next calls
/// infallible.
///
/// # Safety
/// Truncation and reclaim free frames whose entries a visit has cleared, so that one which a visit
/// misses would lead to a frame of somebody else. An implementation promises:
///
/// 1. [`ReverseMap::visit`] and [`ReverseMap::visit_run`] hand out, as they say, each entry that
///    `add`, `duplicate` and `shift` were told of and `remove` was not, whatever else its traits
///    were told meanwhile; an entry that the visitor has unmapped they hand out no more, and take
///    its mapping from the frame's count.
/// 2. Of frame records it changes the design's word, owner and index, and nothing else.
pub unsafe trait ReverseMap: TracksLeaves + DelaysFlushes + Audited {
    /// The value of the `rmap` option that selects the design.
    const NAME: &'static str;

    /// Whether a visit may end at as many entries as the mapping count said, so that beside a
    /// fork of the page's spaces it can find a new entry in the place of another.
    const MISSES_BESIDE_FORKS: bool = false;

    /// The design on a machine of `cpus` CPUs.
    fn new(options: &crate::design::Design, cpus: usize, arenas: &crate::slab::ArenaMaker) -> Self;

    /// Entries were made, each for a frame that gained a mapping. The table is
    /// locked. `fresh` frames have never been mapped, or had no mapping left, and nobody else
    /// knows them. The records of private ones name the space and the page; owner and index are
    /// the design's from here on, which leaves alone what else the index's word says
    /// (`Frame::set_place`).
    fn add<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        place: Place<'_, Self::Region, Self::Space>,
        fresh: bool,
    );

    /// Fork made entries for frames that the parent maps. Both tables are locked.
    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        place: Place<'_, Self::Region, Self::Space>,
    );

    /// Entries were cleared. The table is locked; the frames still have their
    /// references, and their mapping counts still count these entries.
    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        place: Place<'_, Self::Region, Self::Space>,
    );

    /// A private frame lost its last mapping, after [`ReverseMap::remove`] of
    /// it. What is kept for the frame and not for its entries can go; the frame
    /// itself may live on by other references, and be mapped again as one that is fresh
    /// ([`ReverseMap::add`]).
    #[inline]
    fn unmapped<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        let _ = (env, frame);
    }

    /// Entries were moved from `from` to `to` (mremap). Both tables are locked.
    /// [`Place::linear_offset`] is that of `from`.
    fn shift<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        from: &Run,
        to: &Run,
        place: Place<'_, Self::Region, Self::Space>,
    );

    /// A write found its anonymous page mapped by nobody else and keeps it.
    /// The table is locked.
    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        place: Place<'_, Self::Region, Self::Space>,
    ) {
        let _ = (env, ctx, run, place);
    }

    /// Hands every entry that maps `frame` to `visitor`, its table locked and
    /// the entry checked. The caller holds a reference to the frame and no
    /// spin lock. Entries made or removed meanwhile may be missed, and another in
    /// their place ([`ReverseMap::MISSES_BESIDE_FORKS`]). An entry may be handed
    /// out twice if the frame's mappings, or the regions that show it, change
    /// meanwhile; if they do not, each is handed out once, however many locks are
    /// not free.
    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Self::Region>,
        frame: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport;

    /// The same for consecutive pages of one object: `visitor` is told which of
    /// `frames` it is each time, and [`Verdict::Stop`] ends the visit of them all.
    /// A caller that looks for one page of a file mostly looks for its neighbours
    /// next. Designs that search the object's regions find all of them in one
    /// search and lock each table once (as Linux looks around an entry that it
    /// ages, 2022).
    fn visit_run<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Self::Region>,
        frames: &[Pfn],
        visitor: &mut dyn FnMut(Pfn, &Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        let mut report = VisitReport::default();
        let mut stopped = false;
        for &frame in frames {
            report.merge(self.visit::<P, F>(env, topology, frame, &mut |slot| {
                let verdict = visitor(frame, slot);
                stopped |= verdict == Verdict::Stop;
                verdict
            }));
            if stopped {
                break;
            }
        }
        report
    }
}
