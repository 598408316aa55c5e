//! One address in every space of a family (`rmap=anonmm`).
//!
//! Hugh Dickins' anonmm as it was merged into Linux 2.6.7 (2004): a private
//! page names the member that its first space has in a bundle (`bundle`) and
//! the address it was mapped at. Fork maps it at the same address in the
//! child, so all entries are found by looking there in each space of the
//! bundle. Nothing is kept for an entry: forking one costs the count in the
//! frame and no more, and pages have no lock of their own.
//!
//! The price is that the address must not change while the page is shared:
//! mremap copies such pages before it moves them
//! ([`TracksSpaces::COPIES_TO_MOVE`]). And that a page may be looked for in every
//! space of the family. A visit that finds a page of a space that has ended in
//! another takes it over to that one, so that the next visit finds it at once
//! and the member of the ended space can go.
//!
//! Pages of objects are found as in `partial`.

use super::bundles::{BundleVisit, Bundles, Outcome, Progress, SpaceMember};
use crate::addr::Pfn;
use crate::design::Design;
use crate::frame::{AuditError, Kind, OutOfMemory};
use crate::platform::Platform;
use crate::rmap::counts::{self, RmapCounts};
use crate::rmap::file_pages::{FilePages, is_of_object};
use crate::rmap::{
    Audited, DelaysFlushes, Env, Place, ReverseMap, RmapStats, Run, Slot, Topology, TracksEntries,
    TracksLeaves, TracksRegions, TracksSpaces, Verdict, VisitReport,
};
use crate::slab::ArenaMaker;
use crate::sync::PerCpu;
use crate::table::Format;

/// The `anonmm` design.
pub struct Anonmm {
    bundles: Bundles,
    files: FilePages,
    cpus: PerCpu<RmapCounts>,
}

// SAFETY: spaces that can map a private page are in the bundle of the member it names, and map
// it at the address in its record, since it does not move while it is shared. Pages of objects:
// `file_pages`.
unsafe impl ReverseMap for Anonmm {
    const NAME: &'static str = "anonmm";

    fn new(_options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        Anonmm {
            bundles: Bundles::new(cpus, arenas),
            files: FilePages::new(cpus),
            cpus: PerCpu::new(cpus, |_| RmapCounts::default()),
        }
    }

    #[inline]
    fn add<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        place: Place<'_, (), SpaceMember>,
        fresh: bool,
    ) {
        if is_of_object(env, run.frame) {
            self.files.add(env, run);
            return;
        }
        self.cpus.get(env.pin).adds.add(u64::from(run.count));
        if !fresh {
            // Another entry for a page that names a member already.
            return;
        }
        self.bundles.hold(place.space_state, run.count);
        for step in 0..run.count {
            let frame = env.memory.frame(run.frame.offset(step << run.order));
            self.bundles.own(place.space_state, frame);
        }
    }

    #[inline]
    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), SpaceMember>,
    ) {
        // No need to know of what kind the page is: there is nothing to do.
        self.cpus.get(env.pin).duplicates.add(u64::from(run.count));
    }

    #[inline]
    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), SpaceMember>,
    ) {
        self.cpus.get(env.pin).removes.add(u64::from(run.count));
    }

    #[inline]
    fn unmapped<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        self.bundles.disown(env, env.memory.frame(frame));
    }

    /// Private pages that move are mapped once.
    fn shift<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        from: &Run,
        to: &Run,
        _place: Place<'_, (), SpaceMember>,
    ) {
        if is_of_object(env, from.frame) {
            self.files.shift(env, from);
            return;
        }
        self.cpus.get(env.pin).moves.add(u64::from(from.count));
        for step in 0..from.count {
            let frame = env.memory.frame(from.frame.offset(step << from.order));
            debug_assert!(frame.counts().maps() == 1, "a shared page moved");
            let page = to.page.offset(u64::from(step) << from.order);
            frame.set_place(page.0);
        }
    }

    /// The page stays with the member it names: a visit takes it over once
    /// that member's space has ended.
    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), SpaceMember>,
    ) {
        self.cpus.get(env.pin).turns.add(u64::from(run.count));
    }

    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<()>,
        page: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        if is_of_object(env, page) {
            return self.visit_run(env, topology, &[page], &mut |_, slot| visitor(slot));
        }
        let frame = env.memory.frame(page);
        let mut visit = BundleVisit {
            env,
            topology,
            page,
            visitor,
            report: VisitReport::default(),
            progress: Progress::default(),
            migrates: true,
            unmapped: 0,
            orphaned: false,
        };
        let mut spins = 0;
        loop {
            let outcome = self.bundles.search(&mut visit, |number| {
                (number == 0).then(|| crate::addr::Vpn(frame.index()))
            });
            if visit.orphaned {
                self.bundles.disown(env, frame);
                visit.orphaned = false;
            }
            if outcome == Outcome::Done {
                break;
            }
            env.pin.relax(spins);
            spins += 1;
        }
        let removes = &self.cpus.get(env.pin).removes;
        removes.add(u64::from(visit.unmapped));
        visit.report
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
}

impl TracksSpaces for Anonmm {
    const COPIES_TO_MOVE: bool = true;
    type Space = SpaceMember;

    fn space_executed<P: Platform>(
        &self,
        env: &Env<'_, P>,
        space: &SpaceMember,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        self.bundles.execute(env, space, handle)
    }

    fn space_forked<P: Platform>(
        &self,
        env: &Env<'_, P>,
        parent: &SpaceMember,
        child: &SpaceMember,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        self.bundles.fork(env, parent, child, handle)
    }

    fn space_ended<P: Platform>(&self, env: &Env<'_, P>, space: &SpaceMember) {
        self.bundles.exit(env, space);
    }
}

impl TracksRegions for Anonmm {
    type Region = ();
}

impl TracksEntries for Anonmm {
    type Ctx = ();
}

impl TracksLeaves for Anonmm {
    fn divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run, _parts: Option<&Run>) {
        self.bundles.divide(env, run);
    }

    fn unite<P: Platform>(&self, env: &Env<'_, P>, run: &Run, place: Place<'_, (), SpaceMember>) {
        self.bundles.unite(env, run, place.space_state);
    }
}

impl DelaysFlushes for Anonmm {}

impl Audited for Anonmm {
    fn stats(&self) -> RmapStats {
        let (members, locks) = self.bundles.stats();
        let mut stats = RmapStats {
            node_allocs: members.allocs,
            node_frees: members.frees,
            locks,
            bytes: self.bundles.bytes_of(members.live),
            peak_bytes: self.bundles.bytes_of(members.peak),
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
        if frame.kind() == Kind::Object {
            return Ok(());
        }
        self.bundles.check(frame, maps)
    }

    fn live_nodes(&self) -> u64 {
        self.bundles.left_over()
    }

    fn audit_nodes(&self) -> Result<u64, AuditError> {
        self.bundles.audit()
    }
}
