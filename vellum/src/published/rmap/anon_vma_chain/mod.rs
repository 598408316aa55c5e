//! anon_vma_chain: each forked region has its own anon_vma
//! (`rmap=anon_vma_chain`).
//!
//! The design of van Riel (Linux 2.6.34). With one anon_vma for a whole family,
//! a page that one child of a thousand made is looked for in all of them
//! ([`super::anon_vma`]). Here fork gives the child's region an anon_vma of its
//! own for the pages it will make, and **links** it to all those that the
//! parent's region is linked to, for the pages it inherits. Each anon_vma keeps
//! its links in an interval tree by linear index. So a page that a child made
//! is looked for in the child and its descendants only, and one of the
//! parent's in all children, of which each may map it.
//!
//! The price is paid by fork and by cuts of regions: a node for each region and
//! ancestor, which may not be had. A process that forks a child and ends, again
//! and again, would make the chain longer each time; so fork makes an anon_vma
//! the child's own that nobody makes pages for any more and that has at most
//! one child (Linux 4.0, 2015). A line of processes then needs two.
//!
//! A write that finds a page its region inherited mapped by nobody else makes
//! the page name the region's own anon_vma.
//!
//! A region gets its first anon_vma before its first private page, by the fault
//! that makes it: that of a neighbour it could be merged with, unless that came
//! by fork, or a new one. Two regions with different own ones cannot be merged;
//! two with the same have the same links.
//!
//! Lifetime and locks are those of [`super::anon_vma`]: an anon_vma ends with
//! its last link; its parent has all its links too and ends later. What a
//! region has is changed under the lock of its own anon_vma.

mod audit;
mod node;

pub use node::{AnonVmaLink, AnonVmaNode, Memberships};

use node::LockedAnonVma;

use super::anon_pages::{AnonPages, AnonSearch};
use crate::addr::Pfn;
use crate::design::Design;
use crate::frame::OutOfMemory;
use crate::platform::Platform;
use crate::rmap::file_pages::{FilePages, is_of_object};
use crate::rmap::{
    DelaysFlushes, Env, Place, RegionRef, ReverseMap, Run, Slot, Topology, TracksEntries,
    TracksLeaves, TracksRegions, TracksSpaces, Verdict, VisitReport,
};
use crate::slab::{Arena, ArenaMaker, Batch, Handle};
use crate::sync::atomic::Ordering;
use crate::table::Format;

type Region<'r> = RegionRef<'r, Memberships>;

const MINUS_ONE: u32 = u32::MAX;

fn range(region: &Region<'_>) -> (u64, u64) {
    (region.first, region.end())
}

/// The `anon_vma_chain` design.
pub struct AnonVmaChain {
    anon_vmas: Arena<AnonVmaNode>,
    links: Arena<AnonVmaLink>,
    pages: AnonPages,
    files: FilePages,
}

impl AnonVmaChain {
    fn anon_vma(&self, handle: u32) -> &AnonVmaNode {
        self.anon_vmas.get(Handle::from_raw(handle))
    }

    fn lock<'a, P: Platform>(&'a self, env: &Env<'a, P>, handle: u32) -> LockedAnonVma<'a> {
        self.pages.here(env).locks.bump();
        self.anon_vma(handle).lock(&self.links, env.pin)
    }

    /// The links of a region, of which nobody else changes any.
    fn links_of(
        &self,
        state: &Memberships,
    ) -> impl Iterator<Item = (Handle<AnonVmaLink>, &AnonVmaLink)> {
        let mut handle = state.first_link();
        core::iter::from_fn(move || {
            let this = handle;
            (!this.is_none()).then(|| {
                let link = self.links.get(this);
                handle = link.next();
                (this, link)
            })
        })
    }

    /// Links `region` to a locked anon_vma with handle `anon_vma`.
    fn link(
        &self,
        locked: &LockedAnonVma<'_>,
        anon_vma: u32,
        region: &Region<'_>,
        node: Handle<AnonVmaLink>,
        next: u32,
    ) {
        let link = self.links.get(node);
        link.set(anon_vma, region.handle, range(region), next);
        locked.tree.insert(node);
    }

