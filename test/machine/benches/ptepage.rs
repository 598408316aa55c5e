//! What a page-table page costs under each `ptepage` design: taken and given
//! back, taken and retired, taken by a strided read fault (the loop of Robin
//! Holt's program of 2004) warm and cold, and freed on another CPU.
//!
//! Every design has a machine of its own, and each round measures one after
//! the other, forth and back, so that a disturbance hits all alike. A figure is
//! the median over rounds; a ratio is the median of the rounds' ratios to
//! `fresh`, with the quarter and three-quarter points of those.
//!
//! `cargo bench -p vellum-machine --bench ptepage`, with `--quick` for a tenth
//! of the rounds, and with words to measure only designs that contain one.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use vellum::addr::{Access, PageRange, Pfn, Prot, Vpn};
use vellum::design::{Design, TableSource};
use vellum::frame::{Kind, PhysicalMemory, Site};
use vellum::platform::{CpuId, CpuSet, Machine as _, SpaceTag, Zone};
use vellum::rmap::Partial;
use vellum::space::{Advice, MapRequest, Placement};
use vellum::table::{
    Aarch64_16K, FlushTarget, Format, Gather, TablePageStats, TablePages, Wanted, X86_64, source_of,
};
use vellum::{SpaceId, Vm};
use vellum_machine::mmu::walker;
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig, PatternStore};

/// Designs, and what they are called here.
fn designs() -> Vec<(&'static str, String)> {
    let sources = TableSource::ALL.iter().map(|source| source.name());
    let mut designs: Vec<_> = sources
        .map(|name| (name, format!("ptepage={name}")))
        .collect();
    let old = "ptepage=quicklist,quicklevels=separate,quicknode=blind,quickmark=total";
    designs.push(("quicklist of 2004", old.to_owned()));
    designs
}

/// Faults of one burst, as in the program of 2004.
const FAULTS: u64 = 32;
/// The page of a table that is faulted in.
const INSIDE: u64 = 77;
const WANTED: Wanted = Wanted {
    site: Site::TablePage,
    level: 1,
    zone: Zone::Low,
    entry: INSIDE as usize,
};
/// Tables of a burst of the source alone: those of 32 faults and an exit.
const BURST: usize = 36;
const PAIRS: u32 = 2000;
const RAM: u64 = 96 << 20;

type Manager<F> = Vm<Arc<Machine>, F, Partial>;

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

fn machine_of<F: Format>() -> Arc<Machine> {
    let options = ArenaOptions {
        huge_pages: true,
        prefault: true,
    };
    let mut config = MachineConfig::new(RAM).with_walker(walker(F::NAME).expect("a walker"));
    config.cpus = 2;
    config.store = Arc::new(PatternStore::new(F::FRAME_SIZE, |_, _| 0));
    let bytes = config.arena_bytes().expect("a valid machine");
    let arena = Arena::with_options(bytes, options).expect("memory");
    Arc::new(Machine::new(config, arena).expect("a machine"))
}

/// One design on one format.
struct Rig<F: Format> {
    name: &'static str,
    /// The source alone, on a machine of its own.
    memory: PhysicalMemory<Arc<Machine>>,
    source: Arc<dyn TablePages<Arc<Machine>>>,
    /// The whole manager, on another.
    vm: Manager<F>,
    space: SpaceId,
    start: Vpn,
    stride: u64,
}

impl<F: Format> Rig<F> {
    fn new(name: &'static str, design: &str) -> Rig<F> {
        let design = Design::parse(design).expect("a design");
        let mut memory = PhysicalMemory::new(machine_of::<F>()).expect("memory");
        let source = source_of(&design, &mut memory);
        let vm: Manager<F> = Vm::new(machine_of::<F>(), design).expect("a manager");
        let stride = F::pages_at(2);
        let start = Vpn(8 * stride);
        let space = vm.platform().run_on(CpuId(0), || {
            let space = vm.create_space().expect("a space").id();
            let pages = (FAULTS + 1) * stride;
            let request = MapRequest::anonymous(pages, Prot::READ).at(Placement::Fixed(start));
            vm.space(space).map(&request).expect("a region");
            // Keeps the tables above alive.
            let anchor = Vpn(start.0 + FAULTS * stride).address::<F>();
            vm.space(space).fault(anchor, Access::Read).expect("a page");
            space
        });
        Rig {
            name,
            memory,
            source,
            vm,
            space,
            start,
            stride,
        }
    }

