//! Text of strace, with whichever options and of whichever version, becomes the
//! trace that is right.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use vellum_import::{Format, ImportError, Input, Options, Report, import_text};
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::{Event, EventKind, Header, Prot, TraceReader, TraceWriter};

/// What was imported.
struct Imported {
    header: Header,
    events: Vec<Event>,
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::read_to_string(path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

const OPTIONS: Options = Options {
    format: None,
    touch_limit: 0,
};

fn import(text: &str) -> (Imported, Report) {
    let (format, imported, report) =
        import_text(text.as_bytes(), &OPTIONS).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(format, Format::Strace);
    let (header, events) = (imported.header().clone(), imported.events().to_vec());
    (Imported { header, events }, report)
}

/// Imports several files of one run.
fn files(files: &[(&str, &str)]) -> Result<(Imported, Report), ImportError> {
    let inputs = files
        .iter()
        .map(|(name, text)| Input::new(*name, Box::new(Cursor::new(text.as_bytes().to_vec()))));
    let thread = std::thread::current().id();
    let name = format!("vellum-import-{}-{thread:?}.vellum", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut writer = TraceWriter::create(&path, 1)?;
    let mut progress = Progress::new(Style::Quiet, "importing", 0, "bytes");
    let (_, report) = vellum_import::import(
        inputs.collect(),
        &OPTIONS,
        &mut writer,
        &mut progress,
        &Interrupt::manual(),
    )?;
    writer.finish()?;
    let reader = TraceReader::open(&path)?;
    let events = reader.events().collect::<Result<_, _>>()?;
    let header = reader.header().clone();
    std::fs::remove_file(&path).unwrap();
    Ok((Imported { header, events }, report))
}

/// An event in a few words, with the recorded ids of tasks.
fn words(imported: &Imported) -> Vec<String> {
    let header = &imported.header;
    let pid = |task: vellum_trace::TaskId| header.tasks[task.0 as usize].pid;
    let events = imported.events.iter().map(|event| {
        let what = match event.kind {
            EventKind::Create { child, clone_flags } => {
                format!("creates {} {clone_flags:#x}", pid(child))
            }
            EventKind::Exec { name } => format!("executes {}", header.strings[name as usize]),
            EventKind::Exit => "exits".to_owned(),
            EventKind::Wait { child } => format!("waited for {}", pid(child)),
            EventKind::Map {
                address,
                length,
                prot,
                grows_down,
                file,
                offset,
                ..
            } => {
                let name = file.map_or("", |file| &header.files[file.0 as usize].name);
                let down = if grows_down { " down" } else { "" };
                format!(
                    "maps {address:#x} {length} {} {name} {offset:#x}{down}",
                    prot.0
                )
            }
            EventKind::Unmap { address, length } => format!("unmaps {address:#x} {length}"),
            EventKind::Protect {
                address,
                length,
                prot: Prot(prot),
            } => format!("protects {address:#x} {length} {prot}"),
            ref other => format!("{other:?}"),
        };
        format!("{} {what}", pid(event.task))
    });
    events.collect()
}

fn times(imported: &Imported) -> Vec<u64> {
    imported.events.iter().map(|event| event.time_us).collect()
}

fn counts(imported: &Imported) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for word in words(imported) {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

fn skipped(report: &Report) -> Vec<(String, u64)> {
    let reasons = report.skipped.iter();
    reasons
        .map(|reason| (reason.what.clone(), reason.first[0].line))
        .collect()
}

fn passed(report: &Report, what: &str) -> u64 {
    let reasons = report.passed_over.iter();
    reasons
        .filter(|reason| reason.what.contains(what))
        .map(|reason| reason.count)
        .sum()
}

const NAMESPACE: &str = "\
50 1700000000.000001 execve(\"/usr/bin/unshare\", [\"unshare\", \"-p\", \"-f\", \"sh\"], 0x7ffc /* 4 vars */) = 0
50 1700000000.000010 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f01) = 51
50 1700000000.000011 wait4(51,  <unfinished ...>
51 1700000000.000020 execve(\"/bin/sh\", [\"sh\"], 0x7ffc /* 4 vars */) = 0
51 1700000000.000030 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000
51 1700000000.000040 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>
52 1700000000.000045 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000010000
51 1700000000.000046 <... clone resumed>, child_tidptr=0x7f01) = 2
51 1700000000.000047 wait4(-1,  <unfinished ...>
52 1700000000.000050 exit_group(0)         = ?
52 1700000000.000060 +++ exited with 0 +++
51 1700000000.000070 <... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 0}], 0, NULL) = 2
51 1700000000.000080 exit_group(0)         = ?
51 1700000000.000090 +++ exited with 0 +++
50 1700000000.000100 <... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 0}], 0, NULL) = 51
50 1700000000.000110 exit_group(0)         = ?
50 1700000000.000120 +++ exited with 0 +++
";