    /// An anon_vma without links.
    fn new_anon_vma<P: Platform>(
        &self,
        env: &Env<'_, P>,
        parent: u32,
    ) -> Result<Handle<AnonVmaNode>, OutOfMemory> {
        let new = self.anon_vmas.alloc(env.pin, env.memory)?;
        self.anon_vmas.get(new).begin(parent);
        Ok(new)
    }

    /// Gives a region its first anon_vma: a neighbour's, or a new one. Another
    /// CPU may be faster.
    #[cold]
    #[inline(never)]
    fn attach<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Memberships>,
        region: Region<'_>,
    ) -> Result<(), OutOfMemory> {
        let node = self.links.alloc(env.pin, env.memory)?;
        let siblings = topology.siblings(env.pin, region.space, region.pages.start);
        for sibling in siblings.into_iter().flatten() {
            let shared = sibling.state.own();
            if shared == 0 {
                continue;
            }
            let locked = self.lock(env, shared);
            // It may have another by now, or none.
            let is_only = sibling.state.own() == shared
                && self.links.get(sibling.state.first_link()).next().is_none();
            if is_only {
                self.found_or_join(env, &locked, shared, &region, node);
                return Ok(());
            }
        }
        let new = self
            .new_anon_vma(env, 0)
            .inspect_err(|_| self.links.free(env.pin, node))?;
        let locked = self.lock(env, new.raw());
        let joined = self.found_or_join(env, &locked, new.raw(), &region, node);
        drop(locked);
        if joined {
            self.pages.here(env).node_allocs.bump();
        } else {
            self.anon_vmas.free(env.pin, new);
        }
        Ok(())
    }

    /// Makes a locked anon_vma the region's own if it has none; gives `node`
    /// back if it has.
    fn found_or_join<P: Platform>(
        &self,
        env: &Env<'_, P>,
        locked: &LockedAnonVma<'_>,
        anon_vma: u32,
        region: &Region<'_>,
        node: Handle<AnonVmaLink>,
    ) -> bool {
        let won = region
            .state
            .own
            .compare_exchange(0, anon_vma, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if won {
            self.link(locked, anon_vma, region, node, 0);
            region.state.links.store(node.raw(), Ordering::Relaxed);
            locked.count_owner(1);
            self.pages.here(env).node_allocs.bump();
        } else {
            self.links.free(env.pin, node);
        }
        won
    }

    /// Links `copy`, a new region, to all that `region` is linked to, with
    /// nodes of `batch`; returns the handle of the first of its links.
    fn clone_links<P: Platform>(
        &self,
        env: &Env<'_, P>,
        region: &Region<'_>,
        copy: &Region<'_>,
        batch: &mut Batch<AnonVmaLink>,
    ) -> u32 {
        let (mut first, mut last) = (0, None::<&AnonVmaLink>);
        for (_, link) in self.links_of(region.state) {
            let node = batch.pop(&self.links);
            let anon_vma = link.anon_vma();
            self.link(&self.lock(env, anon_vma), anon_vma, copy, node, 0);
            match last {
                None => first = node.raw(),
                Some(before) => before.set_next(node.raw()),
            }
            last = Some(self.links.get(node));
            self.pages.here(env).node_allocs.bump();
        }
        first
    }

    /// An anon_vma of the region that fork may make the child's own, with the
    /// child counted as an owner.
    fn claim_unowned<P: Platform>(&self, env: &Env<'_, P>, region: &Region<'_>) -> Option<u32> {
        let reusable = |handle: u32| {
            self.anon_vma(handle).is_reusable() && {
                let locked = self.lock(env, handle);
                let claimed = locked.anon_vma.is_reusable();
                if claimed {
                    locked.count_owner(1);
                }
                claimed
            }
        };
        self.links_of(region.state)
            .map(|(_, link)| link.anon_vma())
            .find(|&handle| reusable(handle))
    }

    /// Takes a link out of its anon_vma, which ends if it was the last.
    fn unlink<P: Platform>(&self, env: &Env<'_, P>, node: Handle<AnonVmaLink>, owned: bool) {
        let link = self.links.get(node);
        let handle = link.anon_vma();
        let locked = self.lock(env, handle);
        locked.tree.remove(node);
        if owned {
            locked.count_owner(MINUS_ONE);
        }
        let ended = locked.anon_vma.is_unused();
        drop(locked);
        link.clear();
        self.links.free(env.pin, node);
        self.pages.here(env).node_frees.bump();
        if ended {
            let parent = self.anon_vma(handle).parent();
            if parent != 0 {
                self.anon_vma(parent).count_child(MINUS_ONE);
            }
            self.pages.here(env).node_frees.bump();
            self.anon_vmas.retire(env.pin, Handle::from_raw(handle));
        }
    }

    fn search<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Memberships>,
        handle: u32,
        search: &mut AnonSearch<'_, '_, P, F>,
    ) {
        let Some(anon_vma) = self.anon_vmas.try_get(Handle::from_raw(handle)) else {
            return;
        };
        self.pages.here(env).locks.bump();
        let locked = anon_vma.lock(&self.links, env.pin);
        let index = search.index;
        let _ = locked.tree.overlapping(index, index + 1, |_, link| {
            search.look_in(topology, &topology.region(link.region()))
        });
    }
}

