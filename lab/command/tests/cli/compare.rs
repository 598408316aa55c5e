//! `vellum compare` and `vellum designs` as a user meets them.

use crate::command::{Scratch, text, vellum};
use serde_json::Value;
use vellum_testing::by_hand::{self, PAGE, fork, map, write};
use vellum_trace::{Access, EventKind, TaskId};

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

/// A child reads memory that its parent shares with it: pages far enough apart
/// for a fault each, unless a fault maps 64 pages.
fn write_shared_trace(path: &str) {
    let start = 0x1000_0000;
    let mut mapping = map(start, 64);
    if let EventKind::Map { shared, .. } = &mut mapping {
        *shared = true;
    }
    let read = |page: u64| EventKind::Fault {
        address: start + page * PAGE,
        access: Access::Read,
        kernel: false,
        present: false,
    };
    let mut events = vec![(0, mapping)];
    events.extend((0..64).map(|page| (0, write(start + page * PAGE, false))));
    events.push((0, fork(1)));
    events.extend([0, 20, 40, 60].map(|page| (1, read(page))));
    let wait = EventKind::Wait { child: TaskId(1) };
    events.extend([(1, EventKind::Exit), (0, wait), (0, EventKind::Exit)]);
    by_hand::write_trace(path, 1, &events);
}

#[test]
fn designs_are_read_the_same_whatever_separates_their_options() {
    let scratch = Scratch::new("compare-separators");
    let (trace, json) = (scratch.path("shared.vellum"), scratch.path("report.json"));
    write_shared_trace(&trace);
    for separator in [",", " ", ", ", " ,\t"] {
        let [a, b] = ["chains", "partial"]
            .map(|rmap| format!("rmap={rmap}{separator}faultaround=64{separator}"));
        let arguments = ["compare", &trace, "--a", &a, "--b", &b, "-n", "1"];
        let quiet = ["--ram", "64M", "--quiet", "--json", &json];
        let output = vellum(&[&arguments[..], &quiet].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let written = std::fs::read_to_string(&json).expect("the report was written");
        let value: Value = serde_json::from_str(&written).expect("JSON");
        for design in ["a", "b"] {
            let found = &value["divergences"][design];
            assert_eq!(found["unexplained"], 0, "{separator:?}: {found}");
            assert!(
                found["explained"].as_u64() > Some(0),
                "{separator:?}: {found}"
            );
        }
    }
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
        "--details",
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
    let arguments = ["compare", &trace, "-n", "1", "--ram", "64M", "--no-atomics"];
    let output = vellum(&[&arguments[..], &["--details"]].concat());
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
fn designs_lists_options_by_subject_and_published_kernels_one_per_line() {
    let output = vellum(&["designs"]);
    assert!(output.status.success());
    let lines = text(&output.stdout);
    let options = vellum_engine::options();
    let presets = vellum_engine::presets();
    let mut lines = lines.lines();
    let listed: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    for option in options {
        let assignment = format!("{}=", option.name);
        let is_option = |line: &&&str| line.trim_start().starts_with(&assignment);
        let line = listed
            .iter()
            .find(is_option)
            .expect("a line for each option");
        assert!(
            line.starts_with("  ") && line.contains(option.summary),
            "{line}"
        );
    }
    let subjects = listed.iter().filter(|line| !line.starts_with(' '));
    let subjects: Vec<&str> = subjects.map(|line| line.trim_end()).collect();
    assert_eq!(subjects[0], "Huge pages (THP), folios (mTHP)");
    assert_eq!(options.len() + subjects.len(), listed.len(), "{listed:#?}");
    for preset in presets {
        let line = lines.next().expect("a line for each kernel");
        assert!(line.starts_with(&format!("as={} ", preset.name)), "{line}");
        assert!(line.contains(preset.meaning) && line.contains(preset.settings));
    }
    assert_eq!(lines.next(), None);
    let output = vellum(&["designs", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let count = |list: &str| value[list].as_array().map(Vec::len);
    assert_eq!(count("options"), Some(options.len()));
    assert_eq!(count("presets"), Some(presets.len()));
}

#[test]
fn passes_are_samples_for_mmtests_and_ministat() {
    let scratch = Scratch::new("compare-published");
    let (trace, json) = (scratch.path("fork.vellum"), scratch.path("report.json"));
    write_eight_forks(&trace);
    let arguments = ["compare", &trace, "--no-atomics", "--ram", "64M", "--quiet"];
    let designs = ["--a", "rmap=chains", "--b", "rmap=partial"];
    let run = |more: &[&str]| vellum(&[&arguments[..], &designs, &["-n", "3"], more].concat());
    let output = run(&["--format", "ministat", "--json", &json]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for part in [
        "\nx A rmap=chains\n+ B rmap=partial\n* A'\n+-----",
        "    N           Min           Max        Median           Avg        Stddev\nx   3 ",
        " per pass\n",
    ] {
        assert!(printed.contains(part), "{part:?} in\n{printed}");
    }
    assert!(!printed.contains("Verdict:"), "{printed}");
    let written = std::fs::read_to_string(&json).expect("the report was written");
    let value: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(value["pass_cpu_ns"]["b"].as_array().map(Vec::len), Some(3));
    let output = run(&["--format", "mmtests"]);
    let printed = text(&output.stdout);
    let heading = |line: &&str| line.split_whitespace().eq(["rmap=chains", "rmap=partial"]);
    assert_eq!(printed.lines().filter(heading).count(), 1, "{printed}");
    let mean = printed.lines().find(|line| line.starts_with("Amean "));
    let mean = mean.expect("a row of means");
    assert!(
        mean.contains("CPU time, ") && mean.contains(" (   0.00%)"),
        "{mean}"
    );
    for (more, said) in [
        (
            &["--format", "ministat", "-n", "2"][..],
            "at least 3 samples",
        ),
        (
            &["--format", "mmtests", "--json", "-"],
            "leave out --format",
        ),
        (
            &["--format", "mmtests", "--a", "linux:x", "--b", "linux:y"],
            "designs of the core",
        ),
    ] {
        let output = vellum(&[&arguments[..], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(
            text(&output.stderr).contains(said),
            "{}",
            text(&output.stderr)
        );
    }
}
