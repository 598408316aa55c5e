//! Object-based reverse mapping for file pages, chains for anonymous ones
//! (`rmap=partial`).
//!
//! The design of McCracken's objrmap (2003) with the interval tree that took
//! the place of its lists: a page of an object keeps nothing but its mapping
//! count. Whoever looks for its entries asks which regions map that part of
//! the object, computes the page in each, and reads the tables, until as many
//! entries are found as the count says.

use core::ops::ControlFlow;

use super::chains::Chains;
use super::{Env, Place, ReverseMap, RmapStats, Run, Slot, Topology, Verdict, VisitReport};
use crate::addr::Pfn;
use crate::design::Design;
use crate::frame::{AuditError, Frame, Kind, OutOfMemory};
use crate::platform::Platform;
use crate::slab::ArenaMaker;
use crate::sync::{Counter, PerCpu};
use crate::table::{Format, PteRef};

#[derive(Default)]
struct CpuState {
    adds: Counter,
    duplicates: Counter,
    removes: Counter,
    moves: Counter,
}

/// The `partial` design.
pub struct Partial {
    anonymous: Chains,
    cpus: PerCpu<CpuState>,
}

fn of_object<P: Platform>(env: &Env<'_, P>, run: &Run) -> bool {
    env.memory.frame(run.frame).kind() == Kind::Object
}

impl Partial {
    /// Searches the regions of the frame's object. Returns whether a lock was
    /// not free, so that entries may have been missed.
    fn search_regions<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<()>,
        pfn: Pfn,
        report: &mut VisitReport,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> bool {
        let frame: &Frame = env.memory.frame(pfn);
        let mut wanted = frame.counts().maps();
        let mut contended = false;
        topology.regions_of(env.pin, frame.owner(), frame.index(), &mut |space, page| {
            if wanted == 0 {
                return ControlFlow::Break(());
            }
            let Some(pte) = topology.leaf(env.pin, space, page) else {
                report.false_probes += 1;
                return ControlFlow::Continue(());
            };
            match Slot::open(env.memory, pte, pfn) {
                Err(_) => {
                    report.lock_failures += 1;
                    contended = true;
                }
                Ok(None) => report.false_probes += 1,
                Ok(Some(slot)) => {
                    report.hits += 1;
                    wanted -= 1;
                    match visitor(&slot) {
                        Verdict::Keep => {}
                        Verdict::Unmapped => {
                            report.unmapped += 1;
                            frame.remove_mapping();
                            self.cpus.get(env.pin).removes.bump();
                        }
                        Verdict::Stop => {
                            contended = false;
                            return ControlFlow::Break(());
                        }
                    }
                }
            }
            ControlFlow::Continue(())
        });
        contended
    }
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
            cpus: PerCpu::new(cpus, |_| CpuState::default()),
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
        if of_object(env, run) {
            self.cpus.get(env.pin).adds.add(u64::from(run.count));
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
        if of_object(env, run) {
            self.cpus.get(env.pin).duplicates.add(u64::from(run.count));
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
        if of_object(env, run) {
            self.cpus.get(env.pin).removes.add(u64::from(run.count));
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
        if of_object(env, from) {
            self.cpus.get(env.pin).moves.add(u64::from(from.count));
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
        if !of_object(env, run) {
            self.anonymous.promote(env, ctx, run, leaf);
        }
    }

    fn demote<P: Platform>(&self, env: &Env<'_, P>, ctx: &mut (), run: &Run, leaf: PteRef) {
        if !of_object(env, run) {
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
        let mut report = VisitReport::default();
        let mut spins = 0;
        while self.search_regions(env, topology, pfn, &mut report, visitor) {
            env.pin.relax(spins);
            spins += 1;
        }
        report
    }

    fn stats(&self) -> RmapStats {
        let mut stats = self.anonymous.stats();
        stats.adds += self.cpus.sum(|cpu| &cpu.adds);
        stats.duplicates += self.cpus.sum(|cpu| &cpu.duplicates);
        stats.removes += self.cpus.sum(|cpu| &cpu.removes);
        stats.moves += self.cpus.sum(|cpu| &cpu.moves);
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
