//! `vellum bench reclaim`, end to end, on small machines.

use crate::bench::{counter, figure, has_figures, list, measured};
use crate::command::{Scratch, text, vellum};
use serde_json::Value;

/// Pages of a machine of 4 MiB.
const MEMORY: u64 = 1024;

/// A row of the table of what too little memory cost.
fn cost(value: &Value, run: usize, name: &str, arm: usize) -> f64 {
    let rows = list(&value["runs"][run]["reclaim"]);
    let row = rows.iter().find(|row| row["name"] == name);
    let row = row.unwrap_or_else(|| panic!("no row {name}"));
    row["values"][arm].as_f64().expect("a number")
}

#[test]
fn every_program_touches_what_it_says_and_has_pages_leave_and_come_back() {
    let value = measured(&["reclaim", "--ram", "4M", "--size", "requests=3000"]);
    has_figures(&value, 3);
    let runs = list(&value["runs"]);
    let programs: Vec<&str> = runs
        .iter()
        .filter_map(|run| run["title"].as_str()?.split(':').next())
        .collect();
    let expected = [
        "readonce",
        "usemem",
        "cache-server",
        "fork-swapped",
        "snapshots",
    ];
    assert_eq!(programs, expected);
    let given: Vec<&Value> = list(&value["arms"])
        .iter()
        .map(|arm| &arm["given"])
        .collect();
    assert_eq!(
        given[..2],
        ["reclaim=on,aging=lru", "reclaim=on,aging=generations"]
    );
    let (percent, server) = (|percent| MEMORY * percent / 100, MEMORY * 80 / 100);
    for (run, phase, units) in [
        (0, "read once", 10 * MEMORY),
        (0, "touch of the set", 160 * percent(40)),
        (1, "first store", 2 * MEMORY),
        (1, "store again", 4 * MEMORY),
        (2, "fill", 2 * MEMORY),
        (2, "request", 3000),
        (3, "push out", 3 * MEMORY),
        (3, "fork", 3 * percent(75)),
        (3, "child stores", 3 * percent(75)),
        (4, "request", 3 * server),
        (4, "snapshot", 3 * server),
    ] {
        let found = figure(&value, run, phase)["units"].as_f64();
        assert_eq!(found, Some(units as f64), "{phase}");
    }
    for (run, program) in programs.into_iter().enumerate() {
        for arm in 0..3 {
            let cost = |name: &str| cost(&value, run, name, arm);
            let (cpu, device) = (cost("CPU time, ms"), cost("time of the device, ms"));
            assert!(cpu > 0.0 && device > 0.0, "{program}");
            assert!((cost("elapsed, ms") - cpu - device).abs() < 1e-6);
            for name in ["pages reclaimed", "pages read"] {
                assert!(cost(name) > 0.0, "{program}: {name}");
            }
            // The private pages of a set that stays are not written.
            assert!(run == 0 || cost("pages written") > 0.0, "{program}");
            assert!(cost("pages scanned for each") >= 1.0, "{program}");
            assert!(cost("lookups for each") > 0.0, "{program}");
            // What happens follows from the operations alone.
            let control = |name: &str| counter(&value, run, name, 2);
            if arm == 0 {
                for name in ["reclaim: pages scanned", "faults", "device: ns of reads"] {
                    assert_eq!(counter(&value, run, name, 0), control(name), "{program}");
                }
            }
        }
    }
}

#[test]
fn files_that_are_read_once_leave_the_working_set_in_memory() {
    let value = measured(&["reclaim", "--variant", "readonce", "--ram", "4M"]);
    let set = MEMORY * 40 / 100;
    for arm in 0..3 {
        let read = counter(&value, 0, "device: pages read", arm);
        let once = 10 * MEMORY + set / 2;
        assert!(read >= once, "{read}");
        // The set is touched 160 times.
        assert!(
            read - once < 160 * set / 50,
            "{read} pages read, {once} once"
        );
    }
}

#[test]
fn few_pages_are_scanned_for_each_that_leaves_memory_to_usemem() {
    let value = measured(&["reclaim", "--variant", "usemem", "--ram", "4M"]);
    for (arm, most) in [(0, 3.0), (1, 2.0), (2, 3.0)] {
        let scanned = cost(&value, 0, "pages scanned for each", arm);
        assert!(scanned <= most, "{scanned}");
        // Each is asked for its use, and once more when it leaves.
        assert!(cost(&value, 0, "lookups for each", arm) >= 2.0);
    }
}

#[test]
fn reverse_mappings_are_arms_and_reclaim_is_added_to_them() {
    let arms = ["--designs", "rmap=chains", "--designs", "rmap=family"];
    let small = ["reclaim", "--variant", "snapshots", "--ram", "4M"];
    let value = measured(&[&small[..], &arms].concat());
    has_figures(&value, 3);
    for arm in 0..3 {
        let full = value["arms"][arm]["full"].as_str().expect("a design");
        assert!(full.contains("reclaim=on"), "{full}");
        assert!(counter(&value, 0, "pages looked up", arm) > 0);
        assert!(counter(&value, 0, "lookup hits", arm) > 0);
    }
}

