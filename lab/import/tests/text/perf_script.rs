//! Text of `perf script` with faults that are told whole.

use crate::common::{clone_flags, count, fixture, import, programs};
use vellum_trace::EventKind;

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
