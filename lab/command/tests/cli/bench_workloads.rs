//! Published workloads as a user meets them: `vellum bench kernbench`, `buildkernel` and
//! `sdet`, which replay traces and print as their originals do.

use crate::bench::{counter, has_figures, list, measured};
use crate::command::Scratch;
use serde_json::Value;
use vellum_testing::by_hand::{self, PAGE, fork, map, write};
use vellum_trace::{EventKind, TaskId};

/// A process that forks a child; both write to some pages.
fn write_one_fork(path: &str) {
    let start = 0x1000_0000;
    let mut events = vec![(0, map(start, 64))];
    events.extend((0..64).map(|page| (0, write(start + page * PAGE, false))));
    events.push((0, fork(1)));
    events.extend((0..32).map(|page| (1, write(start + page * PAGE, true))));
    let child = TaskId(1);
    events.extend([
        (1, EventKind::Exit),
        (0, EventKind::Wait { child }),
        (0, EventKind::Exit),
    ]);
    by_hand::write_trace(path, 1, &events);
}

#[test]
fn kernbench_prints_a_block_for_each_of_three_loads() {
    let scratch = Scratch::new("kernbench");
    let trace = scratch.path("fork.vellum");
    write_one_fork(&trace);
    let value = measured(&["kernbench", "--trace", &trace, "--ram", "64M"]);
    has_figures(&value, 3);
    let blocks: Vec<&str> = list(&value["blocks"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(blocks.len(), 3);
    for (block, copies) in blocks.iter().zip(["1 copy", "2 copies", "4 copies"]) {
        let lines: Vec<&str> = block.lines().collect();
        assert!(lines[0].starts_with("Kernbench: (make -j"), "{block}");
        assert!(
            lines[0].ends_with(&format!("(replay, {copies}))")),
            "{block}"
        );
        let header = "                              Elapsed      System        User         CPU";
        assert_eq!(lines[1], header);
        assert_eq!(lines.len(), 4, "one row for each design");
        assert!(lines[2].starts_with("            A rmap=chains"), "{block}");
        assert_eq!(lines[2].len(), 25 + 4 * 12);
    }
    for (run, copies) in [1, 2, 4].into_iter().enumerate() {
        assert_eq!(counter(&value, run, "forks", 0), copies);
    }
}

#[test]
fn buildkernel_prints_a_line_of_time_for_each_run() {
    let scratch = Scratch::new("buildkernel");
    let trace = scratch.path("fork.vellum");
    write_one_fork(&trace);
    let arguments = ["buildkernel", "--trace", &trace, "--ram", "64M"];
    let value = measured(&[&arguments[..], &["--size", "jobs=3"]].concat());
    has_figures(&value, 3);
    assert_eq!(counter(&value, 0, "forks", 0), 3, "a copy for each job");
    let block = value["blocks"][0].as_str().expect("a block");
    let lines = block.lines().filter(|line| line.ends_with(" sys"));
    assert_eq!(lines.count(), 4, "{block}");
    assert!(
        block.starts_with("make -s -j 3 (replay, 3 copies)\nA as="),
        "{block}"
    );
    assert!(
        block.ends_with("has 2 samples; at least 3 are needed\n"),
        "{block}"
    );
}

#[test]
fn sdet_runs_different_scripts_and_then_more_of_each() {
    let value = measured(&["sdet", "--size", "most=2", "--a", "rmap=family"]);
    let facts = |run: usize| value["runs"][run]["facts"][0].as_str().expect("text");
    assert_eq!(
        (facts(0), facts(1)),
        ("1 trace at once.", "2 different traces at once.")
    );
    let files = |run| counter(&value, run, "pages read", 0);
    assert!(files(1) < 2 * files(0), "they share programs and libraries");
    let faults = |run| counter(&value, run, "faults", 0);
    assert!(faults(1) * 10 > 19 * faults(0), "twice the work");
}

#[test]
fn sdet_prints_percentages_of_the_first_design_with_the_disclaimer() {
    let scratch = Scratch::new("sdet");
    let trace = scratch.path("script.vellum");
    write_one_fork(&trace);
    let value = measured(&[
        "sdet", "--trace", &trace, "--trace", &trace, "--size", "most=4", "--ram", "64M",
    ]);
    has_figures(&value, 3);
    let blocks: Vec<&str> = list(&value["blocks"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for (block, users) in blocks.iter().zip([1, 2, 4]) {
        let lines: Vec<&str> = block.lines().collect();
        assert_eq!(lines[0], format!("SDET-like {users}  (see disclaimer)"));
        assert_eq!(
            lines[1],
            "                           Throughput    Std. Dev"
        );
        assert!(
            lines[2].starts_with("            A rmap=chains       100.0%"),
            "{block}"
        );
        assert_eq!(lines[2].len(), 25 + 2 * 13);
    }
    assert_eq!(blocks.len(), 3);
    let notes = value["notes"].to_string();
    assert!(notes.contains("this is not SDET"), "{notes}");
}
