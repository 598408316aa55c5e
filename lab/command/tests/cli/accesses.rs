//! Traces with samples of accessed marks: pages are used again where they were recorded to be.

use crate::command::{Scratch, printed, text, vellum};
use crate::plan::{needed, number};
use serde_json::Value;
use vellum_testing::by_hand::{self, PAGE, accessed, map, write};
use vellum_trace::{EventKind, TraceReader};

const START: u64 = 0x1000_0000;

/// Pages of private memory that are all stored to once. A plan looks at what is in use after each
/// 4096 operations.
const PAGES: u64 = 8192;

/// How often all of them are used again, if they are.
const SWEEPS: u64 = 3;

/// A process stores to all of its memory and then uses it again and again, which shows only in
/// the samples.
fn write_sweeps(path: &str, sampled: bool) {
    let mut events = vec![(0, map(START, PAGES))];
    for page in 0..PAGES {
        events.push((0, write(START + page * PAGE, false)));
        if sampled && page % 64 == 63 {
            events.push((0, accessed(START, 64)));
        }
    }
    // What lies beside the mapping is passed over.
    let sweep = (0, accessed(START - PAGE, PAGES + 2));
    events.extend((0..SWEEPS * u64::from(sampled)).map(|_| sweep));
    events.push((0, EventKind::Exit));
    // The sample after the end, of a process that is gone.
    events.extend(sampled.then_some(sweep));
    by_hand::write_trace(path, 0, &events);
}

fn run(arguments: &[&str]) -> String {
    let output = vellum(arguments);
    assert!(output.status.success(), "{}", printed(&output));
    text(&output.stdout)
}

#[test]
fn a_plan_of_memory_has_pages_come_back_that_are_used_again() {
    let scratch = Scratch::new("accesses-plan");
    let (first, again) = (scratch.path("first.vellum"), scratch.path("again.vellum"));
    write_sweeps(&first, false);
    write_sweeps(&again, true);
    let half = |trace: &str| needed(trace, &["--parts", "0.5"]);
    let (of_first, of_again) = (half(&first), half(&again));
    assert_eq!(of_first["first_touches_only"], true);
    assert_eq!(of_first["accesses"], Value::Null);
    assert_eq!(number(&of_first["rows"][0], "pages_read"), 0);
    assert_eq!(of_again["first_touches_only"], false);
    assert_eq!(number(&of_again["accesses"], "interval_us"), 1000);
    assert_eq!(of_again["accesses"]["of_regions"], false);
    // Half of the pages at the most are there when a sweep begins.
    let read = number(&of_again["rows"][0], "pages_read");
    assert!(read >= SWEEPS * PAGES / 2, "{read}");
    let [said, unsaid] = [&again, &first].map(|trace| run(&["plan", "memory", trace, "-q"]));
    assert!(said.contains("every 1 ms"), "{said}");
    assert!(!said.contains("First touches only"), "{said}");
    assert!(unsaid.contains("First touches only"), "{unsaid}");
}

#[test]
fn what_is_used_again_holds_what_was_stored() {
    let scratch = Scratch::new("accesses-verify");
    let trace = scratch.path("t.vellum");
    write_sweeps(&trace, true);
    for design in [
        "reclaim=on",
        "reclaim=on,aging=generations,format=aarch64-16k",
    ] {
        let shown = run(&[
            "replay",
            &trace,
            "--design",
            design,
            "--ram",
            "24M",
            "--verify",
            "--audit",
            "-q",
            "--details",
        ]);
        let swapped = shown
            .lines()
            .find(|line| line.contains("reclaim: pages swapped"));
        let swapped = swapped.and_then(|line| line.split_whitespace().last());
        assert_ne!(swapped.expect("it is counted"), "0");
    }
    // Nothing of it is in a replay on simulated CPUs.
    run(&["replay", &trace, "--on", "sim", "-q"]);
}

#[test]
fn samples_are_listed_counted_and_cut_but_not_exported() {
    let scratch = Scratch::new("accesses-tools");
    let trace = scratch.path("t.vellum");
    write_sweeps(&trace, true);
    let ranges = PAGES / 64 + SWEEPS + 1;
    let listed = run(&["dump", &trace, "--kind", "accessed"]);
    assert_eq!(listed.lines().count() as u64, ranges, "{listed}");
    let info: Value = serde_json::from_str(&run(&["info", &trace, "--json", "-q"])).expect("JSON");
    assert_eq!(number(&info["accesses"], "ranges"), ranges);
    assert_eq!(number(&info, "total_events"), PAGES + 2);
    assert!(run(&["info", &trace, "-q"]).contains("sampled every 1 ms, each page"));
    let part = scratch.path("part.vellum");
    run(&["cut", &trace, "-o", &part, "--to", "0.0005", "-q"]);
    let part = TraceReader::open(&part).expect("a trace");
    let all = part.events_and_accesses().map(|event| event.expect("read"));
    let samples = all.filter(|event| matches!(event.kind, EventKind::Accessed { .. }));
    // An event or a sample each microsecond, the first at 1.
    assert_eq!(samples.count(), 7);
    let table = scratch.path("t.csv");
    run(&["export", &trace, "-o", &table, "--format", "csv", "-q"]);
    let exported = std::fs::read_to_string(&table).expect("a table");
    assert!(!exported.contains("accessed"));
}
