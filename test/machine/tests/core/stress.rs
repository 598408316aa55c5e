//! The core under real threads, one for each of four CPUs: every store that a
//! thread alone makes is found again, whatever the others do to the space.

use std::sync::Arc;

use vellum::addr::{Access, Prot, Vpn};
use vellum::design::variants;
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{
    Advice, FaultError, FileRequest, MapRequest, Placement, RemapPlacement, SpaceId, WriteRequest,
};
use vellum::table::X86_64;
use vellum::{Design, ObjectId, Vm};
use vellum_machine::mmu::AccessError;
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig, PatternStore};

use crate::support::{self, Rng, other_options};

const CPUS: u16 = 4;
const STEPS: u64 = 5000;
const RW: Prot = Prot::READ_WRITE;

/// Pages that stay mapped, by every thread its own words.
const KEPT: u64 = 0x1000;
const KEPT_PAGES: u64 = 48;
/// Pages that everybody maps, unmaps, moves and protects.
const WILD: u64 = 0x11f0;
const WILD_PAGES: u64 = 40;
/// A file, shared and private.
const SHARED: u64 = 0x3000;
const PRIVATE: u64 = 0x3100;
const FILE_PAGES: u64 = 24;

struct World<R: ReverseMap> {
    vm: Vm<Machine, X86_64, R>,
    space: SpaceId,
    file: ObjectId,
}

/// One thread and what it knows.
struct Thread<'w, R: ReverseMap> {
    world: &'w World<R>,
    cpu: CpuId,
    rng: Rng,
    /// What its words of the kept pages hold.
    kept: Vec<u64>,
}

fn world<R: ReverseMap>(design: &str) -> World<R> {
    let config = MachineConfig {
        cpus: usize::from(CPUS),
        nodes: 2,
        store: Arc::new(PatternStore::new(4096, |_, _| 0)),
        ..MachineConfig::new(24 << 20)
    };
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
    };
    let arena = Arena::with_options(config.arena_bytes().unwrap(), options).unwrap();
    let machine = Machine::new(config, arena).unwrap();
    let design = Design::parse(&format!("rmap={},{design}", R::NAME)).unwrap();
    let vm = Vm::new(machine, design).unwrap();
    let (space, file) = vm.platform().run_on(CpuId(0), || {
        let space = vm.create_space().unwrap().id();
        for _ in 1..CPUS {
            vm.space(space).share().unwrap();
        }
        let file = vm
            .create_file(FileRequest::stored(1, FILE_PAGES << 12))
            .unwrap()
            .id();
        let kept = MapRequest::anonymous(KEPT_PAGES, RW).at(Placement::Fixed(Vpn(KEPT)));
        let private = MapRequest::object(file, 0, FILE_PAGES, RW);
        let shared = private.shared().at(Placement::Fixed(Vpn(SHARED)));
        for request in [kept, shared, private.at(Placement::Fixed(Vpn(PRIVATE)))] {
            vm.space(space).map(&request).unwrap();
        }
        (space, file)
    });
    World { vm, space, file }
}

