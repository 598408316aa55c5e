//! Faults that a design does not meet are left out of what is timed under it, and nothing else.

use vellum_engine::{Access, Backing, Call, Op, Prot, Sharing, SpaceSlot};
use vellum_lab::compare::{Arenas, Entered, HostClock, Load, Measurement, Settings, measure};
use vellum_lab::replay::{Class, Options, Slice, Streams, prepare_events};
use vellum_terminal::progress::{Interrupt, Style};
use vellum_testing::generate;

use crate::synthetic::FlatLoad;

/// The first page of a superpage.
const BASE: u64 = 512;
const SPACE: SpaceSlot = SpaceSlot(0);

fn touch(page: u64, access: Access) -> Op {
    Op::Touch {
        space: SPACE,
        page: BASE + page,
        access,
    }
}

/// A space with two superpages' worth of private memory, in which `ops` happen.
fn load(ops: impl IntoIterator<Item = Op>) -> FlatLoad {
    let region = Op::Map {
        space: SPACE,
        page: BASE,
        pages: 1024,
        prot: Prot {
            read: true,
            write: true,
            execute: false,
        },
        sharing: Sharing::Private,
        backing: Backing::Anonymous,
        grows_down: false,
    };
    let mut all = vec![Op::Create { space: SPACE }, region];
    all.extend(ops);
    all.push(Op::Exit { space: SPACE });
    let classes = vec![Class::Fault; all.len()];
    FlatLoad::new(all, classes)
}

fn measured(load: &dyn Load, [a, b]: [&str; 2]) -> Measurement {
    let settings = Settings {
        designs: vec![a.to_owned(), b.to_owned()],
        passes: 2,
        slice_us: 20,
        seed: 1,
        style: Style::Quiet,
        divergence_limit: 0.01,
        by_class: true,
        only_needed: true,
        entries: false,
    };
    let arenas = Arenas::new(settings.arms(), load.cpus(), 64 << 20);
    let found = measure(
        load,
        &arenas,
        &HostClock::new(),
        &settings,
        &Interrupt::manual(),
    );
    found.unwrap_or_else(|error| panic!("{a} and {b}: {error}"))
}

/// What programs enter the kernel for, in a whole pass of each arm.
fn entered(found: &Measurement) -> Vec<Entered> {
    let sum = |slices: &Vec<Entered>| Entered {
        traps: slices.iter().map(|slice| slice.traps).sum(),
        calls: slices.iter().map(|slice| slice.calls).sum(),
    };
    found.entered.iter().map(sum).collect()
}

fn counter(found: &Measurement, arm: usize, name: &str) -> u64 {
    let counters = found.passes.last().expect("a pass").counters[arm].iter();
    let mut these = counters.filter(|counter| counter.0 == name);
    these.next().expect("it is counted").1
}

#[test]
fn faults_in_a_superpage_are_left_out_after_the_first() {
    let load = load((0..1024).map(|page| touch(page, Access::Write)));
    let found = measured(&load, ["superpage=off", "superpage=eager"]);
    let left_out = |arm: usize| found.left_out[arm].explained + found.left_out[arm].unexplained;
    assert_eq!([0, 1, 2].map(left_out), [0, 1022, 0]);
    let traps: Vec<u64> = entered(&found)
        .iter()
        .map(|entered| entered.traps)
        .collect();
    assert_eq!(traps, [1024, 2, 1024]);
    for (arm, traps) in traps.into_iter().enumerate() {
        assert_eq!(counter(&found, arm, "faults"), traps);
        assert_eq!(counter(&found, arm, "spurious faults"), 0);
    }
    // They are operations all the same, which take no time.
    let faults = &found.classes[1][Class::Fault as usize];
    assert_eq!(faults.ops, 1027);
}

