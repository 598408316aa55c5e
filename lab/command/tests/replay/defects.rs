//! Verification and audit find what they are there for: the core with a defect
//! built in is refused, by the name of what the defect does.
//!
//! The defects are built in where the core is put together, by a page-table
//! format, a reverse-mapping design or a machine that is wrong in one respect.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vellum::addr::{Geometry, Pfn, Prot, Vpn};
use vellum::design::{Design, Rmap};
use vellum::frame::{AuditError, Kind, OutOfMemory};
use vellum::platform::Platform;
use vellum::rmap::{
    Audited, Chains, DelaysFlushes, Env, Family, Place, RegionRef, ReverseMap, RmapStats, Run,
    Slot, Topology, TracksEntries, TracksLeaves, TracksRegions, TracksSpaces, Verdict, VisitReport,
};
use vellum::slab::ArenaMaker;
use vellum::table::{Format, Marks, PteRef, Swapped, X86_64};
use vellum::with_rmap;
use vellum_engine::{Arena, Config, CoreEngine, Engine, machine};
use vellum_lab::replay::{Options, Workload, prepare_events};
use vellum_lab::verify::{Symptom, verify};
use vellum_testing::generate;

const RAM: u64 = 64 << 20;

/// What is wrong with the core while a test runs. Chosen at run time, because the
/// core is compiled again for every pair of a format and a design.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Defect {
    /// The format leaves entries writable that it is to protect.
    ForgetsToProtect = 1,
    /// The format shows no dirty bit.
    LosesDirty,
    /// The design forgets entries.
    ForgetsEntries,
}

static DEFECT: AtomicU8 = AtomicU8::new(0);

impl Defect {
    fn is_built_in(self) -> bool {
        DEFECT.load(Ordering::Relaxed) == self as u8
    }

    /// Builds the defect in, as the only one, until the guard goes.
    fn build_in(self) -> MutexGuard<'static, ()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let alone = ONE_AT_A_TIME.lock();
        DEFECT.store(self as u8, Ordering::Relaxed);
        // A test that failed left nothing that this one reads.
        alone.unwrap_or_else(PoisonError::into_inner)
    }
}

/// x86-64, but for defects.
struct Defective;

// SAFETY: that of x86-64.
unsafe impl Geometry for Defective {
    const FRAME_SHIFT: u32 = X86_64::FRAME_SHIFT;
}

// SAFETY: a defect breaks what hardware is told and not what walks follow; the
// machine is simulated.
unsafe impl Format for Defective {
    const NAME: &'static str = "defective";
    type Reach = <X86_64 as Format>::Reach;
    const LEVELS: u32 = X86_64::LEVELS;
    const MAX_LEAF_LEVEL: u32 = X86_64::MAX_LEAF_LEVEL;
    const USER_END: Vpn = X86_64::USER_END;
    fn table_entry(table: Pfn, level: u32) -> u64 {
        X86_64::table_entry(table, level)
    }
    fn leaf(frame: Pfn, level: u32, prot: Prot, marks: Marks) -> u64 {
        X86_64::leaf(frame, level, prot, marks)
    }
    fn is_mapped(entry: u64) -> bool {
        X86_64::is_mapped(entry)
    }
    fn is_leaf(entry: u64, level: u32) -> bool {
        X86_64::is_leaf(entry, level)
    }
    fn frame(entry: u64, level: u32) -> Pfn {
        X86_64::frame(entry, level)
    }
    fn prot(entry: u64, level: u32) -> Prot {
        X86_64::prot(entry, level)
    }
    fn is_writable(entry: u64) -> bool {
        X86_64::is_writable(entry)
    }
    fn with_marks(entry: u64, marks: Marks) -> u64 {
        X86_64::with_marks(entry, marks)
    }
    fn with_prot(entry: u64, level: u32, prot: Prot) -> u64 {
        X86_64::with_prot(entry, level, prot)
    }
    fn swap(page: Swapped) -> u64 {
        X86_64::swap(page)
    }
    fn swapped(entry: u64) -> Swapped {
        X86_64::swapped(entry)
    }
    fn write_protect(entry: u64) -> u64 {
        match Defect::ForgetsToProtect.is_built_in() {
            true => entry,
            false => X86_64::write_protect(entry),
        }
    }
    fn marks(entry: u64) -> Marks {
        let marks = X86_64::marks(entry);
        Marks {
            dirty: marks.dirty && !Defect::LosesDirty.is_built_in(),
            ..marks
        }
    }
}