impl<R: ReverseMap> Thread<'_, R> {
    fn access(
        &self,
        id: SpaceId,
        page: u64,
        access: Access,
        value: u64,
    ) -> Result<u64, FaultError> {
        let address = page << 12 | u64::from(self.cpu.0 + 1) << 3;
        // Between the unlinking of a table and the flush, a CPU that knows the
        // table keeps faulting; the host may let the flushing thread wait.
        for _ in 0..1000 {
            match support::access(&self.world.vm, self.cpu, id, address, access, value) {
                Ok(word) => return Ok(word),
                Err(AccessError::Refused(error)) => return Err(error),
                Err(AccessError::Unresolved { .. }) => std::thread::yield_now(),
                Err(AccessError::Conflict(fault)) => panic!("{fault}"),
            }
        }
        panic!("page {page:#x} still faults");
    }

    fn store(&self, id: SpaceId, page: u64, value: u64) -> Result<(), FaultError> {
        self.access(id, page, Access::Write, value).map(|_| ())
    }

    fn load(&self, id: SpaceId, page: u64) -> Result<u64, FaultError> {
        self.access(id, page, Access::Read, 0)
    }

    fn run(&mut self) {
        for step in 1..=STEPS {
            match self.rng.below(16) {
                0..=4 => self.use_kept(step),
                5..=7 => self.use_wild(step),
                8 | 9 => self.change_wild(),
                10 | 11 => self.use_file(step),
                12 => self.change_file(),
                13 => self.fork(step),
                _ => self.split_kept(),
            }
        }
        for page in 0..KEPT_PAGES {
            self.check_kept(page);
        }
        assert_eq!(
            self.world.vm.space(self.world.space).exit().map(|_| ()),
            Ok(())
        );
    }

    fn check_kept(&self, page: u64) {
        let seen = self.load(self.world.space, KEPT + page);
        assert_eq!(
            seen,
            Ok(self.kept[page as usize]),
            "page {page} of {:?}",
            self.cpu
        );
    }

    fn use_kept(&mut self, step: u64) {
        let page = self.rng.below(KEPT_PAGES);
        self.check_kept(page);
        self.store(self.world.space, KEPT + page, step).unwrap();
        self.kept[page as usize] = step;
        self.check_kept(page);
    }

    /// Splits and merges the kept region; it allows loads and stores throughout.
    fn split_kept(&mut self) {
        let first = self.rng.below(KEPT_PAGES);
        let pages = 1 + self.rng.below(KEPT_PAGES - first);
        let prot = [RW, RW.union(Prot::EXECUTE)][self.rng.below(2) as usize];
        let vm = &self.world.vm;
        vm.space(self.world.space)
            .protect(Vpn(KEPT + first), pages, prot)
            .unwrap();
    }

    /// What is stored in a wild page is its number or nothing.
    fn use_wild(&mut self, step: u64) {
        let page = WILD + self.rng.below(WILD_PAGES);
        let done = if step.is_multiple_of(2) {
            self.store(self.world.space, page, 7)
        } else {
            self.load(self.world.space, page)
                .map(|seen| assert!(seen == 0 || seen == 7, "{seen}"))
        };
        let allowed = [
            Ok(()),
            Err(FaultError::NoRegion),
            Err(FaultError::Protection),
        ];
        assert!(allowed.contains(&done), "{done:?}");
    }

    fn change_wild(&mut self) {
        let first = self.rng.below(WILD_PAGES);
        let pages = 1 + self.rng.below(WILD_PAGES - first);
        let (vm, space, start) = (&self.world.vm, self.world.space, Vpn(WILD + first));
        match self.rng.below(6) {
            0 | 1 => {
                let request = MapRequest::anonymous(pages, RW).at(Placement::Fixed(start));
                vm.space(space).map(&request).unwrap();
            }
            2 => vm.space(space).unmap(start, pages).unwrap(),
            3 => {
                let _ = vm.space(space).protect(
                    start,
                    pages,
                    [Prot::READ, RW][self.rng.below(2) as usize],
                );
            }
            4 => {
                let _ = vm.space(space).advise(
                    start,
                    pages,
                    [Advice::DontNeed, Advice::Free][self.rng.below(2) as usize],
                );
            }
            _ => {
                let target = RemapPlacement::Fixed(Vpn(WILD + self.rng.below(WILD_PAGES)));
                let kept = 1 + self.rng.below(8);
                let _ = vm.space(space).remap(start, pages.min(8), kept, target);
            }
        }
    }

    fn use_file(&mut self, step: u64) {
        let page = self.rng.below(FILE_PAGES);
        for base in [SHARED, PRIVATE] {
            let seen = self.load(self.world.space, base + page);
            let stored = self.store(self.world.space, base + page, step);
            for done in [seen.map(|_| ()), stored] {
                assert!(
                    matches!(done, Ok(()) | Err(FaultError::PastEnd)),
                    "{done:?}"
                );
            }
        }
    }

    fn change_file(&mut self) {
        let (vm, file) = (&self.world.vm, self.world.file);
        match self.rng.below(4) {
            0 => vm
                .file(file)
                .set_size(self.rng.below(FILE_PAGES + 1) << 12)
                .unwrap(),
            1 => vm.file(file).set_size(FILE_PAGES << 12).unwrap(),
            2 => {
                let first = self.rng.below(FILE_PAGES - 2);
                vm.file(file)
                    .write(WriteRequest::pages(first, 2, |_, page| page.fill(3)))
                    .unwrap();
            }
            _ => {
                vm.file(file).sync().unwrap();
            }
        }
    }

    /// A child has this thread's words as they were, and keeps them.
    fn fork(&mut self, step: u64) {
        let vm = &self.world.vm;
        let child = vm.space(self.world.space).fork().unwrap().id();
        for _ in 0..4 {
            let page = self.rng.below(KEPT_PAGES);
            let before = self.kept[page as usize];
            assert_eq!(self.load(child, KEPT + page), Ok(before));
            self.store(self.world.space, KEPT + page, step).unwrap();
            self.kept[page as usize] = step;
            assert_eq!(
                self.load(child, KEPT + page),
                Ok(before),
                "the parent's store"
            );
            self.store(child, KEPT + page, before + 1).unwrap();
            self.check_kept(page);
            assert_eq!(self.load(child, KEPT + page), Ok(before + 1));
            self.store(child, KEPT + page, before).unwrap();
            // The page may be drawn again.
            self.store(self.world.space, KEPT + page, before).unwrap();
            self.kept[page as usize] = before;
        }
        assert_eq!(vm.space(child).exit(), Ok(true));
    }
}

/// `VELLUM_SEED` runs other sequences. The threads' interleaving is the host's.
fn stress<R: ReverseMap>(design: &str, seed: u64) {
    let offset = std::env::var("VELLUM_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = seed + offset.unwrap_or(0u64);
    let world = world::<R>(design);
    std::thread::scope(|scope| {
        for cpu in 0..CPUS {
            let world = &world;
            scope.spawn(move || {
                let mut thread = Thread {
                    world,
                    cpu: CpuId(cpu),
                    rng: Rng(seed * u64::from(CPUS) + u64::from(cpu)),
                    kept: vec![0; KEPT_PAGES as usize],
                };
                world.vm.platform().run_on(thread.cpu, || thread.run());
            });
        }
    });
    world.vm.platform().run_on(CpuId(0), || {
        world.vm.file(world.file).release().unwrap();
        let report = world
            .vm
            .audit()
            .unwrap_or_else(|error| panic!("{} {design}: {error}", R::NAME));
        let left = (
            report.spaces,
            report.regions,
            report.objects,
            report.tables,
            report.entries,
        );
        assert_eq!(left, (0, 0, 0, 0, 0), "{} {design}", R::NAME);
    });
}

macro_rules! one_test_each {
    ($($(#[$about:meta])* $name:ident: $design:ident $value:literal;)*) => {
        mod four_threads_with {
            $(#[test] fn $name() { super::every_variant::<vellum::rmap::$design>(); })*
        }
    };
}

vellum::every_rmap! { [one_test_each] }

/// The design and what changes how it works, with some of the other options.
fn every_variant<R: ReverseMap>() {
    for (number, design) in variants("rmap").iter().enumerate() {
        if Design::parse(design).unwrap().rmap.name() == R::NAME {
            let design = format!("{design},{}", other_options(number));
            stress::<R>(&design, number as u64);
        }
    }
}
