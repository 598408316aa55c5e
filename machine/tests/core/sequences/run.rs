//! Cases: a design, a machine, a sequence of operations; and the smallest
//! sequence that still fails.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use vellum::addr::Pfn;
use vellum::design::Rmap;
use vellum::platform::CpuId;
use vellum::rmap::{Family, ReverseMap};
use vellum::table::{Aarch64_4K, Aarch64_16K, Aarch64_64K, Format, Sv39, Sv48, X86_64, X86_64La57};
use vellum::{Design, Vm, with_rmap};
use vellum_machine::mmu::{Walker, X86_64 as X86_WALKER, walker};
use vellum_machine::{Arena, Hole, Machine, MachineConfig, PatternStore};

use super::drive::Driver;
use super::model::pristine;
use super::ops::{Op, sequence};
use super::shape::Shape;

/// What a case runs on.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    pub name: &'static str,
    pub cpus: u16,
    pub nodes: usize,
    pub pages: u64,
    pub holes: &'static [(u32, u32)],
    pub high_from: Option<u32>,
    /// Memory runs out now and then.
    pub tight: bool,
}

pub const PLATFORMS: [Platform; 5] = [
    Platform {
        name: "plain",
        cpus: 3,
        nodes: 1,
        pages: 3000,
        holes: &[],
        high_from: None,
        tight: false,
    },
    Platform {
        name: "two nodes with holes",
        cpus: 4,
        nodes: 2,
        pages: 4000,
        holes: &[(0x155, 11), (0x400, 0x200), (0x800, 1)],
        high_from: None,
        tight: false,
    },
    Platform {
        name: "high memory",
        cpus: 2,
        nodes: 1,
        pages: 4000,
        holes: &[],
        high_from: Some(0x500),
        tight: false,
    },
    Platform {
        name: "small",
        cpus: 2,
        nodes: 1,
        pages: 120,
        holes: &[],
        high_from: None,
        tight: true,
    },
    Platform {
        name: "small with high memory",
        cpus: 3,
        nodes: 2,
        pages: 260,
        holes: &[(0x120, 16)],
        high_from: Some(0x190),
        tight: true,
    },
];

impl Platform {
    pub fn config(&self, walker: &'static dyn Walker, store: Arc<PatternStore>) -> MachineConfig {
        let ram_bytes = self.pages << walker.frame_shift();
        let mut config = MachineConfig::new(ram_bytes).with_walker(walker);
        config.cpus = usize::from(self.cpus);
        config.nodes = self.nodes;
        config.high_from = self.high_from.map(Pfn);
        let hole = |&(start, frames): &(u32, u32)| Hole {
            start: Pfn(start),
            frames,
        };
        config.holes = self.holes.iter().map(hole).collect();
        config.store = store;
        config
    }
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps panics quiet that are the outcome of a case.
pub fn catch<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.to_string();
            if LAST_PANIC.with_borrow(|last| last == "armed") {
                LAST_PANIC.set(text);
            } else {
                default(info);
            }
        }));
    });
    LAST_PANIC.set("armed".into());
    let result = catch_unwind(AssertUnwindSafe(work));
    let panic = LAST_PANIC.take();
    result.unwrap_or_else(|_: Box<dyn Any + Send>| Err(format!("panic: {panic}")))
}

const REST: [&str; 4] = [
    "faultaround=1,forkcopy=all",
    "faultaround=1",
    "faultaround=16",
    "faultaround=16,forkcopy=all",
];

/// Reverse-mapping designs, with what changes how they work.
pub const RMAPS: [&str; 9] = [
    "rmap=chains",
    "rmap=chains,direct=off",
    "rmap=partial",
    "rmap=anonmm2003",
    "rmap=anonmm",
    "rmap=anon_vma",
    "rmap=anon_vma_chain",
    "rmap=family",
    "rmap=family,kinstamp=off,hint=off",
];

