//! `vellum cut`: a part of a trace replays on its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use vellum_trace::model::Model;
use vellum_trace::{
    Access, Event, EventKind, File, FileId, Header, MapOrigin, Prot, Task, TaskId, TraceReader,
    TraceWriter,
};

const PAGE: u64 = 4096;
const DATA: u64 = 0x10_0000;
const TEXT: u64 = 0x40_0000;
const HEAP: u64 = 0x80_0000;

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("vellum-cut-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn fault(address: u64, access: Access, present: bool) -> EventKind {
    EventKind::Fault {
        address,
        access,
        kernel: false,
        present,
    }
}

fn map(address: u64, pages: u64, prot: u8, file: Option<FileId>) -> EventKind {
    EventKind::Map {
        address,
        length: pages * PAGE,
        prot: Prot(prot),
        shared: false,
        grows_down: false,
        file,
        offset: 0,
        origin: MapOrigin::Mmap,
    }
}

/// Task 0 makes memory and forks 1, which breaks copy-on-write and writes to a
/// file; 2 is a thread of 0. One event a second.
fn sample(path: &Path) {
    let mut writer = TraceWriter::create(path, 3).unwrap();
    let task = |pid, process, parent| Task {
        pid,
        process,
        parent,
    };
    *writer.header_mut() = Header {
        tasks: vec![
            task(10, 10, None),
            task(11, 11, Some(TaskId(0))),
            task(12, 10, Some(TaskId(0))),
        ],
        files: vec![File {
            name: "/bin/sample".into(),
            device: 5,
            inode: 6,
            size: 8 * PAGE,
        }],
        strings: vec!["sample".into()],
        ..Header::default()
    };
    let (zero, one, two) = (TaskId(0), TaskId(1), TaskId(2));
    let create = |child, clone_flags| EventKind::Create { child, clone_flags };
    let file = FileId(0);
    let events = [
        (zero, EventKind::Exec { name: 0 }),
        (zero, map(TEXT, 8, 5, Some(file))),
        (zero, fault(TEXT + PAGE, Access::Execute, false)),
        (zero, map(DATA, 16, 3, None)),
        (zero, fault(DATA, Access::Write, false)),
        (zero, fault(DATA + PAGE, Access::Read, false)),
        (zero, EventKind::Brk { end: HEAP }),
        (
            zero,
            EventKind::Brk {
                end: HEAP + 4 * PAGE,
            },
        ),
        (zero, fault(HEAP, Access::Write, false)),
        (
            zero,
            EventKind::Unmap {
                address: DATA + 8 * PAGE,
                length: 2 * PAGE,
            },
        ),
        (zero, create(one, 0)),
        (zero, create(two, 0x1_0100)),
        (one, fault(DATA, Access::Write, true)),
        (two, fault(HEAP, Access::Write, true)),
        (
            one,
            EventKind::FileWrite {
                file,
                offset: 8 * PAGE,
                length: PAGE,
            },
        ),
        (
            one,
            EventKind::FileRead {
                file,
                offset: 0,
                length: 9 * PAGE,
            },
        ),
        (two, EventKind::Exit),
        (one, EventKind::Exit),
        (zero, EventKind::Wait { child: one }),
        (zero, EventKind::Exit),
    ];
    for (second, (task, kind)) in events.into_iter().enumerate() {
        let time_us = second as u64 * 1_000_000;
        writer
            .push(&Event {
                time_us,
                task,
                kind,
                ran_us: None,
            })
            .unwrap();
    }
    writer.finish().unwrap();
}

fn cut(directory: &Path, arguments: &[&str]) -> (Header, Vec<Event>) {
    let (whole, part) = (
        directory.join("whole.vellum"),
        directory.join("part.vellum"),
    );
    sample(&whole);
    let output = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .arg("cut")
        .arg(&whole)
        .arg("-o")
        .arg(&part)
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let trace = TraceReader::open(&part).unwrap();
    let events = trace.events().collect::<Result<_, _>>().unwrap();
    let header = trace.header().clone();
    std::fs::remove_dir_all(directory).unwrap();
    (header, events)
}

/// Every space's mappings and table entries, by its least task's process id.
fn state(header: &Header, events: &[Event], until_us: u64) -> Vec<String> {
    let mut model = Model::default();
    for event in events.iter().take_while(|event| event.time_us < until_us) {
        model.take(event);
    }
    let mut spaces: Vec<String> = model
        .spaces()
        .map(|(_, space)| {
            let mut users: Vec<u32> = space
                .users
                .iter()
                .map(|user| header.tasks[user.0 as usize].pid)
                .collect();
            users.sort_unstable();
            let regions: Vec<_> = space
                .regions
                .iter()
                .map(|(first, end, region)| (first, end, region.prot, region.file.is_some()))
                .collect();
            let pages: Vec<_> = space
                .entries
                .iter()
                .map(|(page, entry)| (*page, entry.writable))
                .collect();
            format!("{users:?} {regions:x?} {pages:x?} {:x?}", space.heap)
        })
        .collect();
    spaces.sort();
    spaces
}

#[test]
fn a_window_begins_with_the_state_it_found() {
    for second in 1..19u64 {
        let directory = scratch(&format!("window-{second}"));
        let whole = directory.join("whole.vellum");
        sample(&whole);
        let trace = TraceReader::open(&whole).unwrap();
        let all: Vec<Event> = trace.events().collect::<Result<_, _>>().unwrap();
        let before = state(trace.header(), &all, second * 1_000_000);
        let (header, events) = cut(&directory, &["--from", &second.to_string()]);
        // The wait for a child that ended before the cut is not in it.
        let lost_wait = all[..second as usize]
            .iter()
            .any(|event| event.task == TaskId(1) && event.kind == EventKind::Exit);
        let copied = all.len() - second as usize - usize::from(lost_wait && second <= 18);
        let synthesised = &events[..events.len() - copied];
        assert_eq!(
            state(&header, synthesised, u64::MAX),
            before,
            "from second {second}"
        );
    }
}

#[test]
fn a_sub_tree_begins_with_what_its_root_inherited() {
    let (header, events) = cut(&scratch("tree"), &["--task", "1"]);
    assert_eq!(header.tasks.len(), 1);
    assert_eq!((header.tasks[0].pid, header.tasks[0].parent), (11, None));
    let mut model = Model::default();
    events.iter().for_each(|event| model.take(event));
    assert_eq!(model.totals().unmapped_faults, 0);
    let breaks = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Fault { present: true, .. }));
    assert_eq!(breaks.count(), 1, "the copy-on-write break is there");
    let last = events.last().unwrap();
    assert_eq!(last.kind, EventKind::Exit);
    assert_eq!(header.environment.cuts.len(), 1);
    assert_eq!(header.files[0].size, 8 * PAGE);
}

#[test]
fn a_window_that_holds_nothing_is_refused_and_leaves_no_file() {
    let directory = scratch("nothing");
    let whole = directory.join("whole.vellum");
    sample(&whole);
    for (arguments, reason) in [
        (["--from", "40"], "ends at 19 s"),
        (["--task", "3"], "tasks 0 to 2"),
        (["--pid", "99"], "no task has process id 99"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_vellum"))
            .arg("cut")
            .arg(&whole)
            .arg("-o")
            .arg(directory.join("part.vellum"))
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(reason), "{text}");
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    std::fs::remove_dir_all(directory).unwrap();
}
