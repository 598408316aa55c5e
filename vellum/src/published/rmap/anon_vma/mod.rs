//! anon_vma: private pages name a list of related regions (`rmap=anon_vma`).
//!
//! The design of Arcangeli (Linux 2.6.7). Regions are **related** if one came
//! from the other by fork, by a cut, or by standing beside it: they share an
//! anon_vma, a list threaded through the regions themselves. A private page's
//! record names the anon_vma of the region it was made in and the page's linear
//! index, which survives mremap; whoever looks for its entries goes through the
//! list, computes the page in each region, and reads the tables, until as many
//! entries are found as the mapping count says.
//!
//! So mappings cost no memory, and fork none but the region's own; making,
//! forking and removing an entry touches the frame's counts only. The price is
//! paid by lookups: a page that one child of a thousand made is looked for in
//! all of them.
//!
//! A region gets its anon_vma before its first private page, by the fault that
//! makes it. It takes that of a neighbour it could be merged with, so that
//! mprotect can cut a region and merge it again; two regions with different
//! ones cannot be merged. An anon_vma ends with the last region in its list.
//! Then no page names it that is mapped; but a lookup may still be on its way
//! with what such a page said, so its memory stays an anon_vma for good, is not
//! used for another before the epoch has passed, and what is found through it
//! is verified by the entry.
//!
//! Locks: the anon_vma's is taken by lookups, which only try table locks under
//! it, and by changes of regions, which hold none. Regions that are cut,
//! merged or moved meanwhile may be missed.

mod list;

pub use list::{Relation, Relatives};

use list::{LockedAnonVma, Relations};

use super::anon_pages::{AnonPages, AnonSearch};
use crate::addr::Pfn;
use crate::design::Design;
use crate::frame::{AuditError, AuditPlace, OutOfMemory, Site};
use crate::platform::Platform;
use crate::rmap::file_pages::{FilePages, is_of_object};
use crate::rmap::{
    Audited, DelaysFlushes, Env, Place, RegionRef, ReverseMap, RmapStats, Run, Slot, Topology,
    TracksEntries, TracksLeaves, TracksRegions, TracksSpaces, Verdict, VisitReport,
};
use crate::slab::{Arena, ArenaMaker, Handle, Item};
use crate::sync::atomic::AtomicU32;
use crate::table::Format;

impl Item for Relatives {
    const SITE: Site = Site::AnonVma;
    const SHARE: usize = 8;

    fn vacant() -> Self {
        Relatives::new()
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// Relations of regions in their arena.
struct Reached<'a>(&'a dyn Topology<Relation>);

impl Relations for Reached<'_> {
    #[inline]
    fn relation(&self, region: u32) -> &Relation {
        self.0.region(region).state
    }
}

/// The `anon_vma` design.
pub struct AnonVma {
    anon_vmas: Arena<Relatives>,
    pages: AnonPages,
    files: FilePages,
}

impl AnonVma {
    fn lock<'a, P: Platform>(&'a self, env: &Env<'a, P>, handle: u32) -> LockedAnonVma<'a> {
        self.pages.here(env).locks.bump();
        self.anon_vmas.get(Handle::from_raw(handle)).lock(env.pin)
    }

