//! What a design may keep beside the entries of a frame, each a trait of its own. Their methods do
//! nothing unless a design says otherwise, and cost nothing then.

use super::{ClearsEntries, Env, Place, RegionRef, RmapStats, Run, Topology};
use crate::addr::Pfn;
use crate::frame::{AuditError, OutOfMemory};
use crate::platform::Platform;
use crate::slab::AtHand;
use crate::table::{PteRef, SpaceLock};

/// What a design keeps for spaces. One that keeps nothing has `()` for its state.
pub trait TracksSpaces: Sized + Send + Sync + 'static {
    /// Whether private pages that several spaces map must be copied before
    /// they move within one (mremap), because the design finds the entries of a
    /// page by one address that all its spaces share.
    const COPIES_TO_MOVE: bool = false;

    /// What spaces embed. It must be as new after [`TracksSpaces::space_ended`].
    type Space: Default + Send + Sync + core::fmt::Debug;

    /// The lock that is taken in place of those of the tables of a space, if the design has one.
    /// It is the same from the first table of the space that others may lock to the last.
    #[inline]
    fn tables_lock<'a>(&'a self, space: &'a Self::Space) -> SpaceLock<'a> {
        let _ = space;
        None
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
}

/// What a design keeps for regions. One that keeps nothing has `()` for its state.
pub trait TracksRegions: Sized + Send + Sync + 'static {
    /// Whether the design keeps ranges of regions, so that no fault may be
    /// inside a region when [`TracksRegions::region_resized`] says that it grows.
    const KEEPS_RANGES: bool = false;

    /// What regions embed. It must be as new after [`TracksRegions::region_ended`].
    type Region: Default + Send + Sync + core::fmt::Debug;

    /// Makes sure that private pages can be added in `region`. Called before
    /// each that a fault adds, with no spin lock held and the region entered, by
    /// several CPUs at once. Fork does not call it for the child: regions of
    /// parents with private pages come to the child through
    /// [`TracksRegions::region_forked`].
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
    /// No fault is inside `head`. [`TracksRegions::region_resized`] of `head`
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
    /// [`TracksRegions::region_resized`] of `head` follows, before it has them, and
    /// then [`TracksRegions::region_ended`] of `tail`. The space is locked.
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
}

/// What a design keeps for single entries, and the memory that it needs for that.
pub trait TracksEntries: TracksRegions + TracksSpaces {
    /// Whether [`TracksEntries::prepare_move`] is called before private pages that
    /// several spaces map move within one (mremap).
    const PREPARES_TO_MOVE: bool = false;

    /// Whether [`TracksEntries::make_room`] does anything.
    const MAKES_ROOM: bool = false;

    /// Lives for one operation.
    type Ctx: Default;

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
    /// [`TracksEntries::PREPARES_TO_MOVE`].
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing changed.
    fn prepare_move<P: Platform>(&self, env: &Env<'_, P>, count: usize) -> Result<(), OutOfMemory> {
        let _ = (env, count);
        Ok(())
    }

    /// A call failed for want of memory. Frees a node's frame by having entries cleared, if
    /// it was a node that was lacking; returns whether the call may do better now. The
    /// caller is pinned and holds no lock.
    fn make_room<P: Platform>(&self, env: &Env<'_, P>, spaces: &dyn ClearsEntries) -> bool {
        let _ = (env, spaces);
        false
    }

    /// Has arenas give back frames that hold no node any more; returns how many went. The caller
    /// is pinned only for this.
    fn give_back<P: Platform>(&self, env: &Env<'_, P>, at_hand: AtHand) -> u64 {
        let _ = (env, at_hand);
        0
    }

    /// Ends an operation: gives back what was prepared and not used.
    #[inline]
    fn finish<P: Platform>(&self, env: &Env<'_, P>, ctx: Self::Ctx) {
        let _ = (env, ctx);
    }

    /// The frame's entries will be added to or removed soon: what is needed
    /// for that may be brought near.
    #[inline]
    fn prefetch<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        let _ = (env, frame);
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
}

/// What a design keeps for the leaves of [large leaves](super#large-leaves): how they become
/// single pages, and the reverse.
pub trait TracksLeaves: TracksEntries {
    /// Whether [`TracksLeaves::divide`] is told the entries that take the leaf's place, and leaves
    /// nothing to do for [`TracksLeaves::demote`]. Then it needs no memory.
    const DIVIDES_INTO_PARTS: bool = false;

    /// Whether a large leaf is listed once even if its frames have a record each, so that
    /// [`remove`](super::ReverseMap::remove) and [`turn`](super::ReverseMap::turn) are told of it
    /// as of one run. Otherwise they are told of each frame.
    const LISTS_LEAVES: bool = false;

    /// Makes sure that [`TracksLeaves::divide`] of `run` cannot fail. Called under the same
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
    /// ([Large leaves](super#large-leaves)). Kind, counts, owner and index of the new records
    /// are set already, as if each frame had always been mapped alone by the entries that
    /// map the run; what the design keeps for the first frame, it keeps for every frame
    /// from now on. A table with an entry that maps the run and the run are locked. With
    /// [`TracksLeaves::DIVIDES_INTO_PARTS`], `parts` are the entries that take the place of the leaf,
    /// and their table is locked, too.
    fn divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run, parts: Option<&Run>) {
        let _ = (env, run, parts);
    }

    /// The reverse of [`TracksLeaves::divide`]: the frames of the large leaf `run`, which only
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

    /// Makes sure that [`TracksLeaves::demote`] of the large leaf `run` cannot fail. Called
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

    /// The reverse of [`TracksLeaves::promote`], after [`TracksLeaves::prepare_demote`]: `run` are
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
}

/// What a design whose visits may end before the CPUs are flushed does about that.
pub trait DelaysFlushes: Sized + Send + Sync + 'static {
    /// From here to [`DelaysFlushes::delay_ends`], on one CPU, entries are cleared whose CPUs
    /// are flushed before the latter.
    #[inline]
    fn delay_begins<P: Platform>(&self, env: &Env<'_, P>) {
        let _ = env;
    }

    /// The CPUs of all entries cleared since [`DelaysFlushes::delay_begins`] are flushed.
    #[inline]
    fn delay_ends<P: Platform>(&self, env: &Env<'_, P>) {
        let _ = env;
    }

    /// A visit of `frame` has ended, and what it cleared is flushed. Waits until what
    /// others have cleared is flushed, too, if the design knows. The caller is between no
    /// [`DelaysFlushes::delay_begins`] and its end, and holds no spin lock.
    #[inline]
    fn wait_for_flushes<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        let _ = (env, frame);
    }
}

/// What a design says of itself.
pub trait Audited: Sized + Send + Sync + 'static {
    /// Bytes that the design keeps, about, for a space with so many regions and mapped pages.
    #[inline]
    fn kept_bytes(regions: u64, pages: u64) -> u64 {
        let _ = (regions, pages);
        0
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
