//! In which order the processes of a replay on the host's kernel do what they do.

use std::path::PathBuf;

use vellum_lab::linux::protocol::{op, op_of};
use vellum_lab::linux::{Plan, plan};
use vellum_lab::replay::{Options, prepare};
use vellum_trace::{
    Access, DEFAULT_LEVEL, Event, EventKind, File, FileId, MapOrigin, Prot, Task, TaskId,
    TraceReader, TraceWriter,
};

const PAGE: u64 = 4096;
const DATA: u64 = 0x7f00_0000_0000;
const SIGCHLD: u64 = 17;

/// The plan of a trace with two tasks, of which the second may have been created
/// by the first, and one file of 8 pages.
fn planned(test: &str, second_from_first: bool, events: &[(u32, EventKind)]) -> Plan {
    let name = format!("vellum-{test}-{}.vellum", std::process::id());
    let path: PathBuf = std::env::temp_dir().join(name);
    let mut writer = TraceWriter::create(&path, DEFAULT_LEVEL).expect("created");
    for pid in 1..=2u32 {
        writer.header_mut().tasks.push(Task {
            pid,
            process: pid,
            parent: (pid == 2 && second_from_first).then_some(TaskId(0)),
        });
    }
    writer.header_mut().files.push(File {
        name: String::new(),
        device: 1,
        inode: 1,
        size: 8 * PAGE,
    });
    for (time_us, (task, kind)) in (1u64..).zip(events) {
        let event = Event {
            time_us,
            task: TaskId(*task),
            kind: *kind,
            ran_us: None,
        };
        writer.push(&event).expect("a consistent event");
    }
    writer.finish().expect("written");
    let trace = TraceReader::open(&path).expect("a trace");
    let workload = prepare(&trace, &Options::default()).expect("a workload");
    let plan = plan(&trace, &workload).expect("a plan");
    std::fs::remove_file(&path).expect("it is ours");
    plan
}

fn map(pages: u64) -> EventKind {
    EventKind::Map {
        address: DATA,
        length: pages * PAGE,
        prot: Prot(3),
        shared: false,
        grows_down: false,
        file: None,
        offset: 0,
        origin: MapOrigin::Mmap,
    }
}

fn write(page: u64) -> EventKind {
    EventKind::Fault {
        address: DATA + page * PAGE,
        access: Access::Write,
        kernel: false,
        present: false,
    }
}

/// Every operation with the task that does it, in order.
fn operations(plan: &Plan) -> Vec<(u32, u8)> {
    let mut operations = Vec::new();
    for step in &plan.steps {
        let mut words = &plan.words[step.words.clone()];
        while let Some(first) = words.first() {
            operations.push((step.task, op_of(*first)));
            words = &words[op::words(op_of(*first))..];
        }
    }
    operations
}

#[test]
fn processes_that_share_nothing_do_all_of_theirs_together() {
    let mut events = vec![(0, map(500)), (1, map(500))];
    events.extend((0..1000).map(|number| (number % 2, write(u64::from(number / 2)))));
    events.extend([(0, EventKind::Exit), (1, EventKind::Exit)]);
    let plan = planned("plan-apart", false, &events);
    // Two creations by the keeper, and one step of each, which ends it.
    assert_eq!(plan.steps.len(), 4, "{:?}", plan.steps);
    assert_eq!(plan.words.len(), 2 * 3 + 2 * (4 + 500 + 1));
}

#[test]
fn processes_that_share_pages_after_a_fork_take_turns_as_recorded() {
    let child = TaskId(1);
    let create = EventKind::Create {
        child,
        clone_flags: SIGCHLD,
    };
    let mut events = vec![(0, map(64)), (0, create)];
    let turns = [0u32, 0, 1, 0, 1, 1, 0];
    events.extend(
        turns
            .iter()
            .enumerate()
            .map(|(page, task)| (*task, write(page as u64))),
    );
    events.extend([(1, EventKind::Exit), (0, EventKind::Exit)]);
    let plan = planned("plan-kin", true, &events);
    let touches = operations(&plan)
        .into_iter()
        .filter(|(_, op)| *op == op::WRITE);
    let order: Vec<u32> = touches.map(|(task, _)| task).collect();
    assert_eq!(order, turns);
}

#[test]
fn a_file_is_written_read_and_cut_in_the_recorded_order() {
    let file = FileId(0);
    let (offset, length) = (0, 8 * PAGE);
    let read = EventKind::FileRead {
        file,
        offset,
        length,
    };
    let write = EventKind::FileWrite {
        file,
        offset,
        length,
    };
    let cut = EventKind::Truncate { file, size: PAGE };
    let events = [
        (0, read),
        (1, write),
        (0, read),
        (1, read),
        (0, cut),
        (1, write),
    ];
    let plan = planned("plan-file", false, &events);
    let wanted = [op::FILE_READ, op::FILE_WRITE, op::FILE_READ];
    let mut found: Vec<(u32, u8)> = operations(&plan);
    found.retain(|(_, op)| matches!(*op, op::FILE_READ | op::FILE_WRITE | op::TRUNCATE));
    let codes: Vec<u8> = found.iter().map(|(_, op)| *op).collect();
    assert_eq!(codes[..2], wanted[..2]);
    // The two reads may change places; both are before the cut.
    assert_eq!(
        codes[2..],
        [op::FILE_READ, op::FILE_READ, op::TRUNCATE, op::FILE_WRITE]
    );
    assert_eq!(found[0].0, 0);
}

#[test]
fn everybody_ends_when_the_recording_does() {
    let child = TaskId(1);
    let create = EventKind::Create {
        child,
        clone_flags: SIGCHLD,
    };
    let plan = planned("plan-end", true, &[(0, map(4)), (0, create), (1, write(1))]);
    let ends: Vec<u32> = operations(&plan)
        .into_iter()
        .filter(|(_, op)| *op == op::EXIT)
        .map(|(task, _)| task)
        .collect();
    assert_eq!(ends, [1, 0]);
    assert_eq!(plan.most_tasks, 3);
}
