//! Private pages that name an anon_vma: what `anon_vma` and `anon_vma_chain`
//! do alike.
//!
//! A page's record holds the handle of an anon_vma and the page's linear index.
//! Mapping, forking and unmapping it change nothing but its mapping count. The
//! anon_vma leads to the regions that may show the page, and the index to the
//! page in each; the entry there decides.

use core::ops::ControlFlow;

use crate::addr::Pfn;
use crate::platform::Platform;
use crate::rmap::counts::{self, RmapCounts};
use crate::rmap::{Env, RegionRef, RmapStats, Run, Slot, Topology, Verdict, VisitReport};
use crate::sync::{Counter, PerCpu};
use crate::table::Format;

/// Private pages, as one design counts them.
pub(super) struct AnonPages {
    cpus: PerCpu<RmapCounts>,
}

impl AnonPages {
    /// For a machine of `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        AnonPages {
            cpus: PerCpu::new(cpus, |_| RmapCounts::default()),
        }
    }

    /// The counts of the caller's CPU.
    #[inline]
    pub fn here<P: Platform>(&self, env: &Env<'_, P>) -> &RmapCounts {
        self.cpus.of(env.pin.cpu())
    }

    /// Makes frames that nobody else knows name `anon_vma`, from linear index
    /// `index` on.
    #[inline]
    pub fn add<P: Platform>(&self, env: &Env<'_, P>, run: &Run, anon_vma: u32, index: u64) {
        debug_assert!(anon_vma != 0, "a private page in a region without anon_vma");
        for step in 0..run.count {
            let frame = env.memory.frame(run.frame.offset(step << run.order));
            frame.set_owner(anon_vma);
            frame.set_place(index.wrapping_add(u64::from(step << run.order)));
        }
        self.here(env).adds.add(u64::from(run.count));
    }

    /// Counts.
    pub fn stats(&self) -> RmapStats {
        counts::sum(&self.cpus, |cpu| cpu)
    }

    /// Calls `search`, which looks through all regions of the page's anon_vma
    /// with that anon_vma locked; it is given the handle to lock, and in what
    /// to look. Tables are waited for, since whoever holds one waits for no
    /// anon_vma: one search does, and an entry that stays is handed out once. A
    /// page that is not mapped any more names an anon_vma that may have ended;
    /// none is looked for.
    pub fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        pfn: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
        search: impl Fn(u32, &mut AnonSearch<'_, '_, P, F>),
    ) -> VisitReport {
        let frame = env.memory.frame(pfn);
        let mut pass = AnonSearch {
            env,
            pfn,
            index: frame.index(),
            wanted: frame.counts().maps(),
            last: None,
            report: VisitReport::default(),
            removes: &self.here(env).removes,
            visitor,
        };
        if pass.wanted > 0 {
            search(frame.owner(), &mut pass);
        }
        pass.report
    }
}

/// One pass over the regions that may show a page.
pub(super) struct AnonSearch<'v, 'e, P: Platform, F: Format> {
    env: &'v Env<'e, P>,
    pfn: Pfn,
    /// The page's linear index.
    pub index: u64,
    /// Entries still to be found.
    wanted: u32,
    /// Where the last entry was found.
    last: Option<crate::table::PteRef>,
    report: VisitReport,
    removes: &'v Counter,
    visitor: &'v mut dyn FnMut(&Slot<'_, F>) -> Verdict,
}

impl<P: Platform, F: Format> AnonSearch<'_, '_, P, F> {
    /// Looks at the one entry of `region` that can map the page. Breaks when
    /// all are found or the visitor has seen enough.
    pub fn look_in<S>(
        &mut self,
        topology: &dyn Topology<S>,
        region: &RegionRef<'_, S>,
    ) -> ControlFlow<()> {
        let pte = region
            .page_of(self.index)
            .and_then(|page| topology.leaf(self.env.pin, region.space, page));
        let Some(pte) = pte else {
            self.report.false_probes += 1;
            return ControlFlow::Continue(());
        };
        if self.last == Some(pte) {
            // A region is being cut or merged: its neighbour had it too.
            return ControlFlow::Continue(());
        }
        let contended = &mut self.report.lock_failures;
        if let Some(slot) = Slot::open_waiting(self.env, pte, self.pfn, contended) {
            return self.found(&slot);
        }
        self.report.false_probes += 1;
        ControlFlow::Continue(())
    }

    fn found(&mut self, slot: &Slot<'_, F>) -> ControlFlow<()> {
        self.report.hits += 1;
        self.wanted -= 1;
        self.last = Some(slot.pte());
        match (self.visitor)(slot) {
            Verdict::Keep => {}
            Verdict::Unmapped => {
                self.report.unmapped += 1;
                self.env.memory.frame(self.pfn).remove_mapping();
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
