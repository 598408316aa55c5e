//! Replays whose files lie on a tmpfs: in memory, without a store, and in superpages if the
//! design says so; and files of a store that are mapped so.

use crate::reclaim::{core, counter, held};
use vellum_engine::Engine;
use vellum_lab::replay::{Options, Workload, prepare_events, run};
use vellum_lab::verify::verify;
use vellum_testing::generate::Recording;
use vellum_trace::{Access, EventKind, FileId, MapOrigin, Prot};

const PAGE: u64 = 4096;
const PAGES: u64 = 1024;
const TMPFS: u32 = 45;
/// The first is on the tmpfs.
const FILES: [FileId; 2] = [FileId(0), FileId(1)];

fn write(file: FileId, page: u64, pages: u64) -> EventKind {
    EventKind::FileWrite {
        file,
        offset: page * PAGE,
        length: pages * PAGE,
    }
}

fn read(file: FileId, page: u64, pages: u64) -> EventKind {
    EventKind::FileRead {
        file,
        offset: page * PAGE,
        length: pages * PAGE,
    }
}

fn map(at: u64, file: FileId) -> EventKind {
    EventKind::Map {
        address: at * PAGE,
        length: PAGES * PAGE,
        prot: Prot(3),
        shared: true,
        grows_down: false,
        file: Some(file),
        offset: 0,
        origin: MapOrigin::Mmap,
    }
}

fn fault(page: u64) -> EventKind {
    EventKind::Fault {
        address: page * PAGE,
        access: Access::Read,
        kernel: false,
        present: false,
    }
}

/// The events of one task, with the files on different devices.
fn prepared(sizes: [u64; 2], events: &[EventKind], tmpfs: Option<u32>) -> Workload {
    let events: Vec<_> = events.iter().map(|event| (0, *event)).collect();
    let mut recording = Recording::of(&[None], &sizes, &events);
    recording.header.files[0].device = TMPFS;
    recording.header.files[1].device = TMPFS + 1;
    let options = Options {
        tmpfs,
        ..Options::default()
    };
    let events = || recording.events();
    prepare_events(&recording.header, events, &options).expect("a recording")
}

fn verified(workload: &Workload, engine: &dyn Engine, what: &str) {
    match verify(workload, engine, |_| true) {
        Ok(verified) => assert!(verified.is_some(), "{what}: not interrupted"),
        Err(refutation) => panic!("{what}: {refutation}"),
    }
}

/// Both files grow page by page and are then mapped.
#[test]
fn files_on_the_tmpfs_are_mapped_in_superpages() {
    let mut events: Vec<_> = (0..PAGES)
        .flat_map(|page| FILES.map(|file| write(file, page, 1)))
        .collect();
    for (file, at) in FILES.into_iter().zip([0x10000, 0x20000]) {
        events.extend([map(at, file), fault(at + 3), fault(at + 600)]);
    }
    for (design, tmpfs, expected) in [
        ("huge=always", Some(TMPFS), 2),
        ("huge=always", None, 0),
        ("huge=within_size", Some(TMPFS), 0),
        ("huge=never", Some(TMPFS), 0),
    ] {
        let what = format!("{design}, {tmpfs:?}");
        let workload = prepared([0, 0], &events, tmpfs);
        let engine = core(design, 64 << 20);
        verified(&workload, engine.as_ref(), &what);
        let mapped = counter(engine.as_ref(), "superpages mapped");
        assert_eq!(mapped, expected, "{what}");
    }
}

/// A load has a range read and mapped whole; a store takes it apart, in the mapping that it is
/// made through.
#[test]
fn files_of_a_store_are_mapped_in_superpages_until_they_are_stored_to() {
    let [file, other] = FILES;
    let store = |page: u64| EventKind::Fault {
        address: page * PAGE,
        access: Access::Write,
        kernel: false,
        present: true,
    };
    let events = [
        map(0x10000, file),
        fault(0x10003),
        fault(0x10004),
        fault(0x10000 + 600),
        map(0x20000, file),
        fault(0x20001),
        store(0x20001),
        fault(0x20002),
        read(other, 700, 1),
        map(0x30000, other),
        fault(0x30000 + 700),
        fault(0x30000 + 1023),
    ];
    let sizes = [PAGES * PAGE; 2];
    for (design, expected) in [
        ("filehuge=always", 4),
        ("filehuge=always,reclaim=on", 4),
        ("filehuge=always,rmap=chains", 4),
        ("filehuge=always,format=sv39", 4),
        ("filehuge=advise", 0),
        ("filehuge=never,huge=always", 0),
    ] {
        let workload = prepared(sizes, &events, None);
        let engine = core(design, 64 << 20);
        verified(&workload, engine.as_ref(), design);
        let mapped = counter(engine.as_ref(), "superpages mapped");
        assert_eq!(mapped, expected, "{design}");
        let engine = core(design, 64 << 20);
        let replayed = run(&workload, engine.as_ref(), |_| true);
        assert_eq!(replayed.divergences.unexplained(), 0, "{design}");
    }
}

/// What was there before the recording, and what was cut off, is zero: there is no store that
/// could have anything else.
#[test]
fn what_was_not_written_on_the_tmpfs_is_zero() {
    let file = FILES[0];
    let events = [
        read(file, 0, 8),
        write(file, 2, 1),
        EventKind::Truncate {
            file,
            size: 3 * PAGE,
        },
        write(file, 6, 1),
        EventKind::Truncate { file, size: 0 },
        write(file, 7, 1),
        map(0x10000, file),
        fault(0x10000),
        fault(0x10002),
        fault(0x10007),
        read(file, 0, 8),
    ];
    for design in ["", "huge=always", "fileio=pages", "format=sv39,huge=always"] {
        let workload = prepared([8 * PAGE, 0], &events, Some(TMPFS));
        let engine = core(design, 64 << 20);
        verified(&workload, engine.as_ref(), design);
        assert_eq!(counter(engine.as_ref(), "pages read"), 0, "{design}");
    }
}

/// Pages of the tmpfs go to swap where memory is short, and superpages are cut for it.
#[test]
fn files_on_the_tmpfs_are_verified_with_less_memory_than_they_have() {
    let file = FILES[0];
    let mut events: Vec<_> = (0..PAGES).map(|page| write(file, page, 1)).collect();
    events.push(map(0x10000, file));
    events.extend((0..PAGES).step_by(5).map(|page| fault(0x10000 + page)));
    events.push(read(file, 0, PAGES));
    let workload = prepared([0, 0], &events, Some(TMPFS));
    for design in ["reclaim=on", "reclaim=on,huge=always"] {
        held(&workload, core(design, 3 << 20).as_ref(), design);
    }
}
