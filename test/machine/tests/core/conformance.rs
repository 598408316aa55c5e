//! Every reverse-mapping design against page tables (invariant 3): a visit of a frame finds
//! the entries that a scan of all tables finds, each once, whatever happened
//! before; a visitor that stops sees no more, and entries that one clears are
//! gone for the next. Visits of consecutive pages of an object find the same.
//!
//! The designs are those of the `rmap` option, each as it is and with what
//! changes how it works. `VELLUM_CASES` sets the number of cases of each,
//! `VELLUM_SEED` the only one to run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vellum::addr::{Access, Pfn, Prot, Vpn};
use vellum::design::variants;
use vellum::frame::Kind;
use vellum::platform::CpuId;
use vellum::rmap::{Env, ReverseMap, Verdict, VisitReport};
use vellum::space::{FileRequest, MapRequest, Placement, RemapPlacement, Space, Traits};
use vellum::table::Format;
use vellum::{Design, ObjectId, SpaceId, Vm};
use vellum_machine::mmu::walker;
use vellum_machine::{Arena, Machine, MachineConfig, PatternStore};

use crate::support::{Rng, number, other_options, variants_on_pae, with_instance};

const CPUS: u16 = 3;
/// Where checks run.
const CPU: CpuId = CpuId(0);
const FRAMES: u64 = 6000;
const MOST_SPACES: usize = 8;
/// Where regions are mapped: at borders of tables and away from them. The last of them,
/// far away, is cut to what a format has.
const AREAS: [u64; 4] = [480, 2040, (1 << 18) - 24, 1 << 27];
const AREA: u64 = 64;

type Manager<F, R> = Vm<Machine, F, R>;
/// Handle of the space, and page.
type Entry = (u32, u64);
type Entries = BTreeSet<Entry>;

struct World<F: Format, R: ReverseMap> {
    vm: Arc<Manager<F, R>>,
    spaces: Vec<SpaceId>,
    objects: Vec<ObjectId>,
    rng: Rng,
}

fn manager<F: Format, R: ReverseMap>(design: &str, arena: &Arc<Arena>) -> Manager<F, R> {
    let walker = walker(F::NAME).unwrap();
    let mut config = MachineConfig::new(FRAMES * 4096).with_walker(walker);
    config.cpus = usize::from(CPUS);
    if F::FIXED_ROOT {
        // Low memory for tables to use up half of, with `userpte=auto`.
        config.high_from = Some(Pfn(0x100 + 400));
        config.biting_windows = true;
    }
    config.store = Arc::new(PatternStore::new(4096, |store, page| store << 32 | page));
    let machine = Machine::new(config, Arc::clone(arena)).unwrap();
    Vm::new(machine, Design::parse(design).unwrap()).unwrap()
}

fn arena() -> Arc<Arena> {
    let mut config = MachineConfig::new(FRAMES * 4096);
    config.cpus = usize::from(CPUS);
    Arena::shared(config.arena_bytes().unwrap()).unwrap()
}

