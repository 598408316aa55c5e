//! Traces made by hand: one process and its children.

use vellum_trace::{
    Access, DEFAULT_LEVEL, Event, EventKind, MapOrigin, Prot, Task, TaskId, TraceWriter,
};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Writes a trace of task 0 and `children` children of it, whose `events` come in
/// this order, each of the task before it.
pub fn write_trace(path: &str, children: u32, events: &[(u32, EventKind)]) {
    let mut writer = TraceWriter::create(path, DEFAULT_LEVEL).expect("created");
    for pid in 1..=1 + children {
        writer.header_mut().tasks.push(Task {
            pid,
            process: pid,
            parent: (pid > 1).then_some(TaskId(0)),
        });
    }
    for (time_us, &(task, kind)) in (1..).zip(events) {
        let task = TaskId(task);
        let event = Event {
            time_us,
            task,
            kind,
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

/// The child begins as a fork of the task (17 is SIGCHLD).
pub fn fork(child: u32) -> EventKind {
    EventKind::Create {
        child: TaskId(child),
        clone_flags: 17,
    }
}
