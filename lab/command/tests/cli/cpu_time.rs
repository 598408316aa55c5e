//! What the commands say of CPU times in traces.

use std::fs;

use crate::command::{Scratch, printed, text, vellum};
use vellum_testing::by_hand;
use vellum_trace::{DEFAULT_LEVEL, Event, EventKind, Task, TaskId, TraceReader, TraceWriter};

/// Two tasks: the first computes for 3 ms and twice not at all, the other is
/// not known to have run.
fn sample(path: &str) {
    let mut writer = TraceWriter::create(path, DEFAULT_LEVEL).unwrap();
    let header = writer.header_mut();
    header.cpu_times = true;
    header.strings.push("compute".into());
    for pid in [70, 71] {
        header.tasks.push(Task {
            pid,
            process: pid,
            parent: None,
        });
    }
    let brk = EventKind::Brk { end: 4096 };
    for (time_us, task, kind, ran_us) in [
        (0, 0, EventKind::Exec { name: 0 }, Some(0)),
        (4_000, 0, brk, Some(3_000)),
        (5_000, 1, brk, None),
        (6_000, 0, brk, Some(0)),
    ] {
        let event = Event {
            time_us,
            task: TaskId(task),
            kind,
            ran_us,
        };
        writer.push(&event).unwrap();
    }
    writer.finish().unwrap();
}

fn shown(arguments: &[&str]) -> String {
    let output = vellum(arguments);
    assert!(output.status.success(), "{}", printed(&output));
    text(&output.stdout)
}

#[test]
fn info_adds_cpu_times_up_and_names_the_busiest_tasks() {
    let scratch = Scratch::new("cpu-time-info");
    let trace = scratch.path("t.vellum");
    sample(&trace);
    let info = shown(&["info", "--quiet", &trace]);
    let expected = "0.003000 s; most in task 0 (compute) 0.003000 s; not known before 1 event";
    assert!(info.contains(expected), "{info}");
    let json: serde_json::Value =
        serde_json::from_str(&shown(&["info", "--json", "--quiet", &trace])).unwrap();
    assert_eq!(json["cpu_time"]["seconds"], 0.003);
    assert_eq!(json["cpu_time"]["busiest"][0]["pid"], 70);
    by_hand::write_trace(&trace, 0, &[(0, EventKind::Brk { end: 4096 })]);
    let info = shown(&["info", "--quiet", &trace]);
    assert!(info.contains("CPU time    not recorded"), "{info}");
}

#[test]
fn dump_and_export_show_the_cpu_time_of_each_event() {
    let scratch = Scratch::new("cpu-time-rows");
    let (trace, csv) = (scratch.path("t.vellum"), scratch.path("t.csv"));
    sample(&trace);
    let dump = shown(&["dump", &trace]);
    let column = dump.lines().map(|line| line.split_whitespace().nth(3));
    let column: Vec<&str> = column.map(Option::unwrap).collect();
    assert_eq!(column, ["0", "3000", "-", "0"], "{dump}");
    shown(&["export", &trace, "--format", "csv", "-o", &csv]);
    let rows = fs::read_to_string(csv).unwrap();
    let column = rows.lines().map(|row| row.rsplit(',').next().unwrap());
    let column: Vec<&str> = column.collect();
    assert_eq!(column, ["ran_us", "0", "3000", "", "0"], "{rows}");
}

#[test]
fn a_cut_keeps_the_cpu_time_that_lies_in_it() {
    let scratch = Scratch::new("cpu-time-cut");
    let (trace, part) = (scratch.path("t.vellum"), scratch.path("part.vellum"));
    sample(&trace);
    // The last of 4 ms in which the first task ran for 3 ms.
    shown(&["cut", &trace, "-o", &part, "--from", "0.003", "--quiet"]);
    let cut = TraceReader::open(&part).unwrap();
    assert!(cut.header().cpu_times);
    let times = cut.events().map(|event| event.unwrap().ran_us);
    assert_eq!(times.flatten().sum::<u64>(), 750);
}
