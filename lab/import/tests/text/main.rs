//! Text that other tools printed becomes a trace, whatever its state.
//!
//! The samples in `fixtures/` are real: `fixtures/README.md` says how they were
//! made.

mod common;
mod damon;
mod drmemtrace;
mod lackey;
mod mangle;
mod packed;
mod page_faults;
mod perf_script;
mod smaps;
mod strace;
mod stream;

use common::{Random, fixture, import};
use vellum_import::{Format, ImportError, Input, Options, import_text};
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::{Event, TraceWriter};

const FIXTURES: [(&str, Format); 12] = [
    ("perf-script-records.txt", Format::PerfScript),
    ("perf-script-raw.txt", Format::PerfScript),
    ("page-faults.txt", Format::PerfScript),
    ("page-faults-sampled.txt", Format::PerfScript),
    ("ftrace.txt", Format::Ftrace),
    ("ftrace-raw.txt", Format::Ftrace),
    ("trace-cmd.txt", Format::Ftrace),
    ("strace.txt", Format::Strace),
    ("strace-y.txt", Format::Strace),
    ("strace-seccomp.txt", Format::Strace),
    ("lackey.txt", Format::Lackey),
    ("smaps.txt", Format::Smaps),
];

#[test]
fn every_sample_is_recognised_and_used_whole() {
    for (name, format) in FIXTURES {
        let (found, imported, report) = import(&fixture(name));
        assert_eq!(found, format, "{name}");
        assert_eq!(report.skipped, [], "{name}");
        assert!(!imported.events().is_empty(), "{name}");
        let lines = String::from_utf8(fixture(name)).unwrap().lines().count();
        assert_eq!(report.lines, lines as u64, "{name}");
    }
}

#[test]
fn what_is_skipped_is_told_with_its_reason_and_lines() {
    let text = "\
make 7/7 1.000000: PERF_RECORD_COMM exec: make:7/7
make 7/7 1.000001: exceptions:page_fault_user: address=0x1000 ip=0x0 error_code=0x6
make 7/7 1.000002: exceptions:page_fault_user: address=0x1000 ip=0x0
make 7/7 1.000003: syscalls:sys_enter_mmap: addr: 0x0
make 7/7 1.000004: sched:sched_switch: prev_comm=make
make 7/7 1.000005: exceptions:page_fau
make 7/7 1.0000
make 7/7 1.000006: exceptions:page_fault_user: address=0x2000 ip=0x0 error_code=0x4
make 7/7 1.000007: PERF_RECORD_EXIT(7:7):(1:1)
make 7/7 1.000008: exceptions:page_fault_user: address=0x2000 ip=0x0 error_code=0x4
";
    let (_, imported, report) = import(text.as_bytes());
    assert_eq!(imported.events().len(), 4);
    let told: Vec<(u64, u64)> = report
        .skipped
        .iter()
        .map(|reason| (reason.count, reason.first[0].line))
        .collect();
    assert_eq!(
        told,
        [(1, 3), (1, 4), (1, 7), (1, 10)],
        "{:?}",
        report.skipped
    );
    let passed: Vec<u64> = report
        .passed_over
        .iter()
        .map(|reason| reason.first[0].line)
        .collect();
    assert_eq!(passed, [5, 6]);
}

/// That the events keep the rules of traces is checked as they are taken.
#[test]
fn damaged_text_ends_in_a_trace_or_an_error() {
    let seeds = std::env::var("VELLUM_SEEDS").ok();
    let seeds: u64 = seeds.and_then(|count| count.parse().ok()).unwrap_or(60);
    for (name, format) in FIXTURES {
        let text = fixture(name);
        for seed in 1..=seeds {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let damaged = mangle::mangle(&text, &mut random);
            let options = Options {
                format: Some(format),
                touch_limit: 64,
            };
            let result = std::panic::catch_unwind(|| import_text(&damaged, &options).map(drop));
            let result = result.unwrap_or_else(|_| panic!("{name}, seed {seed}: a panic"));
            if let Err(error) = result {
                assert!(!error.to_string().is_empty(), "{name}, seed {seed}");
            }
        }
    }
}

#[test]
fn an_interrupted_import_leaves_nothing_behind() {
    let name = format!("vellum-import-interrupted-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let interrupt = Interrupt::manual();
    interrupt.request();
    let input = Input::new(
        "text",
        Box::new(std::io::Cursor::new(fixture("strace.txt"))),
    );
    let mut writer = TraceWriter::create(directory.join("t.vellum"), 1).unwrap();
    let mut progress = Progress::new(Style::Quiet, "importing", 0, "bytes");
    let options = Options::default();
    let result = vellum_import::import(
        vec![input],
        &options,
        &mut writer,
        &mut progress,
        &interrupt,
    );
    assert!(matches!(result, Err(ImportError::Interrupted)));
    drop(writer);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn the_largest_numbers_do_no_harm() {
    let most = u64::MAX;
    for text in [
        format!("x 7/7 8589934591.999999: PERF_RECORD_LOST lost {most}\n").repeat(3),
        format!("x 7/7 1.0: filemap:mm_filemap_map_pages: dev=1:1 ino=1 ofs=0-{most}\n"),
        format!("# vellum: file 1 1 {most} \"x\"\nx 7/7 1.0: PERF_RECORD_EXIT(7:7):(1:1)\n"),
        "7 8589934591.9 brk(NULL) = 0x1000\nbrk(NULL) = 0x1000\nbrk(0x2000) = 0x2000\n".to_owned(),
        format!(
            "7 1.0 mremap(0x1000, 4096, {most}, MREMAP_MAYMOVE) = 0x2000\n7 1.1 brk(NULL) = {most}\n"
        ),
        format!("7 1.0 mmap(NULL, {most}, PROT_READ, MAP_PRIVATE, 3</x>, {most}) = {most}\n"),
        " S 1fffffffffffffff,65536\n".to_owned(),
    ] {
        // An error is right where nothing is left.
        let _ = import_text(text.as_bytes(), &Options::default());
    }
}

#[test]
fn times_never_decrease_whatever_the_text_says() {
    let text = "\
x 7/7 5.000000: PERF_RECORD_COMM exec: x:7/7
x 7/7 4.000000: exceptions:page_fault_user: address=0x1000 ip=0x0 error_code=0x6
x 7/7 6.000000: exceptions:page_fault_user: address=0x2000 ip=0x0 error_code=0x6
";
    let (_, imported, report) = import(text.as_bytes());
    let times: Vec<u64> = imported
        .events()
        .iter()
        .map(|event: &Event| event.time_us)
        .collect();
    assert_eq!(times, [0, 0, 1_000_000]);
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.starts_with("1 lines were earlier"))
    );
}
