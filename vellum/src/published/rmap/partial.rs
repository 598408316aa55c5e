//! Object-based reverse mapping for file pages, chains for anonymous ones
//! (`rmap=partial`).
//!
//! McCracken's objrmap (2003) as `-mm2` of that March had it. `file_pages`
//! says how pages of objects are found. A page of an object counts its mappings
//! in the word that chains use for others, under the same lock bit (`pte_chain_lock`):
//! the kernels of 2003 had no other count, and took the lock for every entry.

use super::chains::Chains;
use crate::addr::Pfn;
use crate::design::Design;
use crate::frame::{AuditError, Kind, OutOfMemory};
use crate::platform::Platform;
use crate::rmap::file_pages::{FilePages, is_of_object};
use crate::rmap::{
    Audited, DelaysFlushes, Env, Place, ReverseMap, RmapStats, Run, Slot, Topology, TracksEntries,
    TracksLeaves, TracksRegions, TracksSpaces, Verdict, VisitReport,
};
use crate::slab::{ArenaMaker, AtHand};
use crate::sync::atomic::Ordering;
use crate::table::{Format, PteRef};

/// The `partial` design.
pub struct Partial {
    anonymous: Chains,
    files: FilePages,
}

impl Partial {
    /// Changes the counts of the pages of an object, each under its lock.
    #[inline]
    fn count<P: Platform>(&self, env: &Env<'_, P>, run: &Run, change: impl Fn(u64) -> u64) {
        for step in 0..run.count {
            let guard = self
                .anonymous
                .lock(env, run.frame.offset(step << run.order));
            let count = guard.value();
            guard.unlock_with(change(count));
        }
    }
}

/// The count of a page that lost a mapping.
fn decremented(count: u64) -> u64 {
    debug_assert!(count > 0, "a page lost more mappings than it had");
    count.saturating_sub(1)
}

// SAFETY: private pages are those of `chains`, pages of objects those of `file_pages`.
unsafe impl ReverseMap for Partial {
    const NAME: &'static str = "partial";

    fn new(options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        Partial {
            anonymous: Chains::with_direct(options.direct, cpus, arenas),
            files: FilePages::new(cpus),
        }
    }

    #[inline]
    fn add<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut (),
        run: &Run,
        place: Place<'_, (), ()>,
        fresh: bool,
    ) {
        if is_of_object(env, run.frame) {
            self.files.add(env, run);
            self.count(env, run, |count| count + 1);
        } else {
            self.anonymous.add(env, ctx, run, place, fresh);
        }
    }

    #[inline]
    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut (),
        run: &Run,
        place: Place<'_, (), ()>,
    ) {
        if is_of_object(env, run.frame) {
            self.files.duplicate(env, run);
            self.count(env, run, |count| count + 1);
        } else {
            self.anonymous.duplicate(env, ctx, run, place);
        }
    }

    #[inline]
    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut (),
        run: &Run,
        place: Place<'_, (), ()>,
    ) {
        if is_of_object(env, run.frame) {
            self.files.remove(env, run);
            self.count(env, run, decremented);
        } else {
            self.anonymous.remove(env, ctx, run, place);
        }
    }

    fn shift<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut (),
        from: &Run,
        to: &Run,
        place: Place<'_, (), ()>,
    ) {
        if is_of_object(env, from.frame) {
            self.files.shift(env, from);
        } else {
            self.anonymous.shift(env, ctx, from, to, place);
        }
    }

    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut (),
        run: &Run,
        place: Place<'_, (), ()>,
    ) {
        self.anonymous.turn(env, ctx, run, place);
    }

    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<()>,
        pfn: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        if env.memory.frame(pfn).kind() != Kind::Object {
            return self.anonymous.visit(env, topology, pfn, visitor);
        }
        self.visit_run(env, topology, &[pfn], &mut |_, slot| visitor(slot))
    }

    fn visit_run<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<()>,
        frames: &[Pfn],
        visitor: &mut dyn FnMut(Pfn, &Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        self.files
            .visit(env, topology, frames, &mut |page, slot: &Slot<'_, F>| {
                let verdict = visitor(page, slot);
                if verdict == Verdict::Unmapped {
                    let guard = self.anonymous.lock(env, page);
                    let count = guard.value();
                    guard.unlock_with(decremented(count));
                }
                verdict
            })
    }
}

impl TracksSpaces for Partial {
    type Space = ();
}

impl TracksRegions for Partial {
    type Region = ();
}

impl TracksEntries for Partial {
    type Ctx = ();

    #[inline]
    fn prepare<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut (),
        place: Place<'_, (), ()>,
        count: usize,
    ) -> Result<(), OutOfMemory> {
        self.anonymous.prepare(env, ctx, place, count)
    }

    fn finish<P: Platform>(&self, env: &Env<'_, P>, ctx: ()) {
        self.anonymous.finish(env, ctx);
    }

    fn give_back<P: Platform>(&self, env: &Env<'_, P>, at_hand: AtHand) -> u64 {
        self.anonymous.give_back(env, at_hand)
    }

    #[inline]
    fn prefetch<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        if env.memory.frame(frame).kind() == Kind::Anonymous {
            self.anonymous.prefetch(env, frame);
        }
    }

    fn entry_moved<P: Platform>(&self, env: &Env<'_, P>, ctx: &mut (), run: &Run, to: PteRef) {
        if !is_of_object(env, run.frame) {
            self.anonymous.entry_moved(env, ctx, run, to);
        }
    }
}

impl TracksLeaves for Partial {
    fn prepare_divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run) -> Result<(), OutOfMemory> {
        self.anonymous.prepare_divide(env, run)
    }

    fn divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run, parts: Option<&Run>) {
        self.anonymous.divide(env, run, parts);
    }

    fn unite<P: Platform>(&self, env: &Env<'_, P>, run: &Run, place: Place<'_, (), ()>) {
        self.anonymous.unite(env, run, place);
    }

    fn promote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut (),
        run: &Run,
        leaf: PteRef,
        place: Place<'_, (), ()>,
    ) {
        if !is_of_object(env, run.frame) {
            self.anonymous.promote(env, ctx, run, leaf, place);
        }
    }

    fn demote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut (),
        run: &Run,
        leaf: PteRef,
        place: Place<'_, (), ()>,
    ) {
        if !is_of_object(env, run.frame) {
            self.anonymous.demote(env, ctx, run, leaf, place);
        }
    }
}

impl DelaysFlushes for Partial {}

impl Audited for Partial {
    fn stats(&self) -> RmapStats {
        let mut stats = self.anonymous.stats();
        self.files.add_to(&mut stats);
        stats
    }

    fn check_frame<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        maps: u32,
    ) -> Result<(), &'static str> {
        if env.memory.frame(frame).kind() == Kind::Object {
            // The lock bit would make it another number.
            let count = env.memory.frame(frame).rmap().load(Ordering::Acquire);
            return match count == u64::from(maps) {
                true => Ok(()),
                false => Err("the design's count of mappings is not the frame's"),
            };
        }
        self.anonymous.check_frame(env, frame, maps)
    }

    fn audit_nodes(&self) -> Result<u64, AuditError> {
        self.anonymous.audit_nodes()
    }

    fn live_nodes(&self) -> u64 {
        self.anonymous.live_nodes()
    }
}