/// A design that, with the defect, forgets every tenth entry of a private page that
/// it is told of, and is not surprised when such an entry goes.
struct Forgetful<R> {
    design: R,
    told: AtomicU64,
    forgotten: Mutex<HashSet<u64>>,
}

impl<R> Forgetful<R> {
    fn takes_leave_of(&self, pte: PteRef) -> bool {
        self.forgotten.lock().expect("no panic").remove(&pte.pack())
    }
}

// SAFETY: with the defect it is wrong, and what that breaks is memory of the test's machine.
unsafe impl<R: ReverseMap> ReverseMap for Forgetful<R> {
    const NAME: &'static str = "forgetful";

    fn new(options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        Forgetful {
            design: R::new(options, cpus, arenas),
            told: AtomicU64::new(0),
            forgotten: Mutex::default(),
        }
    }

    fn add<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut R::Ctx,
        run: &Run,
        place: Place<'_, R::Region, R::Space>,
        fresh: bool,
    ) {
        // SAFETY: the table of the run is locked and the frame is being mapped in
        // it, so it is in use; the owner of a private one is the design's to set.
        let record = unsafe { env.memory.record(run.frame) };
        let private = record.kind() == Kind::Anonymous;
        let forgets = private && Defect::ForgetsEntries.is_built_in();
        if forgets && self.told.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
            let mut forgotten = self.forgotten.lock().expect("no panic");
            forgotten.insert(run.pte.pack());
            // What the core left in the design's fields is no name in it.
            record.set_owner(0);
        } else {
            self.design.add(env, ctx, run, place, fresh);
        }
    }

    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut R::Ctx,
        run: &Run,
        place: Place<'_, R::Region, R::Space>,
    ) {
        self.design.duplicate(env, ctx, run, place);
    }

    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut R::Ctx,
        run: &Run,
        place: Place<'_, R::Region, R::Space>,
    ) {
        if !self.takes_leave_of(run.pte) {
            self.design.remove(env, ctx, run, place);
        }
    }

    fn shift<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut R::Ctx,
        from: &Run,
        to: &Run,
        place: Place<'_, R::Region, R::Space>,
    ) {
        if self.takes_leave_of(from.pte) {
            let mut forgotten = self.forgotten.lock().expect("no panic");
            forgotten.insert(to.pte.pack());
        } else {
            self.design.shift(env, ctx, from, to, place);
        }
    }

    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<R::Region>,
        frame: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        self.design.visit(env, topology, frame, visitor)
    }

    fn unmapped<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        self.design.unmapped(env, frame);
    }

    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut R::Ctx,
        run: &Run,
        place: Place<'_, R::Region, R::Space>,
    ) {
        self.design.turn(env, ctx, run, place);
    }
}

impl<R: ReverseMap> TracksSpaces for Forgetful<R> {
    const COPIES_TO_MOVE: bool = R::COPIES_TO_MOVE;
    type Space = R::Space;

    fn space_executed<P: Platform>(
        &self,
        env: &Env<'_, P>,
        space: &R::Space,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        self.design.space_executed(env, space, handle)
    }

    fn space_forked<P: Platform>(
        &self,
        env: &Env<'_, P>,
        parent: &R::Space,
        child: &R::Space,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        self.design.space_forked(env, parent, child, handle)
    }

    fn space_ended<P: Platform>(&self, env: &Env<'_, P>, space: &R::Space) {
        self.design.space_ended(env, space);
    }
}

impl<R: ReverseMap> TracksRegions for Forgetful<R> {
    const KEEPS_RANGES: bool = R::KEEPS_RANGES;
    type Region = R::Region;