#[test]
fn ids_of_another_namespace_make_no_second_task() {
    let expected = [
        "50 executes unshare",
        "50 creates 51 0x1200000",
        "51 executes sh",
        "51 maps 0x7f0000000000 8192 3  0x0",
        "51 creates 52 0x1200000",
        "52 maps 0x7f0000010000 4096 3  0x0",
        "52 exits",
        "51 waited for 52",
        "51 exits",
        "50 waited for 51",
        "50 exits",
    ];
    let translation = "= 2 /* 52 in strace's PID NS */\n";
    // strace translates what clone returned, and newer ones what wait4 did.
    let of_clone = NAMESPACE.replacen("= 2\n", translation, 1);
    let mut noted = Vec::new();
    for text in [
        NAMESPACE.to_owned(),
        of_clone.clone(),
        of_clone.replace("= 2\n", translation),
        of_clone.replace("= 2\n", "= 2<sh>\n"),
    ] {
        let (imported, report) = import(&text);
        assert_eq!(words(&imported), expected);
        assert_eq!(report.skipped, []);
        noted.push(report.notes.iter().any(|note| note.contains("namespaces")));
    }
    assert_eq!(noted, [true, false, false, false]);
}

#[test]
fn a_child_that_appears_after_its_creators_call_is_the_one_of_another_namespace() {
    let text = "\
51 1.0 execve(\"/bin/sh\", [\"sh\"], NULL) = 0
51 1.1 fork() = 2
51 1.2 fork() = 3
52 1.3 brk(NULL) = 0x5000
53 1.4 brk(NULL) = 0x6000
52 1.5 +++ exited with 0 +++
51 1.6 wait4(2, NULL, 0, NULL) = 2
53 1.7 +++ exited with 0 +++
51 1.8 wait4(3, NULL, 0, NULL) = 3
51 1.9 fork() = 4
51 2.0 wait4(4, NULL, 0, NULL) = 4
51 2.1 +++ exited with 0 +++
";
    let (imported, report) = import(text);
    assert_eq!(report.skipped, []);
    let words = words(&imported);
    let tasks: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| !word.contains("Brk"))
        .collect();
    assert_eq!(
        tasks,
        [
            "51 executes sh",
            "51 creates 52 0x0",
            "51 creates 53 0x0",
            "52 exits",
            "51 waited for 52",
            "53 exits",
            "51 waited for 53",
            "51 creates 4 0x0",
            "4 exits",
            "51 waited for 4",
            "51 exits",
        ]
    );
}

const THREAD_EXEC: &str = "\
500 1700000000.000001 execve(\"/t/x\", [\"/t/x\"], 0x7ffc /* 4 vars */) = 0
500 1700000000.000100 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000
500 1700000000.000200 clone3({flags=CLONE_VM|CLONE_THREAD, child_tid=0x7f, parent_tid=0x7f, exit_signal=0, stack=0x7f0000100000, stack_size=0x7fff00, tls=0x7f} => {parent_tid=[501]}, 88) = 501
501 1700000000.000300 execve(\"/bin/true\", [\"true\"], 0x7ffc /* 96 vars */ <pid changed to 500 ...>
500 1700000000.000400 +++ superseded by execve in pid 501 +++
500 1700000000.000401 <... execve resumed>)            = 0
500 1700000000.000500 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f1000000000
500 1700000000.000600 exit_group(0) = ?
500 1700000000.000700 +++ exited with 0 +++
";

