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
//! [`ReverseMap::divide`] leads from the first state to the second and
//! [`ReverseMap::unite`] back; [`ReverseMap::demote`] and [`ReverseMap::promote`] replace
//! the leaf of one mapping, whose run is divided then. Fork copies large leaves only of
//! runs that are whole.
//!
//! [`Frame::order`]: crate::frame::Frame::order

pub(crate) mod counts;
mod family;
pub(crate) mod file_pages;
mod slot;
mod topology;
mod types;

#[cfg(feature = "published")]
pub use crate::published::rmap::*;
pub use family::Family;
pub use slot::Slot;
pub use topology::{ClearsEntries, Topology};
pub use types::{Cleared, Env, Place, RegionRef, RmapStats, Run, Stretch, Verdict, VisitReport};

use crate::addr::Pfn;
use crate::frame::{AuditError, OutOfMemory};
use crate::platform::Platform;
use crate::table::{Format, PteRef, SpaceLock};

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

    /// Whether private pages that several spaces map must be copied before
    /// they move within one (mremap), because the design finds the entries of a
    /// page by one address that all its spaces share.
    const COPIES_TO_MOVE: bool = false;

    /// Whether [`ReverseMap::divide`] is told the entries that take the leaf's place, and leaves
    /// nothing to do for [`ReverseMap::demote`]. Then it needs no memory.
    const DIVIDES_INTO_PARTS: bool = false;

    /// Whether the design keeps ranges of regions, so that no fault may be
    /// inside a region when [`ReverseMap::region_resized`] says that it grows.
    const KEEPS_RANGES: bool = false;

    /// Whether [`ReverseMap::prepare_move`] is called before private pages that
    /// several spaces map move within one (mremap).
    const PREPARES_TO_MOVE: bool = false;

    /// Whether [`ReverseMap::make_room`] does anything.
    const MAKES_ROOM: bool = false;

    /// Whether a large leaf is listed once even if its frames have a record each, so that
    /// [`ReverseMap::remove`] and [`ReverseMap::turn`] are told of it as of one run. Otherwise
    /// they are told of each frame.
    const LISTS_LEAVES: bool = false;

    /// Whether a visit may end at as many entries as the mapping count said, so that beside a
    /// fork of the page's spaces it can find a new entry in the place of another.
    const MISSES_BESIDE_FORKS: bool = false;

    /// What regions embed. It must be as new after [`ReverseMap::region_ended`].
    type Region: Default + Send + Sync + core::fmt::Debug;
    /// What objects embed.
    type Object: Default + Send + Sync + core::fmt::Debug;
    /// What spaces embed. It must be as new after [`ReverseMap::space_ended`].
    type Space: Default + Send + Sync + core::fmt::Debug;
    /// Lives for one operation.
    type Ctx: Default;

    /// The design on a machine of `cpus` CPUs.
    fn new(options: &crate::design::Design, cpus: usize, arenas: &crate::slab::ArenaMaker) -> Self;

    /// The lock that is taken in place of those of the tables of a space, if the design has one.
    /// It is the same from the first table of the space that others may lock to the last.
    #[inline]
    fn tables_lock<'a>(&'a self, space: &'a Self::Space) -> SpaceLock<'a> {
        let _ = space;
        None
    }

    /// Makes sure that entries for `count` frames can be added or duplicated at
    /// `place`, or moved, without failing. Promises are not added up: the last one holds.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing changed.
    #[inline]
    fn prepare<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        place: Place<'_, Self::Region, Self::Space>,
        count: usize,
    ) -> Result<(), OutOfMemory> {
        let _ = (env, ctx, place, count);
        Ok(())
    }

    /// Makes sure that the entries of `count` private pages that several spaces
    /// map can be moved under this pin. Called if
    /// [`ReverseMap::PREPARES_TO_MOVE`].
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing changed.
    fn prepare_move<P: Platform>(&self, env: &Env<'_, P>, count: usize) -> Result<(), OutOfMemory> {
        let _ = (env, count);
        Ok(())
    }

    /// Makes sure that private pages can be added in `region`. Called before
    /// each that a fault adds, with no spin lock held and the region entered, by
    /// several CPUs at once. Fork does not call it for the child: regions of
    /// parents with private pages come to the child through
    /// [`ReverseMap::region_forked`].
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing changed.
    #[inline]
    fn prepare_private<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Self::Region>,
        region: RegionRef<'_, Self::Region>,
    ) -> Result<(), OutOfMemory> {
        let _ = (env, topology, region);
        Ok(())
    }

    /// From here to [`ReverseMap::delay_ends`], on one CPU, entries are cleared whose CPUs
    /// are flushed before the latter.
    #[inline]
    fn delay_begins<P: Platform>(&self, env: &Env<'_, P>) {
        let _ = env;
    }

    /// The CPUs of all entries cleared since [`ReverseMap::delay_begins`] are flushed.
    #[inline]
    fn delay_ends<P: Platform>(&self, env: &Env<'_, P>) {
        let _ = env;
    }

    /// A visit of `frame` has ended, and what it cleared is flushed. Waits until what
    /// others have cleared is flushed, too, if the design knows. The caller is between no
    /// [`ReverseMap::delay_begins`] and its end, and holds no spin lock.
    #[inline]
    fn wait_for_flushes<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        let _ = (env, frame);
    }

    /// A call failed for want of memory. Frees a node's frame by having entries cleared, if
    /// it was a node that was lacking; returns whether the call may do better now. The
    /// caller is pinned and holds no lock.
    fn make_room<P: Platform>(&self, env: &Env<'_, P>, spaces: &dyn ClearsEntries) -> bool {
        let _ = (env, spaces);
        false
    }

    /// Ends an operation: gives back what was prepared and not used.
    #[inline]
    fn finish<P: Platform>(&self, env: &Env<'_, P>, ctx: Self::Ctx) {
        let _ = (env, ctx);
    }

    /// Bytes that the design keeps, about, for a space with so many regions and mapped pages.
    #[inline]
    fn kept_bytes(regions: u64, pages: u64) -> u64 {
        let _ = (regions, pages);
        0
    }

    /// The frame's entries will be added to or removed soon: what is needed
    /// for that may be brought near.
    #[inline]
    fn prefetch<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        let _ = (env, frame);
    }

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

    /// The entry of `run`, which maps one frame, is now the entry `to` of another table,
    /// because its table was moved; it shows at the same address as before. Both tables are
    /// locked. Never fails, never allocates. Nothing is to do for a design that keeps
    /// nothing for single entries.
    fn entry_moved<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        to: PteRef,
    ) {
        let _ = (env, ctx, run, to);
    }

    /// Makes sure that [`ReverseMap::divide`] of `run` cannot fail. Called under the same
    /// locks, right before it.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing changed.
    #[inline]
    fn prepare_divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run) -> Result<(), OutOfMemory> {
        let _ = (env, run);
        Ok(())
    }

    /// The frames of a large leaf, `run`, that had one record get one each
    /// ([Large leaves](self#large-leaves)). Kind, counts, owner and index of the new records
    /// are set already, as if each frame had always been mapped alone by the entries that
    /// map the run; what the design keeps for the first frame, it keeps for every frame
    /// from now on. A table with an entry that maps the run and the run are locked. With
    /// [`ReverseMap::DIVIDES_INTO_PARTS`], `parts` are the entries that take the place of the leaf,
    /// and their table is locked, too.
    fn divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run, parts: Option<&Run>) {
        let _ = (env, run, parts);
    }

    /// The reverse of [`ReverseMap::divide`]: the frames of the large leaf `run`, which only
    /// that maps, lose all records but the first. Their words are still as the design left
    /// them, and void afterwards. Never fails, never allocates.
    fn unite<P: Platform>(
        &self,
        env: &Env<'_, P>,
        run: &Run,
        place: Place<'_, Self::Region, Self::Space>,
    ) {
        let _ = (env, run, place);
    }

    /// The frames of `run`, single pages with a record each that the entries of one table
    /// map, are now mapped by one larger leaf at `leaf` instead. Both tables are locked.
    /// Never fails, never allocates. Nothing is to do for a design that keeps nothing for
    /// single entries.
    fn promote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        leaf: PteRef,
        place: Place<'_, Self::Region, Self::Space>,
    ) {
        let _ = (env, ctx, run, leaf, place);
    }

    /// Makes sure that [`ReverseMap::demote`] of the large leaf `run` cannot fail. Called
    /// with the leaf's table locked, before the leaf changes.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing changed.
    #[inline]
    fn prepare_demote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        place: Place<'_, Self::Region, Self::Space>,
    ) -> Result<(), OutOfMemory> {
        let _ = (env, ctx, run, place);
        Ok(())
    }

    /// The reverse of [`ReverseMap::promote`], after [`ReverseMap::prepare_demote`]: `run` are
    /// the entries that take the place of `leaf`, each of one frame, which has a record.
    fn demote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut Self::Ctx,
        run: &Run,
        leaf: PteRef,
        place: Place<'_, Self::Region, Self::Space>,
    ) {
        let _ = (env, ctx, run, leaf, place);
    }

    /// `child` is fork's copy of `parent`; its entries are not copied yet. The
    /// parent's space is locked, and no fault is inside its regions.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the child region is then not used.
    fn region_forked<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Self::Region>,
        parent: RegionRef<'_, Self::Region>,
        child: RegionRef<'_, Self::Region>,
    ) -> Result<(), OutOfMemory> {
        let _ = (env, topology, parent, child);
        Ok(())
    }

    /// `tail` will be split off the end of `head`, which still has all pages.
    /// No fault is inside `head`. [`ReverseMap::region_resized`] of `head`
    /// follows when it has lost the pages. The space is locked.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the split does not happen.
    fn region_split<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Self::Region>,
        head: RegionRef<'_, Self::Region>,
        tail: RegionRef<'_, Self::Region>,
    ) -> Result<(), OutOfMemory> {
        let _ = (env, topology, head, tail);
        Ok(())
    }

    /// `region` has other pages: told before it gets more, and after it has
    /// lost some. The space is locked.
    fn region_resized<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Self::Region>,
        region: RegionRef<'_, Self::Region>,
    ) {
        let _ = (env, topology, region);
    }

    /// Whether two neighbouring regions may become one. Asked once more when no
    /// fault is inside either.
    fn regions_mergeable(&self, head: &Self::Region, tail: &Self::Region) -> bool {
        let _ = (head, tail);
        true
    }

    /// Whether two neighbouring regions are mergeable whatever faults do meanwhile. Each two that
    /// meet in a row of such regions are.
    fn stay_mergeable(&self, head: &Self::Region, tail: &Self::Region) -> bool {
        let _ = (head, tail);
        true
    }

    /// `tail`'s pages will be `head`'s; no fault is inside either.
    /// [`ReverseMap::region_resized`] of `head` follows, before it has them, and
    /// then [`ReverseMap::region_ended`] of `tail`. The space is locked.
    fn region_merged<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Self::Region>,
        head: RegionRef<'_, Self::Region>,
        tail: RegionRef<'_, Self::Region>,
    ) {
        let _ = (env, topology, head, tail);
    }

    /// A region ends; it maps nothing any more.
    fn region_ended<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Self::Region>,
        region: RegionRef<'_, Self::Region>,
    ) {
        let _ = (env, topology, region);
    }

    /// A space, by its handle, begins with a new program.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the space does not begin.
    fn space_executed<P: Platform>(
        &self,
        env: &Env<'_, P>,
        space: &Self::Space,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        let _ = (env, space, handle);
        Ok(())
    }

    /// `child`, by its handle, begins as a copy of `parent`; the events of its
    /// regions follow. The parent's space is locked, and no fault is inside. To a design
    /// that keeps nothing of the relation, it begins as any space does.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the fork does not happen.
    fn space_forked<P: Platform>(
        &self,
        env: &Env<'_, P>,
        parent: &Self::Space,
        child: &Self::Space,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        let _ = parent;
        self.space_executed(env, child, handle)
    }

    /// A space ends; it maps nothing any more, and its regions have ended.
    fn space_ended<P: Platform>(&self, env: &Env<'_, P>, space: &Self::Space) {
        let _ = (env, space);
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

    /// Checks what the design keeps in a region, while nothing else runs.
    /// `has_private` says that private pages have been made in it.
    ///
    /// # Errors
    /// What is wrong.
    fn check_region<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Self::Region>,
        region: RegionRef<'_, Self::Region>,
        has_private: bool,
    ) -> Result<(), &'static str> {
        let _ = (env, topology, region, has_private);
        Ok(())
    }

    /// Nodes the design holds for mappings now, for leak checks.
    fn live_nodes(&self) -> u64;

    /// What the design holds for regions and spaces now: nothing once all have
    /// ended. For leak checks.
    fn live_groups(&self) -> u64 {
        0
    }

    /// Checks the design's arenas while nothing else runs; returns the frames
    /// they have.
    ///
    /// # Errors
    /// What is wrong.
    fn audit_nodes(&self) -> Result<u64, AuditError>;
}