#[test]
fn a_design_with_groups_runs_in_a_group_with_the_memory_of_the_other_machines() {
    let designs = ["--a", "aging=lru", "--b", "aging=lru,groups=on"];
    for program in ["usemem", "readonce"] {
        let small = ["reclaim", "--variant", program, "--ram", "4M"];
        let value = measured(&[&small[..], &designs].concat());
        let facts = value["runs"][0]["facts"].to_string();
        assert!(
            facts.contains("a group that may have 4,096 KiB, on a machine of 8,192"),
            "{facts}"
        );
        let of = |name: &str, arm| counter(&value, 0, name, arm);
        assert_eq!(of("group: pages it may have", 1), MEMORY);
        let peak = of("group: pages at the peak", 1);
        assert!(
            (MEMORY * 9 / 10..=MEMORY).contains(&peak),
            "{program}: {peak}"
        );
        assert_eq!(
            of("group: pages reclaimed", 1),
            of("reclaim: pages reclaimed", 1),
            "{program}: the machine has enough"
        );
        // Page tables and the like take little of a machine as large as the group.
        let (machine, group) = (
            of("reclaim: pages reclaimed", 0),
            of("group: pages reclaimed", 1),
        );
        assert!(
            group < machine && group > machine / 2,
            "{program}: {group} of {machine}"
        );
    }
}

#[test]
fn a_slower_device_takes_longer_for_the_same_pages() {
    let of = |device: &str| {
        let small = ["reclaim", "--variant", "usemem", "--ram", "2M"];
        let value = measured(&[&small[..], &["--device", device]].concat());
        assert_eq!(value["about"]["device"], device);
        let counts = ["device: pages read", "device: pages written"];
        let counts = counts.map(|name| counter(&value, 0, name, 0));
        (counts, cost(&value, 0, "time of the device, ms", 0))
    };
    let ((pages, nvme), (same, disk)) = (of("nvme"), of("disk"));
    assert_eq!(pages, same);
    assert!(disk > 10.0 * nvme, "{disk} ms and {nvme} ms");
}

#[test]
fn the_cost_of_too_little_memory_is_a_table_of_the_page_and_of_the_terminal() {
    let scratch = Scratch::new("bench-reclaim");
    let page = scratch.path("reclaim.html");
    let output = vellum(&[
        "bench",
        "reclaim",
        "--variant",
        "usemem",
        "--ram",
        "2M",
        "-n",
        "1",
        "-q",
        "--html",
        &page,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let html = std::fs::read_to_string(&page).expect("a page");
    for text in [printed, html] {
        assert!(text.contains("With too little memory"), "{text}");
        assert!(text.contains("pages scanned for each"), "{text}");
        assert!(
            text.contains("a device called nvme: 80 us for a read"),
            "{text}"
        );
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    for (arguments, reason) in [
        (&["reclaim", "--a", "reclaim=off"][..], "leave it out"),
        (&["reclaim", "--size", "touched=801"], "swap has 800"),
        (&["reclaim", "--size", "process=401"], "as its parent"),
        (&["reclaim", "--size", "rounds=10001"], "at most 10000"),
        (&["reclaim", "--device", "tape"], "nvme"),
        (&["reclaim", "--variant", "thrash"], "snapshots"),
        (&["pft", "--device", "ssd"], "bench reclaim"),
        (
            &["reclaim", "--on", "linux", "--device", "ssd"],
            "on the core",
        ),
        (
            &["reclaim", "--on", "linux", "--a", "aging=lru"],
            "--on linux",
        ),
        (
            &[
                "reclaim",
                "--a",
                "format=x86-64",
                "--b",
                "format=aarch64-16k",
            ],
            "pages of one size",
        ),
    ] {
        let output = vellum(&[&["bench"], arguments, &["-q"]].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(reason), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}

/// Runs programs on the host's kernel; none where this user may make no control group.
fn on_linux(arguments: &[&str]) -> Option<Value> {
    let rest = ["--on", "linux", "-n", "2", "-q", "--json", "-"];
    let output = vellum(&[&["bench", "reclaim"], arguments, &rest].concat());
    let error = text(&output.stderr);
    if output.status.code() == Some(2) && error.contains("control group") {
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{error}");
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn names(value: &Value) -> Vec<&str> {
    let figures = list(&value["runs"][0]["figures"]).iter();
    figures
        .filter_map(|figure| figure["name"].as_str())
        .filter(|name| *name != "all phases")
        .collect()
}

#[test]
fn the_host_runs_the_same_program_in_a_group_and_says_what_it_left_out() {
    let small = [
        "--ram",
        "16M",
        "--size",
        "times=2",
        "--size",
        "requests=1000",
    ];
    let Some(host) = on_linux(&small) else { return };
    has_figures(&host, 2);
    let readonce = ["reclaim", "--variant", "readonce"];
    let core = measured(&[&readonce[..], &small].concat());
    let mut expected = names(&core);
    let found = names(&host);
    expected.extend(
        found
            .iter()
            .filter(|name| name.ends_with(", elapsed"))
            .copied(),
    );
    let sorted = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.join("\n")
    };
    assert_eq!(sorted(found), sorted(expected));
    for name in ["read once", "touch of the set"] {
        let units = |value| figure(value, 0, name)["units"].clone();
        assert_eq!(units(&host), units(&core), "{name}");
    }
    let facts = host["runs"][0]["facts"].to_string();
    assert!(facts.contains("memory control group (version "), "{facts}");
    assert!(counter(&host, 0, "faults", 0) > 0);
    // Without swap the others cannot run.
    let notes = host["notes"].to_string();
    let ran = list(&host["runs"]).len();
    for program in ["usemem", "cache-server", "fork-swapped", "snapshots"] {
        let is_skipped = notes.contains(&format!("Skipped: {program} "));
        assert!(is_skipped || ran > 1, "{program}: {notes}");
    }
}