#[test]
fn a_thread_that_executes_a_program_goes_on_as_its_process() {
    // The survivor is the task that was made as 501.
    let expected = [
        "500 executes x",
        "500 maps 0x7f0000000000 8192 3  0x0",
        "500 creates 501 0x10100",
        "500 exits",
        "501 executes true",
        "501 maps 0x7f1000000000 4096 1  0x0",
        "501 exits",
    ];
    let unfinished = THREAD_EXEC.replace("<pid changed to 500 ...>", "<unfinished ...>");
    let superseded = "500 1700000000.000400 +++ superseded by execve in pid 501 +++\n";
    let in_a_call = THREAD_EXEC.replace(
        "501 1700000000.000300 execve",
        "500 1700000000.000250 pause( <unfinished ...>\n501 1700000000.000300 execve",
    );
    let with_names: String = THREAD_EXEC
        .lines()
        .map(|line| line.replacen(' ', "<x> ", 1) + "\n")
        .collect();
    // Whoever is left has lines without an id.
    let terminal: String = unfinished
        .lines()
        .enumerate()
        .map(|(index, line)| match index {
            1 | 3 => format!("[pid   {}] {}\n", &line[..3], &line[4..]),
            _ => format!("{}\n", &line[4..]),
        })
        .collect();
    for text in [
        THREAD_EXEC.to_owned(),
        with_names,
        terminal,
        unfinished.clone(),
        in_a_call,
        // With -qqq.
        THREAD_EXEC.replace(superseded, ""),
        unfinished.replace(superseded, ""),
    ] {
        let (imported, report) = import(&text);
        assert_eq!(words(&imported), expected, "{text}");
        assert_eq!(report.skipped, [], "{text}");
    }
}