/// Sources of page tables.
const TABLES: [&str; 8] = [
    "ptepage=fresh",
    "ptepage=quicklist",
    "ptepage=zeroaware",
    "ptepage=warm",
    "ptepage=depot",
    "ptepage=noted",
    "ptepage=quicklist,quicklevels=separate,quicknode=blind,quickmark=total",
    "ptepage=quicklist,quicknode=blind",
];

/// The source for the case of a number: each meets each of what else changes
/// with the number.
fn tables(seed: u64) -> &'static str {
    TABLES[(seed + seed / 8) as usize % TABLES.len()]
}

/// A case: everything that decides what happens.
#[derive(Clone, Debug)]
pub struct Case {
    pub design: String,
    /// Of page tables.
    pub format: &'static str,
    pub platform: Platform,
    pub ops: Vec<Op>,
}

impl Case {
    /// The case of a number: designs and platforms in turn.
    pub fn nth(seed: u64, length: usize) -> Case {
        let rmap = RMAPS[seed as usize % RMAPS.len()];
        let rest = REST[seed as usize / RMAPS.len() % REST.len()];
        let platform = PLATFORMS[seed as usize / (RMAPS.len() * REST.len()) % PLATFORMS.len()];
        let longest = if platform.tight { 60 } else { 1400 };
        Case {
            design: format!("{rmap},{rest},{}", tables(seed)),
            format: X86_64::NAME,
            platform,
            ops: sequence(seed, Shape::of::<X86_64>(), length, longest),
        }
    }

    /// The case of a number on a format, with the default reverse-mapping design.
    pub fn nth_of<F: Format>(seed: u64, length: usize) -> Case {
        let platform = PLATFORMS[seed as usize % PLATFORMS.len()];
        let longest = if platform.tight { 60 } else { 1400 };
        Case {
            design: format!("{},{}", REST[seed as usize % REST.len()], tables(seed)),
            format: F::NAME,
            platform,
            ops: sequence(seed, Shape::of::<F>(), length, longest),
        }
    }

    /// Runs the case; what went wrong, and at which operation. On success how
    /// often memory ran out.
    pub fn run(&self, arena: &Arc<Arena>) -> Result<u32, (usize, String)> {
        let mut at = 0;
        let result = catch(|| {
            let design = Design::parse(&self.design).map_err(|error| error.to_string())?;
            match (design.rmap, self.format) {
                (rmap, "x86-64") => {
                    with_rmap!(rmap, R => self.run_on::<X86_64, R>(design, arena, &mut at))
                }
                (Rmap::Family, format) => match format {
                    "x86-64-la57" => self.run_on::<X86_64La57, Family>(design, arena, &mut at),
                    "aarch64-4k" => self.run_on::<Aarch64_4K, Family>(design, arena, &mut at),
                    "aarch64-16k" => self.run_on::<Aarch64_16K, Family>(design, arena, &mut at),
                    "aarch64-64k" => self.run_on::<Aarch64_64K, Family>(design, arena, &mut at),
                    "sv39" => self.run_on::<Sv39, Family>(design, arena, &mut at),
                    "sv48" => self.run_on::<Sv48, Family>(design, arena, &mut at),
                    other => Err(format!("there is no format {other}")),
                },
                (rmap, other) => Err(format!("{other} is not tested with {rmap:?}")),
            }
        });
        result.map_err(|error| (at, error))
    }

    fn run_on<F: Format, R: ReverseMap>(
        &self,
        design: Design,
        arena: &Arc<Arena>,
        at: &mut usize,
    ) -> Result<u32, String> {
        let store = Arc::new(PatternStore::new(F::FRAME_SIZE, pristine));
        let walker = walker(F::NAME).ok_or("a format without a walker")?;
        let machine = Machine::new(self.platform.config(walker, store), Arc::clone(arena))
            .map_err(|error| error.to_string())?;
        fill_with_garbage(&machine);
        let vm = Vm::new(machine, design).map_err(|error| error.to_string())?;
        let mut driver = Driver::<F, R>::new(vm, self.platform.cpus, self.platform.tight);
        for (number, op) in self.ops.iter().enumerate() {
            *at = number;
            driver.apply(op)?;
        }
        *at = self.ops.len();
        driver.finish()?;
        Ok(driver.shortages)
    }