    /// Gives a region an anon_vma: a neighbour's, or a new one. Another CPU may
    /// be faster.
    #[cold]
    #[inline(never)]
    fn attach<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        region: RegionRef<'_, Relation>,
    ) -> Result<(), OutOfMemory> {
        let siblings = topology.siblings(env.pin, region.space, region.pages.start);
        for sibling in siblings.into_iter().flatten() {
            let shared = sibling.state.anon_vma();
            if shared != 0 && self.share(env, topology, shared, sibling, region) {
                return Ok(());
            }
        }
        let new = self.anon_vmas.alloc(env.pin, env.memory)?;
        let joined =
            self.lock(env, new.raw())
                .join(&Reached(topology), new.raw(), region.handle, 0);
        if joined {
            self.pages.here(env).node_allocs.bump();
        } else {
            self.anon_vmas.free(env.pin, new);
        }
        Ok(())
    }

    /// Lets a region join its neighbour's anon_vma. False if that is the
    /// neighbour's no more.
    fn share<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        shared: u32,
        sibling: RegionRef<'_, Relation>,
        region: RegionRef<'_, Relation>,
    ) -> bool {
        let list = self.lock(env, shared);
        if sibling.state.anon_vma() != shared {
            return false;
        }
        // It has one in either case: this, or that of a faster CPU.
        list.join(&Reached(topology), shared, region.handle, sibling.handle);
        true
    }

    /// Lets `region`, which has none, join the anon_vma of `relative`, if it has one.
    fn relate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        relative: RegionRef<'_, Relation>,
        region: RegionRef<'_, Relation>,
        behind: u32,
    ) {
        let shared = relative.state.anon_vma();
        if shared != 0 {
            let list = self.lock(env, shared);
            let joined = list.join(&Reached(topology), shared, region.handle, behind);
            debug_assert!(joined, "a new region has an anon_vma");
        }
    }

    fn search<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        anon_vma: u32,
        search: &mut AnonSearch<'_, '_, P, F>,
    ) {
        let Some(anon_vma) = self.anon_vmas.try_get(Handle::from_raw(anon_vma)) else {
            return;
        };
        self.pages.here(env).locks.bump();
        let list = anon_vma.lock(env.pin);
        let mut region = list.first();
        while region != 0 {
            if search
                .look_in(topology, &topology.region(region))
                .is_break()
            {
                return;
            }
            region = list.next(&Reached(topology), region);
        }
    }
}

// SAFETY: a region that can show a private page is in the list of its anon_vma from before it
// does until it maps nothing, and the linear index says where; a visit searches the list. Pages of
// objects: `file_pages`.
unsafe impl ReverseMap for AnonVma {
    const NAME: &'static str = "anon_vma";
    const MISSES_BESIDE_FORKS: bool = true;

    fn new(_options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        AnonVma {
            anon_vmas: arenas.make(),
            pages: AnonPages::new(cpus),
            files: FilePages::new(cpus),
        }
    }

    #[inline]
    fn add<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        place: Place<'_, Relation, ()>,
        _fresh: bool,
    ) {
        if is_of_object(env, run.frame) {
            self.files.add(env, run);
        } else {
            let index = place.linear(run.page);
            self.pages.add(env, run, place.region.anon_vma(), index);
        }
    }

    #[inline]
    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, Relation, ()>,
    ) {
        self.pages.here(env).duplicates.add(u64::from(run.count));
    }

    #[inline]
    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, Relation, ()>,
    ) {
        self.pages.here(env).removes.add(u64::from(run.count));
    }

    #[inline]
    fn shift<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        from: &Run,
        _to: &Run,
        _place: Place<'_, Relation, ()>,
    ) {
        // The linear index is the same there.
        self.pages.here(env).moves.add(u64::from(from.count));
    }

    #[inline]
    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, Relation, ()>,
    ) {
        self.pages.here(env).turns.add(u64::from(run.count));
    }

    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        frame: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        if is_of_object(env, frame) {
            return self.visit_run(env, topology, &[frame], &mut |_, slot| visitor(slot));
        }
        self.pages.visit(env, frame, visitor, |anon_vma, search| {
            self.search(env, topology, anon_vma, search);
        })
    }

    fn visit_run<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        frames: &[Pfn],
        visitor: &mut dyn FnMut(Pfn, &Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        self.files.visit(env, topology, frames, visitor)
    }
}

impl TracksSpaces for AnonVma {
    type Space = ();
}

impl TracksRegions for AnonVma {
    type Region = Relation;

