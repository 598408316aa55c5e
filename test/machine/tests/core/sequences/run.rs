//! Cases: a design, a machine, a sequence of operations; and the smallest
//! sequence that still fails.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Once};

use vellum::addr::Pfn;
use vellum::design::{Rmap, TableFormat, variants};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::swap::SwapArea;
use vellum::table::Format;
use vellum::{Design, Vm, with_format};
use vellum_engine::with_instance;
use vellum_machine::mmu::{Walker, X86_64 as X86_WALKER, walker};
use vellum_machine::store::{CompressedArea, CompressedStore, Contents};
use vellum_machine::{Arena, BackingStore, Hole, Machine, MachineConfig, PatternStore};

use super::drive::Driver;
use super::model::pristine;
use super::ops::{Lengths, Op, sequence};
use super::shape::Shape;
use crate::support::other_options;

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

/// Ways to have superpages.
const SUPERPAGES: [&str; 2] = ["superpage=eager", "superpage=reserve"];

/// The same for objects: shared memory, and files of a store.
const HUGE: &str = "huge=always,filehuge=always";

/// Pages of platforms where superpages are used: of those whose memory runs out, and of the
/// others.
const TIGHT_PAGES: u64 = 1800;
pub const MOST_PAGES: u64 = 20000;

/// Whether windows are mappings of their own: on the format whose tables are reached
/// through them.
fn bites(walker: &dyn Walker) -> bool {
    walker.name() == TableFormat::X86Pae.name()
}

impl Platform {
    pub fn config(
        &self,
        walker: &'static dyn Walker,
        store: Arc<dyn BackingStore>,
    ) -> MachineConfig {
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
        config.biting_windows = bites(walker);
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

/// Reverse-mapping designs, with what changes how they work.
static RMAPS: LazyLock<Vec<String>> = LazyLock::new(|| variants("rmap"));

/// Sources of page tables.
static TABLES: LazyLock<Vec<String>> = LazyLock::new(|| variants("ptepage"));

/// Largest folios, of which the first is none.
static FOLIOS: LazyLock<Vec<String>> = LazyLock::new(|| variants("folio"));

/// Where page tables lie, on x86-pae.
static USER_TABLES: LazyLock<Vec<String>> = LazyLock::new(|| variants("userpte"));

/// The source for the case of a number: each meets each of what else changes
/// with the number.
fn tables(seed: u64) -> &'static str {
    let number = seed as usize;
    &TABLES[(number + number / TABLES.len()) % TABLES.len()]
}

/// The first of the stores that are swap areas: no file's.
const SWAP: u64 = 1 << 30;
/// Slots of the larger area.
const SLOTS: u64 = 3000;

/// What happened in cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// How often memory ran out.
    pub shortages: u32,
    /// Private pages that were dropped because they had been freed.
    pub dropped: u64,
    /// How often spaces were divided into tracts.
    pub divisions: u32,
    /// Superpages mapped, not to be had, split, and made of single pages; runs set aside,
    /// broken, and promoted.
    pub superpages: [u64; 7],
    /// Folios mapped, their pages, and folios not to be had.
    pub folios: [u64; 3],
    /// Contiguous runs made, and ended before they were unmapped whole.
    pub runs: [u64; 2],
    /// Pages written to swap, and read back.
    pub swapped: [u64; 2],
    /// Of compressed stores: pages taken, of one word, and written back.
    pub compressed: [u64; 3],
}

/// A case: everything that decides what happens.
#[derive(Clone, Debug)]
pub struct Case {
    pub design: String,
    /// Of page tables.
    pub format: TableFormat,
    pub platform: Platform,
    /// Whether there are swap areas.
    pub swaps: bool,
    /// Whether the larger of them has a compressed store in front, whether that writes back, and
    /// whether pages are mixed with others, so that they take more.
    pub compressed: Option<(bool, bool)>,
    pub ops: Vec<Op>,
}

