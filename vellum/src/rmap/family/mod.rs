//! Spaces by descent: a private page names the space that made it
//! (`rmap=family`).
//!
//! Each space that maps a private page is the one that made it or descends
//! from it by fork, and shows it at the same address. So a page keeps a name, its
//! **owner**, which is the node of a space in the tree of its relatives
//! ([`kin`]), and its page number; nothing is kept for an entry, a region or a
//! copied page, and fork makes one node. A lookup searches the owner's space
//! and then its descendants, the latest first, until it has found as many
//! entries as the mapping count says. A child's pages name the child, so their
//! lookup does not see its siblings.
//!
//! Three things make the search short; each can be left out, to be measured:
//!
//! * **Turning**, as in anonmm (Dickins 2003): a store that finds its page
//!   mapped by nobody else makes the storing space the owner.
//! * **Stamps** (`kinstamp=on`): a page remembers how many forks its owner had
//!   made before it; children born earlier cannot have it, and stand last.
//! * **Hints** (`hint=on`, [`hint`]): a page remembers one entry. Most pages
//!   are mapped once; for them it is all there is to find, in files too.
//!
//! Pages of objects are found through the regions that map the object
//! (`file_pages`), where a hint does not do.
//!
//! # Why a lookup finds every entry
//! The owner of a page is an ancestor of every space that maps it, or that
//! space: a page is made by its owner; fork maps it in a child of a space that
//! maps it; turning and moving re-point it where nobody else maps it; and the
//! tree keeps relations when spaces end (statement K of [`kin`]). All map it
//! at its index: fork keeps addresses, and mremap moves a private page only
//! when nobody else maps it ([`TracksSpaces::COPIES_TO_MOVE`]). A page that is
//! re-pointed during a search is mapped once and named anew: the search sees
//! the name change and starts over. `check_frame` checks the first statement
//! for hints; a visit that finds as many entries as are counted proves both.
//!
//! # Locks
//! Table lock on the one side, the family's lock on the other: nobody who holds
//! a table lock takes a family's. A search holds the family's lock and tries
//! table locks; one that is not free it tries again, which cannot block
//! anybody, and counts.

mod check;
mod hint;
mod kin;
#[cfg(test)]
mod tests;
mod visit;

use self::hint::{Hints, LAST_STAMP, STAMP_SHIFT, entry_of};
use self::kin::{Families, Kin, Nodes};
use self::visit::FamilyVisit;
use super::counts::{self, RmapCounts};
use super::file_pages::{FilePages, is_of_object};
use super::{
    Audited, DelaysFlushes, Env, Place, ReverseMap, RmapStats, Run, Slot, Topology, TracksEntries,
    TracksLeaves, TracksRegions, TracksSpaces, Verdict, VisitReport,
};
use crate::addr::Pfn;
use crate::design::Design;
use crate::frame::{AuditError, Frame, Kind, OutOfMemory, Site};
use crate::platform::Platform;
use crate::slab::{Arena, ArenaMaker, Handle, Item};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Counter, PerCpu, Pin};
use crate::table::{Format, PteRef};

impl Item for Kin {
    const SITE: Site = Site::KinNode;
    const SHARE: usize = 16;

