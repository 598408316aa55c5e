//! Where page tables should lie: the published arithmetic, what a workload needs, and
//! replays with little low memory. How much memory a workload needs.

use std::fs;

use serde_json::Value;
use vellum_testing::Scratch;
use vellum_testing::by_hand::{fork, map, write, write_trace};
use vellum_trace::EventKind;

use crate::command::{printed, text, vellum};

/// Tables of the lowest level that each of the two processes of [`sparse`] fills.
const TABLES: u64 = 300;

/// A trace of two processes that touch one page in each 2 MiB, so that tables are
/// most of what they need.
fn sparse(path: &str) {
    let start = 0x4000_0000;
    let mut events = vec![(0, map(start, TABLES * 512))];
    let pages = || (0..TABLES).map(|table| start + (table << 21));
    events.extend(pages().map(|page| (0, write(page, false))));
    events.push((0, fork(1)));
    events.extend(pages().map(|page| (1, write(page, true))));
    write_trace(path, 1, &events);
}

/// What the command says of [`sparse`], as JSON, for the test called `test`.
fn planned(test: &str, more: &[&str]) -> Value {
    let scratch = Scratch::new(test);
    let trace = scratch.path("sparse.vellum");
    sparse(&trace);
    let mut arguments = vec!["plan", "userpte", &trace, "-q", "--json", "-"];
    arguments.extend(more);
    let output = vellum(&arguments);
    assert!(output.status.success(), "{}", printed(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn without_a_trace_the_published_arithmetic_is_printed() {
    let output = vellum(&["plan", "userpte"]);
    assert!(output.status.success(), "{}", printed(&output));
    let said = text(&output.stdout).replace('\n', " ");
    for part in [
        "768 MiB of low memory are 196,608 page tables",
        "maps 2 MiB (PAE), all of them 384 GiB; with a slop of 10, 38.4 GiB",
        "64 GiB      512 MiB          256 MiB",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let output = vellum(&["plan", "userpte", "--lowmem", "896M", "--slop", "4"]);
    let said = text(&output.stdout).replace('\n', " ");
    assert!(
        said.contains("all of them 448 GiB; with a slop of 4, 112 GiB"),
        "{said}"
    );
}

#[test]
fn what_a_workload_needs_is_measured_and_decides_how_many_fit() {
    let plan = planned("plan-needs", &["--parts", "2"]);
    let demand = &plan["measured"]["demand"];
    let bytes = |value: &Value| value.as_u64().expect("a number");
    let tables = bytes(&demand["tables_bytes"]);
    // Both processes have their own, and the directories above.
    let least = 2 * TABLES * 4096;
    assert!((least..least + (64 << 10)).contains(&tables), "{tables}");
    let others = demand["others"].as_array().expect("a list");
    let others: u64 = others.iter().map(|held| bytes(&held["bytes"])).sum();
    let rows = plan["sizes"]["rows"].as_array().expect("a list");
    let at_64 = rows.last().expect("the range ends there");
    let fits = 256 * (1 << 20) / (tables + others);
    assert_eq!(bytes(&at_64["fits"]["low"]), fits, "{at_64}");
    assert_eq!(plan["sizes"]["fails_for_measured"]["is"], "never");
    // What is in use is for the most part tables, so memory cannot grow far beyond them.
    let full = &plan["sizes"]["fails_when_full"];
    let share = (tables + others) as f64 / bytes(&demand["all_bytes"]) as f64;
    let above = f64::from(768 << 20) / (1.0 / 128.0 + share);
    let said = bytes(&full["bytes"]) as f64;
    assert!((said / above - 1.0).abs() < 1e-6, "{full}, not {above}");
}

#[test]
fn nohigh_fails_where_high_goes_on_and_auto_opens_what_it_must() {
    let scratch = Scratch::new("plan-svg");
    let picture = scratch.path("plan.svg");
    let more = [
        "--parts",
        "0.7,4,1",
        "--window-ns",
        "100",
        "--svg",
        &picture,
    ];
    let plan = planned("plan-sweep", &more);
    let sweep = &plan["measured"]["sweep"];
    let rows = sweep["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 3, "{sweep}");
    let cell = |row: usize, value: usize| &rows[row]["cells"][value];
    let windows = |cell: &Value| cell["windows"].as_u64().expect("a number");
    let (high, nohigh, auto) = (0, 1, 2);
    assert!(cell(0, nohigh)["failed"].is_string(), "{sweep}");
    for (row, value) in [(0, high), (0, auto), (2, high), (2, nohigh), (2, auto)] {
        assert!(
            cell(row, value)["failed"].is_null(),
            "{row} {value}: {sweep}"
        );
    }
    // A fault opens two, or one if it makes the table; fork and exit take more.
    let opened = windows(cell(2, high));
    assert!(opened >= 3 * TABLES, "{opened}");
    assert_eq!(cell(2, high)["charged_ns"], opened as f64 * 100.0);
    assert_eq!(windows(cell(2, nohigh)), 0);
    assert_eq!(windows(cell(2, auto)), 0);
    let between = windows(cell(0, auto));
    assert!(0 < between && between < opened, "{between} of {opened}");
    let findings = &sweep["findings"];
    assert_eq!(findings["auto_failed_alone"], Value::Array(Vec::new()));
    assert!(findings["crossing_bytes"].is_u64(), "{findings}");
    let drawn = fs::read_to_string(&picture).expect("drawn");
    for part in ["<svg", "nohigh", "frame table", "class=\"mark "] {
        assert!(drawn.contains(part), "{part} in {drawn}");
    }
}

#[test]
fn two_copies_need_twice_the_tables_of_one() {
    let tables = |copies: &str| {
        let plan = planned(
            &format!("plan-{copies}"),
            &["--copies", copies, "--parts", "4"],
        );
        let bytes = &plan["measured"]["demand"]["tables_bytes"];
        bytes.as_u64().expect("a number")
    };
    let (one, two) = (tables("1"), tables("2"));
    assert!(two > one && two <= 2 * one, "{one} and {two}");
}

#[test]
fn sizes_that_no_such_machine_has_are_refused() {
    let scratch = Scratch::new("plan-bad");
    let json = scratch.path("plan.json");
    for (arguments, wanted) in [
        (&["--ram", "8G..4G"][..], "larger than the second"),
        (&["--ram", "4G..128G"], "64 GiB"),
        (&["--ram", "lots"], "`lots` is not a size"),
        (&["--lowmem", "4G"], "no high memory"),
        (&["--lowmem", "64K"], "2 MiB"),
        (&["--slop", "0.5"], "1 or more"),
        (&["--machine", "vax"], "xeon-e5-2690"),
        (&["--copies", "2"], "TRACE"),
        (&["/no/such/trace", "--parts", "0"], "0.01"),
        (&["/no/such/trace", "--design", "format=sv39"], "format="),
        (&["/no/such/trace", "--design", "rmap=none"], "family"),
        (&["/no/such/trace"], "/no/such/trace"),
    ] {
        let mut all = vec!["plan", "userpte", "-q", "--json", &json];
        all.extend(arguments);
        let refused = vellum(&all);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let message = text(&refused.stderr);
        assert!(message.contains(wanted), "{arguments:?}: {message}");
        assert!(refused.stdout.is_empty(), "{arguments:?}");
        assert!(scratch.files().is_empty(), "{arguments:?}");
    }
}

/// A shipped trace.
pub const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/sdet-like.vellum");

/// What `plan memory` says of `trace`, as JSON.
pub fn needed(trace: &str, more: &[&str]) -> Value {
    let mut arguments = vec!["plan", "memory", trace, "-q", "--json", "-"];
    arguments.extend(more);
    let output = vellum(&arguments);
    assert!(output.status.success(), "{}", printed(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

pub fn number(value: &Value, field: &str) -> u64 {
    let found = value[field].as_u64();
    found.unwrap_or_else(|| panic!("{field} in {value}"))
}

/// Memory that is mapped and unmapped again within a few hundred operations.
#[test]
fn the_peak_of_a_short_trace_is_in_its_middle() {
    let scratch = Scratch::new("plan-short");
    let trace = scratch.path("short.vellum");
    let (start, pages) = (0x4000_0000, 200);
    let mut events = vec![(0, map(start, pages))];
    events.extend((0..pages).map(|page| (0, write(start + page * 4096, false))));
    let (address, length) = (start, pages * 4096);
    events.push((0, EventKind::Unmap { address, length }));
    write_trace(&trace, 0, &events);
    let plan = needed(&trace, &["--parts", "1"]);
    assert!(number(&plan, "peak_bytes") > pages * 4096, "{plan}");
}

#[test]
fn less_memory_has_more_pages_leave_and_the_device_is_charged_for_them() {
    let trace = SCRIPT;
    let plan = needed(trace, &["--parts", "0.5,1,0.25", "--device", "ssd"]);
    assert_eq!(plan["schema"], "vellum-plan-memory/1");
    assert_eq!(plan["first_touches_only"], true);
    let rows = plan["rows"].as_array().expect("rows");
    let peak = number(&plan, "peak_bytes");
    let sizes: Vec<u64> = rows.iter().map(|row| number(row, "ram_bytes")).collect();
    for (size, part) in sizes.iter().zip([1.0, 0.5, 0.25]) {
        let wanted = (peak as f64 * part) as u64;
        assert!(
            (wanted..wanted + (64 << 10)).contains(size),
            "{sizes:?} of {peak}"
        );
    }
    let of = |field: &str| {
        rows.iter()
            .map(|row| number(row, field))
            .collect::<Vec<u64>>()
    };
    for field in ["reclaimed", "scanned", "pages_written"] {
        assert!(of(field).is_sorted(), "{field}: {:?}", of(field));
    }
    assert!(of("refaults").iter().all(|&count| count > 0));
    for row in rows {
        // At least its bytes, and at most a request for each page.
        let (read, written) = (number(row, "pages_read"), number(row, "pages_written"));
        let device = number(&row["cost"], "device_ns");
        let bytes = (read + written) * (4096 * 1_000_000_000 / 500_000_000);
        assert!(device >= bytes, "{row}");
        assert!(device <= bytes + read * 120_000 + written * 60_000, "{row}");
    }
}

/// A size of the plan is a machine like any other.
#[test]
fn a_size_of_memory_is_what_a_replay_with_so_much_has() {
    let trace = SCRIPT;
    let plan = needed(trace, &["--parts", "50%"]);
    let row = &plan["rows"][0];
    let ram = number(row, "ram_bytes").to_string();
    let design = "reclaim=on";
    let output = vellum(&[
        "replay", trace, "--design", design, "--ram", &ram, "-q", "--json", "-",
    ]);
    assert!(output.status.success(), "{}", printed(&output));
    let replay: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let counters = replay["counters"].as_array().expect("counters");
    for (field, name) in [
        ("scanned", "reclaim: pages scanned"),
        ("reclaimed", "reclaim: pages reclaimed"),
        ("refaults", "reclaim: refaults"),
    ] {
        let counter = counters.iter().find(|counter| counter["name"] == name);
        let counter = counter.unwrap_or_else(|| panic!("{name} in {replay}"));
        assert_eq!(number(row, field), number(counter, "count"), "{name}");
    }
}

#[test]
fn memory_set_aside_for_a_compressed_store_spares_the_device() {
    let without = needed(SCRIPT, &["--parts", "0.25"]);
    let with = needed(SCRIPT, &["--parts", "0.25", "--compressed", "20"]);
    assert_eq!(without["compressed_percent"], Value::Null);
    assert_eq!(without["rows"][0]["compressed"], Value::Null);
    assert_eq!(with["compressed_percent"], 20);
    let (without, with) = (&without["rows"][0], &with["rows"][0]);
    assert_eq!(with["ram_bytes"], without["ram_bytes"]);
    let done = &with["compressed"];
    let (taken, same) = (number(done, "taken"), number(done, "same"));
    assert!(taken > same && same > 0, "{done}");
    let set_aside = number(done, "set_aside");
    let fifth = number(with, "ram_bytes") / 5;
    assert!(
        set_aside <= fifth && set_aside + 8192 > fifth,
        "{set_aside} of {fifth}"
    );
    assert!(number(with, "pages_written") < number(without, "pages_written"));
    let said = vellum(&[
        "plan",
        "memory",
        SCRIPT,
        "-q",
        "--parts",
        "0.25",
        "--compressed",
        "20",
    ]);
    let said = text(&said.stdout);
    for part in ["20 % are set aside", "bytes each", "written back"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn a_compressed_store_that_nothing_goes_to_is_refused() {
    for (arguments, why) in [
        (&["--compressed", "20"][..], "reclaim=on"),
        (&["--compressed", "0", "--design", "reclaim=on"], "1..=90"),
        (&["--compressed", "20", "--on", "sim"], "leave it out"),
        (&["--compressed", "20", "--on", "linux"], "leave it out"),
    ] {
        let output = vellum(&[&["replay", SCRIPT, "-q"], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
}

#[test]
fn memory_in_which_not_even_tables_fit_is_a_row_that_says_where_it_failed() {
    let scratch = Scratch::new("plan-too-little");
    let trace = scratch.path("sparse.vellum");
    sparse(&trace);
    let plan = needed(&trace, &["--parts", "1,0.3"]);
    assert_eq!(plan["rows"][0]["failed"], Value::Null);
    let failed = plan["rows"][1]["failed"].as_str().expect("a place");
    assert!(failed.starts_with("event "), "{failed}");
    let output = vellum(&["plan", "memory", &trace, "-q", "--parts", "1,0.3"]);
    let said = text(&output.stdout).replace('\n', " ");
    for part in ["fails", "memory runs out at event", "First touches only"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn unusable_questions_about_memory_are_refused_and_nothing_is_left() {
    let scratch = Scratch::new("plan-memory-refused");
    let trace = scratch.path("sparse.vellum");
    sparse(&trace);
    let damaged = scratch.write("damaged.vellum", "no trace");
    let svg = scratch.path("picture.svg");
    for (arguments, why) in [
        (&["--parts", "0"][..], "expected 0.01 to 10"),
        (&["--device", "tape"], "nvme"),
        (&["--design", "reclaim=off"], "nothing can leave"),
        (&["--design", "rmap=nothing"], "rmap"),
    ] {
        let all = [&["plan", "memory", &trace, "--svg", &svg, "-q"], arguments].concat();
        let output = vellum(&all);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
    let output = vellum(&["plan", "memory", &damaged, "--svg", &svg, "-q"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("damaged.vellum"));
    assert!(!std::path::Path::new(&svg).exists());
}
