//! Text of strace: files, touches, who created whom.

use crate::common::{PAGE, accesses, clone_flags, count, fixture, import, mapped_files, programs};
use vellum_import::{Options, import_text};
use vellum_trace::{Access, EventKind};

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
    assert_eq!(
        accesses(&imported),
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
