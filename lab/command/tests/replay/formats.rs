//! Replays on every page-table format: recorded pages are folded onto the
//! format's, and what was replayed is verified and audited all the same.

use std::path::Path;

use vellum_engine::{Arena, Config, Divergence, Engine, OpError, build};
use vellum_lab::replay::fold::planner;
use vellum_lab::replay::{Options, Streams, Workload, prepare_events, run};
use vellum_lab::verify::{end_state, verify};
use vellum_testing::generate;
use vellum_trace::TraceReader;

const RAM: u64 = 256 << 20;
/// Low memory that is enough for all page tables of a workload below.
const ENOUGH_LOW: u64 = 1 << 20;
/// Low memory that is not, and is enough for everything else.
const LITTLE_LOW: u64 = 512 << 10;

/// The values of `format=`.
fn formats() -> &'static [&'static str] {
    let option = vellum_engine::options()
        .iter()
        .find(|option| option.name == "format");
    option.expect("there is such an option").values
}

fn core(format: &str, low_bytes: Option<u64>, cpus: usize) -> Box<dyn Engine> {
    let config = Config {
        low_bytes,
        ..Config::new(&format!("format={format}"), cpus, RAM)
    };
    let arena = Arena::new(RAM as usize).expect("256 MiB can be had");
    build(&config, arena).expect("the format exists")
}

fn options(format: &str, cpus: usize, copies: u32) -> Options {
    let pages = vellum_engine::pages_of(&format!("format={format}")).expect("the format exists");
    Options {
        streams: Streams::ByCpu(cpus),
        copies,
        pages,
        ..Options::default()
    }
}

/// Replays, then verifies; both end in the same state on one CPU, and nothing
/// goes otherwise than recorded without an explanation. Returns the number of
/// operations.
fn check(workload: &Workload, format: &str, what: &str) -> u64 {
    check_with(workload, (format, None), what, |_| ())
}

/// The same on a machine with so much low memory, and with a look at the engine that
/// was verified.
fn check_with(
    workload: &Workload,
    (format, low_bytes): (&str, Option<u64>),
    what: &str,
    look: impl Fn(&dyn Engine),
) -> u64 {
    let cpus = workload.cpus();
    let engine = core(format, low_bytes, cpus);
    assert_eq!(engine.pages(), workload.pages());
    let replayed = run(workload, engine.as_ref(), |_| true);
    let first = replayed.divergences.samples.first().map(|sample| {
        let op = workload.streams()[sample.cpu].ops()[sample.position];
        format!("{sample:?} {op:?}")
    });
    let unexplained = replayed.divergences.unexplained();
    assert_eq!(unexplained, 0, "{what}: {first:?}");
    engine
        .audit()
        .unwrap_or_else(|text| panic!("{what}: {text}"));
    let left = end_state(workload, engine.as_ref());
    drop(engine);
    let engine = core(format, low_bytes, cpus);
    let verified = verify(workload, engine.as_ref(), |_| true)
        .unwrap_or_else(|refutation| panic!("{what}: {refutation}"))
        .expect("not interrupted");
    if cpus == 1 {
        assert_eq!(verified.end_state, left, "{what}");
    }
    look(engine.as_ref());
    workload.ops()
}

#[test]
fn random_workloads_replay_verified_on_every_format() {
    for seed in 0..2 {
        let recording = generate::workload(seed, 1200);
        for &format in formats() {
            for (cpus, copies) in [(1, 1), (3, 2)] {
                let options = options(format, cpus, copies);
                let workload = prepare_events(&recording.header, || recording.events(), &options)
                    .expect("a valid recording");
                let what = format!("seed {seed}, {format}, {cpus} CPUs, {copies} copies");
                check(&workload, format, &what);
            }
        }
    }
}

/// The beginning of a shipped recording: a shell, make, compilers.
#[test]
fn the_beginning_of_a_kernel_build_replays_verified_on_every_format() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/kernel-build.vellum");
    let trace = TraceReader::open(&path).expect("the shipped trace");
    let mut ops = Vec::new();
    for &format in formats() {
        let events = || trace.events().take(30_000);
        let workload = prepare_events(trace.header(), events, &options(format, 1, 1))
            .unwrap_or_else(|error| panic!("{format}: {error}"));
        ops.push(check(&workload, format, format));
    }
    let [x86, la57, pae, small, medium, large, sv39, sv48] = ops[..] else {
        panic!("{ops:?}");
    };
    assert!(la57 == x86 && small == x86 && sv48 == x86, "{ops:?}");
    // What unmaps nothing is left out where parts were moved together.
    assert!(sv39 <= x86 && pae <= x86 && pae + 100 > x86, "{ops:?}");
    assert!(
        medium < x86 && large < medium,
        "larger pages fault less: {ops:?}"
    );
}

