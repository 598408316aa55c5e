//! Text that other tools printed becomes a trace, whatever its state.
//!
//! The samples in `fixtures/` are real: `fixtures/README.md` says how they were
//! made.

use std::collections::BTreeMap;
use std::path::Path;

use vellum_import::{Format, ImportError, Imported, Input, Options, Report, import_text};
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::{Access, Event, EventKind, TraceWriter};

const PAGE: u64 = 4096;
const FIXTURES: [(&str, Format); 10] = [
    ("perf-script-records.txt", Format::PerfScript),
    ("perf-script-raw.txt", Format::PerfScript),
    ("ftrace.txt", Format::Ftrace),
    ("ftrace-raw.txt", Format::Ftrace),
    ("trace-cmd.txt", Format::Ftrace),
    ("strace.txt", Format::Strace),
    ("strace-y.txt", Format::Strace),
    ("strace-seccomp.txt", Format::Strace),
    ("lackey.txt", Format::Lackey),
    ("smaps.txt", Format::Smaps),
];

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::read(path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn import(text: &[u8]) -> (Format, Imported, Report) {
    import_text(text, &Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn count(imported: &Imported, wanted: impl Fn(&EventKind) -> bool) -> usize {
    let events = imported.events().iter();
    events.filter(|event| wanted(&event.kind)).count()
}

fn clone_flags(imported: &Imported) -> Vec<u64> {
    let flags = imported
        .events()
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Create { clone_flags, .. } => Some(clone_flags),
            _ => None,
        });
    flags.collect()
}

fn programs(imported: &Imported) -> Vec<&str> {
    let names = imported
        .events()
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Exec { name } => Some(imported.header().strings[name as usize].as_str()),
            _ => None,
        });
    names.collect()
}

/// Names of the mapped files, with how often each is mapped.
fn mapped_files(imported: &Imported) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for event in imported.events() {
        if let EventKind::Map {
            file: Some(file), ..
        } = event.kind
        {
            let name = imported.header().files[file.0 as usize].name.clone();
            *names.entry(name).or_default() += 1;
        }
    }
    names
}

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

/// What the sample program does, by `fixtures/demo.c`: it forks, makes a thread
/// and spawns `true`.
#[test]
fn perf_script_with_task_records_tells_the_whole_program() {
    let (_, imported, _) = import(&fixture("perf-script-records.txt"));
    assert_eq!(programs(&imported), ["demo", "true"]);
    assert_eq!(clone_flags(&imported), [0x120_0000, 0x3d_0f00, 0x4100]);
    assert_eq!(count(&imported, |kind| *kind == EventKind::Exit), 4);
    assert_eq!(
        count(&imported, |kind| matches!(kind, EventKind::Wait { .. })),
        2
    );
    let processes: Vec<(u32, u32)> = imported
        .header()
        .tasks
        .iter()
        .map(|task| (task.pid, task.process))
        .collect();
    assert_eq!(
        processes,
        [
            (15999, 15999),
            (16016, 16016),
            (16017, 15999),
            (16018, 16018)
        ]
    );
    let written = |kind: &EventKind| matches!(kind, EventKind::FileWrite { length: 8192, .. });
    assert_eq!(count(&imported, written), 4);
    let cut = |kind: &EventKind| matches!(kind, EventKind::Truncate { size: 8192, .. });
    assert_eq!(count(&imported, cut), 1);
    let read = |kind: &EventKind| matches!(kind, EventKind::FileRead { length: 8192, .. });
    assert_eq!(
        count(&imported, read),
        1,
        "a read of two pages is one of two pages"
    );
    let moved = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::Remap {
                new_length: 131_072,
                ..
            }
        )
    };
    assert_eq!(count(&imported, moved), 1);
    let shared = imported.events().iter().any(|event| {
        matches!(event.kind, EventKind::Map { shared: true, file: Some(file), .. }
            if imported.header().files[file.0 as usize].name == "/srv/demo/file")
    });
    assert!(shared);
    assert_eq!(
        imported.header().environment.command,
        ["./demo", "/srv/demo/file"]
    );
    assert_eq!(imported.header().environment.cpus, 2);
}