impl Case {
    /// The case of a number: designs in turn, and each with other options and
    /// another platform every time.
    pub fn nth(seed: u64, length: usize) -> Case {
        let (rmap, round) = (
            &RMAPS[seed as usize % RMAPS.len()],
            seed as usize / RMAPS.len(),
        );
        let design = format!("{rmap},{},{}", other_options(round), tables(seed));
        Case::on(TableFormat::X86_64, design, (round, false), seed, length)
    }

    /// The case of a number on a format, with one reverse-mapping design.
    pub fn nth_of(
        format: TableFormat,
        (rmap, swaps): (Rmap, bool),
        seed: u64,
        length: usize,
    ) -> Case {
        let round = seed as usize;
        let rmap = rmap.name();
        let mut design = format!("rmap={rmap},{},{}", other_options(round), tables(seed));
        if format == TableFormat::X86Pae {
            // Each on every platform, within 15 cases.
            let values = &USER_TABLES[round % USER_TABLES.len()];
            design += &format!(",{values}");
        }
        if round % 2 == 1 {
            design += &format!(",{}", FOLIOS[round / 2 % FOLIOS.len()]);
        }
        if round % 4 == 2 {
            design += &format!(",{HUGE}");
        }
        Case::on(format, design, (round, swaps), seed, length)
    }

    fn on(
        format: TableFormat,
        design: String,
        (round, swaps): (usize, bool),
        seed: u64,
        length: usize,
    ) -> Case {
        let mut platform = PLATFORMS[round % PLATFORMS.len()];
        let mut design = design;
        // The model does not know which pages of a superpage have gone to swap since the operation
        // began that mapped it, as at a limit, which groups have where memory is tight.
        let has_groups = Design::parse(&design).is_ok_and(|design| {
            let is_off = design.superpages == vellum::design::Superpages::Off;
            design.reclaim && (is_off || !platform.tight)
        });
        if has_groups && seed % 3 != 1 {
            design += ",groups=on";
        }
        let shape = with_format!(format, F => Shape::of::<F>());
        // In other formats they are larger than the largest block of frames.
        let mut values = SUPERPAGES.iter().chain([&HUGE]);
        let large = values.any(|value| design.contains(value)) && shape.page_shift == 12;
        if large {
            platform.pages = if platform.tight {
                TIGHT_PAGES
            } else {
                MOST_PAGES
            };
        }
        let longest = if platform.tight && !large { 60 } else { 1400 };
        let lengths = Lengths {
            longest,
            large,
            huge: large && design.contains(HUGE),
            swaps,
            folios: design.contains("folio=") && !design.contains("folio=off"),
            hooks: seed % 8 == 5,
        };
        Case {
            design,
            format,
            platform,
            swaps,
            compressed: None,
            ops: sequence(seed, shape, length, lengths),
        }
    }

    /// The case of a number with superpages, and with swap areas now and then.
    pub fn nth_with_superpages(seed: u64, length: usize) -> Case {
        let (rmap, round) = (
            &RMAPS[seed as usize % RMAPS.len()],
            seed as usize / RMAPS.len(),
        );
        let others = other_options(round);
        let superpages = SUPERPAGES[round % SUPERPAGES.len()];
        let design = format!("{rmap},{others},{},{superpages}", tables(seed));
        let (round, swaps) = (round + seed as usize, seed % 3 == 2);
        Case::on(TableFormat::X86_64, design, (round, swaps), seed, length)
    }

    /// The case of a number with superpages of objects, and with swap areas or private
    /// superpages now and then.
    pub fn nth_with_huge(seed: u64, length: usize) -> Case {
        let (rmap, round) = (
            &RMAPS[seed as usize % RMAPS.len()],
            seed as usize / RMAPS.len(),
        );
        let mut design = format!("{rmap},{},{}", other_options(round), tables(seed));
        let reclaim = ["on", "off"][round % 2];
        design += &format!(",{HUGE},superpage=off,reclaim={reclaim}");
        if seed % 3 == 1 {
            design += &format!(",{}", SUPERPAGES[seed as usize / 3 % SUPERPAGES.len()]);
        }
        let (round, swaps) = (round + seed as usize, seed % 3 == 2);
        Case::on(TableFormat::X86_64, design, (round, swaps), seed, length)
    }