/// Every shipped trace fits 3 GiB, at every moment of it.
#[test]
fn every_shipped_trace_has_room_on_x86_pae() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let traces = std::fs::read_dir(traces).expect("the shipped traces");
    let paths = traces.map(|entry| entry.expect("an entry").path());
    let mut found = 0;
    for path in paths.filter(|path| path.extension().is_some_and(|name| name == "vellum")) {
        let trace = TraceReader::open(&path).expect("a trace");
        let mut planner = planner(options("x86-pae", 1, 1).pages, trace.header().tasks.len())
            .expect("3 GiB need a plan");
        for event in trace.events() {
            let event = event.expect("an event");
            planner.event(event.task, event.kind);
        }
        planner
            .finish()
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        found += 1;
    }
    assert!(found > 3, "{found} traces");
}

#[test]
fn the_readings_of_a_trace_are_as_many_as_announced() {
    let recording = generate::workload(3, 300);
    for (format, cpus, copies) in [
        ("x86-64", 1, 1),
        ("x86-64", 2, 3),
        ("x86-pae", 1, 1),
        ("x86-pae", 2, 3),
    ] {
        let options = options(format, cpus, copies);
        let readings = std::cell::Cell::new(0);
        let events = || {
            readings.set(readings.get() + 1);
            recording.events()
        };
        prepare_events(&recording.header, events, &options).expect("a valid recording");
        assert_eq!(
            readings.get(),
            options.readings(),
            "{format} {cpus} {copies}"
        );
    }
}

/// Both page tables and reverse mapping of the kernels that had this format.
#[test]
fn x86_pae_replays_verified_with_chains() {
    let recording = generate::workload(7, 1200);
    let options = options("x86-pae", 2, 1);
    let workload = prepare_events(&recording.header, || recording.events(), &options)
        .expect("a valid recording");
    check(&workload, "x86-pae,rmap=chains", "x86-pae with chains");
}

/// Windows to page tables that a verified replay opens.
fn windows_of(workload: &Workload, format: &str, low_bytes: u64) -> u64 {
    let windows = std::cell::Cell::new(0);
    check_with(workload, (format, Some(low_bytes)), format, |engine| {
        let counters = engine.counters();
        let found = counters
            .iter()
            .find(|(name, _)| *name == "windows to page tables");
        windows.set(found.expect("there is such a count").1);
    });
    windows.get()
}

#[test]
fn tables_in_high_memory_replay_verified() {
    let recording = generate::workload(11, 2000);
    let workload = prepare_events(
        &recording.header,
        || recording.events(),
        &options("x86-pae", 1, 2),
    )
    .expect("a valid recording");
    for rmap in ["family", "chains"] {
        let design = |userpte: &str| format!("x86-pae,rmap={rmap},userpte={userpte}");
        let windows = |userpte, low| windows_of(&workload, &design(userpte), low);
        let all = windows("high", ENOUGH_LOW);
        assert!(all > 0, "{rmap}");
        assert_eq!(windows("nohigh", ENOUGH_LOW), 0, "{rmap}");
        assert_eq!(windows("auto", ENOUGH_LOW), 0, "{rmap}");

        // Now tables of both kinds occur, and who may not use high memory has too little.
        let some = windows("auto", LITTLE_LOW);
        assert!(0 < some && some < all, "{rmap}: {some} of {all}");
        let nohigh = run(
            &workload,
            core(&design("nohigh"), Some(LITTLE_LOW), 1).as_ref(),
            |_| true,
        );
        let first = nohigh.divergences.samples.first().map(|s| s.divergence);
        assert_eq!(
            first,
            Some(Divergence::Failed(OpError::OutOfMemory)),
            "{rmap}"
        );
    }
}

#[test]
fn formats_beside_x86_64_exist_with_one_reverse_mapping_design() {
    let config = |design: &str| Config::new(design, 1, RAM);
    let arena = Arena::new(RAM as usize).expect("256 MiB can be had");
    let error = build(&config("format=sv39,rmap=chains"), arena.clone())
        .err()
        .expect("there is no such instance")
        .to_string();
    assert!(
        error.contains("format=sv39") && error.contains("rmap=family") && error.contains("x86-64"),
        "{error}"
    );
    let error = build(&config("format=alpha"), arena)
        .err()
        .expect("unknown")
        .to_string();
    assert!(error.contains("aarch64-16k"), "{error}");
}
