//! Reverse mapping: which page-table entries map a frame?
//!
//! One trait, several designs. A design owns its locking and the state that
//! regions, objects and spaces embed for it. Callers tell it about every entry
//! they make, copy, move or clear, in **runs**: consecutive entries of one
//! table that map consecutive frames. In return [`ReverseMap::visit`] finds
//! all entries of a frame and hands them out locked.
//!
//! Lock order: table lock, then the design's lock of a frame. `visit` starts
//! from the frame and goes the other way, so it only *tries* table locks, and
//! starts over where that fails.

mod chains;
mod partial;
mod slot;

#[cfg(test)]
mod tests;

pub use chains::Chains;
pub use partial::Partial;
pub use slot::Slot;

use core::ops::ControlFlow;

use crate::addr::{Pfn, Vpn};
use crate::frame::{AuditError, OutOfMemory, PhysicalMemory};
use crate::platform::Platform;
use crate::sync::Pin;
use crate::table::{Format, PteRef};

/// What every call of a design may use.
pub struct Env<'a, P: Platform> {
    /// Frames and their records.
    pub memory: &'a PhysicalMemory<P>,
    /// The CPU the caller is pinned to.
    pub pin: &'a Pin<'a>,
}

/// Consecutive entries of one level-1 table that map consecutive frames.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// First frame.
    pub frame: Pfn,
    /// Number of frames.
    pub count: u32,
    /// Log2 of the frames that each entry maps.
    pub order: u32,
    /// First entry.
    pub pte: PteRef,
    /// First page.
    pub page: Vpn,
}

impl Run {
    /// One entry that maps one frame.
    #[inline]
    pub const fn single(frame: Pfn, pte: PteRef, page: Vpn) -> Run {
        Run {
            frame,
            count: 1,
            order: 0,
            pte,
            page,
        }
    }
}

/// The region an entry belongs to, as far as designs need it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'r, S> {
    /// Handle of the space.
    pub space: u32,
    /// The design's state in the region.
    pub region: &'r S,
}

/// Counts of one design, summed over CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RmapStats {
    /// Entries added for a first or further mapping.
    pub adds: u64,
    /// Entries added by fork.
    pub duplicates: u64,
    /// Entries removed.
    pub removes: u64,
    /// Entries moved to another place.
    pub moves: u64,
    /// Pages that became exclusive to the writer again.
    pub turns: u64,
    /// Nodes taken for chains.
    pub node_allocs: u64,
    /// Nodes given back.
    pub node_frees: u64,
    /// Locks of frames taken.
    pub locks: u64,
    /// Chain nodes read while searching for an entry to remove.
    pub nodes_searched: u64,
    /// Bytes of nodes in use.
    pub bytes: u64,
    /// Highest number of such bytes.
    pub peak_bytes: u64,
}

/// What a visit met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VisitReport {
    /// Entries found and handed to the visitor.
    pub hits: u32,
    /// Places looked at that did not map the frame.
    pub false_probes: u32,
    /// Locks that were not free, each a reason to start over.
    pub lock_failures: u32,
    /// Entries the visitor cleared.
    pub unmapped: u32,
}

impl VisitReport {
    /// Adds the counts of another visit.
    pub fn merge(&mut self, other: VisitReport) {
        self.hits += other.hits;
        self.false_probes += other.false_probes;
        self.lock_failures += other.lock_failures;
        self.unmapped += other.unmapped;
    }
}

/// What a visitor did with a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The entry still maps the frame; go on.
    Keep,
    /// The visitor cleared the entry through the slot; go on. The entry's
    /// reference to the frame passes to the visitor, who drops it after the
    /// flush.
    Unmapped,
    /// The entry still maps the frame; the visitor has seen enough.
    Stop,
}

/// How a design reaches what lies in layers below it.
pub trait Topology {
    /// Calls `visit` with the space and page of every region that maps page
    /// `index` of the object with handle `object`, until it breaks.
    fn regions_of(
        &self,
        pin: &Pin<'_>,
        object: u32,
        index: u64,
        visit: &mut dyn FnMut(u32, Vpn) -> ControlFlow<()>,
    );

    /// The level-1 entry for `page` in the space with handle `space`, if there
    /// is a table for it. Reads without locks.
    fn leaf(&self, pin: &Pin<'_>, space: u32, page: Vpn) -> Option<PteRef>;
}

/// A reverse-mapping design.
///
/// Each operation on mappings makes a [`ReverseMap::Ctx`] before it takes a
/// spin lock, passes it to every call, and ends it with
/// [`ReverseMap::finish`]; all while pinned once. [`ReverseMap::prepare`] is
/// the only call that can fail: what it prepared makes the next calls
/// infallible.
pub trait ReverseMap: Sized + Send + Sync + 'static {
    /// The value of the `rmap` option that selects the design.
    const NAME: &'static str;

