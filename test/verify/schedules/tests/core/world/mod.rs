//! A small machine with a core on it, and programs that run on its CPUs.

pub mod files;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use vellum::addr::{Access, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, FileRequest, MapRequest, Placement, SpaceId, Traits};
use vellum::swap::SwapArea;
use vellum::table::{Format, X86_64, X86Pae};
use vellum::{Design, ObjectId, Vm};
use vellum_machine::mmu::{AccessError, walker};
use vellum_machine::{Arena, ArenaOptions, BackingStore, Machine, MachineConfig, PatternStore};
use vellum_schedules::{Exploration, Preemption, SCHEDULER, Step, follow, undisturbed};

/// What word every page of a file holds until it is written.
pub fn pristine(store: u64, page: u64) -> u64 {
    0xf11e_0000_0000 + store * 0x1_0000 + page
}

/// Number of the store of a swap area.
pub const SWAP: u64 = 9;

pub const RW: Prot = Prot::READ_WRITE;

/// Byte address of word `word` of page `page`.
pub fn at(page: u64, word: u64) -> u64 {
    page << 12 | word << 3
}

pub struct World<R: ReverseMap, F: Format = X86_64> {
    pub vm: Vm<Machine, F, R>,
    pub store: Arc<PatternStore>,
}

/// Memory for a machine of this thread, that of the schedule before if it is free.
fn arena(bytes: usize) -> Arc<Arena> {
    thread_local! {
        static LAST: RefCell<Option<Arc<Arena>>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| {
        let is_free = |last: &Arc<Arena>| last.bytes() >= bytes && Arc::strong_count(last) == 1;
        if last.as_ref().is_none_or(|last| !is_free(last)) {
            let options = ArenaOptions {
                huge_pages: false,
                prefault: false,
            };
            *last = Some(Arena::with_options(bytes, options).unwrap());
        }
        Arc::clone(last.as_ref().unwrap())
    })
}

/// One program of a test, which runs on a CPU of its own.
pub type Task<'a> = &'a (dyn Fn(CpuId) + Sync);

impl<R: ReverseMap> World<R> {
    /// `cpus` CPUs and `frames` frames under the scheduler, with tables of x86-64.
    pub fn new(cpus: usize, frames: u64, design: &str) -> Self {
        World::on(cpus, frames, design)
    }

    /// The same with what `front` puts before the store.
    pub fn with_store(
        cpus: usize,
        frames: u64,
        design: &str,
        front: impl FnOnce(Arc<PatternStore>) -> Arc<dyn BackingStore>,
    ) -> Self {
        World::build((cpus, 1), frames, design, front)
    }
}

impl<R: ReverseMap, F: Format> World<R, F> {
    /// `cpus` CPUs and `frames` frames under the scheduler.
    pub fn on(cpus: usize, frames: u64, design: &str) -> Self {
        World::build((cpus, 1), frames, design, |store| store)
    }

    /// A CPU and so many frames on each of some nodes.
    pub fn on_nodes(nodes: usize, frames: u64, design: &str) -> Self {
        World::build((nodes, nodes), frames * nodes as u64, design, |store| store)
    }

    fn build(
        (cpus, nodes): (usize, usize),
        frames: u64,
        design: &str,
        front: impl FnOnce(Arc<PatternStore>) -> Arc<dyn BackingStore>,
    ) -> Self {
        let mut name = format!("rmap={},{}", R::NAME, OPTIONS.get());
        let mut plain = MachineConfig::new(frames * 4096).with_walker(walker(F::NAME).unwrap());
        if F::NAME == X86Pae::NAME {
            // Some tables are reached through windows, and others are not, unless the
            // design says otherwise.
            name += ",userpte=high";
            plain.high_from = Some(plain.low_memory(frames * 4096 / 4 * 3));
        }
        name += ",";
        name += design;
        let design = Design::parse(&name).unwrap();
        let store = Arc::new(PatternStore::new(4096, pristine));
        let config = MachineConfig {
            cpus,
            nodes,
            scheduler: Some(&SCHEDULER),
            store: front(store.clone()),
            ..plain
        };
        let arena = arena(config.arena_bytes().unwrap());
        let machine = Machine::new(config, arena).unwrap();
        let vm = undisturbed(|| Vm::new(machine, design).unwrap());
        World { vm, store }
    }

    pub fn machine(&self) -> &Machine {
        self.vm.platform()
    }