#[test]
fn a_thread_that_executes_a_program_does_so_in_a_file_of_its_own() {
    let of = |pid: &str| -> String {
        let lines = THREAD_EXEC
            .lines()
            .filter_map(|line| line.strip_prefix(pid));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let (first, second) = (of("500 "), of("501 "));
    let (imported, report) = files(&[("t.500", &first), ("t.501", &second)]).unwrap();
    assert_eq!(report.skipped, []);
    assert_eq!(words(&imported), words(&import(THREAD_EXEC).0));
}

#[test]
fn sizes_of_huge_pages_are_no_other_flags() {
    let text = "\
60 1700000000.000001 execve(\"/bin/demo\", [\"demo\"], 0x7ffc /* 4 vars */) = 0
60 1700000000.000010 mmap(NULL, 8388608, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_GROWSDOWN|1<<MAP_HUGE_SHIFT, -1, 0) = 0x7f0000000000
60 1700000000.000020 mmap(NULL, 2097152, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_HUGETLB|21<<MAP_HUGE_SHIFT, -1, 0) = 0x7f1000000000
60 1700000000.000021 mmap(NULL, 4096, PROT_READ, MAP_SHARED|MAP_ANONYMOUS|MAP_HUGETLB|MAP_HUGE_2MB, -1, 0) = 0x7f2000000000
60 1700000000.000022 mmap(NULL, 4096, PROT_READ, MAP_SHARED|MAP_ANONYMOUS|MAP_HUGETLB|30<<MAP_HUGE_SHIFT, -1, 0) = 0x7f3000000000
60 1700000000.000030 exit_group(0)         = ?
60 1700000000.000040 +++ exited with 0 +++
";
    let (imported, report) = import(text);
    assert_eq!(report.skipped, []);
    assert_eq!(
        words(&imported)[1..5],
        [
            "60 maps 0x7f0000000000 8388608 3  0x0 down",
            "60 maps 0x7f1000000000 2097152 3  0x0",
            "60 maps 0x7f2000000000 2097152 1  0x0",
            "60 maps 0x7f3000000000 1073741824 1  0x0",
        ]
    );
}

#[test]
fn what_no_trace_can_hold_is_skipped_not_passed_over() {
    let text = "\
7 1700000000.1 mmap(NULL, 16384, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000
7 1700000000.2 mremap(0x7f0000000000, 4096, 8192, MREMAP_MAYMOVE|MREMAP_DONTUNMAP) = 0x7f0000010000
7 1700000000.3 mprotect(0x7f0000000000, 4096, PROT_READ) = 0
7 1700000000.3 mremap(0x7f0000000000, 0, 8192, MREMAP_MAYMOVE) = 0x7f0000020000
7 1700000000.4 munmap(0x7f0000000000, 4096) = 0
7 1700000000.5 map_shadow_stack(NULL, 4096, 0) = 0x7f0000030000
7 1700000000.6 brk(NULL) = 0x5000
7 1700000000.7 process_madvise(3, [{iov_base=0x7f, iov_len=4096}], 1, MADV_COLD, 0) = 4096
7 1700000000.8 brk(0x6000) = 0x6000
";
    let (_, report) = import(text);
    let lines: Vec<u64> = report
        .skipped
        .iter()
        .flat_map(|reason| reason.first.iter().map(|place| place.line))
        .collect();
    assert_eq!(lines, [2, 4, 6, 8], "{:?}", report.skipped);
}

#[test]
fn a_protection_key_changes_rights_as_without_one() {
    let (imported, report) = import(
        "7 1.0 mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x10000\n\
         7 1.1 pkey_mprotect(0x10000, 4096, PROT_READ|PROT_WRITE, 1) = 0\n",
    );
    assert_eq!(report.skipped, []);
    assert_eq!(words(&imported)[1], "7 protects 0x10000 4096 3");
}

#[test]
fn calls_of_32_bits_are_read_as_old_and_new_versions_print_them() {
    let text = |offset: &str| {
        format!(
            "\
execve(\"./demo\", [\"./demo\"], [/* 9 vars */]) = 0
[ Process PID=9 runs in 32 bit mode. ]
open(\"/lib/libc.so.6\", O_RDONLY)        = 3
old_mmap(NULL, 126976, PROT_READ, MAP_PRIVATE, 3, 0) = 0xb7f3d000
mmap2(0xe0c000, 12288, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_FIXED, 3, {offset}) = 0xe0c000
munmap(0xb7f3d000, 126976)              = 0
waitpid(-1, NULL, 0)                    = -1 ECHILD (No child processes)
exit_group(0)                           = ?
"
        )
    };
    // In pages, and in bytes.
    for offset in ["0x153", "0x153000"] {
        let (imported, report) = import(&text(offset));
        assert_eq!(report.skipped, []);
        assert_eq!(
            words(&imported),
            [
                "1 executes demo",
                "1 maps 0xb7f3d000 126976 1 /lib/libc.so.6 0x0",
                "1 maps 0xe0c000 12288 3 /lib/libc.so.6 0x153000",
                "1 unmaps 0xb7f3d000 126976",
                "1 exits",
            ]
        );
    }
}

/// As strace 4 prints to a terminal: it says nothing of itself before what it
/// says of itself, and shows the arguments of clone when it ends.
#[test]
fn old_versions_on_a_terminal_interrupt_themselves() {
    let text = "\
execve(\"./x\", [\"./x\"], [/* 9 vars */]) = 0
clone(Process 8 attached
child_stack=0, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0xb7) = 8
[pid     7] waitpid(-1, Process 7 suspended
 <unfinished ...>
[pid     8] clone( <unfinished ...>
[pid     9] brk(0)                      = 0x5000
[pid     8] <... clone resumed> child_stack=0x4000, flags=CLONE_VM|CLONE_THREAD, parent_tidptr=0x40) = 9
[pid     9] _exit(0)                    = ?
Process 9 detached
[pid     8] exit_group(0)               = ?
Process 7 resumed
Process 8 detached
<... waitpid resumed> NULL, 0)          = 8
--- SIGCHLD (Child exited) @ 0 (0) ---
brk(0)                                  = 0x6000
exit_group(0)                           = ?
Process 7 detached
";
    let (imported, report) = import(text);
    assert_eq!(report.skipped, []);
    assert_eq!(
        words(&imported),
        [
            "7 executes x",
            "7 creates 8 0x1200000",
            "8 creates 9 0x10100",
            "9 Brk { end: 20480 }",
            "8 exits",
            "9 exits",
            "7 waited for 8",
            "7 Brk { end: 24576 }",
            "7 exits",
        ]
    );
}

#[test]
fn whoever_is_alone_on_a_terminal_has_lines_without_an_id() {
    let text = "\
execve(\"./daemon\", [\"./daemon\"], NULL) = 0
fork(strace: Process 8 attached
)                                  = 8
[pid     7] exit_group(0)               = ?
[pid     8] brk(NULL <unfinished ...>
[pid     7] +++ exited with 0 +++
<... brk resumed>)                      = 0x5000
brk(0x6000)                             = 0x6000
+++ exited with 0 +++
";
    let (imported, report) = import(text);
    assert_eq!(report.skipped, []);
    let of_child = words(&imported);
    let of_child = of_child.iter().filter(|word| word.starts_with("8 "));
    assert_eq!(of_child.count(), 3);
}

const WAIT: (&str, &str) = (
    "\
1700000000.000001 execve(\"/bin/demo\", [\"demo\"], 0x7ffc /* 4 vars */) = 0
1700000000.000010 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f01) = 71
1700000000.000020 wait4(71, NULL, 0, NULL) = 71 <0.000050>
1700000000.000100 exit_group(0)         = ?
1700000000.000110 +++ exited with 0 +++
",
    "\
1700000000.000030 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000010000
1700000000.000050 exit_group(0)         = ?
1700000000.000060 +++ exited with 0 +++
",
);

#[test]
fn files_of_one_task_each_are_put_in_order_by_their_times_creations_and_waits() {
    let expected = [
        "70 executes demo",
        "70 creates 71 0x1200000",
        "71 maps 0x7f0000010000 4096 3  0x0",
        "71 exits",
        "70 waited for 71",
        "70 exits",
    ];
    let each_line = |text: &str, change: &dyn Fn(&str) -> String| -> String {
        text.lines().map(|line| change(line) + "\n").collect()
    };
    // With -t, and without any option for times.
    let seconds = |line: &str| {
        line.replacen(&line[8..17], "08", 1)
            .replacen("17000000", "00:00:", 1)
    };
    let none = |line: &str| line.split_once(' ').unwrap().1.to_owned();
    let same = |line: &str| line.to_owned();
    let quiet = |line: &str| match line.contains("+++") {
        true => String::new(),
        false => line.to_owned(),
    };
    let changes: [&dyn Fn(&str) -> String; 4] = [&same, &seconds, &none, &quiet];
    for (index, change) in changes.into_iter().enumerate() {
        let (parent, child) = (each_line(WAIT.0, change), each_line(WAIT.1, change));
        for both in [
            [("t.70", &*parent), ("t.71", &*child)],
            [("t.71", &*child), ("t.70", &*parent)],
        ] {
            let (imported, report) = files(&both).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(words(&imported), expected, "change {index}, {both:?}");
            assert_eq!(report.skipped, [], "change {index}");
        }
    }
}

#[test]
fn a_wait_tells_the_end_of_a_child_that_was_not_traced() {
    // strace without -f.
    let text = "\
execve(\"/bin/sh\", [\"sh\"], NULL) = 0
fork()                                  = 71
wait4(71, [{WIFSTOPPED(s) && WSTOPSIG(s) == SIGTSTP}], WSTOPPED, NULL) = 71
wait4(-1, 0x7ffc, WNOHANG, NULL)        = 0
waitid(P_PID, 71, {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=71, si_uid=0, si_status=0}, WEXITED|WNOWAIT, NULL) = 0
waitid(P_PID, 71, {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=71, si_uid=0, si_status=0}, WEXITED, NULL) = 0
wait4(99, NULL, 0, NULL)                = 99
exit_group(0)                           = ?
+++ exited with 0 +++
";
    let (imported, report) = import(text);
    assert_eq!(report.skipped, []);
    assert_eq!(passed(&report, "had not ended"), 2);
    assert_eq!(passed(&report, "do not show"), 1);
    assert_eq!(
        words(&imported),
        [
            "1 executes sh",
            "1 creates 71 0x0",
            "71 exits",
            "1 waited for 71",
            "1 exits"
        ]
    );
}

const RELATIVE: &str = "\
80      0.000000 execve(\"/bin/demo\", [\"demo\"], 0x7ffc /* 4 vars */) = 0
80      1.000000 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000010000
80      1.000000 munmap(0x7f0000010000, 4096) = 0
80      1.000000 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000010000
80      0.500000 exit_group(0)         = ?
80      0.000100 +++ exited with 0 +++
";

#[test]
fn times_since_the_line_before_are_added_up() {
    // Without the first line, and where somebody took the spaces away.
    let (_, tail) = RELATIVE.split_once('\n').unwrap();
    for (text, expected) in [
        (
            RELATIVE.to_owned(),
            &[0u64, 1_000_000, 2_000_000, 3_000_000, 3_500_100][..],
        ),
        (tail.to_owned(), &[0, 1_000_000, 2_000_000, 2_500_100][..]),
        (
            RELATIVE.replace("80      ", "80 "),
            &[0, 1_000_000, 2_000_000, 3_000_000, 3_500_100][..],
        ),
        (
            RELATIVE.replace("80 ", ""),
            &[0, 1_000_000, 2_000_000, 3_000_000, 3_500_100][..],
        ),
    ] {
        let (imported, report) = import(&text);
        assert_eq!(times(&imported), expected, "{text}");
        assert!(report.notes.iter().any(|note| note.contains("strace -r")));
    }
}

#[test]
fn times_since_the_line_before_in_another_file_are_refused_by_the_options_name() {
    let error = files(&[("t.80", RELATIVE), ("t.81", RELATIVE)])
        .err()
        .unwrap();
    assert!(error.to_string().contains("without -r"), "{error}");
}

/// The lines of a real text, changed into what strace prints with an option.
fn with_option(change: impl Fn(usize, &str, &str, &str) -> String) -> String {
    let text = fixture("strace-y.txt");
    let lines = text.lines().enumerate().map(|(index, line)| {
        let (pid, rest) = line.split_once(' ').unwrap();
        let (time, rest) = rest.trim_start().split_once(' ').unwrap();
        change(index, pid, time, rest)
    });
    lines.map(|line| line + "\n").collect()
}

#[test]
fn columns_and_lines_that_options_add_change_no_event() {
    let plain = import(&fixture("strace-y.txt"));
    let (expected, when) = (words(&plain.0), times(&plain.0));
    let first = std::cell::Cell::new(0);
    let micros = |time: &str| -> u64 { time.replace('.', "").parse().unwrap() };
    let since = |time: &str| {
        let now = micros(time);
        let before = first.replace(now);
        let since = if before == 0 { 0 } else { now - before };
        format!("{:>6}.{:06}", since / 1_000_000, since % 1_000_000)
    };
    let texts = [
        (
            "-Y",
            with_option(|_, pid, time, rest| format!("{pid}<a b] c> {time} {rest}")),
        ),
        (
            "-Y on a terminal",
            with_option(|_, pid, time, rest| format!("[pid {pid}<sh>] {time} {rest}")),
        ),
        (
            "-i",
            with_option(|_, pid, time, rest| format!("{pid} {time} [00007f9d6e434000] {rest}")),
        ),
        (
            "-n -i",
            with_option(|_, pid, time, rest| {
                format!("{pid} {time} [  61] [????????????????] {rest}")
            }),
        ),
        (
            "-r -ttt",
            with_option(|_, pid, time, rest| format!("{pid} {time} (+     0.000303) {rest}")),
        ),
        (
            "-T",
            with_option(|_, pid, time, rest| match rest.contains(" = ") {
                true => format!("{pid} {time} {rest} <0.000047>"),
                false => format!("{pid} {time} {rest}"),
            }),
        ),
        (
            "-k",
            with_option(|_, pid, time, rest| {
                format!(
                    "{pid} {time} {rest}\n > /usr/lib/libc.so.6(mmap64+0x26) [0x1135b6]\n > /bin/demo(main+0x11) [0x1161]"
                )
            }),
        ),
        (
            "-e read=3",
            with_option(|_, pid, time, rest| {
                format!(
                    "{pid} {time} {rest}\n | 00000  7f 45 4c 46 02 01 01 03  00 00 00 00 00 00 00 00  .ELF............ |"
                )
            }),
        ),
        (
            "-C",
            fixture("strace-y.txt")
                + "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.71    0.003399        1699         2           wait4
  5.36    0.000300          25        12        10 execve
------ ----------- ----------- --------- --------- ----------------
100.00    0.005599          23       235        12 total
",
        ),
        (
            "a coloured text",
            with_option(|_, pid, time, rest| {
                format!("\x1b[32m{pid}\x1b[0m \x1b[1m{time}\x1b[m {rest}\x1b[K")
            }),
        ),
        (
            "-r",
            with_option(|_, pid, time, rest| format!("{pid} {} {rest}", since(time))),
        ),
        (
            "-ttt in nanoseconds",
            with_option(|_, pid, time, rest| format!("{pid} {time}123 {rest}")),
        ),
    ];
    for (option, text) in texts {
        let (imported, report) = import(&text);
        assert_eq!(words(&imported), expected, "{option}");
        assert_eq!(times(&imported), when, "{option}");
        assert_eq!(report.skipped, [], "{option}");
    }
}

#[test]
fn texts_without_the_ends_of_tasks_have_them_all_the_same() {
    let quiet: String = fixture("strace-y.txt")
        .lines()
        .filter(|line| !line.contains("+++ exited"))
        .map(|line| format!("{line}\n"))
        .collect();
    let (imported, report) = import(&quiet);
    assert_eq!(report.skipped, []);
    assert_eq!(
        counts(&imported),
        counts(&import(&fixture("strace-y.txt")).0)
    );
}

/// The same text as `-ff` has it: a file for each task, whole calls where they
/// began.
#[test]
fn a_file_for_each_task_tells_the_same_as_one_for_all() {
    let mut of_task: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in fixture("strace-y.txt").lines() {
        let (pid, rest) = line.split_once(' ').unwrap();
        let lines = of_task.entry(pid.to_owned()).or_default();
        match rest.split_once(" resumed>") {
            Some((_, end)) => {
                let begun = lines.iter_mut().rev();
                let begun = begun
                    .into_iter()
                    .find(|line| line.ends_with("<unfinished ...>"));
                let begun = begun.unwrap();
                *begun = begun.replace("<unfinished ...>", "") + end;
            }
            None => lines.push(rest.trim_start().to_owned()),
        }
    }
    let expected = counts(&import(&fixture("strace-y.txt")).0);
    for without_times in [false, true] {
        let texts: Vec<(String, String)> = of_task
            .iter()
            .map(|(pid, lines)| {
                let line = |line: &String| match without_times {
                    true => line.split_once(' ').unwrap().1.to_owned() + "\n",
                    false => format!("{line}\n"),
                };
                (format!("t.{pid}"), lines.iter().map(line).collect())
            })
            .collect();
        let texts: Vec<(&str, &str)> = texts
            .iter()
            .map(|(name, text)| (&**name, &**text))
            .collect();
        let (imported, report) = files(&texts).unwrap();
        assert_eq!(
            counts(&imported),
            expected,
            "without times: {without_times}"
        );
        assert_eq!(report.skipped, []);
    }
}

#[test]
fn escapes_and_raw_arguments_are_read() {
    let text = "\
7 1.0 execve(\"\\x2e\\x2f\\x64\\x65\\x6d\\x6f\", [\"\\x78\"], 0x7ffc /* 9 vars */) = 0
7 1.1 openat(AT_FDCWD, \"\\x2f\\x61\", O_RDONLY) = 3
7 1.2 mmap(0, 0x2000, 0x1, 0x2 /* MAP_PRIVATE */, 3, 0) = 0x10000
7 1.3 clone(0x1200011, 0, 0, 0x7f8d05767a10, 0 <unfinished ...>
8 1.4 mmap(NULL, 4096, 0x3 /* PROT_READ|PROT_WRITE */, 0x22 /* MAP_PRIVATE|MAP_ANONYMOUS */, -1, 0) = 0x20000
7 1.5 <... clone resumed>) = 0x8
8 1.6 +++ exited with 0 +++
7 1.7 wait4(0x8, 0x7fff, 0, 0) = 0x8
";
    let (imported, report) = import(text);
    assert_eq!(report.skipped, []);
    assert_eq!(
        words(&imported),
        [
            "7 executes demo",
            "7 maps 0x10000 8192 1 /a 0x0",
            "7 creates 8 0x1200000",
            "8 maps 0x20000 4096 3  0x0",
            "8 exits",
            "7 waited for 8",
        ]
    );
}

#[test]
fn a_program_whose_name_is_raw_is_executed_and_counted_as_lost() {
    let (imported, report) = import(
        "7 1.0 execve(0x7ffc81465c30, 0x7ffc814670e0, 0x7ffc814670f8) = 0\n\
         7 1.1 brk(0) = 0x5000\n7 1.2 brk(0x6000) = 0x6000\n",
    );
    assert_eq!(words(&imported)[0], "7 executes unknown");
    assert_eq!(skipped(&report).len(), 1);
}

#[test]
fn calls_that_the_kernel_did_not_do_make_no_event() {
    let (imported, report) = import(
        "7 1.0 brk(NULL) = 0x5000\n\
         7 1.1 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x1000 (INJECTED)\n\
         7 1.2 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = -1 ENOMEM (INJECTED)\n",
    );
    assert_eq!(words(&imported).len(), 1);
    assert_eq!(passed(&report, "inject"), 1);
}

#[test]
fn texts_that_tell_no_calls_are_refused_with_the_option_to_leave_out() {
    let table = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.71    0.003399        1699         2           wait4
------ ----------- ----------- --------- --------- ----------------
100.00    0.005599          23       235        12 total
";
    let failed = "\
7 1.0 openat(AT_FDCWD, \"/x\", O_RDONLY) = -1 ENOENT (No such file or directory)
7 1.1 +++ exited with 0 +++
";
    for (text, option) in [(table, "leave out strace's -c"), (failed, "-Z and -P")] {
        let error = import_text(text.as_bytes(), &OPTIONS).err().unwrap();
        assert!(error.to_string().contains(option), "{error}");
    }
}

#[test]
fn descriptors_stay_known_when_the_first_process_gets_its_id() {
    let text = "\
openat(AT_FDCWD, \"/a\", O_RDONLY)        = 3
fork(strace: Process 8 attached
)                                  = 8
[pid     7] mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3, 0) = 0x10000
[pid     8] close(3)                    = 0
[pid     8] openat(AT_FDCWD, \"/b\", O_RDONLY) = 3
[pid     8] mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3, 0) = 0x10000
[pid     7] mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3</c (d, \\74e\\76>, 0) = 0x20000
";
    let (imported, report) = import(text);
    assert_eq!(report.skipped, []);
    assert_eq!(
        words(&imported)[1..],
        [
            "7 maps 0x10000 4096 1 /a 0x0",
            "8 maps 0x10000 4096 1 /b 0x0",
            "7 maps 0x20000 4096 1 /c (d, <e> 0x0",
        ]
    );
}

#[test]
fn a_thread_that_executes_a_program_is_alone_on_a_terminal() {
    let text = "\
execve(\"./x\", [\"./x\"], NULL)           = 0
clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0, stack=0x7f} => {parent_tid=[501]}, 88) = 501
[pid   501] brk(NULL)                   = 0x5000
[pid   500] pause( <unfinished ...>
[pid   501] execve(\"/bin/true\", [\"true\"], NULL <unfinished ...>
[pid   500] <... pause resumed>)        = ?
+++ superseded by execve in pid 501 +++
<... execve resumed>)                   = 0
mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x10000
exit_group(0)                           = ?
+++ exited with 0 +++
";
    let (imported, report) = import(text);
    assert_eq!(report.skipped, []);
    assert_eq!(
        words(&imported),
        [
            "500 executes x",
            "500 creates 501 0x10100",
            "501 Brk { end: 20480 }",
            "500 exits",
            "501 executes true",
            "501 maps 0x10000 4096 1  0x0",
            "501 exits",
        ]
    );
    let of_process = imported.header.tasks.iter().map(|task| task.process);
    assert_eq!(of_process.collect::<Vec<_>>(), [500, 500]);
}

#[test]
fn files_without_times_of_another_namespace_are_refused_by_the_options_name() {
    let parent =
        "execve(\"/bin/sh\", [\"sh\"], NULL) = 0\nfork() = 2\nwait4(2, NULL, 0, NULL) = 2\n";
    let child = "brk(NULL) = 0x5000\n+++ exited with 0 +++\n";
    let error = files(&[("t.70", parent), ("t.71", child)]).err().unwrap();
    assert!(error.to_string().contains("--pidns-translation"), "{error}");
}