// SAFETY: a region that can show a private page is linked to its anon_vma from before it does
// until it maps nothing, and the linear index says where; a visit searches all links that cover
// that. Pages of objects: `file_pages`.
unsafe impl ReverseMap for AnonVmaChain {
    const NAME: &'static str = "anon_vma_chain";
    const MISSES_BESIDE_FORKS: bool = true;

    fn new(_options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        AnonVmaChain {
            anon_vmas: arenas.make(),
            links: arenas.make(),
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
        place: Place<'_, Memberships, ()>,
        _fresh: bool,
    ) {
        if is_of_object(env, run.frame) {
            self.files.add(env, run);
        } else {
            let index = place.linear(run.page);
            self.pages.add(env, run, place.region.own(), index);
        }
    }

    #[inline]
    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, Memberships, ()>,
    ) {
        self.pages.here(env).duplicates.add(u64::from(run.count));
    }

    #[inline]
    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, Memberships, ()>,
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
        _place: Place<'_, Memberships, ()>,
    ) {
        // The linear index is the same there.
        self.pages.here(env).moves.add(u64::from(from.count));
    }

    /// The page's index stays; lookups that began with the old anon_vma find
    /// the region in that, too.
    #[inline]
    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        place: Place<'_, Memberships, ()>,
    ) {
        let own = place.region.own();
        for step in 0..run.count {
            let frame = env.memory.frame(run.frame.offset(step << run.order));
            if own != 0 && frame.owner() != own {
                frame.set_owner(own);
            }
        }
        self.pages.here(env).turns.add(u64::from(run.count));
    }

    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Memberships>,
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
        topology: &dyn Topology<Memberships>,
        frames: &[Pfn],
        visitor: &mut dyn FnMut(Pfn, &Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        self.files.visit(env, topology, frames, visitor)
    }
}

impl TracksSpaces for AnonVmaChain {
    type Space = ();
}

impl TracksRegions for AnonVmaChain {
    const KEEPS_RANGES: bool = true;
    type Region = Memberships;