#[test]
fn perf_script_without_task_records_finds_where_each_program_begins() {
    let (_, imported, report) = import(&fixture("perf-script-raw.txt"));
    assert_eq!(programs(&imported), ["demo", "true"]);
    assert_eq!(imported.header().tasks.len(), 4);
    assert_eq!(count(&imported, |kind| *kind == EventKind::Exit), 4);
    // The maps of an exec follow it, although the text has them before.
    for (index, event) in imported.events().iter().enumerate() {
        if let EventKind::Exec { .. } = event.kind {
            let mut own = imported.events()[index + 1..].iter();
            let next = own.find(|later| later.task == event.task).unwrap();
            assert!(matches!(next.kind, EventKind::Map { .. }), "{next:?}");
        }
    }
    // clone3 hides its flags in user memory.
    let unknown = report
        .notes
        .iter()
        .find(|note| note.contains("task:task_newtask"));
    assert!(
        unknown.is_some_and(|note| note.starts_with("2 tasks")),
        "{:?}",
        report.notes
    );
}

#[test]
fn strace_tells_files_with_and_without_their_paths_in_each_line() {
    let (_, plain, _) = import(&fixture("strace.txt"));
    let (_, with_paths, _) = import(&fixture("strace-y.txt"));
    for imported in [&plain, &with_paths] {
        assert_eq!(programs(imported), ["demo", "true"]);
        assert_eq!(clone_flags(imported), [0x120_0000, 0x3d_0f00, 0x4100]);
        assert_eq!(
            imported.header().environment.command,
            ["./demo", "/srv/demo/file"]
        );
    }
    let (plain, with_paths) = (mapped_files(&plain), mapped_files(&with_paths));
    assert_eq!(with_paths["/srv/demo/file"], 2);
    assert_eq!(plain["/srv/demo/file"], 2);
    assert_eq!(
        plain.values().sum::<usize>(),
        with_paths.values().sum::<usize>()
    );
}

#[test]
fn strace_touches_each_page_once_when_it_becomes_accessible() {
    let text = "\
7 1.000000 execve(\"./x\", [\"./x\"], NULL) = 0
7 1.000001 mmap(NULL, 16384, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x10000
7 1.000002 mprotect(0x11000, 8192, PROT_READ|PROT_WRITE) = 0
7 1.000003 mprotect(0x11000, 4096, PROT_READ) = 0
7 1.000004 mprotect(0x11000, 4096, PROT_READ|PROT_WRITE) = 0
7 1.000005 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3</lib/x>, 0) = 0x20000
7 1.000006 mmap(NULL, 8388608, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_STACK, -1, 0) = 0x800000
7 1.000007 brk(NULL) = 0x5000
7 1.000008 brk(0x6000) = 0x6000
7 1.000009 munmap(0x20000, 8192) = 0
";
    let options = Options {
        format: None,
        touch_limit: 2,
    };
    let (_, imported, report) = import_text(text.as_bytes(), &options).unwrap();
    let touches: Vec<(u64, Access)> = imported
        .events()
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Fault {
                address, access, ..
            } => Some((address, access)),
            _ => None,
        })
        .collect();
    assert_eq!(
        touches,
        [
            (0x11000, Access::Write),
            (0x12000, Access::Write),
            (0x20000, Access::Read),
            (0x21000, Access::Read),
            (0x100_0000 - 2 * PAGE, Access::Write),
            (0x100_0000 - PAGE, Access::Write),
            (0x5000, Access::Write),
        ]
    );
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.starts_with("2046 pages beyond")),
        "{:?}",
        report.notes
    );
}