    fn vacant() -> Self {
        Kin::vacant()
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl Nodes for Arena<Kin> {
    #[inline]
    fn node(&self, handle: u32) -> &Kin {
        self.get(Handle::from_raw(handle))
    }
}

/// What a space embeds: its node's handle, and above it the stamp for pages it
/// makes, where the frame's word has it. Written while no fault is inside.
#[derive(Debug, Default)]
pub struct SpaceKin(AtomicU64);

impl SpaceKin {
    #[inline]
    fn word(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, node: u32, stamp: u32) {
        let word = u64::from(node) | u64::from(stamp) << STAMP_SHIFT;
        self.0.store(word, Ordering::Relaxed);
    }

    fn node(&self) -> u32 {
        self.word() as u32
    }

    fn stamp(&self) -> u32 {
        (self.word() >> STAMP_SHIFT) as u32
    }
}

#[derive(Default)]
struct FamilyCpu {
    /// The node this CPU counts pages for, or 0, and what it has counted.
    counting: AtomicU32,
    counted: AtomicU64,
    counts: RmapCounts,
    spaces_searched: Counter,
}

counts::count_in!(FamilyCpu);

/// The `family` design.
pub struct Family {
    nodes: Arena<Kin>,
    families: Families,
    files: FilePages,
    cpus: PerCpu<FamilyCpu>,
    hints: Hints,
    last_stamp: u32,
}

impl Family {
    /// Counts pages that name `node` from now on, or no more: `change` is
    /// modulo 2^64.
    #[inline]
    fn count_pages(&self, pin: &Pin<'_>, node: u32, change: u64) {
        let cpu = self.cpus.get(pin);
        if cpu.counting.load(Ordering::Relaxed) != node {
            self.count_for(pin, node);
        }
        let counted = cpu.counted.load(Ordering::Relaxed).wrapping_add(change);
        cpu.counted.store(counted, Ordering::Relaxed);
    }

    /// This CPU settles what it has counted and goes on with `node`, or with none.
    #[cold]
    fn count_for(&self, pin: &Pin<'_>, node: u32) {
        let cpu = self.cpus.get(pin);
        let old = cpu.counting.load(Ordering::Relaxed);
        if node != 0 {
            self.nodes.node(node).pages.hold();
        }
        cpu.counting.store(node, Ordering::Relaxed);
        let counted = cpu.counted.load(Ordering::Relaxed);
        cpu.counted.store(0, Ordering::Relaxed);
        if old != 0 && self.nodes.node(old).pages.settle(counted) {
            self.nodes.free(pin, Handle::from_raw(old));
        }
    }

    fn new_node<P: Platform>(&self, env: &Env<'_, P>) -> Result<u32, OutOfMemory> {
        let node = self.nodes.alloc(env.pin, env.memory)?;
        self.cpus.get(env.pin).node_allocs.bump();
        Ok(node.raw())
    }

    /// Makes the space of `place` the owner of new frames, whose records name their pages.
    #[inline]
    fn own<P: Platform>(&self, env: &Env<'_, P>, run: &Run, place: &Place<'_, (), SpaceKin>) {
        let word = place.space_state.word();
        Self::for_run(env, run, |frame, pte| self.name_owner(frame, word, pte));
        self.count_pages(env.pin, word as u32, u64::from(run.count));
    }

    /// Makes the space of `place` the owner of frames that only it maps, wherever it does.
    #[inline]
    fn adopt<P: Platform>(&self, env: &Env<'_, P>, run: &Run, place: &Place<'_, (), SpaceKin>) {
        let word = place.space_state.word();
        let owner = word as u32;
        let mut page = run.page;
        Self::for_run(env, run, |frame, pte| {
            let old = frame.owner();
            if frame.index() != page.0 {
                frame.set_place(page.0);
            }
            page = page.offset(1 << run.order);
            self.name_owner(frame, word, pte);
            if old != owner {
                self.count_pages(env.pin, old, u64::MAX);
                self.count_pages(env.pin, owner, 1);
            }
        });
    }

    /// Writes what a space's `word` says into the record of a frame that only it maps, at `pte`.
    #[inline]
    fn name_owner(&self, frame: &Frame, word: u64, pte: PteRef) {
        let stamp = word >> STAMP_SHIFT << STAMP_SHIFT;
        let hint = self.hints.bits(pte);
        frame.set_owner(word as u32);
        frame.rmap().store(stamp | hint, Ordering::Release);
    }

    /// The frames of a run.
    #[inline]
    fn for_run<P: Platform>(env: &Env<'_, P>, run: &Run, mut each: impl FnMut(&Frame, PteRef)) {
        let frames = env.memory.frames(run.frame, run.count << run.order);
        if run.order == 0 {
            for (step, frame) in (0..).zip(frames) {
                each(frame, run.pte.offset(step));
            }
            return;
        }
        for (step, frame) in (0..).zip(frames.iter().step_by(1 << run.order)) {
            each(frame, run.pte.offset(step));
        }
    }
}

// SAFETY: whoever maps a private page is its owner or descends from it, as the node of either
// says for as long as pages name it (`kin`), and shows it at the page that the record has; a visit
// searches them all, or as many as the mapping count says. Pages of objects: `file_pages`.
unsafe impl ReverseMap for Family {
    const NAME: &'static str = "family";
    const MISSES_BESIDE_FORKS: bool = true;

    fn new(options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        Family {
            nodes: arenas.make(),
            families: Families::new(cpus),
            files: FilePages::new(cpus),
            cpus: PerCpu::new(cpus, |_| FamilyCpu::default()),
            hints: Hints::new(options.hint),
            last_stamp: if options.kin_stamp { LAST_STAMP } else { 0 },
        }
    }

    #[inline]
    fn add<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        place: Place<'_, (), SpaceKin>,
        fresh: bool,
    ) {
        if is_of_object(env, run.frame) {
            self.files.add(env, run);
            Self::for_run(env, run, |frame, pte| self.hints.remember(frame, pte));
            return;
        }
        self.cpus.get(env.pin).adds.add(u64::from(run.count));
        debug_assert!(fresh, "a private page comes to others by fork only");
        self.own(env, run, &place);
    }

    #[inline]
    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), SpaceKin>,
    ) {
        self.cpus.get(env.pin).duplicates.add(u64::from(run.count));
    }

    #[inline]
    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), SpaceKin>,
    ) {
        self.cpus.get(env.pin).removes.add(u64::from(run.count));
        Self::for_run(env, run, |frame, pte| self.hints.forget(frame, pte));
    }

    #[inline]
    fn unmapped<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        let owner = env.memory.frame(frame).owner();
        self.count_pages(env.pin, owner, u64::MAX);
    }

    fn shift<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        from: &Run,
        to: &Run,
        place: Place<'_, (), SpaceKin>,
    ) {
        if is_of_object(env, from.frame) {
            self.files.shift(env, from);
            Self::for_run(env, from, |frame, pte| {
                let moved = to.pte.offset(u32::from(pte.index - from.pte.index));
                self.hints.rename(frame, pte, moved);
            });
            return;
        }
        self.cpus.get(env.pin).moves.add(u64::from(from.count));
        self.adopt(env, to, &place);
    }

    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        place: Place<'_, (), SpaceKin>,
    ) {
        self.cpus.get(env.pin).turns.add(u64::from(run.count));
        self.adopt(env, run, &place);
    }

    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<()>,
        frame: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        let mut visit = FamilyVisit {
            env,
            pfn: frame,
            frame: env.memory.frame(frame),
            wanted: 0,
            stopped: false,
            report: VisitReport::default(),
            visitor,
        };
        if is_of_object(env, frame) {
            self.visit_file(topology, &mut visit);
        } else {
            self.visit_private(topology, &mut visit);
        }
        visit.report
    }

    /// Keeps what is learned of the pages' only entries.
    fn visit_run<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<()>,
        frames: &[Pfn],
        visitor: &mut dyn FnMut(Pfn, &Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        self.files.visit(env, topology, frames, &mut |page, slot| {
            let verdict = visitor(page, slot);
            let frame = env.memory.frame(page);
            match verdict {
                Verdict::Keep => self.note_kept(frame, slot.pte()),
                Verdict::Unmapped => self.hints.forget(frame, slot.pte()),
                Verdict::Stop => {}
            }
            verdict
        })
    }
}