    #[inline]
    fn prepare_private<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Memberships>,
        region: Region<'_>,
    ) -> Result<(), OutOfMemory> {
        if region.state.own() != 0 {
            return Ok(());
        }
        self.attach(env, topology, region)
    }

    fn region_forked<P: Platform>(
        &self,
        env: &Env<'_, P>,
        _topology: &dyn Topology<Memberships>,
        parent: Region<'_>,
        child: Region<'_>,
    ) -> Result<(), OutOfMemory> {
        let inherited = parent.state.own();
        if inherited == 0 {
            return Ok(());
        }
        let count = self.links_of(parent.state).count();
        let mut batch = Batch::new();
        let reused = self.claim_unowned(env, &parent);
        let needed = count + usize::from(reused.is_none());
        let made = self
            .links
            .alloc_batch(env.pin, env.memory, needed, &mut batch)
            .and_then(|()| match reused {
                Some(own) => Ok(own),
                None => self.new_anon_vma(env, inherited).map(Handle::raw),
            });
        let own = match made {
            Ok(own) => own,
            Err(error) => {
                self.links.free_batch(env.pin, batch);
                if let Some(claimed) = reused {
                    self.lock(env, claimed).count_owner(MINUS_ONE);
                }
                return Err(error);
            }
        };
        let mut links = self.clone_links(env, &parent, &child, &mut batch);
        if reused.is_none() {
            let node = batch.pop(&self.links);
            let locked = self.lock(env, own);
            self.link(&locked, own, &child, node, links);
            locked.count_owner(1);
            drop(locked);
            links = node.raw();
            self.anon_vma(inherited).count_child(1);
            self.pages.here(env).node_allocs.add(2);
        }
        child.state.set(own, links);
        Ok(())
    }

    fn region_split<P: Platform>(
        &self,
        env: &Env<'_, P>,
        _topology: &dyn Topology<Memberships>,
        head: Region<'_>,
        tail: Region<'_>,
    ) -> Result<(), OutOfMemory> {
        let own = head.state.own();
        if own == 0 {
            return Ok(());
        }
        let count = self.links_of(head.state).count();
        let mut batch = Batch::new();
        self.links
            .alloc_batch(env.pin, env.memory, count, &mut batch)?;
        let links = self.clone_links(env, &head, &tail, &mut batch);
        let locked = self.lock(env, own);
        locked.count_owner(1);
        tail.state.set(own, links);
        Ok(())
    }

    fn region_resized<P: Platform>(
        &self,
        env: &Env<'_, P>,
        _topology: &dyn Topology<Memberships>,
        region: Region<'_>,
    ) {
        let (first, end) = range(&region);
        for (node, link) in self.links_of(region.state) {
            let locked = self.lock(env, link.anon_vma());
            locked.tree.remove(node);
            link.set_range(first, end);
            locked.tree.insert(node);
        }
    }

    fn regions_mergeable(&self, head: &Memberships, tail: &Memberships) -> bool {
        let (head, tail) = (head.own(), tail.own());
        head == tail || head == 0 || tail == 0
    }

    /// A region without an anon_vma may get one at any time, and another than its neighbour's.
    fn stay_mergeable(&self, head: &Memberships, tail: &Memberships) -> bool {
        head.own() == tail.own() && head.own() != 0
    }

    /// If only the tail has links they become the head's. Until the tail ends
    /// they lead to it, where the pages still are.
    fn region_merged<P: Platform>(
        &self,
        env: &Env<'_, P>,
        _topology: &dyn Topology<Memberships>,
        head: Region<'_>,
        tail: Region<'_>,
    ) {
        let own = tail.state.own();
        if own == 0 || head.state.own() != 0 {
            return;
        }
        let _locked = self.lock(env, own);
        head.state.set(own, tail.state.first_link().raw());
        tail.state.set(0, 0);
        tail.state.heir.store(head.handle, Ordering::Relaxed);
    }

    fn region_ended<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<Memberships>,
        region: Region<'_>,
    ) {
        let heir = region.state.heir.load(Ordering::Relaxed);
        if heir != 0 {
            region.state.heir.store(0, Ordering::Relaxed);
            for (_, link) in self.links_of(topology.region(heir).state) {
                let _locked = self.lock(env, link.anon_vma());
                link.set_region(heir);
            }
            return;
        }
        let own = region.state.own();
        if own == 0 {
            return;
        }
        let mut node = region.state.first_link();
        {
            let _locked = self.lock(env, own);
            region.state.set(0, 0);
        }
        while !node.is_none() {
            let link = self.links.get(node);
            let (next, owned) = (link.next(), link.anon_vma() == own);
            self.unlink(env, node, owned);
            node = next;
        }
    }

    fn check_region<P: Platform>(
        &self,
        _env: &Env<'_, P>,
        _topology: &dyn Topology<Memberships>,
        region: Region<'_>,
        has_private: bool,
    ) -> Result<(), &'static str> {
        self.audit_links(&region, has_private)
    }
}

impl TracksEntries for AnonVmaChain {
    type Ctx = ();
}

impl TracksLeaves for AnonVmaChain {}

impl DelaysFlushes for AnonVmaChain {}