    #[inline]
    fn prepare_private<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        region: RegionRef<'_, Relation>,
    ) -> Result<(), OutOfMemory> {
        if region.state.anon_vma() != 0 {
            return Ok(());
        }
        self.attach(env, topology, region)
    }

    fn region_forked<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        parent: RegionRef<'_, Relation>,
        child: RegionRef<'_, Relation>,
    ) -> Result<(), OutOfMemory> {
        self.relate(env, topology, parent, child, 0);
        Ok(())
    }

    fn region_split<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        head: RegionRef<'_, Relation>,
        tail: RegionRef<'_, Relation>,
    ) -> Result<(), OutOfMemory> {
        // Behind the head: a lookup that comes while it is cut finds a page in
        // either or both.
        self.relate(env, topology, head, tail, head.handle);
        Ok(())
    }

    fn regions_mergeable(&self, head: &Relation, tail: &Relation) -> bool {
        let (head, tail) = (head.anon_vma(), tail.anon_vma());
        head == tail || head == 0 || tail == 0
    }

    /// A region without an anon_vma may get one at any time, and another than its neighbour's.
    fn stay_mergeable(&self, head: &Relation, tail: &Relation) -> bool {
        head.anon_vma() == tail.anon_vma() && head.anon_vma() != 0
    }

    fn region_merged<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        head: RegionRef<'_, Relation>,
        tail: RegionRef<'_, Relation>,
    ) {
        if head.state.anon_vma() == 0 {
            self.relate(env, topology, tail, head, tail.handle);
        }
    }

    fn region_ended<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        region: RegionRef<'_, Relation>,
    ) {
        let anon_vma = region.state.anon_vma();
        if anon_vma != 0 {
            let last = self
                .lock(env, anon_vma)
                .leave(&Reached(topology), region.handle);
            if last {
                self.pages.here(env).node_frees.bump();
                self.anon_vmas.retire(env.pin, Handle::from_raw(anon_vma));
            }
        }
    }

    fn check_region<P: Platform>(
        &self,
        _env: &Env<'_, P>,
        topology: &dyn Topology<Relation>,
        region: RegionRef<'_, Relation>,
        has_private: bool,
    ) -> Result<(), &'static str> {
        let handle = region.state.anon_vma();
        if handle == 0 {
            return if has_private {
                Err("a region with private pages has no anon_vma")
            } else {
                Ok(())
            };
        }
        let anon_vma = self.anon_vmas.try_get(Handle::from_raw(handle));
        if anon_vma.is_none_or(Relatives::is_unused) {
            return Err("a region has an anon_vma that has ended");
        }
        let (next, previous) = region.state.neighbours();
        let (after, before) = (topology.region(next), topology.region(previous));
        let linked = after.state.neighbours().1 == region.handle
            && before.state.neighbours().0 == region.handle;
        if !linked || after.state.anon_vma() != handle || before.state.anon_vma() != handle {
            return Err("the list of an anon_vma is broken at a region");
        }
        if after.pages.is_empty() || before.pages.is_empty() {
            return Err("the list of an anon_vma holds a region that has ended");
        }
        Ok(())
    }
}

impl TracksEntries for AnonVma {
    type Ctx = ();
}

impl TracksLeaves for AnonVma {}

impl DelaysFlushes for AnonVma {}

impl Audited for AnonVma {
    fn stats(&self) -> RmapStats {
        let mut stats = self.pages.stats();
        stats.bytes = self.live_groups() * size_of::<Relatives>() as u64;
        stats.peak_bytes = self.anon_vmas.stats().peak * size_of::<Relatives>() as u64;
        self.files.add_to(&mut stats);
        stats
    }

    fn check_frame<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        maps: u32,
    ) -> Result<(), &'static str> {
        if maps == 0 || is_of_object(env, frame) {
            return Ok(());
        }
        let owner = Handle::from_raw(env.memory.frame(frame).owner());
        match self.anon_vmas.try_get(owner) {
            Some(anon_vma) if !anon_vma.is_unused() => Ok(()),
            _ => Err("a private page names an anon_vma that no region has"),
        }
    }

    fn live_nodes(&self) -> u64 {
        0
    }

    fn live_groups(&self) -> u64 {
        self.anon_vmas.stats().live
    }

    fn audit_nodes(&self) -> Result<u64, AuditError> {
        let census = self.anon_vmas.audit()?;
        let mut used = 0;
        let mut wrong = None;
        self.anon_vmas.each(|handle, anon_vma| {
            used += u64::from(!anon_vma.is_unused());
            if anon_vma.is_locked() {
                wrong = Some((handle, "an anon_vma is locked"));
            } else if anon_vma.is_unused() != (anon_vma.regions() == 0) {
                wrong = Some((handle, "an anon_vma counts regions it does not list"));
            }
        });
        if let Some((handle, what)) = wrong {
            return Err(AuditError {
                place: AuditPlace::Slot(handle.raw()),
                what,
            });
        }
        if used != census.live {
            return Err(AuditError {
                place: AuditPlace::Arena,
                what: "not every anon_vma in use has regions",
            });
        }
        Ok(census.chunks + census.directory)
    }
}