    /// Leaves out what the failure does not need.
    pub fn minimise(mut self, arena: &Arc<Arena>) -> Case {
        if let Err((at, _)) = self.run(arena) {
            self.ops.truncate(at + 1);
        }
        let mut chunk = self.ops.len().div_ceil(2).max(1);
        loop {
            let mut start = 0;
            let mut shrunk = false;
            while start < self.ops.len() {
                let mut shorter = self.clone();
                let end = (start + chunk).min(self.ops.len());
                shorter.ops.drain(start..end);
                if shorter.run(arena).is_err() {
                    self = shorter;
                    shrunk = true;
                } else {
                    start = end;
                }
            }
            if chunk == 1 && !shrunk {
                return self;
            }
            chunk = chunk.div_ceil(2);
        }
    }
}

/// Fills RAM with something that is not zero, and the same in every case: what
/// the last case left there would make failures depend on it.
fn fill_with_garbage(machine: &Machine) {
    use vellum::platform::{Platform, Zone};
    machine.run_on(CpuId(0), || {
        let cpu = machine.pin();
        for range in machine.memory_map() {
            for step in 0..range.frames {
                let pfn = range.start.offset(step);
                let high = range.zone == Zone::High;
                let bytes = if high {
                    machine.window(cpu, 0, pfn)
                } else {
                    machine.frame(pfn)
                };
                // SAFETY: the frame is of this size, and nobody uses the machine yet.
                unsafe { bytes.as_ptr().write_bytes(0xa5, 1 << machine.frame_shift()) };
                if high {
                    machine.close_window(cpu, 0);
                }
            }
        }
        machine.unpin(cpu);
    });
}

/// An arena large enough for every platform.
pub fn arena() -> Arc<Arena> {
    arena_for(&X86_WALKER)
}

/// An arena large enough for every platform with tables that `walker` walks.
fn arena_for(walker: &'static dyn Walker) -> Arc<Arena> {
    let store = || Arc::new(PatternStore::new(1 << walker.frame_shift(), pristine));
    let needs = PLATFORMS.map(|platform| platform.config(walker, store()).arena_bytes());
    let bytes = needs.into_iter().map(|bytes| bytes.expect("valid")).max();
    Arena::new(bytes.expect("platforms")).expect("memory")
}

/// Runs cases, and fails with the smallest form of the first that fails.
/// Returns how often memory ran out.
pub fn run_cases(seeds: impl Iterator<Item = u64>, length: usize) -> u32 {
    run_all(seeds.map(|seed| (seed, Case::nth(seed, length))), &arena())
}

/// [`run_cases`] on a format, with the default reverse-mapping design.
pub fn run_cases_of<F: Format>(seeds: impl Iterator<Item = u64>, length: usize) -> u32 {
    let arena = arena_for(walker(F::NAME).expect("a walker"));
    run_all(
        seeds.map(|seed| (seed, Case::nth_of::<F>(seed, length))),
        &arena,
    )
}

fn run_all(cases: impl Iterator<Item = (u64, Case)>, arena: &Arc<Arena>) -> u32 {
    let mut shortages = 0;
    for (seed, case) in cases {
        match case.run(arena) {
            Ok(count) => shortages += count,
            Err((at, error)) => {
                let small = case.clone().minimise(arena);
                let now = small.run(arena).err();
                let mut text = format!(
                    "{}, seed {seed} (VELLUM_SEED={seed} repeats it), {}, {}: operation {at}: {error}\n\
                     smallest sequence that fails: {now:?}\n",
                    case.format, case.design, case.platform.name
                );
                for op in &small.ops {
                    text += &format!("    {op:?},\n");
                }
                panic!("{text}");
            }
        }
    }
    shortages
}
