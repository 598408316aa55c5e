//! Object-based reverse mapping for file pages, chains for anonymous ones
//! (`rmap=partial`).
//!
//! McCracken's objrmap (2003) as `-mm2` of that March had it: `file_pages`
//! says how pages of objects are found.

use super::chains::Chains;
use super::file_pages::{FilePages, is_of_object};
use super::{Env, Place, ReverseMap, RmapStats, Run, Slot, Topology, Verdict, VisitReport};
use crate::addr::Pfn;
use crate::design::Design;
use crate::frame::{AuditError, Kind, OutOfMemory};
use crate::platform::Platform;
use crate::slab::ArenaMaker;
use crate::table::{Format, PteRef};

/// The `partial` design.
pub struct Partial {
    anonymous: Chains,
    files: FilePages,
}

impl ReverseMap for Partial {
    const NAME: &'static str = "partial";
    type Region = ();
    type Object = ();
    type Space = ();
    type Ctx = ();

    fn new(options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        Partial {
            anonymous: Chains::with_direct(options.direct, cpus, arenas),
            files: FilePages::new(cpus),
        }
    }

    #[inline]
    fn prepare<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut (),
        count: usize,
    ) -> Result<(), OutOfMemory> {
        self.anonymous.prepare(env, ctx, count)
    }

    fn finish<P: Platform>(&self, env: &Env<'_, P>, ctx: ()) {
        self.anonymous.finish(env, ctx);
    }

    #[inline]
    fn prefetch<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        if env.memory.frame(frame).kind() == Kind::Anonymous {
            self.anonymous.prefetch(env, frame);
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

    fn promote<P: Platform>(&self, env: &Env<'_, P>, ctx: &mut (), run: &Run, leaf: PteRef) {
        if !is_of_object(env, run.frame) {
            self.anonymous.promote(env, ctx, run, leaf);
        }
    }

    fn demote<P: Platform>(&self, env: &Env<'_, P>, ctx: &mut (), run: &Run, leaf: PteRef) {
        if !is_of_object(env, run.frame) {
            self.anonymous.demote(env, ctx, run, leaf);
        }
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
        self.files.visit(env, topology, frames, visitor)
    }

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
            return Ok(());
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
