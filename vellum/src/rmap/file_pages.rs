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
use crate::frame::{Frame, Kind};
use crate::platform::Platform;
use crate::sync::{Counter, PerCpu};
use crate::table::{Format, PteRef};

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
    /// it looks into, one at a time, and holds nothing else. Not inlined: a
    /// design that knows the only entry has no use for it.
    #[inline(never)]
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
        let mut search = Search {
            env,
            page,
            frame,
            removes: &self.cpus.get(env.pin).removes,
            candidates: [NO_ENTRY; CANDIDATES],
            collected: 0,
            wanted: frame.counts().maps(),
            contended: false,
            report,
            visitor,
        };
        topology.mappings_of(
            env.pin,
            frame.owner(),
            frame.index(),
            &mut |candidate| match candidate {
                Some(candidate) => search.collect(candidate),
                None => {
                    search.report.false_probes += 1;
                    ControlFlow::Continue(())
                }
            },
        );
        let _ = search.open_collected();
        search.contended
    }

    /// Adds the counts to those of the design's other pages.
    pub fn add_to(&self, stats: &mut RmapStats) {
        stats.adds += self.cpus.sum(|cpu| &cpu.adds);
        stats.duplicates += self.cpus.sum(|cpu| &cpu.duplicates);
        stats.removes += self.cpus.sum(|cpu| &cpu.removes);
        stats.moves += self.cpus.sum(|cpu| &cpu.moves);
    }
}

const NO_ENTRY: PteRef = PteRef {
    table: Pfn::NONE,
    index: 0,
};

/// Entries that are looked up before the first of them is locked.
const CANDIDATES: usize = 16;

/// One pass over the regions that show a page.
///
/// Locking a table keeps a processor from running ahead, and finding the next
/// entry is mostly waiting for memory. So entries are found several at a time,
/// and then locked one after the other.
struct Search<'v, 'e, P: Platform, F: Format> {
    env: &'v Env<'e, P>,
    page: Pfn,
    frame: &'v Frame,
    removes: &'v Counter,
    candidates: [PteRef; CANDIDATES],
    collected: usize,
    /// Entries still to be found.
    wanted: u32,
    /// Whether a lock was not free, so that entries may have been missed.
    contended: bool,
    report: &'v mut VisitReport,
    visitor: &'v mut dyn FnMut(&Slot<'_, F>) -> Verdict,
}

impl<P: Platform, F: Format> Search<'_, '_, P, F> {
    /// One more entry that may map the page. Breaks when all are found or the
    /// visitor has seen enough.
    #[inline]
    fn collect(&mut self, pte: PteRef) -> ControlFlow<()> {
        if self.wanted == 0 {
            return ControlFlow::Break(());
        }
        Slot::<F>::prefetch(self.env.memory, pte);
        self.candidates[self.collected] = pte;
        self.collected += 1;
        if self.collected < CANDIDATES.min(self.wanted as usize) {
            return ControlFlow::Continue(());
        }
        self.open_collected()
    }

    /// Opens the entries collected, and forgets them.
    fn open_collected(&mut self) -> ControlFlow<()> {
        let count = core::mem::take(&mut self.collected);
        for at in 0..count {
            match Slot::open(self.env.memory, self.candidates[at], self.page) {
                Err(_) => {
                    self.report.lock_failures += 1;
                    self.contended = true;
                }
                Ok(None) => self.report.false_probes += 1,
                Ok(Some(slot)) => self.found(&slot)?,
            }
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn found(&mut self, slot: &Slot<'_, F>) -> ControlFlow<()> {
        self.report.hits += 1;
        self.wanted = self.wanted.saturating_sub(1);
        match (self.visitor)(slot) {
            Verdict::Keep => {}
            Verdict::Unmapped => {
                self.report.unmapped += 1;
                self.frame.remove_mapping();
                self.removes.bump();
            }
            Verdict::Stop => {
                self.contended = false;
                return ControlFlow::Break(());
            }
        }
        if self.wanted == 0 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
