//! Verified replays with superpages and folios: what programs find in their pages is what they
//! wrote, however many pages a fault maps and whatever is split.

use std::path::Path;

use vellum::design::Rmap;
use vellum_engine::{Arena, Config, Engine, build};
use vellum_lab::replay::{Options, Streams, Workload, prepare_events, run};
use vellum_lab::verify::{end_state, verify};
use vellum_testing::generate::Recording;
use vellum_trace::{Access, EventKind, MapOrigin, Prot, TaskId, TraceReader};

const PAGE: u64 = 4096;
const SUPERPAGE: u64 = 512;
/// Where a superpage may begin.
const BASE: u64 = 0x4000;
const RAM: u64 = 128 << 20;

/// Each way to get superpages, with folios around them and without.
const DESIGNS: [&str; 4] = [
    "superpage=reserve",
    "superpage=reserve,folio=64k",
    "superpage=eager",
    "superpage=eager,folio=64k",
];

fn core(design: &str, workload: &Workload) -> Box<dyn Engine> {
    let config = Config::new(design, workload.cpus(), RAM);
    let arena = Arena::new(RAM as usize).expect("128 MiB can be had");
    build(&config, arena).expect("a design")
}

fn counter(engine: &dyn Engine, name: &str) -> u64 {
    let counters = engine.counters();
    let found = counters.iter().find(|counter| counter.0 == name);
    found.unwrap_or_else(|| panic!("{name} is counted")).1
}

/// Replays and then verifies on an engine of its own each; both end in the same state, and
/// nothing goes otherwise than recorded without an explanation. Returns the verified one.
fn held(workload: &Workload, design: &str) -> Box<dyn Engine> {
    let engine = core(design, workload);
    let replayed = run(workload, engine.as_ref(), |_| true);
    let divergences = replayed.divergences;
    assert_eq!(
        divergences.unexplained(),
        0,
        "{design}: {:?}",
        divergences.samples
    );
    engine
        .audit()
        .unwrap_or_else(|text| panic!("{design}: {text}"));
    let left = end_state(workload, engine.as_ref());
    let engine = core(design, workload);
    let verified = verify(workload, engine.as_ref(), |_| true)
        .unwrap_or_else(|refutation| panic!("{design}: {refutation}"))
        .expect("not interrupted");
    assert_eq!(verified.end_state, left, "{design}");
    engine
}

fn store(page: u64) -> EventKind {
    EventKind::Fault {
        address: (BASE + page) * PAGE,
        access: Access::Write,
        kernel: false,
        present: false,
    }
}

fn protect(page: u64, pages: u64, prot: u8) -> EventKind {
    EventKind::Protect {
        address: (BASE + page) * PAGE,
        length: pages * PAGE,
        prot: Prot(prot),
    }
}

/// A parent fills two superpages and the beginning of a third, and half a folio beside them; it
/// and its child then change parts of each.
fn family() -> Recording {
    let region = EventKind::Map {
        address: (BASE - 24) * PAGE,
        length: (4 * SUPERPAGE + 24) * PAGE,
        prot: Prot(3),
        shared: false,
        grows_down: false,
        file: None,
        offset: 0,
        origin: MapOrigin::Mmap,
    };
    let before = |page: u64| EventKind::Fault {
        address: (BASE - 24 + page) * PAGE,
        access: Access::Write,
        kernel: false,
        present: false,
    };
    let mut events = vec![(0, region)];
    events.extend((0..4).map(|page| (0, before(page))));
    events.extend((0..2 * SUPERPAGE + 90).map(|page| (0, store(page))));
    // Split and joined again before anybody else has them.
    events.push((0, protect(7, 3, 1)));
    events.push((0, protect(7, 3, 3)));
    events.push((0, store(8)));
    let child = TaskId(1);
    events.push((
        0,
        EventKind::Create {
            child,
            clone_flags: 0,
        },
    ));
    // Copies, a hole, a move and a right, of the child's alone.
    events.extend([3, 300, 2 * SUPERPAGE + 5].map(|page| (1, store(page))));
    events.push((
        1,
        EventKind::Unmap {
            address: (BASE + SUPERPAGE + 100) * PAGE,
            length: 10 * PAGE,
        },
    ));
    events.push((
        1,
        EventKind::Remap {
            address: (BASE + SUPERPAGE + 200) * PAGE,
            length: 8 * PAGE,
            new_address: (BASE + 8 * SUPERPAGE) * PAGE,
            new_length: 8 * PAGE,
        },
    ));
    events.push((1, protect(400, 50, 1)));
    // The parent's turn, with the child there and without.
    events.extend([4, SUPERPAGE + 6].map(|page| (0, store(page))));
    events.push((1, EventKind::Exit));
    events.push((0, store(SUPERPAGE + 300)));
    events.push((
        0,
        EventKind::Unmap {
            address: (BASE + SUPERPAGE) * PAGE,
            length: SUPERPAGE * PAGE,
        },
    ));
    Recording::of(&[None, Some(0)], &[], &events)
}

#[test]
fn a_family_that_splits_superpages_replays_verified() {
    let recording = family();
    let options = Options {
        streams: Streams::ByCpu(1),
        ..Options::default()
    };
    let workload = prepare_events(&recording.header, || recording.events(), &options)
        .expect("a valid recording");
    for rmap in Rmap::ALL.iter().map(|rmap| rmap.name()) {
        for design in DESIGNS {
            let engine = held(&workload, &format!("{design},rmap={rmap}"));
            let of = |name| counter(engine.as_ref(), name);
            let made = match design.contains("reserve") {
                true => of("superpages promoted"),
                false => of("superpages mapped"),
            };
            assert!(made >= 2, "{rmap}, {design}: {made}");
            assert!(of("superpages split") >= 2, "{rmap}, {design}");
            let folios = of("folios mapped");
            assert_eq!(folios > 0, design.contains("folio"), "{rmap}, {design}");
        }
    }
}

/// The beginning of a shipped recording: a shell, make, compilers.
#[test]
fn the_beginning_of_a_kernel_build_replays_verified_with_superpages() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/kernel-build.vellum");
    let trace = TraceReader::open(&path).expect("the shipped trace");
    let options = Options {
        streams: Streams::ByCpu(1),
        ..Options::default()
    };
    let events = || trace.events().take(60_000);
    let workload = prepare_events(trace.header(), events, &options).expect("a recording");
    for design in DESIGNS {
        let engine = held(&workload, design);
        let of = |name| counter(engine.as_ref(), name);
        let made = match design.contains("reserve") {
            true => of("reservations made"),
            false => of("superpages mapped"),
        };
        assert!(made > 0, "{design}");
        assert_eq!(
            of("folios mapped") > 0,
            design.contains("folio"),
            "{design}"
        );
    }
}
