//! Pages of objects, found through the regions that map the object.
//!
//! The object side of McCracken's objrmap (2003), with the interval tree that
//! took the place of its lists: nothing is kept for an entry but the mapping
//! count of its frame. Whoever looks for the entries asks which regions map
//! that part of the object, computes the page in each, and reads the tables,
//! until as many entries are found as the count says. Every design that keeps
//! something only for private pages has one of these for the rest.

use core::ops::ControlFlow;

use super::{Env, RmapStats, Run, Slot, Topology, Verdict, VisitReport};
use crate::addr::Pfn;
use crate::frame::Kind;
use crate::platform::Platform;
use crate::sync::{Counter, PerCpu};
use crate::table::Format;

#[derive(Default)]
struct CpuState {
    adds: Counter,
    duplicates: Counter,
    removes: Counter,
    moves: Counter,
}

/// Whether a frame is a page of an object.
#[inline]
pub(super) fn is_of_object<P: Platform>(env: &Env<'_, P>, frame: Pfn) -> bool {
    env.memory.frame(frame).kind() == Kind::Object
}

/// The pages of objects, as one design counts them.
pub(super) struct FilePages {
    cpus: PerCpu<CpuState>,
}

impl FilePages {
    /// For a machine of `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        FilePages {
            cpus: PerCpu::new(cpus, |_| CpuState::default()),
        }
    }

    /// Counts entries made.
    #[inline]
    pub fn add<P: Platform>(&self, env: &Env<'_, P>, run: &Run) {
        self.cpus.get(env.pin).adds.add(u64::from(run.count));
    }

    /// Counts entries made by fork.
    #[inline]
    pub fn duplicate<P: Platform>(&self, env: &Env<'_, P>, run: &Run) {
        self.cpus.get(env.pin).duplicates.add(u64::from(run.count));
    }

    /// Counts entries cleared.
    #[inline]
    pub fn remove<P: Platform>(&self, env: &Env<'_, P>, run: &Run) {
        self.cpus.get(env.pin).removes.add(u64::from(run.count));
    }

    /// Counts entries moved.
    #[inline]
    pub fn shift<P: Platform>(&self, env: &Env<'_, P>, run: &Run) {
        self.cpus.get(env.pin).moves.add(u64::from(run.count));
    }

    /// [`super::ReverseMap::visit`] for a page of an object. Locks the tables
    /// it looks into, one at a time, and holds nothing else.
    pub fn visit<P: Platform, F: Format, S>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<S>,
        page: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        let mut report = VisitReport::default();
        let mut spins = 0;
        while self.search_regions(env, topology, page, &mut report, visitor) {
            env.pin.relax(spins);
            spins += 1;
        }
        report
    }

    /// Searches the regions of the page's object. Returns whether a lock was
    /// not free, so that entries may have been missed.
    fn search_regions<P: Platform, F: Format, S>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<S>,
        page: Pfn,
        report: &mut VisitReport,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> bool {
        let frame = env.memory.frame(page);
        let mut wanted = frame.counts().maps();
        let mut contended = false;
        topology.regions_of(env.pin, frame.owner(), frame.index(), &mut |space, at| {
            if wanted == 0 {
                return ControlFlow::Break(());
            }
            let Some(pte) = topology.leaf(env.pin, space, at) else {
                report.false_probes += 1;
                return ControlFlow::Continue(());
            };
            match Slot::open(env.memory, pte, page) {
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

    /// Adds the counts to those of the design's other pages.
    pub fn add_to(&self, stats: &mut RmapStats) {
        stats.adds += self.cpus.sum(|cpu| &cpu.adds);
        stats.duplicates += self.cpus.sum(|cpu| &cpu.duplicates);
        stats.removes += self.cpus.sum(|cpu| &cpu.removes);
        stats.moves += self.cpus.sum(|cpu| &cpu.moves);
    }
}
