//! The paths that a workload spends its time in, measured one by one.
//!
//! Each figure is the median over rounds, with the smallest and the largest,
//! of real work on real memory: pages are zeroed and copied, and how many
//! bytes is printed beside it. Machines wobble: compare figures of one run.
//!
//! `cargo bench -p vellum-machine --bench paths`, or `-- superpages`, `-- hot-superpages`, `-- folios`
//! or `-- reclaim` for those alone; `-- huge` for shared memory and files in superpages, which are measured only then

#[path = "paths/huge.rs"]
mod huge;
#[path = "paths/superpages.rs"]
mod superpages;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use vellum::addr::{Access, PageRange, Pfn, Prot, Vpn};
use vellum::design::{Design, Rmap};
use vellum::frame::{Request, Site};
use vellum::platform::{CpuId, CpuSet, SpaceTag};
use vellum::rmap::{Family, Partial, Pv, ReverseMap};
use vellum::space::{Advice, FileRequest, MapRequest, Placement};
use vellum::table::{FlushTarget, Format, Fresh, Gather, Marks, Tables, Users, X86_64};
use vellum::{SpaceId, Vm, with_rmap};
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig};

const GIB: u64 = 1 << 30;
const PAGES_PER_GIB: u64 = GIB >> 12;

type Manager<R> = Vm<Arc<Machine>, X86_64, R>;

fn machine(cpus: usize, ram: u64, arena: &Arc<Arena>) -> Arc<Machine> {
    let mut config = MachineConfig::new(ram);
    config.cpus = cpus;
    Arc::new(Machine::new(config, Arc::clone(arena)).expect("a machine"))
}

fn manager<R: ReverseMap>(machine: &Arc<Machine>, design: &str) -> Manager<R> {
    let design = Design::parse(design).expect("a design");
    Vm::new(Arc::clone(machine), design).expect("a manager")
}

/// Nanoseconds of each round, divided by what one round does.
struct Figure(Vec<f64>);

impl Figure {
    fn take(rounds: usize, each: f64, mut round: impl FnMut() -> f64) -> Figure {
        Figure((0..rounds).map(|_| round() / each).collect())
    }