#[test]
fn strace_gives_children_to_the_creator_whose_call_is_in_progress() {
    let text = "\
7 1.0 execve(\"./x\", [\"./x\"], NULL) = 0
7 1.1 vfork( <unfinished ...>
8 1.2 execve(\"/bin/y\", [\"y\"], NULL <unfinished ...>
7 1.3 <... vfork resumed>) = 8
8 1.4 <... execve resumed>) = 0
7 1.5 fork( <unfinished ...>
8 1.6 fork( <unfinished ...>
9 1.7 brk(NULL) = 0x5000
8 1.8 <... fork resumed>) = 9
7 1.9 <... fork resumed>) = 10
9 2.0 +++ exited with 0 +++
10 2.1 +++ killed by SIGKILL +++
";
    let (_, imported, report) = import(text.as_bytes());
    assert_eq!(report.skipped, []);
    let parents: Vec<(u32, Option<u32>)> = imported
        .header()
        .tasks
        .iter()
        .map(|task| {
            (
                task.pid,
                task.parent
                    .map(|parent| imported.header().tasks[parent.0 as usize].pid),
            )
        })
        .collect();
    assert_eq!(
        parents,
        [(7, None), (8, Some(7)), (9, Some(8)), (10, Some(7))]
    );
    assert_eq!(clone_flags(&imported), [0x4100, 0, 0]);
}

#[test]
fn strace_on_a_terminal_names_the_first_process_late_and_interrupts_itself() {
    let text = "\
execve(\"./x\", [\"./x\"], NULL) = 0
brk(NULL) = 0x5000
vfork(strace: Process 8 attached
 <unfinished ...>
[pid     8] brk(NULL) = 0x5000
[pid     8] execve(\"./y\", [\"./y\"], NULL <unfinished ...>
[pid     7] <... vfork resumed>) = 8
[pid     7] wait4(-1,  <unfinished ...>
[pid     8] <... execve resumed>) = 0
[pid     8] +++ exited with 0 +++
<... wait4 resumed>NULL, 0, NULL) = 8
brk(0x6000) = 0x6000
+++ exited with 0 +++
";
    let (_, imported, report) = import(text.as_bytes());
    assert_eq!(report.skipped, []);
    let pids: Vec<u32> = imported
        .header()
        .tasks
        .iter()
        .map(|task| task.pid)
        .collect();
    assert_eq!(pids, [7, 8]);
    assert_eq!(programs(&imported), ["x", "y"]);
    assert_eq!(clone_flags(&imported), [0x4100]);
    assert_eq!(count(&imported, |kind| *kind == EventKind::Exit), 2);
    assert_eq!(
        count(&imported, |kind| matches!(kind, EventKind::Wait { .. })),
        1
    );
}

#[test]
fn perf_of_a_whole_system_has_tasks_that_were_there_with_their_mappings() {
    let text = "\
x 0 [000] 0.000000: PERF_RECORD_FORK(7:7):(1:1)
x 0 [000] 0.000000: PERF_RECORD_COMM: x:7/7
x 0 [000] 0.000000: PERF_RECORD_MMAP2 7/7: [0x1000(0x2000) @ 0 00:00 0 0]: rw-p //anon
x 0 [000] 0.000000: PERF_RECORD_MMAP2 7/7: [0xffffffffff600000(0x1000) @ 0 00:00 0 0]: --xp [vsyscall]
x 0 [000] 0.000000: PERF_RECORD_FORK(7:8):(7:7)
x 8 [000] 5.000000: exceptions:page_fault_user: address=0x1000 ip=0x0 error_code=0x6
y 9 [000] 5.000001: PERF_RECORD_FORK(10:10):(9:9)
y 10 [000] 5.000002: PERF_RECORD_FORK(11:11):(10:10)
y 11 [000] 5.000003: exceptions:page_fault_user: address=0x1000 ip=0x0 error_code=0x6
";
    let (_, imported, report) = import(text.as_bytes());
    assert_eq!(report.skipped, []);
    let tasks: Vec<(u32, Option<u32>)> = imported
        .header()
        .tasks
        .iter()
        .map(|task| (task.pid, task.parent.map(|parent| parent.0)))
        .collect();
    assert_eq!(
        tasks,
        [
            (7, None),
            (8, Some(0)),
            (9, None),
            (10, Some(2)),
            (11, Some(3))
        ]
    );
    assert_eq!(clone_flags(&imported), [0x1_0100, 0, 0]);
    assert_eq!(
        count(&imported, |kind| matches!(kind, EventKind::Map { .. })),
        1
    );
    assert_eq!(imported.events().last().unwrap().time_us, 3);
}