    fn prepare_private<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<R::Region>,
        region: RegionRef<'_, R::Region>,
    ) -> Result<(), OutOfMemory> {
        self.design.prepare_private(env, topology, region)
    }

    fn region_forked<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<R::Region>,
        parent: RegionRef<'_, R::Region>,
        child: RegionRef<'_, R::Region>,
    ) -> Result<(), OutOfMemory> {
        self.design.region_forked(env, topology, parent, child)
    }

    fn region_split<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<R::Region>,
        head: RegionRef<'_, R::Region>,
        tail: RegionRef<'_, R::Region>,
    ) -> Result<(), OutOfMemory> {
        self.design.region_split(env, topology, head, tail)
    }

    fn region_resized<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<R::Region>,
        region: RegionRef<'_, R::Region>,
    ) {
        self.design.region_resized(env, topology, region);
    }

    fn regions_mergeable(&self, head: &R::Region, tail: &R::Region) -> bool {
        self.design.regions_mergeable(head, tail)
    }

    fn stay_mergeable(&self, head: &R::Region, tail: &R::Region) -> bool {
        self.design.stay_mergeable(head, tail)
    }

    fn region_merged<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<R::Region>,
        head: RegionRef<'_, R::Region>,
        tail: RegionRef<'_, R::Region>,
    ) {
        self.design.region_merged(env, topology, head, tail);
    }

    fn region_ended<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<R::Region>,
        region: RegionRef<'_, R::Region>,
    ) {
        self.design.region_ended(env, topology, region);
    }

    fn check_region<P: Platform>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<R::Region>,
        region: RegionRef<'_, R::Region>,
        has_private: bool,
    ) -> Result<(), &'static str> {
        self.design.check_region(env, topology, region, has_private)
    }
}

impl<R: ReverseMap> TracksEntries for Forgetful<R> {
    const PREPARES_TO_MOVE: bool = R::PREPARES_TO_MOVE;
    type Ctx = R::Ctx;

    fn prepare<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut R::Ctx,
        place: Place<'_, R::Region, R::Space>,
        count: usize,
    ) -> Result<(), OutOfMemory> {
        self.design.prepare(env, ctx, place, count)
    }

    fn prepare_move<P: Platform>(&self, env: &Env<'_, P>, count: usize) -> Result<(), OutOfMemory> {
        self.design.prepare_move(env, count)
    }

    fn finish<P: Platform>(&self, env: &Env<'_, P>, ctx: R::Ctx) {
        self.design.finish(env, ctx);
    }

    fn entry_moved<P: Platform>(&self, env: &Env<'_, P>, ctx: &mut R::Ctx, run: &Run, to: PteRef) {
        self.design.entry_moved(env, ctx, run, to);
    }
}

impl<R: ReverseMap> TracksLeaves for Forgetful<R> {
    const DIVIDES_INTO_PARTS: bool = R::DIVIDES_INTO_PARTS;
    const LISTS_LEAVES: bool = R::LISTS_LEAVES;

    fn prepare_divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run) -> Result<(), OutOfMemory> {
        self.design.prepare_divide(env, run)
    }

    fn divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run, parts: Option<&Run>) {
        self.design.divide(env, run, parts);
    }

    fn unite<P: Platform>(
        &self,
        env: &Env<'_, P>,
        run: &Run,
        place: Place<'_, R::Region, R::Space>,
    ) {
        self.design.unite(env, run, place);
    }

    fn promote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut R::Ctx,
        run: &Run,
        leaf: PteRef,
        place: Place<'_, R::Region, R::Space>,
    ) {
        self.design.promote(env, ctx, run, leaf, place);
    }

    fn prepare_demote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut R::Ctx,
        run: &Run,
        place: Place<'_, R::Region, R::Space>,
    ) -> Result<(), OutOfMemory> {
        self.design.prepare_demote(env, ctx, run, place)
    }

    fn demote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut R::Ctx,
        run: &Run,
        leaf: PteRef,
        place: Place<'_, R::Region, R::Space>,
    ) {
        self.design.demote(env, ctx, run, leaf, place);
    }
}

impl<R: ReverseMap> DelaysFlushes for Forgetful<R> {}

impl<R: ReverseMap> Audited for Forgetful<R> {
    fn live_groups(&self) -> u64 {
        self.design.live_groups()
    }

    fn stats(&self) -> RmapStats {
        self.design.stats()
    }

