//! What share of the whole workload an answer is about.

use serde_json::Value;
use vellum_testing::by_hand::{self, PAGE, map, write};
use vellum_trace::EventKind;

use crate::command::{Scratch, printed, text, vellum};

const START: u64 = 0x1000_0000;
const PAGES: u64 = 400;

/// A program that computes for a second and then has faults in a row, of 2 us each.
fn timed(path: &str) {
    let mut events = vec![(0, map(START, PAGES), 1_000_000)];
    events.extend((0..PAGES).map(|page| (0, write(START + page * PAGE, false), 2)));
    events.push((0, EventKind::Exit, 2));
    by_hand::write_timed_trace(path, 0, &events);
}

/// The same without CPU times.
fn untimed(path: &str) {
    let mut events = vec![(0, map(START, PAGES))];
    events.extend((0..PAGES).map(|page| (0, write(START + page * PAGE, false))));
    by_hand::write_trace(path, 0, &events);
}

/// What a command says, in one line, and as JSON.
fn said(arguments: &[&str]) -> (String, Value) {
    let tables = vellum(arguments);
    assert!(tables.status.success(), "{}", printed(&tables));
    let words: Vec<String> = text(&tables.stdout)
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let json = vellum(&[arguments, &["--json", "-"]].concat());
    assert!(json.status.success(), "{}", printed(&json));
    let value = serde_json::from_slice(&json.stdout).expect("JSON");
    (words.join(" "), value)
}

#[test]
fn a_verdict_says_what_share_of_the_workload_it_is_about() {
    let scratch = Scratch::new("whole-compare");
    let trace = scratch.path("timed.vellum");
    timed(&trace);
    let compare = [
        "compare",
        &trace,
        "-n",
        "5",
        "--ram",
        "64M",
        "-q",
        "--no-atomics",
    ];
    let (words, json) = said(&compare);
    for part in [
        "Of the whole:",
        "of the 1.00 s of CPU time that the workload took when it was recorded.",
        "Memory management was about 0.00080 s of them in the recorded kernel",
    ] {
        assert!(words.contains(part), "{part} in {words}");
    }
    let cpu_ns = 1_000_000_000 + (PAGES + 1) * 2000;
    assert_eq!(json["whole"]["cpu_ns"], cpu_ns);
    assert_eq!(json["whole"]["memory_ns"], PAGES * 2000);
    let (words, json) = said(&[&compare[..], &["--copies", "2"]].concat());
    assert_eq!(json["whole"]["cpu_ns"], 2 * cpu_ns, "{words}");
}

#[test]
fn what_a_recording_without_cpu_times_cannot_say_is_said() {
    let scratch = Scratch::new("whole-unknown");
    let trace = scratch.path("untimed.vellum");
    untimed(&trace);
    for command in [
        &[
            "compare",
            &trace,
            "-n",
            "1",
            "--ram",
            "64M",
            "-q",
            "--no-atomics",
        ][..],
        &["replay", &trace, "--ram", "64M", "-q"],
    ] {
        let (words, json) = said(command);
        let unknown = "unknown, since the recording has no CPU times.";
        assert!(words.contains(unknown), "{words}");
        assert!(json["whole"].is_null(), "{json}");
    }
    let (words, _) = said(&["plan", "memory", &trace, "--parts", "1", "-q"]);
    assert!(words.contains("the recording has no CPU times."), "{words}");
}

#[test]
fn a_plan_of_memory_says_that_programs_compute_beside_it() {
    let scratch = Scratch::new("whole-plan");
    let trace = scratch.path("timed.vellum");
    timed(&trace);
    let (words, json) = said(&["plan", "memory", &trace, "--parts", "1,0.5", "-q"]);
    let left_out = "what the programs compute is in neither. The workload took 1.001 s of CPU time";
    assert!(words.contains(left_out), "{words}");
    // Half of the pages leave for the device. How long the core took is the host's affair.
    let row = &json["rows"][1];
    assert_eq!(json["unlimited"]["device_ns"], 0, "{json}");
    assert!(row["cost"]["device_ns"].as_u64() > Some(0), "{json}");
    let (words, _) = said(&["replay", &trace, "--ram", "64M", "-q"]);
    assert!(words.contains("% of the 1.00 s of CPU time"), "{words}");
}