    /// Runs `work` on CPU 0 before or after the tasks, without preemption.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        undisturbed(|| self.machine().run_on(CpuId(0), work))
    }

    /// Runs each task on a CPU of its own, in the order that the steps say.
    pub fn run_by(&self, steps: Vec<Step>, tasks: &[Task<'_>]) {
        follow(tasks.len(), steps, |ended| self.start(tasks, ended));
    }

    /// Runs two tasks, of which one is preempted for all of the other.
    pub fn run_preempted(&self, preemption: &Preemption, tasks: [Task<'_>; 2]) {
        self.run_by(preemption.steps(), &tasks);
    }

    /// Whether some CPU has begun a flush beyond the first `flushes`.
    pub fn flushes_since(&self, flushes: u64) -> bool {
        self.machine().stats().flush_requests > flushes
    }

    /// Runs each task on a CPU of its own.
    pub fn run(&self, tasks: &[Task<'_>]) {
        self.start(tasks, &|_| ());
    }

    fn start(&self, tasks: &[Task<'_>], ended: &(dyn Fn(usize) + Sync)) {
        start(self.machine(), tasks, ended);
    }

    fn access(
        &self,
        cpu: CpuId,
        id: SpaceId,
        address: u64,
        access: Access,
        value: u64,
    ) -> Result<u64, FaultError> {
        let loaded = self.vm.space(id).load().map_err(|_| FaultError::NoSpace)?;
        // SAFETY: the root is the one that the manager gave for the space,
        // which the test keeps for the length of the access.
        let mmu = unsafe { self.machine().mmu(cpu) };
        let mut handler = |fault: vellum_machine::mmu::MmuFault| {
            self.vm
                .space(id)
                .fault(fault.address, fault.access)
                .map(|_| ())
        };
        mmu.access(
            loaded.tag,
            loaded.root,
            address,
            access,
            value,
            &mut handler,
        )
        .map_err(|error| match error {
            AccessError::Refused(error) => error,
            AccessError::Unresolved { fault, .. } | AccessError::Conflict(fault) => {
                panic!("still faults: {fault}")
            }
        })
    }

    pub fn load(&self, cpu: CpuId, id: SpaceId, address: u64) -> Result<u64, FaultError> {
        self.access(cpu, id, address, Access::Read, 0)
    }

    pub fn store(
        &self,
        cpu: CpuId,
        id: SpaceId,
        address: u64,
        value: u64,
    ) -> Result<(), FaultError> {
        self.access(cpu, id, address, Access::Write, value)
            .map(|_| ())
    }

    /// Maps private zeroes at `page`.
    pub fn anonymous(&self, id: SpaceId, page: u64, pages: u64) {
        let request = MapRequest::anonymous(pages, RW).at(Placement::Fixed(Vpn(page)));
        self.vm.space(id).map(&request).unwrap();
    }

    /// A space with nothing in it.
    pub fn space(&self) -> SpaceId {
        self.vm.create_space().unwrap().id()
    }

    /// So many pages of shared memory.
    pub fn memory(&self, pages: u64) -> ObjectId {
        let request = FileRequest::shared_memory(pages << 12);
        self.vm.create_file(request).unwrap().id()
    }

    /// A file of so many pages of a store.
    pub fn stored(&self, store: u64, pages: u64) -> ObjectId {
        let request = FileRequest::stored(store, pages << 12);
        self.vm.create_file(request).unwrap().id()
    }

    /// Maps an object from its page `index` on.
    pub fn object(
        &self,
        id: SpaceId,
        object: ObjectId,
        index: u64,
        page: u64,
        pages: u64,
        shared: bool,
    ) {
        let traits = if shared { Traits::SHARED } else { Traits::NONE };
        let request = MapRequest {
            traits,
            ..MapRequest::object(object, index, pages, RW).at(Placement::Fixed(Vpn(page)))
        };
        self.vm.space(id).map(&request).unwrap();
    }

    /// Has pages go to a swap area of so many slots, [`SWAP`].
    pub fn swap_on(&mut self, slots: u64) {
        let area = SwapArea::new(SWAP, slots);
        undisturbed(|| self.vm.swap_on(area).unwrap());
    }

    /// Pages that are in use stay.
    pub fn page_out(&self, space: SpaceId, page: u64, pages: u64) {
        let _ = (self.vm)
            .space(space)
            .advise(Vpn(page), pages, Advice::PageOut);
    }

    /// [`World::finish`], after which every swap slot is free again.
    pub fn finish_swap(&self, spaces: &[SpaceId], objects: &[ObjectId]) {
        self.finish(spaces, objects);
        let stats = self.vm.swap_stats();
        assert_eq!(stats.free + stats.bad, stats.slots, "slots leaked");
    }

    /// Frees what waits for its epoch, if it has passed, and moves the epoch on.
    pub fn drain(&self) {
        let pin = self.vm.pin();
        self.vm.memory().drain(&pin);
    }

    pub fn audit(&self) {
        self.alone(|| {
            if let Err(failure) = self.vm.audit() {
                panic!("audit: {failure}");
            }
        });
    }

    /// Checks everything, ends what is left, and checks that nothing leaked.
    pub fn finish(&self, spaces: &[SpaceId], objects: &[ObjectId]) {
        self.audit();
        self.alone(|| {
            for &space in spaces {
                while self.vm.space(space).exit() == Ok(false) {}
            }
            for &object in objects {
                let _ = self.vm.file(object).release();
            }
        });
        self.audit();
        let report = self.alone(|| self.vm.audit().unwrap());
        assert_eq!(
            (report.spaces, report.regions, report.objects, report.tables),
            (0, 0, 0, 0)
        );
        let left: u64 = [
            vellum::frame::Kind::Anonymous,
            vellum::frame::Kind::Object,
            vellum::frame::Kind::Allocated,
        ]
        .iter()
        .map(|&kind| report.frames.of(kind))
        .sum();
        assert_eq!(left, 0, "frames leaked");
    }
}

/// Runs each task on a CPU of its own. Without a type parameter, so that it is
/// compiled once.
fn start(machine: &Machine, tasks: &[Task<'_>], ended: &(dyn Fn(usize) + Sync)) {
    shuttle::thread::scope(|scope| {
        let tasks: Vec<_> = (0..)
            .zip(tasks)
            .map(|(cpu, task)| {
                let cpu = CpuId(cpu);
                scope.spawn(move || {
                    machine.run_on(cpu, || task(cpu));
                    ended(usize::from(cpu.0));
                })
            })
            .collect();
        for task in tasks {
            if let Err(panic) = task.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Number of schedules for a test: `base`, times what `VELLUM_SCHEDULES` says.
fn schedules(base: u64) -> u64 {
    let factor = std::env::var("VELLUM_SCHEDULES")
        .ok()
        .and_then(|text| text.parse().ok());
    base * factor.unwrap_or(1u64)
}

/// First seed; `VELLUM_SEED` sets another.
fn seed() -> u64 {
    std::env::var("VELLUM_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

const AS_THEN: &str = "regions=list,fileio=pages,pagelock=hashed,accessed=atomic,flags=atomic,\
    framelists=linked,zonecache=eager,blockflags=bits,buddycheck=early,marks=early,\
    faultlock=space,pmaplock=space,pvlock=byte-shared";

thread_local! {
    /// Options that every world of the exploration has, unless its test says otherwise.
    static OPTIONS: Cell<&'static str> = const { Cell::new("") };
}

/// Explores one test, whose name a failure is to tell.
pub fn explore_one(name: &str, base: u64, test: impl Fn() + Send + Sync + 'static) {
    explore_of(name, base, Arc::new(test));
}

/// Without a type parameter, so that it is compiled once.
fn explore_of(name: &str, base: u64, test: Arc<dyn Fn() + Send + Sync>) {
    let all = schedules(base);
    let quarter = all / 4;
    // Mostly bursts; every fourth schedule is mixed finely, half of them with the regions of
    // objects in several trees. Another fourth does as kernels did: these regions in lists,
    // files page by page, frames linked.
    for (bursts, options, count) in [
        (true, "", all - 2 * quarter),
        (true, AS_THEN, quarter),
        (false, "", quarter - quarter / 2),
        (false, "fileio=pages,regions=spread", quarter / 2),
    ] {
        let test = Arc::clone(&test);
        let exploration = Exploration {
            bursts,
            max_steps: 3_000_000,
            ..Exploration::new(seed(), count)
        };
        let run = move || {
            OPTIONS.set(options);
            test();
        };
        if let Some(failure) = exploration.find_failure(run) {
            panic!(
                "{name} {options}: seed {} (bursts: {bursts}): {}",
                failure.seed, failure.message
            );
        }
    }
}

/// Makes a test function of a generic body `$body::<R>()`: it explores that of
/// every design.
macro_rules! explored {
    ($($(#[$meta:meta])* $name:ident: $count:expr => $body:ident;)*) => { $(
        $(#[$meta])*
        #[test]
        fn $name() {
            for &rmap in vellum::design::Rmap::ALL {
                vellum::with_rmap!(rmap, R => {
                    $crate::world::explore_one(rmap.name(), $count, $body::<R>)
                });
            }
        }
    )* };
}

/// The same for a body that runs once, by the script in it.
macro_rules! scripted {
    ($($(#[$meta:meta])* $name:ident => $body:ident;)*) => { $(
        $(#[$meta])*
        #[test]
        fn $name() {
            for &rmap in vellum::design::Rmap::ALL {
                println!("{}", rmap.name());
                vellum::with_rmap!(rmap, R => vellum_schedules::run_scripted($body::<R>));
            }
        }
    )* };
}

/// The same, with the design that a machine has by default, for a body that runs once for
/// every place where one of its two tasks may be preempted for the other.
macro_rules! swept {
    ($($(#[$meta:meta])* $name:ident => $body:ident;)*) => { $(
        $(#[$meta])*
        #[test]
        fn $name() {
            vellum_schedules::sweep($body::<vellum::rmap::Family>);
        }
    )* };
}