#[test]
fn lackey_accesses_become_faults_on_inferred_mappings() {
    let (_, imported, report) = import(&fixture("lackey.txt"));
    assert_eq!(imported.header().environment.command, ["./tiny"]);
    // `fixtures/tiny.c`: of 64 mapped pages every second is read and every
    // fourth is written after that; 5 pages of bss are read, then written; 2
    // pages of constants are read; 16 pages of heap and the stack are written.
    let faults = |wanted: Access, was_present: bool| {
        count(&imported, |kind| {
            matches!(kind, EventKind::Fault { access, present, .. }
                if *access == wanted && *present == was_present)
        })
    };
    assert_eq!(faults(Access::Write, true), 16 + 5);
    assert_eq!(faults(Access::Read, false), 32 + 5 + 2);
    assert_eq!(faults(Access::Write, false), 16 + 1);
    assert_eq!(faults(Access::Execute, false), 1);
    assert!(report.notes.iter().any(|note| note.contains("inferred")));
    let first = imported.events().first().map(|event| event.kind);
    assert!(matches!(first, Some(EventKind::Exec { .. })));
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

/// A small generator of its own: the sequence must not change with a library.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

const PIECES: [&str; 10] = [
    "18446744073709551615",
    "0xffffffffffffffff",
    "-1",
    "\0",
    "\n",
    "(",
    " <unfinished ...>",
    "4611686018427387904",
    "99999999999999999999999",
    "\u{fffd}",
];

/// Damages a text in one to eight places.
fn mangle(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(text.len());
        let end = (at + 1 + random.below(40)).min(text.len());
        match random.below(7) {
            0 => drop(text.drain(at..end)),
            1 => text[at] = random.next() as u8,
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                text.splice(at..at, piece.bytes());
            }
            3 => {
                // Another number where there is one.
                let digit = text[at..].iter().position(u8::is_ascii_digit);
                if let Some(digit) = digit {
                    let piece = PIECES[random.below(PIECES.len())];
                    text.splice(at + digit..at + digit + 1, piece.bytes());
                }
            }
            4 => text.truncate(at.max(1)),
            5 => {
                let copy = text[at..end].to_vec();
                let to = random.below(text.len());
                text.splice(to..to, copy);
            }
            _ => {
                // Lines out of order.
                let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
                let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                lines.swap(a, b);
                text = lines.join(&b'\n');
            }
        }
        if text.is_empty() {
            text.push(b'x');
        }
    }
    text
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
            let damaged = mangle(&text, &mut random);
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

/// Two threads, in the words of two versions of the view tool.
#[test]
fn drmemtrace_accesses_become_faults_at_the_times_of_their_timestamps() {
    let text = "\
Output format:
<--record#-> <--instr#->: <---tid---> <record details>
------------------------------------------------------------
           1           0:        4711 <marker: version 6>
           2           0:        4711 <marker: timestamp 13319413770947383>
           3           0:        4711 <marker: tid 7 on core 10>
           4           1:        4711 ifetch       8 byte(s) @ 0x0000000000401012 48 8d 34 25 00 20 40 lea    0x00402000 -> %rsi
           4           1:        4711                                             00
           5           2:        4711 read         8 byte(s) @ 0x00007fff8044fffc by PC 0x0000000000401016
           6           2:        4711 <marker: timestamp 13319413770947400>
           6           2:        4711 <marker: trace start for system call number 39>
           6           2:        4711 ifetch       1 byte(s) @ 0x00000000deadbe00 90                   nop
           6           2:        4711 read         8 byte(s) @ 0xffffffff81000000 by PC 0x00000000deadbe00
           6           2:        4711 <marker: trace end for system call number 39>
           7           2:        4712 <marker: timestamp 13319413770947390>
           8           3:        4712 write        4 byte(s) @ 0x00007fff80450000 by PC 0x0000000000401016
           9           3:        4712 <thread 8 exited>
          10           3:        4711 <marker: timestamp 13319413770947500>
View tool results:
              3 : total instructions
";
    let workloads = text
        .replace(" 4711 ", " W0.T4711 ")
        .replace(" 4712 ", " W0.T4712 ");
    for text in [text, &workloads] {
        let (format, imported, report) = import(text.as_bytes());
        assert_eq!(
            (format, report.skipped.len()),
            (Format::Drmemtrace, 0),
            "{report:?}"
        );
        let tasks = &imported.header().tasks;
        assert_eq!(tasks.len(), 2);
        assert_eq!((tasks[1].pid, tasks[1].process), (4712, 4711));
        let faults: Vec<_> = imported
            .events()
            .iter()
            .filter_map(|event| match event.kind {
                EventKind::Fault {
                    address,
                    access,
                    present,
                    ..
                } => Some((event.time_us, event.task.0, address, access, present)),
                _ => None,
            })
            .collect();
        let (stack, next) = (0x7fff_8044_f000, 0x7fff_8045_0000);
        assert_eq!(
            faults,
            [
                (0, 0, 0x40_1000, Access::Execute, false),
                // It lies across two pages.
                (0, 0, stack, Access::Read, false),
                (0, 0, next, Access::Read, false),
                (17, 1, next, Access::Write, true),
            ]
        );
        assert_eq!(clone_flags(&imported), [0x3d_0f00]);
        assert_eq!(imported.events().last().unwrap().time_us, 117);
    }
}

