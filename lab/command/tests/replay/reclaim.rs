//! Verified replays on machines that have less memory than the workload uses.

use std::path::Path;

use vellum_engine::{Arena, Config, Engine, build};
use vellum_lab::replay::{Options, Streams, Workload, prepare_events};
use vellum_lab::verify::verify;
use vellum_testing::generate::Recording;
use vellum_trace::{EventKind, FileId, TraceReader};

const PAGE: u64 = 4096;

pub fn core(design: &str, ram_bytes: u64) -> Box<dyn Engine> {
    core_with(design, ram_bytes, None)
}

fn core_with(design: &str, ram_bytes: u64, compressed: Option<u8>) -> Box<dyn Engine> {
    let config = Config {
        compressed,
        ..Config::new(design, 1, ram_bytes)
    };
    let arena = Arena::new(ram_bytes as usize).expect("memory");
    build(&config, arena).expect("a design")
}

pub fn counter(engine: &dyn Engine, name: &str) -> u64 {
    let counters = engine.counters();
    let mut found = counters.iter().filter(|counter| counter.0 == name);
    found.next().expect("it is counted").1
}

fn reclaimed(engine: &dyn Engine) -> u64 {
    counter(engine, "reclaim: pages reclaimed")
}

pub fn held(workload: &Workload, engine: &dyn Engine, what: &str) {
    match verify(workload, engine, |_| true) {
        Ok(verified) => assert!(verified.is_some(), "{what}: not interrupted"),
        Err(refutation) => panic!("{what}: {refutation}"),
    }
    assert!(reclaimed(engine) > 0, "{what}: there was no pressure");
}

/// Reclaim wrote pages back before the cut, and the store has them no more.
#[test]
fn pages_written_back_before_a_cut_are_zero_when_the_file_is_lengthened() {
    const PAGES: u64 = 4096;
    let file = FileId(0);
    let write = |page: u64, pages: u64| EventKind::FileWrite {
        file,
        offset: page * PAGE,
        length: pages * PAGE,
    };
    let mut events = Vec::new();
    events.extend((0..PAGES).step_by(64).map(|page| (0, write(page, 64))));
    events.push((0, EventKind::Truncate { file, size: 0 }));
    events.push((0, write(PAGES - 1, 1)));
    events.extend((0..PAGES).step_by(64).map(|page| {
        let read = EventKind::FileRead {
            file,
            offset: page * PAGE,
            length: 64 * PAGE,
        };
        (0, read)
    }));
    let recording = Recording::of(&[None], &[0], &events);
    let options = Options {
        streams: Streams::ByCpu(1),
        ..Options::default()
    };
    let events = || recording.events();
    let workload = prepare_events(&recording.header, events, &options).expect("a recording");
    held(&workload, core("reclaim=on", 8 << 20).as_ref(), "a cut");
}

/// The sdet-like script on one CPU.
fn shipped() -> Workload {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/sdet-like.vellum");
    let trace = TraceReader::open(&trace).expect("it is shipped");
    let options = Options {
        streams: Streams::ByCpu(1),
        ..Options::default()
    };
    let events = || trace.events();
    prepare_events(trace.header(), events, &options).expect("a recording")
}

/// With a compressed store in front of swap that is set aside from the same memory: one that has
/// room, and one that soon writes back.
#[test]
fn a_shipped_trace_is_verified_with_a_compressed_store() {
    let workload = shipped();
    for (kib, percent, writes_back) in [(4400, 45, false), (2600, 5, true)] {
        let what = format!("{percent} % of {kib} KiB");
        let engine = core_with("reclaim=on", kib << 10, Some(percent));
        held(&workload, engine.as_ref(), &what);
        let of = |name| counter(engine.as_ref(), name);
        let taken = of("compressed: pages taken");
        assert!(taken > 500, "{what}: {taken}");
        // The verifier puts a word of its own into every page.
        assert!(of("compressed: same-filled pages") < taken / 4, "{what}");
        let each = of("compressed: bytes for each other page");
        assert!((1000..1800).contains(&each), "{what}: {each}");
        let back = of("compressed: pages written back");
        assert_eq!(back > 0, writes_back, "{what}: {back}");
        assert!(of("compressed: pages that do not compress") > 0, "{what}");
        let (peak, all) = (
            of("compressed: bytes used at the peak"),
            of("compressed: bytes set aside"),
        );
        assert!(peak > 0 && peak <= all, "{what}: {peak} of {all}");
        assert!(all <= (kib << 10) * u64::from(percent) / 100, "{what}");
        assert_eq!(of("compressed: pages at the end"), 0, "{what}");
    }
}

/// `verify` audits on the way, at the end, and after the end of all spaces.
#[test]
fn shipped_traces_are_verified_with_a_part_of_their_peak() {
    let workload = shipped();
    for design in ["reclaim=on", "reclaim=on,rmap=chains"] {
        // A quarter, half and three quarters of what it has at its peak.
        for kib in [1952, 3904, 5856] {
            let what = format!("{design} with {kib} KiB");
            held(&workload, core(design, kib << 10).as_ref(), &what);
        }
    }
}