impl TracksSpaces for Family {
    const COPIES_TO_MOVE: bool = true;
    type Space = SpaceKin;

    fn space_executed<P: Platform>(
        &self,
        env: &Env<'_, P>,
        space: &SpaceKin,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        let node = self.new_node(env)?;
        kin::found(self.nodes.node(node), node, handle);
        space.set(node, 0);
        Ok(())
    }

    fn space_forked<P: Platform>(
        &self,
        env: &Env<'_, P>,
        parent: &SpaceKin,
        child: &SpaceKin,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        let node = self.new_node(env)?;
        let (above, forks) = (parent.node(), parent.stamp());
        self.cpus.get(env.pin).locks.bump();
        let family = self.families.lock(&self.nodes, above, env.pin);
        debug_assert!(family.is_some(), "a space that lives has a node");
        if let Some(family) = family {
            family.fork(above, node, handle, forks);
        }
        parent.set(above, (forks + 1).min(self.last_stamp));
        child.set(node, 0);
        Ok(())
    }

    fn space_ended<P: Platform>(&self, env: &Env<'_, P>, space: &SpaceKin) {
        let node = space.node();
        let cpu = self.cpus.get(env.pin);
        self.count_for(env.pin, 0);
        cpu.locks.bump();
        if let Some(family) = self.families.lock(&self.nodes, node, env.pin) {
            family.end(
                node,
                || cpu.node_frees.bump(),
                |gone| self.nodes.free(env.pin, Handle::from_raw(gone)),
            );
        }
        space.set(0, 0);
    }
}

