//! Pages of objects, found through the regions that map the object.
//!
//! The object side of McCracken's objrmap (2003), with the interval tree that
//! took the place of its lists: nothing is kept for an entry but the mapping
//! count of its frame. A search for the entries asks which regions map
//! that part of the object, computes the page in each, and reads the tables,
//! until as many entries are found as the count says. Every design that keeps
//! something only for private pages has one of these for the rest.

use core::ops::ControlFlow;

use super::{Env, RmapStats, Run, Slot, Stretch, Topology, Verdict, VisitReport};
use crate::addr::Pfn;
use crate::frame::Kind;
use crate::platform::Platform;
use crate::sync::{Counter, PerCpu};
use crate::table::{Format, PteRef};

#[derive(Default)]
struct FilePageCounts {
    adds: Counter,
    duplicates: Counter,
    removes: Counter,
    moves: Counter,
}

/// Whether a frame is a page of an object.
#[inline]
pub(crate) fn is_of_object<P: Platform>(env: &Env<'_, P>, frame: Pfn) -> bool {
    env.memory.frame(frame).kind() == Kind::Object
}

/// The pages of objects, as one design counts them.
pub(crate) struct FilePages {
    cpus: PerCpu<FilePageCounts>,
}

impl FilePages {
    /// For a machine of `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        FilePages {
            cpus: PerCpu::new(cpus, |_| FilePageCounts::default()),
        }
    }

    /// Counts entries made.
    #[inline]
    pub fn add<P: Platform>(&self, env: &Env<'_, P>, run: &Run) {
        self.cpus.get(env.pin).adds.add(u64::from(run.count));
    }

    /// Counts entries made by fork.
    #[cfg(feature = "published")]
    #[inline]
    pub fn duplicate<P: Platform>(&self, env: &Env<'_, P>, run: &Run) {
        self.cpus.get(env.pin).duplicates.add(u64::from(run.count));
    }

    /// Counts entries cleared.
    #[cfg(feature = "published")]
    #[inline]
    pub fn remove<P: Platform>(&self, env: &Env<'_, P>, run: &Run) {
        self.cpus.get(env.pin).removes.add(u64::from(run.count));
    }

    /// Counts entries moved.
    #[inline]
    pub fn shift<P: Platform>(&self, env: &Env<'_, P>, run: &Run) {
        self.cpus.get(env.pin).moves.add(u64::from(run.count));
    }

    /// [`super::ReverseMap::visit_run`]. Holds the lock of the object's regions and
    /// locks the tables it looks into, one at a time. It may wait for a table,
    /// since a holder of a table never waits for regions. So one search is enough,
    /// and an entry that stays is handed out once. Not inlined: a design that knows the only entry
    /// has no use for it.
    #[inline(never)]
    pub fn visit<P: Platform, F: Format, S>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<S>,
        pages: &[Pfn],
        visitor: &mut dyn FnMut(Pfn, &Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        let mut report = VisitReport::default();
        let Some(&leader) = pages.first() else {
            return report;
        };
        let frames = pages.iter().map(|&page| env.memory.frame(page));
        let first = env.memory.frame(leader);
        let index = first.index();
        let mut search = FileSearch {
            env,
            pages,
            index,
            removes: &self.cpus.get(env.pin).removes,
            candidates: [Candidate::NONE; CANDIDATES],
            collected: 0,
            wanted: frames.map(|frame| frame.counts().maps()).sum(),
            report: &mut report,
            visitor,
        };
        let range = (index, index + pages.len() as u64);
        topology.mappings_of(env.pin, first.owner(), range, &mut |stretch| {
            search.collect(stretch)
        });
        let _ = search.open_collected();
        report
    }

    /// Adds the counts to those of the design's other pages.
    pub fn add_to(&self, stats: &mut RmapStats) {
        stats.adds += self.cpus.sum(|cpu| &cpu.adds);
        stats.duplicates += self.cpus.sum(|cpu| &cpu.duplicates);
        stats.removes += self.cpus.sum(|cpu| &cpu.removes);
        stats.moves += self.cpus.sum(|cpu| &cpu.moves);
    }
}