    fn check_frame<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        maps: u32,
    ) -> Result<(), &'static str> {
        self.design.check_frame(env, frame, maps)
    }

    fn live_nodes(&self) -> u64 {
        self.design.live_nodes()
    }

    fn audit_nodes(&self) -> Result<u64, AuditError> {
        self.design.audit_nodes()
    }
}

fn engine<F: Format, R: ReverseMap>(
    prepare: impl FnOnce(&vellum_machine::Machine),
) -> CoreEngine<F, R> {
    let config = Config::new("", 1, RAM);
    let arena = Arena::new(RAM as usize).expect("64 MiB can be had");
    let machine = machine(&config, arena).expect("a machine");
    prepare(&machine);
    CoreEngine::new(machine, Design::default()).expect("an engine")
}

fn workload(seed: u64) -> Workload {
    let recording = generate::workload(seed, 1200);
    let options = Options::default();
    prepare_events(&recording.header, || recording.events(), &options).expect("a valid recording")
}

/// What the verifier says of random workloads: how often it refused, and
/// for what.
fn refusals(make: impl Fn() -> Box<dyn Engine>) -> Vec<Symptom> {
    let refused = |seed| {
        let engine = make();
        let refutation = verify(&workload(seed), engine.as_ref(), |_| true).err()?;
        Some(refutation.symptom)
    };
    (0..8).filter_map(refused).collect()
}

fn assert_all(rmap: Rmap, found: &[Symptom], expected: &[Symptom]) {
    assert!(!found.is_empty(), "{rmap:?}: no workload found the defect");
    for symptom in found {
        let name = symptom.name();
        assert!(expected.contains(symptom), "{rmap:?}: refused as {name}");
    }
}

/// What is found in a core with a defect, with a design that keeps an entry for each
/// mapping and with the default: whether a defect of the core is found does not depend on
/// the design, and each costs a core that is compiled for it.
fn refusals_of_defective() -> [(Rmap, Vec<Symptom>); 2] {
    [
        (
            Rmap::Chains,
            refusals(|| Box::new(engine::<Defective, Forgetful<Chains>>(|_| {}))),
        ),
        (
            Rmap::Family,
            refusals(|| Box::new(engine::<Defective, Forgetful<Family>>(|_| {}))),
        ),
    ]
}

#[test]
fn without_a_defect_nothing_is_refused() {
    for &rmap in Rmap::ALL {
        let found = with_rmap!(rmap, R => {
            refusals(|| Box::new(engine::<X86_64, R>(|_| {})))
        });
        assert_eq!(found, [], "{rmap:?}");
    }
}

#[test]
fn copy_on_write_without_a_copy_is_a_leaked_write() {
    let _built_in = Defect::ForgetsToProtect.build_in();
    for (rmap, found) in refusals_of_defective() {
        let expected = [Symptom::LeakedWrite, Symptom::LostWrite, Symptom::Audit];
        assert_all(rmap, &found, &expected);
        let leaked = found.contains(&Symptom::LeakedWrite);
        assert!(leaked, "{rmap:?}: {found:?}");
    }
}

#[test]
fn a_missing_flush_is_a_stale_translation() {
    for &rmap in Rmap::ALL {
        let drop_flushes = |machine: &vellum_machine::Machine| {
            // SAFETY: nothing but the engine of this test lives in the machine.
            unsafe { machine.defects() }.drop_flush_every(2);
        };
        let found = with_rmap!(rmap, R => {
            refusals(|| Box::new(engine::<X86_64, R>(drop_flushes)))
        });
        let stale = found.contains(&Symptom::StaleTranslation);
        assert!(stale, "{rmap:?}: {found:?}");
    }
}

#[test]
fn a_lost_dirty_bit_is_a_page_missing_in_the_store() {
    let _built_in = Defect::LosesDirty.build_in();
    for (rmap, found) in refusals_of_defective() {
        assert_all(rmap, &found, &[Symptom::LostDirty]);
    }
}

#[test]
fn a_dropped_rmap_entry_fails_the_audit() {
    let _built_in = Defect::ForgetsEntries.build_in();
    for (rmap, found) in refusals_of_defective() {
        assert_all(rmap, &found, &[Symptom::Audit]);
    }
}