    /// Nanoseconds of a table taken and given back unused.
    fn pair(&self) -> f64 {
        self.memory.platform().run_on(CpuId(0), || {
            let pin = self.memory.pin();
            let work = || {
                for _ in 0..PAIRS {
                    let table = self.source.take(&self.memory, &pin, WANTED);
                    let table = black_box(table.expect("a table"));
                    // SAFETY: taken in the line before, and never linked.
                    unsafe { self.source.give_back(&self.memory, &pin, table, 1) };
                }
            };
            timed(work) / f64::from(PAIRS)
        })
    }

    /// Nanoseconds of a table taken, unlinked and retired, in bursts.
    fn retired(&self) -> f64 {
        const BURSTS: usize = 20;
        let nobody = FlushTarget {
            tag: SpaceTag(1),
            cpus: CpuSet::EMPTY,
        };
        self.memory.platform().run_on(CpuId(0), || {
            let work = || {
                for _ in 0..BURSTS {
                    let pin = self.memory.pin();
                    let tables: [Pfn; BURST] = std::array::from_fn(|_| {
                        let table = self.source.take(&self.memory, &pin, WANTED);
                        let table = table.expect("a table");
                        // SAFETY: the frame has just been taken.
                        unsafe { self.memory.record(table) }.init_table(1, 1, Vpn(0), 0);
                        table
                    });
                    // SAFETY: the tables were taken above, and never linked.
                    let mut gather =
                        unsafe { Gather::new(&self.memory, &*self.source, &pin, nobody) };
                    for table in black_box(tables) {
                        gather.table(table);
                    }
                }
            };
            timed(work) / (BURSTS * BURST) as f64
        })
    }

    /// Nanoseconds of each of these of the strided read faults.
    fn some_faults(&self, faults: Range<u64>) -> f64 {
        let count = faults.end - faults.start;
        let work = || {
            for fault in faults {
                // Not the first entry, where quicklists have their links.
                let page = Vpn(self.start.0 + fault * self.stride + INSIDE);
                let done = self
                    .vm
                    .space(self.space)
                    .fault(page.address::<F>(), Access::Read);
                black_box(done.expect("a page"));
            }
        };
        timed(work) / count as f64
    }

    /// The same of all.
    fn faults(&self) -> f64 {
        self.some_faults(0..FAULTS)
    }

    /// Unmaps what the faults mapped; nanoseconds for each table.
    fn clear(&self) -> f64 {
        let pages = FAULTS * self.stride;
        let work = || {
            self.vm
                .space(self.space)
                .advise(self.start, pages, Advice::DontNeed)
                .expect("a mapped range");
        };
        timed(work) / FAULTS as f64
    }

    fn warm_round(&self) -> f64 {
        self.vm.platform().run_on(CpuId(0), || {
            let time = self.faults();
            self.clear();
            time
        })
    }

    /// With frames of these kinds out of the caches: the first fault of a
    /// burst, which also finds the tables above there, each of the others, and
    /// the average.
    fn cold_round(&self, out: fn(Kind) -> bool) -> [f64; 3] {
        self.vm.platform().run_on(CpuId(0), || {
            evict(&self.vm, out);
            let (first, other) = (self.some_faults(0..1), self.some_faults(1..FAULTS));
            self.clear();
            let others = (FAULTS - 1) as f64;
            [first, other, (first + others * other) / FAULTS as f64]
        })
    }
}

