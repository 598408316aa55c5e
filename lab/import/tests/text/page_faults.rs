//! Text of `perf script` with the faults that perf counts itself, and their addresses.

use crate::common::{
    PAGE, accesses, clone_flags, count, faults, fixture, import, mapped_files, mappings, programs,
    refusal,
};
use vellum_import::Report;
use vellum_trace::{Access, EventKind};

/// A line of a fault at `address` by the instruction at `ip`.
fn fault(time: u64, tid: u32, address: u64, ip: u64) -> String {
    format!(
        "demo {tid} 10.{time:06}:          1 page-faults: {address:16x} x (//anon) {ip:16x} main+0x6 (/bin/demo)\n"
    )
}

/// A line that a mapping is reported with.
fn mapping(time: u64, pid: u32, (address, length): (u64, u64), rest: &str) -> String {
    format!(
        "demo {pid} 10.{time:06}: PERF_RECORD_MMAP2 {pid}/{pid}: [{address:#x}({length:#x}) {rest}\n"
    )
}

const ANONYMOUS: &str = "@ 0 00:00 0 0]: rw-p //anon";

fn has_note(report: &Report, part: &str) -> bool {
    report.notes.iter().any(|note| note.contains(part))
}

/// What the sample program does, by `fixtures/demo.c`: it maps a file twice and memory once, forks,
/// makes a thread and spawns `true`.
#[test]
fn mappings_that_the_kernel_reports_stand_for_the_system_calls() {
    let text = fixture("page-faults.txt");
    let (_, imported, report) = import(&text);
    assert_eq!(programs(&imported), ["demo", "true"]);
    assert_eq!(count(&imported, |kind| *kind == EventKind::Exit), 4);
    assert_eq!(clone_flags(&imported), [0, 0x1_0100, 0]);
    let files = mapped_files(&imported);
    assert_eq!(files["/srv/demo/file"], 2);
    // Text, data and constants of the program, each once or twice.
    assert_eq!(files["/srv/demo/demo"], 4);
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.split_once("page-faults: "))
        .map(|(_, rest)| {
            let is_address = |word: &&str| word.len() >= 12 && !word.contains(['+', '.', '/', '(']);
            let mut words = rest.split_whitespace().filter(is_address);
            (words.next().unwrap(), words.next().unwrap())
        })
        .collect();
    let faults = faults(&imported);
    assert_eq!(faults.len(), lines.len());
    let executions = faults
        .iter()
        .filter(|fault| fault.access == Access::Execute);
    let jumps = lines.iter().filter(|(address, ip)| address == ip);
    assert_eq!(executions.count(), jumps.count());
    for (fault, (address, _)) in faults.iter().zip(&lines) {
        let address = u64::from_str_radix(address, 16).unwrap();
        assert_eq!(fault.address, address / PAGE * PAGE);
    }
    assert!(has_note(&report, "without system calls"));
    assert!(!has_note(&report, "samples"), "{:?}", report.notes);
    // The stack of the thread is mapped without rights, and gets them.
    let protected = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::Protect {
                length: 0x80_0000,
                ..
            }
        )
    };
    assert_eq!(count(&imported, protected), 1);
}