/// Consecutive entries of a table that may map consecutive pages of a search.
#[derive(Clone, Copy)]
struct Candidate {
    pte: PteRef,
    /// Which of the pages the first is for.
    at: u32,
    pages: u32,
}

impl Candidate {
    const NONE: Candidate = Candidate {
        pte: PteRef {
            table: Pfn::NONE,
            index: 0,
        },
        at: 0,
        pages: 0,
    };
}

/// Candidates that are looked up before the first of them is locked.
const CANDIDATES: usize = 16;

/// One pass over the regions that show consecutive pages.
///
/// Locking a table keeps a processor from running ahead, and finding the next
/// entry is mostly waiting for memory. So entries are found several at a time,
/// and then locked one table after the other.
struct FileSearch<'v, 'e, P: Platform, F: Format> {
    env: &'v Env<'e, P>,
    pages: &'v [Pfn],
    /// The object's page that the first is.
    index: u64,
    removes: &'v Counter,
    candidates: [Candidate; CANDIDATES],
    collected: usize,
    /// Entries still to be found.
    wanted: u32,
    report: &'v mut VisitReport,
    visitor: &'v mut dyn FnMut(Pfn, &Slot<'_, F>) -> Verdict,
}

impl<P: Platform, F: Format> FileSearch<'_, '_, P, F> {
    /// One more stretch that may map pages. Breaks when all entries are found
    /// or the visitor has seen enough.
    #[inline]
    fn collect(&mut self, stretch: Stretch) -> ControlFlow<()> {
        if self.wanted == 0 {
            return ControlFlow::Break(());
        }
        let Some(pte) = stretch.entry else {
            self.report.false_probes += stretch.pages;
            return ControlFlow::Continue(());
        };
        Slot::<F>::prefetch(self.env.memory, pte);
        self.candidates[self.collected] = Candidate {
            pte,
            at: (stretch.index - self.index) as u32,
            pages: stretch.pages,
        };
        self.collected += 1;
        if self.collected < CANDIDATES.min(self.wanted as usize) {
            return ControlFlow::Continue(());
        }
        self.open_collected()
    }

    /// Looks into the tables collected, and forgets them.
    fn open_collected(&mut self) -> ControlFlow<()> {
        let count = core::mem::take(&mut self.collected);
        for at in 0..count {
            let candidate = self.candidates[at];
            let contended = &mut self.report.lock_failures;
            match Slot::wait(self.env, (candidate.pte, None), contended) {
                None => self.report.false_probes += candidate.pages,
                Some(slot) => self.look_into(slot, candidate)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Goes through the entries of one candidate, its table locked.
    #[inline]
    fn look_into(&mut self, mut slot: Slot<'_, F>, candidate: Candidate) -> ControlFlow<()> {
        let first = candidate.at as usize;
        let pages = &self.pages[first..first + candidate.pages as usize];
        for (nth, &page) in pages.iter().enumerate() {
            // A large leaf is the entry of all.
            if nth > 0 && !slot.is_large() {
                slot.advance();
            }
            if slot.maps(page) {
                self.found(page, &slot)?;
            } else {
                self.report.false_probes += 1;
            }
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn found(&mut self, page: Pfn, slot: &Slot<'_, F>) -> ControlFlow<()> {
        self.report.hits += 1;
        self.wanted = self.wanted.saturating_sub(1);
        match (self.visitor)(page, slot) {
            Verdict::Keep => {}
            Verdict::Unmapped => {
                self.report.unmapped += 1;
                self.env.memory.frame(page).remove_mapping();
                self.removes.bump();
            }
            Verdict::Stop => return ControlFlow::Break(()),
        }
        if self.wanted == 0 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