/// Drops frames of the kinds that are `out` from the caches. The records of frames stay.
fn evict<F: Format>(vm: &Manager<F>, out: fn(Kind) -> bool) {
    let machine = vm.platform();
    for range in machine.memory_map() {
        for nth in 0..range.frames {
            let pfn = range.start.offset(nth);
            if out(vm.memory().frame(pfn).kind()) {
                let first = machine.frame(pfn).as_ptr();
                for line in (0..F::FRAME_SIZE).step_by(64) {
                    flush_line(first.wrapping_add(line));
                }
            }
        }
    }
    fence();
}

#[cfg(target_arch = "x86_64")]
fn flush_line(line: *const u8) {
    // SAFETY: every x86-64 processor has the instruction; the line is the machine's.
    unsafe { std::arch::x86_64::_mm_clflush(line) }
}

#[cfg(target_arch = "x86_64")]
fn fence() {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_mm_mfence() }
}

#[cfg(target_arch = "aarch64")]
fn flush_line(line: *const u8) {
    // SAFETY: user code may clean and invalidate lines of its own memory.
    unsafe { std::arch::asm!("dc civac, {}", in(reg) line) }
}

#[cfg(target_arch = "aarch64")]
fn fence() {
    // SAFETY: a barrier.
    unsafe { std::arch::asm!("dsb sy") }
}

/// Waits until both threads are here. Spins: the phases between are shorter
/// than going to sleep.
fn meet(arrived: &AtomicUsize) {
    let ticket = arrived.fetch_add(1, Ordering::AcqRel);
    let wanted = (ticket / 2 + 1) * 2;
    while arrived.load(Ordering::Acquire) < wanted {
        std::hint::spin_loop();
    }
}