/// But for the stack, which grows, a page that is used is mapped before: by the program, or by
/// whom it was forked from.
#[test]
fn every_fault_is_of_a_mapping() {
    for name in ["page-faults.txt", "page-faults-sampled.txt"] {
        let (_, imported, _) = import(&fixture(name));
        let mut mapped: Vec<(u64, u64)> = Vec::new();
        for event in imported.events() {
            match event.kind {
                EventKind::Map {
                    address,
                    length,
                    grows_down,
                    ..
                } => {
                    let growth = if grows_down { 2048 * PAGE } else { 0 };
                    mapped.push((address - growth, address + length));
                }
                EventKind::Fault { address, .. } => {
                    let is_in = |(from, to): &(u64, u64)| (*from..*to).contains(&address);
                    assert!(mapped.iter().any(is_in), "{name}: {address:#x}");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn without_mappings_those_that_the_pages_need_are_there_from_the_start() {
    let text: String = [
        fault(1, 7, 0x40_1000, 0x40_1000),
        fault(2, 7, 0x7000_1008, 0x40_1010),
        fault(3, 7, 0x7000_0008, 0x40_1014),
        fault(4, 7, 0x7000_0010, 0x40_1018),
        fault(5, 7, 0x40_2ffe, 0x40_2ffe),
    ]
    .concat();
    let (_, imported, report) = import(text.as_bytes());
    assert_eq!(
        mappings(&imported),
        [(0x40_1000, 2, 5), (0x7000_0000, 2, 3)]
    );
    assert!(matches!(imported.events()[1].kind, EventKind::Map { .. }));
    let found: Vec<_> = faults(&imported)
        .iter()
        .map(|fault| (fault.time_us, fault.address, fault.access, fault.present))
        .collect();
    assert_eq!(
        found,
        [
            (0, 0x40_1000, Access::Execute, false),
            (1, 0x7000_1000, Access::Write, false),
            (2, 0x7000_0000, Access::Write, false),
            (3, 0x7000_0000, Access::Write, true),
            (4, 0x40_2000, Access::Execute, false),
        ]
    );
    assert!(has_note(&report, "neither mappings nor system calls"));
    assert!(has_note(
        &report,
        "4 pages were used where no mapping shows"
    ));
    assert!(has_note(&report, "2 anonymous mappings"));
}

#[test]
fn rights_and_what_was_touched_decide_what_a_fault_was_for() {
    let text = "demo 7 10.000000: PERF_RECORD_COMM exec: demo:7/7\n".to_owned()
        + &mapping(1, 7, (0x40_0000, 0x2000), "@ 0 fe:00 77 0]: r-xp /bin/demo")
        + &mapping(2, 7, (0x50_0000, 0x2000), "@ 0 fe:00 77 0]: r--p /bin/demo")
        + &fault(3, 7, 0x40_0010, 0x40_0010)
        + &mapping(4, 7, (0x70_0000, 0x4000), ANONYMOUS)
        + &fault(5, 7, 0x40_1010, 0x40_0020)
        + &fault(6, 7, 0x50_0010, 0x40_0020)
        + &fault(7, 7, 0x70_0010, 0x40_0020)
        + "demo 7 10.000008: PERF_RECORD_FORK(8:8):(7:7)\n"
        + &fault(9, 8, 0x70_0010, 0x40_0020)
        + &fault(10, 8, 0x70_1010, 0x40_0020)
        // It was unmapped, and is mapped anew.
        + &mapping(11, 8, (0x70_0000, 0x4000), ANONYMOUS)
        + &fault(12, 8, 0x70_0010, 0x40_0020);
    let (_, imported, report) = import(text.as_bytes());
    assert_eq!(report.skipped, []);
    let found: Vec<_> = faults(&imported)
        .iter()
        .map(|fault| (fault.task, fault.address, fault.access, fault.present))
        .collect();
    assert_eq!(
        found,
        [
            (0, 0x40_0000, Access::Execute, false),
            (0, 0x40_1000, Access::Read, false),
            (0, 0x50_0000, Access::Read, false),
            (0, 0x70_0000, Access::Write, false),
            // Shared with its creator until then.
            (1, 0x70_0000, Access::Write, true),
            (1, 0x70_1000, Access::Write, false),
            (1, 0x70_0000, Access::Write, false),
        ]
    );
    assert!(has_note(&report, "1 tasks count as forked"));
}

#[test]
fn samples_say_that_they_are_some() {
    let (_, imported, report) = import(&fixture("page-faults-sampled.txt"));
    assert_eq!(faults(&imported).len(), 25);
    assert!(
        has_note(&report, "samples: 25 of about "),
        "{:?}",
        report.notes
    );
    let header =
        "# event : name = page-faults, , { sample_period, sample_freq } = 4000, freq = 1\n";
    let lines = "demo 7 10.000001: page-faults: 7f0000001000\n".repeat(3);
    let (_, _, report) = import((header.to_owned() + &lines).as_bytes());
    assert!(has_note(&report, "samples: 3;"), "{:?}", report.notes);
}

#[test]
fn addresses_alone_and_beside_call_chains_are_read() {
    let bare = "demo 7 10.000001: page-faults: 7f0000001000\n";
    let chain = "demo 7 10.000001: 1 page-faults: 7f0000001000 x+0x1 (//anon)\n\
                 \t          401000 main+0x6 (/bin/demo)\n\n";
    for text in [bare, chain] {
        let (_, imported, report) = import(text.as_bytes());
        assert_eq!(accesses(&imported), [(0x7f00_0000_1000, Access::Write)]);
        assert_eq!(report.skipped, []);
    }
}

#[test]
fn faults_without_addresses_are_refused_with_the_options_that_bring_them() {
    let with_ip = "demo 7 10.000001:   1 page-faults:   401000 main+0x6 (/bin/demo)\n";
    let of_kernel = "demo 7 10.000001: page-faults: ffffffff81755554\n";
    let nothing = "demo 7 10.000001: page-faults: \n";
    for line in [with_ip, of_kernel, nothing] {
        let error = refusal(line.repeat(20).as_bytes());
        for part in ["perf record -d", "-F +addr", "(lines 1, 2, 3"] {
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}

#[test]
fn one_fault_told_by_two_events_counts_once() {
    let line = fault(1, 7, 0x7000_1008, 0x40_1010);
    let text = line.clone() + &line.replace("page-faults", "minor-faults");
    let (_, imported, report) = import(text.as_bytes());
    assert_eq!(faults(&imported).len(), 1);
    assert!(report.passed_over[0].what.contains("of one kind"));
    let kinds = line.replace("page-faults", "minor-faults")
        + &fault(2, 7, 0x7000_2008, 0x40_1010).replace("page-faults", "major-faults:u");
    let (_, imported, _) = import(kinds.as_bytes());
    assert_eq!(faults(&imported).len(), 2);
}

/// After thousands of faults there are no system calls in a text.
#[test]
fn long_texts_are_read_as_they_come() {
    let mut text = mapping(0, 7, (0x7000_0000, 0x2000_0000), ANONYMOUS);
    for page in 0..10_000 {
        text += &fault(page, 7, 0x7000_0000 + page * PAGE, 0x40_1010);
    }
    text += "demo 7 10.900000: syscalls:sys_enter_munmap: addr: 0x70000000, len: 0x00002000\n";
    let (_, imported, report) = import(text.as_bytes());
    assert_eq!(faults(&imported).len(), 10_000);
    assert_eq!(mappings(&imported), [(0x7000_0000, 0x2_0000, 3)]);
    assert_eq!((report.skips(), report.lines), (1, 10_002));
}