    /// Pages that fork need not copy because a fault finds them again are told
    /// to the design all the same if it keeps something per mapping.
    type Region: Default + Send + Sync + core::fmt::Debug;
    /// What objects embed.
    type Object: Default + Send + Sync + core::fmt::Debug;
    /// What spaces embed.
    type Space: Default + Send + Sync + core::fmt::Debug;
    /// Lives for one operation.
    type Ctx: Default;

    /// The design on a machine of `cpus` CPUs.
    fn new(options: &crate::design::Design, cpus: usize, arenas: &crate::slab::ArenaMaker) -> Self;

    /// Makes sure that entries for `count` frames can be added, duplicated or
    /// moved without failing. Promises are not added up: the last one holds.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing changed.
    fn prepare<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        count: usize,
    ) -> Result<(), OutOfMemory>;

    /// Ends an operation: gives back what was prepared and not used.
    fn finish<P: Platform>(&self, env: &Env<'_, P>, ctx: Self::Ctx);

    /// The frame's entries will be added to or removed soon: what is needed
    /// for that may be brought near.
    #[inline]
    fn prefetch<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        let _ = (env, frame);
    }

    /// Entries were made, each for a frame that gained a mapping. The table is
    /// locked. `fresh` frames have never been mapped and nobody else knows them.
    fn add<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        place: Place<'_, Self::Region>,
        fresh: bool,
    );

    /// Fork made entries for frames that the parent maps. Both tables are locked.
    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        place: Place<'_, Self::Region>,
    );

    /// Entries were cleared. The table is locked; the frames still have their
    /// references, and their mapping counts still count these entries.
    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        place: Place<'_, Self::Region>,
    );

    /// Entries were moved from `from` to `to` (mremap). Both tables are locked.
    fn shift<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        from: &Run,
        to: &Run,
        place: Place<'_, Self::Region>,
    );

    /// A write found its anonymous page mapped by nobody else and keeps it.
    /// The table is locked.
    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        place: Place<'_, Self::Region>,
    ) {
        let _ = (env, ctx, run, place);
    }

    /// A run of `1 << order` frames is now mapped by one larger leaf at `leaf`
    /// instead of by the entries of `run`. Never fails, never allocates.
    fn promote<P: Platform>(&self, env: &Env<'_, P>, ctx: &mut Self::Ctx, run: &Run, leaf: PteRef);

    /// The reverse of [`ReverseMap::promote`]: `prepare` was called for the
    /// run's frames.
    fn demote<P: Platform>(&self, env: &Env<'_, P>, ctx: &mut Self::Ctx, run: &Run, leaf: PteRef);

    /// `child` is fork's copy of `parent`; its entries are not copied yet.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the child region is then not used.
    fn region_forked(
        &self,
        parent: &Self::Region,
        child: &Self::Region,
    ) -> Result<(), OutOfMemory> {
        let _ = (parent, child);
        Ok(())
    }

    /// `tail` was split off the end of `head`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the split does not happen.
    fn region_split(&self, head: &Self::Region, tail: &Self::Region) -> Result<(), OutOfMemory> {
        let _ = (head, tail);
        Ok(())
    }

    /// Whether two neighbouring regions may become one.
    fn regions_mergeable(&self, head: &Self::Region, tail: &Self::Region) -> bool {
        let _ = (head, tail);
        true
    }

    /// `tail` was merged into `head` and ends.
    fn region_merged(&self, head: &Self::Region, tail: &Self::Region) {
        let _ = (head, tail);
    }

    /// A region ends; it maps nothing any more.
    fn region_ended(&self, region: &Self::Region) {
        let _ = region;
    }

    /// A space begins with a new program.
    fn space_executed(&self, space: &Self::Space) {
        let _ = space;
    }

    /// `child` begins as a copy of `parent`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the fork does not happen.
    fn space_forked(&self, parent: &Self::Space, child: &Self::Space) -> Result<(), OutOfMemory> {
        let _ = (parent, child);
        Ok(())
    }

    /// A space ends; it maps nothing any more.
    fn space_ended(&self, space: &Self::Space) {
        let _ = space;
    }

    /// Hands every entry that maps `frame` to `visitor`, its table locked and
    /// the entry checked. The caller holds a reference to the frame and no
    /// spin lock. Entries made or removed meanwhile may be missed; when the
    /// frame's mappings change meanwhile an entry may be handed out twice.
    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology,
        frame: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport;

    /// Event counts.
    fn stats(&self) -> RmapStats;

    /// Checks the design's own structures for `frame`, which has `maps`
    /// mappings, while nothing else runs.
    ///
    /// # Errors
    /// What is wrong.
    fn check_frame<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        maps: u32,
    ) -> Result<(), &'static str>;

    /// Nodes the design holds for mappings now, for leak checks.
    fn live_nodes(&self) -> u64;

    /// Checks the design's arenas while nothing else runs; returns the frames
    /// they have.
    ///
    /// # Errors
    /// What is wrong.
    fn audit_nodes(&self) -> Result<u64, AuditError>;
}