    fn print(mut self, name: &str, unit: &str, bar: Option<f64>, note: &str) {
        self.0.sort_by(f64::total_cmp);
        let median = self.0[self.0.len() / 2];
        let (low, high) = (self.0[0], self.0[self.0.len() - 1]);
        let bar = bar.map_or(String::new(), |bar| {
            let mark = if median <= bar { "reached" } else { "missed" };
            format!("  bar {bar} {mark}")
        });
        println!("{name:<58} {median:>8.2} {unit:<7} ({low:.2} .. {high:.2}){bar}  {note}");
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

fn touch<R: ReverseMap>(vm: &Manager<R>, space: SpaceId, start: u64, pages: u64) {
    for page in start..start + pages {
        vm.space(space)
            .fault(page << 12, Access::Write)
            .expect("a page");
    }
}

fn space_with<R: ReverseMap>(vm: &Manager<R>, start: u64, pages: u64) -> SpaceId {
    let space = vm.create_space().expect("a space").id();
    let request = MapRequest::anonymous(pages, Prot::READ_WRITE).at(Placement::Fixed(Vpn(start)));
    vm.space(space).map(&request).expect("a region");
    space
}

/// Dense maps through the table layer alone: 16,384 pages in a row.
fn tables(arena: &Arc<Arena>) {
    const PAGES: u64 = 16384;
    let machine = machine(1, 256 << 20, arena);
    machine.run_on(CpuId(0), || {
        let vm: Manager<Partial> = manager(&machine, "");
        // SAFETY: what is changed is the tables made here.
        let memory = unsafe { vellum::probe::layers(&vm) }.memory;
        let pin = vm.pin();
        let root = Tables::<_, X86_64>::make_root(memory, &Fresh, &pin, 1).expect("a root");
        // SAFETY: that root, which is freed by nobody.
        let tables = unsafe { Tables::<_, X86_64>::new(memory, &Fresh, &pin, root, 1) };
        let range = PageRange::new(Vpn(0x10000), PAGES);
        let map = || {
            let mut page = range.start;
            while page < range.end {
                let table = tables.lock_or_make(page, &mut 0).expect("a table");
                let first = X86_64::index(page, 1);
                let count = (512 - first).min((range.end.0 - page.0) as usize);
                for step in 0..count {
                    let frame = Pfn(0x1000 + (page.0 - range.start.0) as u32 + step as u32);
                    let leaf = X86_64::leaf(frame, 1, Prot::READ_WRITE, Marks::DIRTY);
                    table.fill(first + step, leaf);
                }
                table.count_made(count as u32);
                page = page.offset(count as u64);
            }
        };
        let unmap = |users: Users| {
            let target = FlushTarget {
                tag: SpaceTag(1),
                cpus: CpuSet::EMPTY,
            };
            // SAFETY: only the tables made here are put in, which no CPU has loaded.
            let mut gather = unsafe { Gather::new(memory, &Fresh, &pin, target) };
            let mut sum = 0;
            for span in tables.spans(range) {
                for index in span.first..span.first + span.count {
                    sum ^= span.table.clear(index, users);
                }
                span.table.count_cleared(span.count as u32);
                tables.unlink_if_empty(span.table, &mut gather);
            }
            black_box(sum);
        };
        let pages = PAGES as f64;
        let mut unmaps = [Vec::new(), Vec::new()];
        let maps = Figure::take(41, pages, || {
            let time = timed(map);
            let which = unmaps[0].len() > unmaps[1].len();
            let users = if which { Users::Hardware } else { Users::None };
            unmaps[usize::from(which)].push(timed(|| unmap(users)) / pages);
            time
        });
        maps.print(
            "map dense 4 KiB pages, tables made",
            "ns/page",
            Some(2.0),
            "",
        );
        let [plain, atomic] = unmaps;
        Figure(plain).print("unmap them, old bits not needed", "ns/page", Some(2.0), "");
        Figure(atomic).print(
            "unmap them, old bits fetched atomically",
            "ns/page",
            Some(8.0),
            "",
        );
    });
}

/// Write faults over a set that is unmapped and faulted again.
fn faults<R: ReverseMap>(arena: &Arc<Arena>, design: &str) {
    const SET: u64 = 1024;
    const START: u64 = 0x10000;
    let machine = machine(2, 256 << 20, arena);
    machine.run_on(CpuId(0), || {
        let vm: Manager<R> = manager(&machine, design);
        let space = space_with(&vm, START, SET);
        let round = || {
            let time = timed(|| touch(&vm, space, START, SET));
            vm.space(space)
                .advise(Vpn(START), SET, Advice::DontNeed)
                .expect("a mapped range");
            time
        };
        let before = vm.memory().stats();
        let figure = Figure::take(201, SET as f64, round);
        let after = vm.memory().stats();
        let zeroed = (after.bytes_zeroed - before.bytes_zeroed) / (201 * SET);
        let name = format!("write fault, 4 MiB set reused, {}", R::NAME);
        figure.print(
            &name,
            "ns",
            Some(150.0),
            &format!("{zeroed} bytes zeroed a fault"),
        );
    });
}

/// Waits until all of `count` threads are here. Spins: the phases between are
/// shorter than going to sleep.
fn meet(arrived: &AtomicUsize, count: usize) {
    let ticket = arrived.fetch_add(1, Ordering::AcqRel);
    let wanted = (ticket / count + 1) * count;
    while arrived.load(Ordering::Acquire) < wanted {
        std::hint::spin_loop();
    }
}

/// Two threads fault in one space, each in its half; against one that does
/// both. Only the faults are timed; who touched pages unmaps them.
fn two_threads(arena: &Arc<Arena>) {
    const HALF: u64 = 1024;
    const ROUNDS: usize = 200;
    const START: u64 = 0x10000;
    let machine = machine(2, 256 << 20, arena);
    let vm: Manager<Partial> = manager(&machine, "");
    let space = machine.run_on(CpuId(0), || space_with(&vm, START, 2 * HALF));
    let arrived = AtomicUsize::new(0);
    let clear = |start: u64, pages: u64| {
        vm.space(space)
            .advise(Vpn(start), pages, Advice::DontNeed)
            .expect("a mapped range");
    };
    let mut sides = machine.spawn_cpus(|cpu| {
        let own = START + u64::from(cpu.0) * HALF;
        let mut ratios = Vec::new();
        for _ in 0..ROUNDS {
            meet(&arrived, 2);
            let alone = if cpu.0 == 0 {
                let time = timed(|| touch(&vm, space, START, 2 * HALF));
                clear(START, 2 * HALF);
                time
            } else {
                0.0
            };
            // Twice: the first time gives this CPU frames of its own.
            let mut together = 0.0;
            for _ in 0..2 {
                meet(&arrived, 2);
                together = timed(|| {
                    touch(&vm, space, own, HALF);
                    meet(&arrived, 2);
                });
                clear(own, HALF);
            }
            ratios.push(alone / together);
        }
        ratios
    });
    let ratio = Figure(sides.swap_remove(0));
    let name = "two threads of one space against one (1.7 or more)";
    ratio.print(name, "x", None, "faults only");
}

/// A gigabyte: cold faults, forks of it, exits.
fn gigabyte<R: ReverseMap>(arena: &Arc<Arena>, design: &str) {
    const START: u64 = 0x10_0000;
    let machine = machine(1, 3 * GIB, arena);
    machine.run_on(CpuId(0), || {
        let vm: Manager<R> = manager(&machine, design);
        let space = space_with(&vm, START, PAGES_PER_GIB);
        let cold = timed(|| touch(&vm, space, START, PAGES_PER_GIB)) / PAGES_PER_GIB as f64;
        let name = format!("write fault, cold, 1 GiB, {}", R::NAME);
        Figure(vec![cold]).print(&name, "ns", None, "first touch of the memory");
        let mut exits = Vec::new();
        let mut fork = || {
            let start = Instant::now();
            let child = vm.space(space).fork().expect("a child").id();
            let time = start.elapsed().as_nanos() as f64 / 1e6;
            let start = Instant::now();
            vm.space(child).exit().expect("the child");
            exits.push(start.elapsed().as_nanos() as f64 / 1e6);
            time
        };
        let first = fork();
        let again: Vec<f64> = (0..15).map(|_| fork()).collect();
        // Chains make a node for each page; `anonmm2003` takes a lock for each.
        let (bar_first, bar_again) = match R::NAME {
            "chains" | "partial" => (12.0, 8.0),
            "anonmm2003" => (12.0, 6.0),
            _ => (12.0, 4.0),
        };
        let name = format!("fork of 1 GiB touched, first, {}", R::NAME);
        Figure(vec![first]).print(&name, "ms", Some(bar_first), "");
        let name = format!("fork of 1 GiB touched, again, {}", R::NAME);
        Figure(again).print(&name, "ms", Some(bar_again), "");
        let name = format!("exit of the child, {}", R::NAME);
        Figure(exits).print(&name, "ms", Some(6.0), "");
        vm.space(space).exit().expect("the space");
    });
}

/// First touch of a gigabyte by folios of 64 KiB and by single pages, beside zeroing as much in
/// pieces of 64 KiB. They take turns of 32 MiB, so that a machine that wobbles does so for all.
fn folios<R: ReverseMap>() {
    const START: u64 = 0x10_0000;
    const ORDER: u32 = 4;
    const TURN: u64 = PAGES_PER_GIB / 32;
    const ROUNDS: usize = 31;
    // The first has what is only zeroed, too.
    let machines = [2 * GIB + GIB / 4, GIB + GIB / 4].map(|ram| {
        let options = ArenaOptions {
            huge_pages: true,
            prefault: true,
        };
        let arena = Arena::with_options(ram as usize + (64 << 20), options).expect("memory");
        machine(1, ram, &arena)
    });
    let designs = ["folio=64k", ""];
    let managers: [Manager<R>; 2] = [0, 1].map(|side| manager(&machines[side], designs[side]));
    let request = Request::page(Site::AnonymousPage).order(ORDER).zeroed();
    let (mut figures, mut exits) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
    let mut ratios = [const { Vec::new() }; 2];
    for round in 0..=ROUNDS {
        let mut blocks = Vec::with_capacity((PAGES_PER_GIB >> ORDER) as usize);
        let spaces = [0, 1].map(|side| {
            machines[side].run_on(CpuId(0), || {
                space_with(&managers[side], START, PAGES_PER_GIB)
            })
        });
        let mut times = [0.0; 3];
        for first in (START..START + PAGES_PER_GIB).step_by(TURN as usize) {
            times[0] += machines[0].run_on(CpuId(0), || {
                let pin = managers[0].pin();
                let memory = managers[0].memory();
                let block = |_| memory.alloc(&pin, request).expect("64 KiB");
                timed(|| blocks.extend((0..TURN >> ORDER).map(block)))
            });
            // A store to one page of each folio, which is all that faults, and to every page.
            for (side, step) in [(0, 1 << ORDER), (1, 1)] {
                let (vm, space) = (&managers[side], spaces[side]);
                times[1 + side] += machines[side].run_on(CpuId(0), || {
                    timed(|| {
                        for page in (first..first + TURN).step_by(step) {
                            vm.space(space)
                                .fault(page << 12, Access::Write)
                                .expect("a page");
                        }
                    })
                });
            }
        }
        machines[0].run_on(CpuId(0), || drop(blocks));
        for side in [0, 1] {
            let (vm, space) = (&managers[side], spaces[side]);
            machines[side].run_on(CpuId(0), || {
                let stats = vm.space(space).stats().expect("the space");
                assert_eq!(stats.rss.anonymous, PAGES_PER_GIB);
                let time = timed(|| _ = vm.space(space).exit().expect("the space")) / 1e6;
                exits[side].push(time);
            });
        }
        // The first round warms up.
        if round > 0 {
            let [zeroed, folios, pages] = times;
            for (figure, time) in figures.iter_mut().zip(times) {
                figure.push(time / 1e6);
            }
            ratios[0].push(folios / zeroed);
            ratios[1].push((folios - zeroed) / (pages - zeroed));
        }
    }
    let names = [
        "zeroing 1 GiB in pieces of 64 KiB",
        "first use of 1 GiB by folios of 64 KiB",
        "first use of 1 GiB page by page",
        "exit of the space with folios",
        "exit of the space with pages",
    ];
    for (figure, name) in figures.into_iter().chain(exits).zip(names) {
        Figure(figure).print(&format!("{name}, {}", R::NAME), "ms", None, "");
    }
    let [against, beyond] = ratios;
    let name = format!("first use by folios against zeroing, {}", R::NAME);
    Figure(against).print(&name, "x", Some(1.1), "");
    let name = format!("beyond zeroing, folios against pages, {}", R::NAME);
    Figure(beyond).print(&name, "x", Some(0.25), "");
}

/// Pages that leave memory and come back, and what a fault pays for being ready for it. The
/// managers take turns, so that a machine that wobbles does so for all, and each has each of three
/// memories once: where the host has put one makes more of a difference than what is looked for.
fn reclaim() {
    const SET: u64 = 1024;
    const START: u64 = 0x10000;
    const ROUNDS: usize = 201;
    const DESIGNS: [&str; 3] = ["", "reclaim=on", "reclaim=on,aging=generations"];
    let half = GIB / 2;
    let arenas = DESIGNS.map(|_| Arena::new(half as usize * 2).expect("memory"));
    let mut times = DESIGNS.map(|_| Vec::new());
    for shift in 0..DESIGNS.len() {
        let machines =
            [0, 1, 2].map(|index| machine(1, half, &arenas[(index + shift) % arenas.len()]));
        let managers = [0, 1, 2].map(|index| manager::<Family>(&machines[index], DESIGNS[index]));
        let spaces = [0, 1, 2].map(|index| {
            machines[index].run_on(CpuId(0), || space_with(&managers[index], START, SET))
        });
        for round in 0..DESIGNS.len() * ROUNDS {
            let index = round % DESIGNS.len();
            let vm = &managers[index];
            machines[index].run_on(CpuId(0), || {
                let time = timed(|| touch(vm, spaces[index], START, SET));
                times[index].push(time / SET as f64);
                vm.space(spaces[index])
                    .advise(Vpn(START), SET, Advice::DontNeed)
                    .expect("a mapped range");
            });
        }
        if shift == 0 {
            for index in [1, 2] {
                clean_pages_leave(&machines[index], &managers[index], DESIGNS[index]);
            }
        }
    }
    for index in [1, 2] {
        let pairs = times[0].iter().zip(&times[index]);
        let more = pairs.map(|(without, with)| with - without).collect();
        let name = format!("what {} adds to a write fault", DESIGNS[index]);
        Figure(more).print(&name, "ns", Some(3.0), "4 MiB set reused");
    }
    for (times, design) in times
        .into_iter()
        .zip(["reclaim=off", DESIGNS[1], DESIGNS[2]])
    {
        let name = format!("write fault, 4 MiB set reused, {design}");
        Figure(times).print(&name, "ns", None, "");
    }
}

/// Clean pages of a file, of which all that there are leave.
fn clean_pages_leave(machine: &Arc<Machine>, vm: &Manager<Family>, design: &str) {
    const START: u64 = 0x10000;
    const PAGES: u64 = 32 << 10;
    machine.run_on(CpuId(0), || {
        let file = vm
            .create_file(FileRequest::stored(1, PAGES << 12))
            .expect("a file")
            .id();
        let pages = PAGES as f64;
        let clean = |is_mapped: bool| {
            vm.file(file).prefetch(0, PAGES << 12).expect("the file");
            let space = vm.create_space().expect("a space").id();
            if is_mapped {
                let start = Placement::Fixed(Vpn(START));
                let request = MapRequest::object(file, 0, PAGES, Prot::READ).at(start);
                vm.space(space).map(&request).expect("a region");
                for page in START..START + PAGES {
                    vm.space(space)
                        .fault(page << 12, Access::Read)
                        .expect("a page");
                }
            }
            let time = timed(|| {
                let freed = vm.reclaim_pages(PAGES);
                assert!(freed >= PAGES - 64, "{freed} pages have left");
            });
            vm.space(space).exit().expect("the space");
            time
        };
        for is_mapped in [false, true] {
            let how = match is_mapped {
                false => "not mapped",
                true => "mapped once",
            };
            let name = format!("clean pages of a file leave, {how}, {design}");
            let figure = Figure::take(9, pages, || clean(is_mapped));
            figure.print(&name, "ns/page", Some(1000.0), "");
        }
    });
}

/// One superpage over and over, under every design.
fn hot_superpages(arena: &Arc<Arena>) {
    for &rmap in Rmap::ALL {
        with_rmap!(rmap, R => superpages::hot::<R>(arena, &format!("rmap={}", R::NAME)));
    }
}

/// Superpages of private memory, under every design, and `pv` with each of its locks.
fn private_superpages(arena: &Arc<Arena>) {
    hot_superpages(arena);
    superpages::eager::<Family>(arena);
    superpages::eager::<Pv>(arena);
    for &rmap in Rmap::ALL {
        if rmap != Rmap::Pv {
            with_rmap!(rmap, R => superpages::reserve::<R>(arena, &format!("rmap={}", R::NAME)));
        }
    }
    for lock in ["hashed", "superpage", "byte"] {
        superpages::reserve::<Pv>(arena, &format!("rmap=pv,pvlock={lock}"));
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "reclaim") {
        reclaim();
        return;
    }
    if std::env::args().any(|argument| argument == "folios") {
        folios::<Family>();
        folios::<Pv>();
        return;
    }
    let options = ArenaOptions {
        huge_pages: true,
        prefault: true,
    };
    let arena = Arena::with_options(3 * GIB as usize + (64 << 20), options).expect("memory");
    if std::env::args().any(|argument| argument == "hot-superpages") {
        hot_superpages(&arena);
        return;
    }
    if std::env::args().any(|argument| argument == "superpages") {
        private_superpages(&arena);
        return;
    }
    if std::env::args().any(|argument| argument == "huge") {
        huge::shared_memory::<Family>(&arena);
        huge::shared_memory::<Pv>(&arena);
        huge::file::<Family>(&arena);
        huge::file::<Pv>(&arena);
        return;
    }
    tables(&arena);
    for &rmap in Rmap::ALL {
        with_rmap!(rmap, R => faults::<R>(&arena, &format!("rmap={}", R::NAME)));
    }
    two_threads(&arena);
    for &rmap in Rmap::ALL {
        with_rmap!(rmap, R => gigabyte::<R>(&arena, &format!("rmap={}", R::NAME)));
    }
    superpages::eager::<Family>(&arena);
    drop(arena);
    folios::<Family>();
    reclaim();
}