impl<F: Format, R: ReverseMap> World<F, R> {
    fn new(vm: Manager<F, R>, seed: u64) -> Self {
        let vm = Arc::new(vm);
        let manager = Arc::clone(&vm);
        let _guard = manager.platform().enter(CPU);
        let objects = vec![
            vm.create_file(FileRequest::stored(1, 40 << 12))
                .unwrap()
                .id(),
            vm.create_file(FileRequest::shared_memory(40 << 12))
                .unwrap()
                .id(),
        ];
        let spaces = vec![vm.create_space().unwrap().id()];
        let rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xc0f0);
        World {
            vm,
            spaces,
            objects,
            rng,
        }
    }

    /// What the manager stands on, to visit as it does.
    fn layers(&self) -> vellum::probe::Layers<'_, Machine, R> {
        // SAFETY: visits change no more than the entries that they clear, and take and
        // drop references as the manager's own do.
        unsafe { vellum::probe::layers(&self.vm) }
    }

    /// Every entry of every table, by the frame it maps.
    fn scan(&self) -> BTreeMap<Pfn, Entries> {
        let mut all: BTreeMap<Pfn, Entries> = BTreeMap::new();
        for id in &self.spaces {
            let scanned = self.vm.space(*id).for_each_leaf(|page, first, pages, _| {
                // Of a superpage, the first frame may have the only record.
                for frame in (0..pages).map(|step| first.offset(step as u32)) {
                    let kind = self.vm.memory().frame(frame).kind();
                    if matches!(kind, Kind::Anonymous | Kind::Object) {
                        let entry = (id.to_bits() as u32, page.0);
                        assert!(all.entry(frame).or_default().insert(entry));
                    }
                }
            });
            scanned.unwrap();
        }
        all
    }

    /// Visits a frame; returns what was handed out, in order.
    fn visit(
        &self,
        frame: Pfn,
        mut verdict: impl FnMut(usize) -> Verdict,
    ) -> (Vec<Entry>, VisitReport) {
        let pin = self.vm.pin();
        let layers = self.layers();
        let env = Env {
            memory: layers.memory,
            pin: &pin,
        };
        let mut met = Vec::new();
        let report = layers
            .rmap
            .visit::<_, F>(&env, &*self.vm, frame, &mut |slot| {
                let verdict = verdict(met.len());
                met.push((slot.space(), slot.page().0));
                if verdict == Verdict::Unmapped {
                    slot.clear();
                }
                verdict
            });
        assert_eq!(report.hits as usize, met.len());
        for _ in 0..report.unmapped {
            // SAFETY: the reference of an entry that was cleared.
            unsafe { layers.memory.put_raw(&pin, frame, 0) };
        }
        (met, report)
    }

    /// Visits consecutive pages of an object together. `verdict` gets how many
    /// entries were handed out before.
    fn visit_run(
        &self,
        frames: &[Pfn],
        mut verdict: impl FnMut(usize) -> Verdict,
    ) -> (Vec<(Pfn, Entry)>, VisitReport) {
        let pin = self.vm.pin();
        let layers = self.layers();
        let env = Env {
            memory: layers.memory,
            pin: &pin,
        };
        let mut met = Vec::new();
        let mut cleared = Vec::new();
        let rmap = layers.rmap;
        let report = rmap.visit_run::<_, F>(&env, &*self.vm, frames, &mut |frame, slot| {
            let verdict = verdict(met.len());
            met.push((frame, (slot.space(), slot.page().0)));
            if verdict == Verdict::Unmapped {
                slot.clear();
                cleared.push(frame);
            }
            verdict
        });
        assert_eq!(report.hits as usize, met.len());
        assert_eq!(report.unmapped as usize, cleared.len());
        for frame in cleared {
            // SAFETY: the reference of an entry that was cleared.
            unsafe { layers.memory.put_raw(&pin, frame, 0) };
        }
        (met, report)
    }

    /// Mapped pages of objects, consecutive ones together.
    fn runs(&self, all: &BTreeMap<Pfn, Entries>) -> Vec<Vec<Pfn>> {
        let place = |frame: &Pfn| {
            let frame = self.vm.memory().frame(*frame);
            (frame.owner(), frame.index())
        };
        let of_objects = |frame: &Pfn| {
            self.vm.memory().frame(*frame).kind() == Kind::Object && place(frame).0 != 0
        };
        let mut frames: Vec<Pfn> = all.keys().copied().filter(of_objects).collect();
        frames.sort_by_key(place);
        let neighbours = |left: &Pfn, right: &Pfn| {
            let ((object, index), right) = (place(left), place(right));
            (object, index + 1) == right
        };
        frames.chunk_by(neighbours).map(<[Pfn]>::to_vec).collect()
    }

    /// [`World::compare`] for pages of objects that are visited together.
    fn compare_runs(&mut self) -> Result<(), String> {
        let all = self.scan();
        for run in self.runs(&all) {
            let (met, _) = self.visit_run(&run, |_| Verdict::Keep);
            let wanted: BTreeSet<_> = run
                .iter()
                .flat_map(|frame| all[frame].iter().map(|entry| (*frame, *entry)))
                .collect();
            let found: BTreeSet<_> = met.iter().copied().collect();
            if found != wanted || met.len() != wanted.len() {
                return Err(format!("{run:?}: visited {met:?}, entries {wanted:?}"));
            }
            let stop = self.rng.below(wanted.len() as u64) as usize;
            let (met, _) = self.visit_run(&run, |nth| {
                if nth == stop {
                    Verdict::Stop
                } else {
                    Verdict::Keep
                }
            });
            if met.len() != stop + 1 || !met.iter().all(|entry| wanted.contains(entry)) {
                return Err(format!("{run:?}: {met:?} with a stop at {stop}"));
            }
        }
        Ok(())
    }

    /// [`World::clear_some`] for pages of objects that are visited together.
    fn clear_some_of_runs(&mut self) -> Result<(), String> {
        let all = self.scan();
        for run in self.runs(&all) {
            let mut left: BTreeSet<_> = run
                .iter()
                .flat_map(|frame| all[frame].iter().map(|entry| (*frame, *entry)))
                .collect();
            let clears: Vec<bool> = left.iter().map(|_| self.rng.below(3) == 0).collect();
            let (met, _) = self.visit_run(&run, |nth| {
                if clears.get(nth).copied().unwrap_or(false) {
                    Verdict::Unmapped
                } else {
                    Verdict::Keep
                }
            });
            let whole = met.len() == left.len();
            for (entry, _) in met.iter().zip(&clears).filter(|(_, clear)| **clear) {
                left.remove(entry);
            }
            let (after, _) = self.visit_run(&run, |_| Verdict::Keep);
            let found: BTreeSet<_> = after.iter().copied().collect();
            if !whole || found != left || after.len() != left.len() {
                return Err(format!("{run:?}: {met:?}, {clears:?}, then {after:?}"));
            }
        }
        self.compare()
    }

    fn compare(&mut self) -> Result<(), String> {
        for (frame, entries) in self.scan() {
            let maps = self.vm.memory().frame(frame).counts().maps();
            if maps as usize != entries.len() {
                return Err(format!("{frame:?}: count {maps}, entries {entries:?}"));
            }
            let (met, _) = self.visit(frame, |_| Verdict::Keep);
            let found: Entries = met.iter().copied().collect();
            if found != entries || met.len() != entries.len() {
                return Err(format!("{frame:?}: visited {met:?}, entries {entries:?}"));
            }
            let stop = self.rng.below(entries.len() as u64) as usize;
            let (met, _) = self.visit(frame, |nth| {
                if nth == stop {
                    Verdict::Stop
                } else {
                    Verdict::Keep
                }
            });
            if met.len() != stop + 1 || !met.iter().all(|entry| entries.contains(entry)) {
                return Err(format!("{frame:?}: {met:?} with a stop at {stop}"));
            }
        }
        self.compare_runs()
    }

    /// Clears some entries of each frame through visits. Counts of spaces are
    /// the visitor's business, so audits are over until the spaces have ended.
    fn clear_some(&mut self) -> Result<(), String> {
        for (frame, mut entries) in self.scan() {
            let count = entries.len();
            let clears: Vec<bool> = (0..count).map(|_| self.rng.below(3) == 0).collect();
            // The frame outlives its last entry for as long as we look.
            let memory = self.layers().memory;
            // SAFETY: the frame is mapped; the reference is dropped below.
            assert!(unsafe { memory.get_raw(&memory.pin(), frame) });
            let (met, report) = self.visit(frame, |nth| {
                if clears.get(nth).copied().unwrap_or(false) {
                    Verdict::Unmapped
                } else {
                    Verdict::Keep
                }
            });
            let cleared = met.iter().zip(&clears).filter(|(_, clear)| **clear);
            let cleared: Entries = cleared.map(|(entry, _)| *entry).collect();
            let right = met.len() == count && report.unmapped as usize == cleared.len();
            entries.retain(|entry| !cleared.contains(entry));
            let (after, _) = self.visit(frame, |_| Verdict::Keep);
            let found: Entries = after.iter().copied().collect();
            let maps = self.vm.memory().frame(frame).counts().maps();
            // SAFETY: the reference taken above.
            unsafe { self.layers().memory.put_raw(&self.vm.pin(), frame, 0) };
            if !right || found != entries || maps as usize != entries.len() {
                return Err(format!(
                    "{frame:?}: visited {met:?}, cleared {cleared:?}, then {after:?}, count {maps}"
                ));
            }
        }
        self.compare()
    }

    fn page(&mut self) -> u64 {
        self.rng.pick(&AREAS).min(F::USER_END.0 - 2 * AREA) + self.rng.below(AREA)
    }

    fn map(&mut self, cpu: CpuId, space: SpaceId) {
        let (page, pages) = (self.page(), 1 + self.rng.below(20));
        let prot = self
            .rng
            .pick(&[Prot::READ_WRITE, Prot::READ_WRITE, Prot::READ]);
        let object = self.rng.pick(&self.objects);
        let request = match self.rng.below(4) {
            0 | 1 => MapRequest::anonymous(pages, prot),
            kind => MapRequest {
                traits: if kind == 2 {
                    Traits::SHARED
                } else {
                    Traits::NONE
                },
                ..MapRequest::object(object, self.rng.below(30), pages, prot)
            },
        };
        let request = request.at(Placement::Fixed(Vpn(page)));
        let _ = self.on(cpu, |vm| vm.space(space).map(&request));
    }

    /// One random operation. Whether it succeeds is nobody's business here.
    fn step(&mut self) {
        let cpu = CpuId(self.rng.below(u64::from(CPUS)) as u16);
        let place = self.rng.below(self.spaces.len() as u64) as usize;
        let space = self.spaces[place];
        let (page, pages) = (Vpn(self.page()), 1 + self.rng.below(16));
        match self.rng.below(24) {
            0..=2 if self.spaces.len() < MOST_SPACES => {
                let child = self.on(cpu, |vm| vm.space(space).fork().map(Space::id));
                self.spaces.extend(child);
            }
            3 if self.spaces.len() < MOST_SPACES => {
                let new = self.on(cpu, |vm| vm.create_space().map(Space::id));
                self.spaces.extend(new);
            }
            0 | 4 => {
                self.on(cpu, |vm| vm.space(space).exit()).unwrap();
                self.spaces.swap_remove(place);
                if self.spaces.is_empty() {
                    let new = self.on(cpu, |vm| vm.create_space().map(Space::id));
                    self.spaces.extend(new);
                }
            }
            5 => {
                let _ = self.on(cpu, |vm| vm.space(space).unmap(page, pages));
            }
            6 | 7 => {
                let prot = self.rng.pick(&[Prot::READ, Prot::READ_WRITE]);
                let _ = self.on(cpu, |vm| vm.space(space).protect(page, pages, prot));
            }
            8..=10 => {
                let target = RemapPlacement::Fixed(Vpn(self.page()));
                let target = self.rng.pick(&[target, RemapPlacement::MayMove]);
                let new = 1 + self.rng.below(16);
                let _ = self.on(cpu, |vm| vm.space(space).remap(page, pages, new, target));
            }
            11 => {
                let (object, length) = (self.rng.pick(&self.objects), 20 + self.rng.below(20));
                let shorter = self.rng.below(40);
                self.on(cpu, |vm| {
                    vm.file(object).set_size(shorter << F::FRAME_SHIFT).unwrap();
                    vm.file(object).set_size(length << F::FRAME_SHIFT).unwrap();
                });
            }
            12..=14 => self.map(cpu, space),
            _ => {
                let access = self.rng.pick(&[Access::Read, Access::Write, Access::Write]);
                for touched in page.0..page.0 + pages {
                    let _ = self.on(cpu, |vm| vm.space(space).fault(touched << 12, access));
                }
            }
        }
    }

    fn on<T>(&self, cpu: CpuId, work: impl FnOnce(&Manager<F, R>) -> T) -> T {
        let _guard = self.vm.platform().enter(cpu);
        work(&self.vm)
    }

    /// Checks on a CPU, and says when.
    fn check(
        &mut self,
        when: &str,
        check: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let vm = Arc::clone(&self.vm);
        let _guard = vm.platform().enter(CPU);
        check(self).map_err(|error| format!("{when}: {error}"))
    }

    fn audit(&mut self) -> Result<(), String> {
        let audited = self.vm.audit();
        audited.map(drop).map_err(|failure| failure.to_string())
    }

    fn run(&mut self) -> Result<(), String> {
        for round in 0..12 {
            (0..25).for_each(|_| self.step());
            self.check(&format!("round {round}"), |world| {
                world.compare().and_then(|()| world.audit())
            })?;
        }
        for round in 0..3 {
            self.check(&format!("clearing, round {round}"), Self::clear_some)?;
            (0..15).for_each(|_| self.step());
            let clear = Self::clear_some_of_runs;
            self.check(&format!("clearing in runs, round {round}"), clear)?;
            (0..15).for_each(|_| self.step());
            self.check(&format!("after clearing, round {round}"), Self::compare)?;
        }
        while !self.spaces.is_empty() {
            let place = self.rng.below(self.spaces.len() as u64) as usize;
            let space = self.spaces.swap_remove(place);
            self.on(CPU, |vm| vm.space(space).exit()).unwrap();
            self.check("exits", Self::compare)?;
        }
        for object in std::mem::take(&mut self.objects) {
            self.on(CPU, |vm| vm.file(object).release()).unwrap();
        }
        self.check("in the end", |world| {
            world.audit()?;
            let rmap = world.layers().rmap;
            match (rmap.live_nodes(), rmap.live_groups()) {
                (0, 0) => Ok(()),
                left => Err(format!("nodes and groups left: {left:?}")),
            }
        })
    }
}

fn conforms<F: Format, R: ReverseMap>(design: &str, seed: u64, arena: &Arc<Arena>) {
    let mut world = World::new(manager::<F, R>(design, arena), seed);
    if let Err(error) = world.run() {
        panic!("{design}, seed {seed} (VELLUM_SEED={seed} repeats it): {error}");
    }
}

#[test]
fn visits_find_what_tables_hold() {
    let arena = arena();
    let seeds = match number("VELLUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VELLUM_CASES").unwrap_or(5),
    };
    for rmap in variants("rmap").into_iter().chain(variants_on_pae()) {
        for seed in seeds.clone() {
            let design = format!("{rmap},{}", other_options(seed as usize));
            let parsed = Design::parse(&design).unwrap();
            with_instance!(parsed, F, R => conforms::<F, R>(&design, seed, &arena));
        }
    }
}
