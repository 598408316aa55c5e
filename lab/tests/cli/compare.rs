//! `vellum compare` and `vellum designs` as a user meets them.

use crate::command::{Scratch, text, vellum};
use serde_json::Value;
use vellum_testing::by_hand::{self, PAGE, fork, map, write};
use vellum_trace::{EventKind, TaskId};

/// The counts of the pass that counts atomic operations, in order.
const ATOMICS: [&str; 4] = [
    "atomic loads",
    "atomic stores",
    "atomic read-modify-writes",
    "full fences",
];

/// A parent that writes 64 pages and forks 8 children, each of which writes 32
/// pages of its own and 16 of those it shares with the parent.
fn write_eight_forks(path: &str) {
    let (shared, own) = (0x1000_0000, 0x2000_0000);
    let mut events = vec![(0, map(shared, 64))];
    events.extend((0..64).map(|page| (0, write(shared + page * PAGE, false))));
    for child in 1..=8 {
        events.extend([(0, fork(child)), (child, map(own, 32))]);
        events.extend((0..32).map(|page| (child, write(own + page * PAGE, false))));
        events.extend((0..16).map(|page| (child, write(shared + page * PAGE, true))));
        let unmap = EventKind::Unmap {
            address: own,
            length: 32 * PAGE,
        };
        let wait = EventKind::Wait {
            child: TaskId(child),
        };
        events.extend([(child, unmap), (child, EventKind::Exit), (0, wait)]);
    }
    events.push((0, EventKind::Exit));
    by_hand::write_trace(path, 8, &events);
}

#[test]
fn a_comparison_prints_every_table_and_the_same_as_json() {
    let scratch = Scratch::new("compare-tables");
    let (trace, json) = (scratch.path("fork.vellum"), scratch.path("report.json"));
    write_eight_forks(&trace);
    let output = vellum(&[
        "compare",
        &trace,
        "--a",
        "rmap=chains",
        "--b",
        "rmap=partial",
        "-n",
        "5",
        "--ram",
        "64M",
        "--slice",
        "50",
        "--quiet",
        "--json",
        &json,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "--quiet is quiet");
    let printed = text(&output.stdout);
    for heading in [
        "CPU time in the core",
        "Ratio of CPU times",
        "Verdict:",
        "Resolution:",
        "Time by class (ms)",
        "Events in one pass",
        "Memory at the peak (KiB)",
        "Kernbench: (",
        "diffprofile (",
    ] {
        assert!(
            printed.contains(heading),
            "{heading} is missing in\n{printed}"
        );
    }
    let written = std::fs::read_to_string(&json).expect("the report was written");
    let value: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(value["passes"], 5);
    for design in ["a", "b"] {
        let unexplained = &value["divergences"][design]["unexplained"];
        assert_eq!(*unexplained, 0, "design {design}");
    }
    let ops: u64 = value["classes"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["ops"].as_u64())
        .sum();
    assert_eq!(value["ops"], ops, "every operation has a class");
    let class = |name: &str| {
        let rows = value["classes"].as_array().expect("a list");
        let row = rows.iter().find(|row| row["class"] == name);
        row.map(|row| row["ops"].clone())
    };
    let atomics: Vec<(&str, u64)> = value["counters"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|row| row["pass"] == "atomics")
        .filter_map(|row| Some((row["name"].as_str()?, row["count"]["a"]["median"].as_u64()?)))
        .collect();
    assert!(
        atomics.iter().map(|row| row.0).eq(ATOMICS) && atomics.iter().all(|row| row.1 > 0),
        "{atomics:?}"
    );
    assert_eq!(class("fault"), Some((64 + 8 * 48).into()));
    assert_eq!(class("unmap"), Some(8.into()));
    assert_eq!(class("exit"), Some(9.into()));
}

#[test]
fn json_on_standard_output_is_nothing_but_json() {
    let scratch = Scratch::new("compare-json");
    let trace = scratch.path("fork.vellum");
    write_eight_forks(&trace);
    let output = vellum(&[
        "compare", &trace, "-n", "1", "--ram", "64M", "--cpus", "2", "--json", "-",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["schema"], "vellum-compare/1");
    assert_eq!(value["cpus"], 2);
    assert_eq!(value["verdict"]["outcome"], "not-proven");
    assert_eq!(value["verdict"]["reasons"][0], "too-few-passes");
}

#[test]
fn atomic_operations_are_left_out_if_nobody_wants_them() {
    let scratch = Scratch::new("compare-no-atomics");
    let trace = scratch.path("fork.vellum");
    write_eight_forks(&trace);
    let output = vellum(&["compare", &trace, "-n", "1", "--ram", "64M", "--no-atomics"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("Events in one pass"), "{printed}");
    for name in ATOMICS.iter().chain(&["instrumented"]) {
        assert!(!printed.contains(name), "{name} in\n{printed}");
    }
}

#[test]
fn unusable_input_is_named_and_exits_with_2() {
    let scratch = Scratch::new("compare-refused");
    let (trace, foreign) = (scratch.path("fork.vellum"), scratch.path("foreign.vellum"));
    write_eight_forks(&trace);
    std::fs::write(&foreign, "no trace at all").expect("written");
    let missing = scratch.path("missing.vellum");
    for (arguments, named) in [
        (vec!["compare", &missing], "missing.vellum"),
        (vec!["compare", &foreign], "foreign.vellum"),
        (vec!["compare", &trace, "--a", "rmap=telepathy"], "chains"),
        (vec!["compare", &trace, "--ram", "much"], "--ram"),
        (vec!["compare", &trace, "--cpus", "0"], "CPUs"),
    ] {
        let output = vellum(&arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(named), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let scratch = Scratch::new("compare-unwritable");
    let trace = scratch.path("fork.vellum");
    write_eight_forks(&trace);
    let json = scratch.path("missing/report.json");
    let output = vellum(&[
        "compare", &trace, "-n", "1", "--ram", "64M", "--json", &json,
    ]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("report.json"), "{message}");
}

#[test]
fn designs_lists_one_option_per_line() {
    let output = vellum(&["designs"]);
    assert!(output.status.success());
    let lines = text(&output.stdout);
    let options = vellum_engine::options();
    assert_eq!(lines.lines().count(), options.len());
    for (line, option) in lines.lines().zip(options) {
        assert!(line.starts_with(&format!("{}=", option.name)), "{line}");
        assert!(line.contains(option.summary), "{line}");
    }
    let output = vellum(&["designs", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value.as_array().map(Vec::len), Some(options.len()));
}
