//! Traces made by hand: one process and its children.

use vellum_trace::{
    Access, AccessMarks, Accesses, DEFAULT_LEVEL, Event, EventKind, MapOrigin, Prot, Task, TaskId,
    TraceWriter,
};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Writes a trace of task 0 and `children` children of it, whose `events` come in
/// this order, each of the task before it.
pub fn write_trace(path: &str, children: u32, events: &[(u32, EventKind)]) {
    let events = events.iter().map(|&(task, kind)| (task, kind, None));
    write_all(path, children, &events.collect::<Vec<_>>());
}

/// The same, with how long the task computed before each event, in microseconds.
pub fn write_timed_trace(path: &str, children: u32, events: &[(u32, EventKind, u64)]) {
    let events = events
        .iter()
        .map(|&(task, kind, us)| (task, kind, Some(us)));
    write_all(path, children, &events.collect::<Vec<_>>());
}

fn write_all(path: &str, children: u32, events: &[(u32, EventKind, Option<u64>)]) {
    let mut writer = TraceWriter::create(path, DEFAULT_LEVEL).expect("created");
    let sampled = |(_, kind, _): &(u32, EventKind, _)| matches!(kind, EventKind::Accessed { .. });
    writer.header_mut().accesses = events.iter().any(sampled).then_some(Accesses {
        interval_us: 1000,
        marks: AccessMarks::Pages,
    });
    writer.header_mut().cpu_times = events.iter().any(|(_, _, ran)| ran.is_some());
    for pid in 1..=1 + children {
        writer.header_mut().tasks.push(Task {
            pid,
            process: pid,
            parent: (pid > 1).then_some(TaskId(0)),
        });
    }
    let mut time_us = 0;
    for &(task, kind, ran_us) in events {
        time_us += ran_us.unwrap_or(0).max(1);
        let event = Event {
            time_us,
            task: TaskId(task),
            kind,
            ran_us,
        };
        writer.push(&event).expect("a consistent event");
    }
    writer.finish().expect("written");
}

/// Private memory without an object, which may be written to.
pub fn map(address: u64, pages: u64) -> EventKind {
    EventKind::Map {
        address,
        length: pages * PAGE,
        prot: Prot(3),
        shared: false,
        grows_down: false,
        file: None,
        offset: 0,
        origin: MapOrigin::Mmap,
    }
}

/// A fault for a write; the page was there, or not.
pub fn write(address: u64, present: bool) -> EventKind {
    EventKind::Fault {
        address,
        access: Access::Write,
        kernel: false,
        present,
    }
}

/// Pages that a sample of accessed marks found used.
pub fn accessed(address: u64, pages: u64) -> EventKind {
    EventKind::Accessed {
        address,
        length: pages * PAGE,
    }
}

/// The child begins as a fork of the task (17 is SIGCHLD).
pub fn fork(child: u32) -> EventKind {
    EventKind::Create {
        child: TaskId(child),
        clone_flags: 17,
    }
}