#[test]
fn a_design_meets_the_faults_that_it_brings_where_accesses_are_known() {
    let access = |page, pages| {
        Op::Call(Call::Access {
            space: SPACE,
            page: BASE + page,
            pages,
            access: Access::Read,
        })
    };
    // Of the first page the fault is recorded; the others are used later.
    let load = load([touch(0, Access::Write), access(0, 8), access(0, 8)]);
    let found = measured(&load, ["superpage=off", "superpage=eager"]);
    let traps: Vec<u64> = entered(&found)
        .iter()
        .map(|entered| entered.traps)
        .collect();
    assert_eq!(traps, [8, 1, 8]);
    assert_eq!(counter(&found, 0, "faults"), 8);
    assert_eq!(counter(&found, 1, "faults"), 1);
}

#[test]
fn calls_of_programs_count_and_what_is_part_of_them_does_not() {
    let file = vellum_engine::FileSlot(3);
    let load = load([
        Op::FileOpen { file, pages: 4 },
        Op::FileRead {
            file,
            page: 0,
            pages: 4,
        },
        touch(9, Access::Write),
    ]);
    let found = measured(&load, ["", ""]);
    // The mapping, the read, and the end.
    let expected = Entered { traps: 1, calls: 3 };
    assert_eq!(entered(&found), [expected; 3]);
}

/// What is left does to memory what all of it does: no fault that is left out was needed.
#[test]
fn designs_end_with_the_memory_that_they_have_when_everything_is_executed() {
    for seed in generate::seeds(4) {
        let recording = generate::workload(seed, 1500);
        let options = Options {
            streams: Streams::ByCpu(1),
            fault_around: 64,
            ..Options::default()
        };
        let workload = prepare_events(&recording.header, || recording.events(), &options);
        let workload = workload.expect("a valid recording");
        let designs = ["faultaround=64,folio=64k", "superpage=eager,rmap=pv"];
        let found = measured(&workload, designs);
        for (arm, design) in designs.into_iter().enumerate() {
            let arena = vellum_engine::Arena::new(64 << 20).expect("memory");
            let config = vellum_engine::Config::new(design, 1, 64 << 20);
            let engine = vellum_engine::build(&config, arena).expect("a design");
            let whole = vellum_lab::replay::run(&workload, &*engine, |_| true);
            let tally = &found.left_out[arm];
            let left_out = tally.explained + tally.unexplained;
            let mapped = whole.divergences.total()
                - whole.divergences.refused
                - whole.divergences.failed.iter().sum::<u64>();
            assert_eq!(left_out, mapped, "seed {seed}, {design}");
            let now = |memory: Vec<(&'static str, u64, u64)>| -> Vec<(&'static str, u64)> {
                memory.iter().map(|row| (row.0, row.1)).collect()
            };
            let pass = found.passes.last().expect("a pass");
            let memory = now(pass.memory[arm].clone());
            assert_eq!(memory, now(engine.memory()), "seed {seed}, {design}");
            let spurious = counter(&found, arm, "spurious faults");
            assert_eq!(spurious, 0, "seed {seed}, {design}");
            // `replay` leaves the same out.
            drop(engine);
            let arena = vellum_engine::Arena::new(64 << 20).expect("memory");
            let engine = vellum_engine::build(&config, arena).expect("a design");
            let needed = workload.without(&whole.needless);
            assert_eq!(needed.ops() + left_out, workload.ops());
            let replayed = vellum_lab::replay::run(&needed, &*engine, |_| true);
            assert_eq!(
                replayed.needless,
                [Vec::<u32>::new()],
                "seed {seed}, {design}"
            );
            assert_eq!(memory, now(engine.memory()), "seed {seed}, {design}");
        }
    }
}