/// A dump has the mappings, and as many pages of each as it tells.
#[test]
fn a_dump_of_smaps_is_a_process_with_its_mappings_and_pages() {
    let text = "\
400000-404000 r-xp 00001000 fe:00 77                     /usr/bin/demo
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
404000-406000 r--p 00005000 fe:00 77                     /usr/bin/demo
Rss:                   8 kB
Anonymous:             4 kB
7f0000000000-7f0000004000 rw-s 00000000 00:01 9          /memfd:shared (deleted)
Rss:                   8 kB
Shared_Dirty:          4 kB
Swap:                 12 kB
7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0          [stack]
Rss:                   8 kB
Anonymous:             8 kB
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]
Rss:                   4 kB
";
    let (format, imported, report) = import(text.as_bytes());
    assert_eq!(
        (format, report.skipped.len()),
        (Format::Smaps, 0),
        "{report:?}"
    );
    assert_eq!(programs(&imported), ["demo"]);
    let files = &imported.header().files;
    assert_eq!(files.len(), 2);
    assert_eq!(
        (files[0].name.as_str(), files[0].size),
        ("/usr/bin/demo", 0x7000)
    );
    let faults: Vec<_> = imported
        .events()
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Fault {
                address, access, ..
            } => Some((address, access)),
            _ => None,
        })
        .collect();
    let (read, write) = (Access::Read, Access::Write);
    let shared = 0x7f00_0000_0000;
    assert_eq!(
        faults,
        [
            (0x40_0000, read),
            (0x40_1000, read),
            (0x40_4000, write),
            (0x40_5000, read),
            (shared, write),
            (shared + PAGE, read),
            (0x7ffe_0001_f000, write),
            (0x7ffe_0002_0000, write),
        ]
    );
    // What was written once may no longer be.
    let taken_away = |kind: &EventKind| matches!(kind, EventKind::Protect { address: 0x40_4000, length: 0x2000, prot } if prot.0 == 1);
    assert_eq!(count(&imported, taken_away), 1);
    let notes = report.notes.join("\n");
    assert!(notes.contains("4 mappings with 32 KiB"), "{notes}");
    assert!(notes.contains("12 KiB more are in swap"), "{notes}");
}

#[test]
fn a_dump_of_smaps_with_more_pages_than_memory_has_is_refused() {
    let text = "10000000000-7f0000000000 rw-p 00000000 00:00 0\nRss: 99999999999999 kB\n\
                Anonymous: 99999999999999 kB\n";
    let error = import_text(text.as_bytes(), &Options::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("at most 16777216"), "{error}");
}

#[test]
fn two_processes_in_one_dump_of_smaps_are_told() {
    let one = "400000-404000 r-xp 00000000 fe:00 77 /usr/bin/demo\nRss: 8 kB\n";
    let text = format!("{one}{}", one.repeat(30));
    let error = import_text(text.as_bytes(), &Options::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("give each a file"), "{error}");
}
