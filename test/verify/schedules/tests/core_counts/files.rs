//! What a page written to a file in memory costs in cache lines that CPUs share, and in
//! locked instructions: runs beside what the kernels of 2014 did page by page.

use std::collections::BTreeSet;
use std::fmt::Write;

use vellum::platform::CpuId;
use vellum::rmap::AnonVmaChain;
use vellum::space::{FileRequest, WriteRequest};
use vellum::{Design, ObjectId, Vm};
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig};
use vellum_schedules::{Accesses, Kind, record_accesses};

type Manager = Vm<Machine, vellum::table::X86_64, AnonVmaChain>;

/// Pages of one write: 1 MiB.
const PAGES: u64 = 256;
const PAGE: u64 = 4096;
const PAGES_COUNTED: f64 = (PAGES * CALLS as u64) as f64;

fn manager(design: &str) -> Manager {
    let config = MachineConfig {
        cpus: 2,
        ..MachineConfig::new(16384 * PAGE)
    };
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
    };
    let arena = Arena::with_options(config.arena_bytes().unwrap(), options).unwrap();
    let machine = Machine::new(config, arena).unwrap();
    let design = Design::parse(design).unwrap();
    Vm::new(machine, design).unwrap()
}

/// What is written, in the steady state.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Work {
    /// A file that has just been cut to nothing, as `dd` finds it.
    New,
    /// Pages that are there.
    Over,
    /// Taking the pages away again.
    Cut,
}

/// Calls that are counted.
const CALLS: usize = 4;

/// What one CPU did in one round: made pages, wrote them again, took them away.
fn one_round(vm: &Manager, cpu: CpuId, file: ObjectId, first: u64) -> [Accesses; 3] {
    let data = vec![7; (PAGES * PAGE) as usize];
    let write = || {
        assert_eq!(
            vm.file(file)
                .write(WriteRequest::bytes(first * PAGE, &[&data])),
            Ok(data.len())
        )
    };
    let cut = || {
        vm.file(file)
            .punch_hole(first * PAGE, PAGES * PAGE)
            .unwrap()
    };
    vm.platform().run_on(cpu, || {
        [
            record_accesses(write).1,
            record_accesses(write).1,
            record_accesses(cut).1,
        ]
    })
}

/// Per page: accesses that write a line which the other CPU's call writes too, and locked
/// instructions.
#[derive(Clone, Copy, PartialEq, Debug)]
struct PerPage {
    shared: f64,
    locked: f64,
}

/// Locked instructions on x86-64, where a fence behind a read-modify-write is no
/// instruction of its own unless there is a store in between.
fn locked(accesses: &Accesses) -> usize {
    let (mut count, mut orders) = (0, false);
    for access in &accesses.0 {
        match access.kind {
            Kind::ReadModifyWrite => count += 1,
            Kind::FullFence if !orders => count += 1,
            _ => {}
        }
        orders = match access.kind {
            Kind::ReadModifyWrite | Kind::FullFence => true,
            Kind::Store => false,
            _ => orders,
        };
    }
    count
}

/// Two CPUs write, each a file of its own, or the two halves of one.
fn per_page(design: &str, one_file: bool, work: Work) -> PerPage {
    let vm = manager(design);
    let make = || {
        vm.create_file(FileRequest::shared_memory((4 * PAGES) << 12))
            .unwrap()
            .id()
    };
    let files = vm.platform().run_on(CpuId(0), || {
        let first = make();
        [first, if one_file { first } else { make() }]
    });
    let mut accesses = [Accesses::default(), Accesses::default()];
    for round in 0..6 + CALLS {
        for cpu in [0, 1] {
            let place = cpu as u64 * 2 * PAGES;
            let [new, over, cut] = one_round(&vm, CpuId(cpu as u16), files[cpu], place);
            let counted = match work {
                Work::New => new,
                Work::Over => over,
                Work::Cut => cut,
            };
            if round >= 6 {
                accesses[cpu].0.extend(counted.0);
            }
        }
    }
    let [first, second] = accesses;
    let lines = second.writing().lines();
    let shared: BTreeSet<usize> = first
        .writing()
        .lines()
        .intersection(&lines)
        .copied()
        .collect();
    let writes = first
        .writing()
        .0
        .iter()
        .filter(|access| shared.contains(&(access.address & !63)))
        .count();
    assert!(first.count(Kind::Store) > 0, "nothing was written");
    PerPage {
        shared: writes as f64 / PAGES_COUNTED,
        locked: locked(&first) as f64 / PAGES_COUNTED,
    }
}

/// The kernels of the source, and each of its patches alone on the older of them.
const VARIANTS: [(&str, &str); 10] = [
    ("3.15-rc3", "as=linux-3.15-rc3"),
    ("accessed=init", "as=linux-3.15-rc3,accessed=init"),
    ("flags=plain", "as=linux-3.15-rc3,flags=plain"),
    ("pagelock=waiters", "as=linux-3.15-rc3,pagelock=waiters"),
    ("zonecache=lazy", "as=linux-3.15-rc3,zonecache=lazy"),
    ("blockflags=word", "as=linux-3.15-rc3,blockflags=word"),
    ("buddycheck=late", "as=linux-3.15-rc3,buddycheck=late"),
    ("marks=late", "as=linux-3.15-rc3,marks=late"),
    ("all of them", "as=linux-3.15-rc3-lockpage"),
    (
        "frames in runs",
        "as=linux-3.15-rc3-lockpage,framelists=runs",
    ),
];

/// Prints the table of `docs/files.md`.
#[test]
fn a_page_written_in_runs_writes_fewer_shared_lines_than_any_variant_of_2014() {
    let mut text = String::new();
    for (one_file, files) in [(false, "two files"), (true, "one file")] {
        for work in [Work::New, Work::Over, Work::Cut] {
            let ours = per_page("", one_file, work);
            let _ = writeln!(text, "{files}, {work:?}: ours {ours:?}");
            for (name, design) in VARIANTS {
                let theirs = per_page(design, one_file, work);
                let _ = writeln!(text, "  {name}: {theirs:?}");
                // What is taken away wanders through the zones in batches of any design.
                let fewer = work == Work::Cut || ours.shared < theirs.shared;
                assert!(fewer && 2.0 * ours.locked < theirs.locked, "{text}");
            }
            let linked = per_page("framelists=linked", one_file, work);
            let _ = writeln!(text, "  ours, frames linked: {linked:?}");
            assert!(ours.shared < linked.shared || work != Work::New, "{text}");
        }
    }
    println!("{text}");
}