#[test]
fn cpus_that_wait_for_each_other_leave_the_same_out() {
    let recording = generate::workload(5, 1500);
    for cpus in [1, 3] {
        let options = Options {
            streams: Streams::ByCpu(cpus),
            copies: 2,
            ..Options::default()
        };
        let workload = prepare_events(&recording.header, || recording.events(), &options);
        let workload = workload.expect("a valid recording");
        let found = measured(&workload, ["superpage=off", "superpage=eager"]);
        for (arm, tally) in found.left_out.iter().enumerate() {
            let left_out = tally.explained + tally.unexplained;
            let traps = entered(&found)[arm].traps;
            let touches = (0..cpus).flat_map(|cpu| workload.streams()[cpu].ops());
            let touches = touches.filter(|op| matches!(op, Op::Touch { .. })).count();
            assert_eq!(traps + left_out, touches as u64, "{cpus} CPUs, arm {arm}");
            let failed = &found.passes[0].tallies[arm];
            assert_eq!(failed.out_of_memory, 0, "{cpus} CPUs, arm {arm}");
            let arena = vellum_engine::Arena::new(64 << 20).expect("memory");
            let design = ["superpage=off", "superpage=eager"][arm % 2];
            let config = vellum_engine::Config::new(design, cpus, 64 << 20);
            let engine = vellum_engine::build(&config, arena).expect("a design");
            let whole = vellum_lab::replay::run(&workload, &*engine, |_| true);
            let left_out: usize = whole.needless.iter().map(Vec::len).sum();
            let needed = workload.without(&whole.needless);
            assert_eq!(needed.ops() + left_out as u64, workload.ops());
            engine.clear(0);
            let replayed = vellum_lab::replay::run(&needed, &*engine, |_| true);
            assert_eq!(replayed.ops, needed.ops(), "{cpus} CPUs, arm {arm}");
            assert_eq!(replayed.divergences.failed.iter().sum::<u64>(), 0);
        }
    }
}

/// Of the memory that there was when a recording began, a comparison times nothing and counts
/// nothing.
#[test]
fn what_was_there_when_the_recording_began_is_executed_and_not_timed() {
    let mut recording = generate::workload(5, 1500);
    let options = Options {
        streams: Streams::ByCpu(1),
        ..Options::default()
    };
    let prepared = |recording: &generate::Recording| {
        let workload = prepare_events(&recording.header, || recording.events(), &options);
        workload.expect("a valid recording")
    };
    let all = measured(&prepared(&recording), ["", ""]);
    recording.header.beginning = 1000;
    let workload = prepared(&recording);
    let found = measured(&workload, ["", ""]);
    assert_eq!(found.ops, all.ops);
    // However it is cut, one slice ends with the beginning.
    let origins = workload.streams()[0].origins();
    let beginning = origins.iter().filter(|origin| **origin < 1000).count();
    for target in [32, 4096, usize::MAX] {
        let slices = workload.slices(target);
        let untimed = slices
            .iter()
            .take_while(|slice| workload.is_beginning(slice));
        let untimed: usize = untimed.map(Slice::len).sum();
        assert_eq!(untimed, beginning);
    }
    let arena = vellum_engine::Arena::new(64 << 20).expect("memory");
    let config = vellum_engine::Config::new("", 1, 64 << 20);
    let engine = vellum_engine::build(&config, arena).expect("a design");
    let replayed = vellum_lab::replay::run(&workload, &*engine, |_| true);
    assert_eq!(replayed.untimed_ops, beginning as u64);
    assert_eq!(replayed.ops, workload.ops());
    let done = |found: &Measurement| entered(found)[0].traps + entered(found)[0].calls;
    assert!(
        done(&found) > 0 && done(&found) < done(&all),
        "{} of {}",
        done(&found),
        done(&all)
    );
    let counted = ["faults", "maps"].map(|name| counter(&found, 0, name));
    assert_eq!(
        counted,
        ["faults", "maps"].map(|name| counter(&all, 0, name))
    );
    for pass in &found.passes {
        assert_eq!(pass.cpu_ns[0].len(), found.slices);
    }
    // Nothing else: a trace of one dump of what is mapped.
    recording.header.beginning = u64::MAX;
    let found = measured(&prepared(&recording), ["", ""]);
    assert_eq!(entered(&found), entered(&all));
}