impl TracksRegions for Family {
    type Region = ();
}

impl TracksEntries for Family {
    type Ctx = ();

    fn entry_moved<P: Platform>(&self, env: &Env<'_, P>, (): &mut (), run: &Run, to: PteRef) {
        Self::for_run(env, run, |frame, pte| self.hints.rename(frame, pte, to));
    }
}

impl TracksLeaves for Family {
    const DIVIDES_INTO_PARTS: bool = true;

    /// The other frames get the stamp of the first, and its hint: another leaf that the hint
    /// names maps them too. In place of the leaf each has its entry of `parts`.
    fn divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run, parts: Option<&Run>) {
        let first = env.memory.frame(run.frame);
        let owner = first.owner();
        let frames = env.memory.frames(run.frame, 1 << run.order);
        let word = first.rmap().load(Ordering::Relaxed);
        let first_part = parts.map_or(run.pte, |parts| parts.pte);
        for (step, frame) in (1..).zip(&frames[1..]) {
            let word = self.hints.renamed(word, run.pte, first_part.offset(step));
            frame.rmap().store(word, Ordering::Release);
        }
        self.hints.rename(first, run.pte, first_part);
        self.count_pages(env.pin, owner, (1 << run.order) - 1);
    }

    fn unite<P: Platform>(&self, env: &Env<'_, P>, run: &Run, place: Place<'_, (), SpaceKin>) {
        // The frames may have been made by several spaces of the family.
        for frame in &env.memory.frames(run.frame, 1 << run.order)[1..] {
            self.count_pages(env.pin, frame.owner(), u64::MAX);
        }
        self.adopt(env, run, &place);
    }

    fn promote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        leaf: PteRef,
        _place: Place<'_, (), SpaceKin>,
    ) {
        if self.hints.are_kept() {
            Self::for_run(env, run, |frame, pte| self.hints.rename(frame, pte, leaf));
        }
    }

    fn demote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        leaf: PteRef,
        _place: Place<'_, (), SpaceKin>,
    ) {
        if self.hints.are_kept() {
            Self::for_run(env, run, |frame, pte| self.hints.rename(frame, leaf, pte));
        }
    }
}

impl DelaysFlushes for Family {}

impl Audited for Family {
    fn stats(&self) -> RmapStats {
        let mut stats = RmapStats {
            nodes_searched: self.cpus.sum(|cpu| &cpu.spaces_searched),
            bytes: self.live_groups() * size_of::<Kin>() as u64,
            peak_bytes: self.nodes.stats().peak * size_of::<Kin>() as u64,
            ..counts::sum(&self.cpus, |cpu| cpu)
        };
        self.files.add_to(&mut stats);
        stats
    }

    fn check_frame<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        maps: u32,
    ) -> Result<(), &'static str> {
        let frame = env.memory.frame(frame);
        if maps == 0 && entry_of(frame).is_some() {
            return Err("a frame that nothing maps has a hint");
        }
        if maps > 0 && frame.kind() == Kind::Anonymous {
            self.check_private(env, frame)?;
        }
        Ok(())
    }

    fn live_nodes(&self) -> u64 {
        0
    }

    fn live_groups(&self) -> u64 {
        let allocs = self.cpus.sum(|cpu| &cpu.node_allocs);
        allocs.wrapping_sub(self.cpus.sum(|cpu| &cpu.node_frees))
    }

    fn audit_nodes(&self) -> Result<u64, AuditError> {
        let census = self.nodes.audit()?;
        Ok(census.chunks + census.directory)
    }
}