    /// The case of a number with folios.
    pub fn nth_with_folios(seed: u64, length: usize) -> Case {
        let (rmap, round) = (
            &RMAPS[seed as usize % RMAPS.len()],
            seed as usize / RMAPS.len(),
        );
        let folio = &FOLIOS[1 + seed as usize % (FOLIOS.len() - 1)];
        let design = format!("{rmap},{},{},{folio}", other_options(round), tables(seed));
        let round = round + seed as usize;
        Case::on(TableFormat::X86_64, design, (round, false), seed, length)
    }

    /// The case of a number with contiguous runs, on each format that has any.
    pub fn nth_with_runs(seed: u64, length: usize) -> Case {
        let formats = [
            TableFormat::Aarch64_4K,
            TableFormat::Sv39,
            TableFormat::Sv48,
        ];
        let format = formats[seed as usize % formats.len()];
        let round = seed as usize / formats.len();
        let mut design = format!("{},{}", other_options(round), tables(seed));
        let sizes = ["64k", "1m", "advise", "256k"];
        let folio = sizes[round % sizes.len()];
        design += &format!(",rmap=family,superpage=off,folio={folio},contiguous=on");
        if round % 5 == 4 {
            design += &format!(",{}", SUPERPAGES[round / 5 % SUPERPAGES.len()]);
        }
        // Mostly where there is room for folios.
        let platform = if round % 4 == 3 { 3 } else { round % 2 };
        Case::on(format, design, (platform, round % 3 == 1), seed, length)
    }

    /// The case of a number with swap areas, and in every third round superpages.
    pub fn nth_with_swap(seed: u64, length: usize) -> Case {
        let (rmap, round) = (
            &RMAPS[seed as usize % RMAPS.len()],
            seed as usize / RMAPS.len(),
        );
        let mut design = format!("{rmap},{},{}", other_options(round), tables(seed));
        if round % 3 == 2 {
            design += ",superpage=eager";
        }
        if round % 3 == 1 {
            design += ",folio=64k";
        }
        let round = round + seed as usize;
        Case::on(TableFormat::X86_64, design, (round, true), seed, length)
    }

    /// The same with a compressed store.
    pub fn nth_compressed(seed: u64, length: usize) -> Case {
        Case {
            compressed: Some((seed.is_multiple_of(2), seed % 4 > 1)),
            ..Case::nth_with_swap(seed, length)
        }
    }

    /// A compressed store that is soon full.
    fn compressed(&self, stores: &Arc<PatternStore>) -> Option<Arc<CompressedStore>> {
        let (writes_back, is_mixed) = self.compressed?;
        let about = CompressedArea {
            area: SWAP,
            slots: SLOTS,
            bytes: stores.page_bytes() + 7000,
            writes_back,
        };
        let stores = Arc::clone(stores) as Arc<dyn BackingStore>;
        let page_bytes = stores.page_bytes();
        let store = CompressedStore::new(stores, about).expect("room for a page");
        Some(Arc::new(match is_mixed {
            true => store.with_contents(Contents::new(page_bytes)),
            false => store,
        }))
    }

    /// Runs the case; what went wrong, and at which operation. On success what happened.
    pub fn run(&self, arena: &Arc<Arena>) -> Result<Happened, (usize, String)> {
        let mut at = 0;
        let result = catch(|| {
            let mut design = Design::parse(&self.design).map_err(|error| error.to_string())?;
            design.format = self.format;
            with_instance!(
                design, F, R => self.run_on::<F, R>(design, arena, &mut at),
                format => Err(format!("{format:?} is not tested with {:?}", design.rmap))
            )
        });
        result.map_err(|error| (at, error))
    }