/// CPU 0 faults, CPU 1 unmaps: nanoseconds of a fault and of a table unmapped,
/// for each design in each round.
fn across<F: Format>(rigs: &[Rig<F>], rounds: usize) -> Vec<[Vec<f64>; 2]> {
    let arrived = AtomicUsize::new(0);
    let order = |round: usize| {
        let forth = round.is_multiple_of(2);
        (0..rigs.len()).map(move |nth| if forth { nth } else { rigs.len() - 1 - nth })
    };
    let side = |cpu: CpuId| {
        let mut times = vec![Vec::new(); rigs.len()];
        for round in 0..rounds {
            for nth in order(round) {
                let rig = &rigs[nth];
                rig.vm.platform().run_on(cpu, || {
                    for _ in 0..4 {
                        meet(&arrived);
                        let fault = (cpu.0 == 0).then(|| rig.faults());
                        meet(&arrived);
                        let clear = (cpu.0 == 1).then(|| rig.clear());
                        times[nth].extend(fault.or(clear));
                    }
                });
            }
        }
        times
    };
    // The threads run on two CPUs of the host if it has them.
    let host = machine_of::<F>();
    let mut sides = host.spawn_cpus(side).into_iter();
    let (faults, clears) = (sides.next().expect("CPU 0"), sides.next().expect("CPU 1"));
    let both = faults.into_iter().zip(clears);
    both.map(|(faults, clears)| [faults, clears]).collect()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median(values: &[f64]) -> f64 {
    sorted(values)[values.len() / 2]
}

/// Prints one row: the figure, its spread, and the ratio to the first design.
fn print_rows<F: Format>(title: &str, rigs: &[Rig<F>], times: &[Vec<f64>], bar: Option<f64>) {
    println!("\n{title}, ns");
    for (rig, own) in rigs.iter().zip(times) {
        let all = sorted(own);
        let ratios: Vec<f64> = times[0]
            .iter()
            .zip(own)
            .map(|(base, own)| base / own)
            .collect();
        let ratios = sorted(&ratios);
        let at = |part: usize| ratios[(ratios.len() - 1) * part / 4];
        let mark = match bar {
            Some(bar) if all[all.len() / 2] <= bar => format!("  bar {bar} reached"),
            Some(bar) if rig.name != "fresh" => format!("  bar {bar} missed"),
            _ => String::new(),
        };
        println!(
            "  {:<18} {:>9.1}  ({:.1} .. {:.1})   fresh takes {:.2} times as long ({:.2} .. {:.2}){mark}",
            rig.name,
            all[all.len() / 2],
            all[0],
            all[all.len() - 1],
            at(2),
            at(1),
            at(3),
        );
    }
}

/// Rounds of some figures over all designs, forth and back.
fn interleave<F: Format, const N: usize>(
    rigs: &[Rig<F>],
    rounds: usize,
    figures: impl Fn(&Rig<F>) -> [f64; N],
) -> [Vec<Vec<f64>>; N] {
    let mut times = [(); N].map(|()| vec![Vec::new(); rigs.len()]);
    for round in 0..rounds + 2 {
        for nth in 0..rigs.len() {
            let nth = if round % 2 == 0 {
                nth
            } else {
                rigs.len() - 1 - nth
            };
            let figures = figures(&rigs[nth]);
            // The first two rounds warm up.
            if round >= 2 {
                for (list, time) in times.iter_mut().zip(figures) {
                    list[nth].push(time);
                }
            }
        }
    }
    times
}

fn difference(before: TablePageStats, after: TablePageStats) -> String {
    let taken = after.taken - before.taken;
    let hits = after.hits - before.hits;
    let zeroed = after.bytes_zeroed - before.bytes_zeroed;
    format!(
        "{taken} tables, {:.1} % not zeroed, {:.0} bytes zeroed a table, {} held, {} held at most",
        hits as f64 * 100.0 / taken.max(1) as f64,
        zeroed as f64 / taken.max(1) as f64,
        after.held,
        after.held_peak,
    )
}

fn format_rows<F: Format>(rounds: usize, wanted: &[String]) {
    let is_wanted = |name: &str| {
        name == "fresh" || wanted.is_empty() || wanted.iter().any(|part| name.contains(part))
    };
    let rigs: Vec<Rig<F>> = designs()
        .iter()
        .filter(|(name, _)| is_wanted(name))
        .map(|(name, design)| Rig::new(name, design))
        .collect();
    println!("\n=== {}: tables of {} KiB", F::NAME, F::FRAME_SIZE >> 10);
    let count = |rig: &Rig<F>| rig.vm.stats().tables;
    let report = |before: &[TablePageStats]| {
        for (rig, &before) in rigs.iter().zip(before) {
            println!("  {:<18} {}", rig.name, difference(before, count(rig)));
        }
    };
    let counts = || rigs.iter().map(count).collect::<Vec<_>>();

    let [times] = interleave(&rigs, rounds, |rig| [rig.pair()]);
    print_rows("table taken and given back", &rigs, &times, Some(10.0));
    let [times] = interleave(&rigs, rounds, |rig| [rig.retired()]);
    print_rows("table taken, unlinked and retired", &rigs, &times, None);
    let before = counts();
    let [times] = interleave(&rigs, 4 * rounds, |rig| [rig.warm_round()]);
    print_rows("strided read fault, warm", &rigs, &times, Some(35.0));
    report(&before);
    let cold = |out| interleave(&rigs, rounds / 2, |rig| rig.cold_round(out));
    let all = "strided read fault, tables and records of spaces and regions out of the caches";
    print_rows(all, &rigs, &cold(|_| true)[2], None);
    let before = counts();
    // All but the arenas: tables, and frames that may become some.
    let [first, times, average] = cold(|kind| kind != Kind::Slab);
    let tables = "strided read fault, tables out of the caches";
    print_rows(tables, &rigs, &average, None);
    print_rows("of those, the first of a burst", &rigs, &first, None);
    print_rows("and each of the others", &rigs, &times, None);
    if F::FRAME_SIZE == 16384 {
        let best = times[1..].iter().map(|own| {
            let ratios: Vec<f64> = times[0]
                .iter()
                .zip(own)
                .map(|(base, own)| base / own)
                .collect();
            median(&ratios)
        });
        let best = best.fold(0.0, f64::max);
        let mark = if best >= 9.0 { "reached" } else { "missed" };
        println!("  best of these against fresh: {best:.1} times, bar 9 {mark}");
    }
    report(&before);
    let before = counts();
    let [faults, clears] = {
        let both = across(&rigs, rounds);
        [0, 1].map(|side| {
            both.iter()
                .map(|times| times[side].clone())
                .collect::<Vec<_>>()
        })
    };
    print_rows(
        "strided read fault, tables freed on another CPU",
        &rigs,
        &faults,
        None,
    );
    print_rows("unmapping of a table on another CPU", &rigs, &clears, None);
    report(&before);
}

/// Private pages: faulted in by a store, and then used line by line. Zeroing at
/// the fault leaves the page in the cache; zeroing in idle time does not.
fn pages(rounds: usize) {
    const SET: u64 = 512;
    let rigs = ["fresh", "zeroaware"].map(|name| {
        let design = Design::parse(&format!("ptepage={name}")).expect("a design");
        let vm: Manager<X86_64> = Vm::new(machine_of::<X86_64>(), design).expect("a manager");
        let (space, start) = vm.platform().run_on(CpuId(0), || {
            let space = vm.create_space().expect("a space").id();
            let request = MapRequest::anonymous(SET, Prot::READ_WRITE);
            (space, vm.space(space).map(&request).expect("a region"))
        });
        (name, vm, space, start)
    });
    println!("\n=== private pages, stored to and then read line by line, ns a page");
    let mut times = [[const { Vec::new() }; 3], [const { Vec::new() }; 3]];
    for round in 0..rounds + 2 {
        for (nth, (_, vm, space, start)) in rigs.iter().enumerate() {
            vm.platform().run_on(CpuId(0), || {
                let zero = timed(|| while vm.zero_idle(SET as u32) > 0 {});
                let fault = timed(|| {
                    let range = PageRange::new(*start, SET);
                    for page in range.start.0..range.end.0 {
                        vm.space(*space)
                            .fault(page << 12, Access::Write)
                            .expect("a page");
                    }
                });
                let mut sum = 0u64;
                let mut frames = Vec::new();
                for step in 0..SET {
                    let (frame, _) = vm
                        .space(*space)
                        .translate(start.offset(step))
                        .expect("a page");
                    frames.push(vm.platform().frame(frame));
                }
                let used = timed(|| {
                    for frame in &frames {
                        for line in (0..4096).step_by(64) {
                            // SAFETY: the line is inside of the frame, which
                            // the region has mapped.
                            sum += u64::from(unsafe { frame.add(line).read_volatile() });
                        }
                    }
                });
                black_box(sum);
                vm.space(*space)
                    .advise(*start, SET, Advice::DontNeed)
                    .expect("a mapped range");
                if round >= 2 {
                    for (list, time) in times[nth].iter_mut().zip([fault, used, zero]) {
                        list.push(time / SET as f64);
                    }
                }
            });
        }
    }
    for ((name, vm, ..), times) in rigs.iter().zip(&times) {
        let stats = vm.memory().stats();
        let [fault, used, zero] = [0, 1, 2].map(|nth| median(&times[nth]));
        println!(
            "  {name:<18} {fault:>8.1} fault  {used:>8.1} use  {:>8.1} both; {zero:.1} in idle time, \
             {} frames came zeroed",
            fault + used,
            stats.zero_hits,
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let rounds = if quick { 20 } else { 200 };
    let wanted: Vec<String> = arguments
        .into_iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    format_rows::<X86_64>(rounds, &wanted);
    format_rows::<Aarch64_16K>(rounds, &wanted);
    pages(rounds);
}