    fn run_on<F: Format, R: ReverseMap>(
        &self,
        design: Design,
        arena: &Arc<Arena>,
        at: &mut usize,
    ) -> Result<Happened, String> {
        let store = Arc::new(PatternStore::new(F::FRAME_SIZE, pristine));
        let walker = walker(F::NAME).ok_or("a format without a walker")?;
        let compressed = self.compressed(&store);
        let stores: Arc<dyn BackingStore> = match &compressed {
            Some(compressed) => Arc::clone(compressed) as Arc<dyn BackingStore>,
            None => store,
        };
        let machine = Machine::new(self.platform.config(walker, stores), Arc::clone(arena))
            .map_err(|error| error.to_string())?;
        fill_with_garbage(&machine);
        let vm = Vm::new(machine, design).map_err(|error| error.to_string())?;
        if self.swaps {
            // The one that is filled first is soon full.
            let first = if compressed.is_some() { -1 } else { 1 };
            for (store, slots, priority) in [(SWAP, SLOTS, 0), (SWAP + 1, 70, first)] {
                let area = SwapArea {
                    store,
                    slots,
                    priority,
                };
                vm.swap_on(area).map_err(|error| error.to_string())?;
            }
        }
        let mut driver = Driver::<F, R>::new(vm, self.platform.cpus, self.platform.tight);
        driver.divides = true;
        for (number, op) in self.ops.iter().enumerate() {
            *at = number;
            driver.apply(op)?;
        }
        *at = self.ops.len();
        driver.finish()?;
        let vm = &driver.vm;
        let stats = vm.platform().run_on(CpuId(0), || vm.stats());
        let (events, reserved) = (stats.events, stats.frames.reservations);
        let swap = vm.swap_stats();
        let mut of_compressed = [0; 3];
        if let Some(compressed) = compressed {
            compressed.audit()?;
            let stats = compressed.stats();
            if stats.pages > 0 {
                return Err(format!("pages of free slots are left: {stats:?}"));
            }
            of_compressed = [stats.taken, stats.taken_same, stats.written_back];
        }
        Ok(Happened {
            shortages: driver.shortages,
            dropped: driver.vm.stats().reclaim.dropped,
            divisions: driver.divisions,
            superpages: [
                events.superpage_maps,
                events.superpage_failures,
                events.superpage_demotions,
                events.superpage_collapses,
                events.reservations,
                reserved.broken,
                events.superpage_promotions,
            ],
            folios: [events.folio_maps, events.folio_pages, events.folio_failures],
            runs: [events.contiguous_runs, events.contiguous_ends],
            swapped: [swap.outs, swap.ins],
            compressed: of_compressed,
        })
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
    use vellum::platform::{Machine as _, WindowSlot, Zone};
    use vellum::sync::bytes::FrameBytes;
    machine.run_on(CpuId(0), || {
        let cpu = machine.pin();
        for range in machine.memory_map() {
            for step in 0..range.frames {
                let pfn = range.start.offset(step);
                let high = range.zone == Zone::High;
                let bytes = if high {
                    machine.window(cpu, WindowSlot::PAGES[0], pfn)
                } else {
                    machine.frame(pfn)
                };
                // SAFETY: the frame is of this size, and nobody uses the machine yet.
                let bytes = unsafe { FrameBytes::new(bytes, 1 << machine.frame_shift()) };
                bytes.fill(u64::from_ne_bytes([0xa5; 8]));
                if high {
                    machine.close_window(cpu, WindowSlot::PAGES[0]);
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
pub fn arena_for(walker: &'static dyn Walker) -> Arc<Arena> {
    let store = || Arc::new(PatternStore::new(1 << walker.frame_shift(), pristine));
    let large = walker.frame_shift() == 12;
    let needs = PLATFORMS.map(|mut platform| {
        if large {
            platform.pages = platform.pages.max(MOST_PAGES);
        }
        platform.config(walker, store()).arena_bytes()
    });
    let bytes = needs.into_iter().map(|bytes| bytes.expect("valid")).max();
    let bytes = bytes.expect("platforms");
    let arena = if bites(walker) {
        Arena::shared(bytes)
    } else {
        Arena::new(bytes)
    };
    arena.expect("memory")
}
