//! Replays and comparisons with too little memory, whose pages leave for a modelled device.

use crate::command::{Scratch, printed, text, vellum};
use crate::plan::{SCRIPT, needed, number};
use serde_json::Value;
use vellum_testing::by_hand::{self, PAGE, fork, map, write};
use vellum_trace::{EventKind, TaskId};

/// A parent stores to 4 MiB and forks a child that stores to the same pages.
fn write_one_copy(path: &str) {
    let (start, pages) = (0x1000_0000, 1024);
    let store = |task: u32, copies: bool| {
        (0..pages).map(move |page| (task, write(start + page * PAGE, copies)))
    };
    let mut events = vec![(0, map(start, pages))];
    events.extend(store(0, false));
    events.push((0, fork(1)));
    events.extend(store(1, true));
    let wait = EventKind::Wait { child: TaskId(1) };
    events.extend([(1, EventKind::Exit), (0, wait), (0, EventKind::Exit)]);
    by_hand::write_trace(path, 1, &events);
}

fn json(arguments: &[&str]) -> Value {
    let output = vellum(&[arguments, &["-q", "--json", "-"]].concat());
    assert!(output.status.success(), "{}", printed(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_replay_is_charged_the_same_time_of_the_device_as_the_plan() {
    let plan = needed(SCRIPT, &["--parts", "0.5", "--device", "ssd"]);
    let row = &plan["rows"][0];
    let ram = number(row, "ram_bytes").to_string();
    let arguments = ["replay", SCRIPT, "--design", "reclaim=on", "--ram", &ram];
    let replay = json(&[&arguments[..], &["--device", "ssd"]].concat());
    let device = &replay["device"];
    assert_eq!(device["name"], "ssd");
    assert_eq!(number(device, "read_ns"), 120_000);
    let device_ns = number(device, "device_ns");
    assert!(device_ns > 0);
    assert_eq!(device_ns, number(&row["cost"], "device_ns"));
    let elapsed = number(device, "elapsed_ns");
    assert_eq!(elapsed, number(&replay, "core_ns") + device_ns);
    let without = json(&arguments);
    assert!(without.get("device").is_none(), "{without}");
}

#[test]
fn a_replay_prints_the_time_of_the_device_and_adds_it_where_there_is_one_cpu() {
    let scratch = Scratch::new("replay-device");
    let trace = scratch.path("copy.vellum");
    write_one_copy(&trace);
    let page = scratch.path("copy.html");
    let run = |cpus: &str| {
        let output = vellum(&[
            "replay",
            &trace,
            "--design",
            "reclaim=on",
            "--ram",
            "4M",
            "--device",
            "nvme",
            "--cpus",
            cpus,
            "--verify",
            "-q",
            "--details",
            "--html",
            &page,
        ]);
        assert!(output.status.success(), "{}", printed(&output));
        text(&output.stdout)
    };
    let one = run("1");
    assert!(one.contains("(nvme)"), "{one}");
    assert!(one.contains("core and device"), "{one}");
    assert!(one.contains("device: ns of reads"), "{one}");
    let shown = std::fs::read_to_string(&page).expect("a page");
    assert!(shown.contains("Core and device"), "no sum on the page");
    let two = run("2");
    assert!(two.contains("time of the device"), "{two}");
    assert!(!two.contains("core and device"), "{two}");
}

#[test]
fn a_comparison_has_the_time_of_the_device_of_each_arm_beside_its_cpu_time() {
    let scratch = Scratch::new("compare-device");
    let trace = scratch.path("copy.vellum");
    write_one_copy(&trace);
    let arguments = [
        "compare",
        &trace,
        "--a",
        "reclaim=on,aging=lru",
        "--b",
        "reclaim=on,aging=generations",
        "--ram",
        "4M",
        "-n",
        "2",
        "--no-atomics",
    ];
    let with = [&arguments[..], &["--device", "disk"]].concat();
    let report = json(&with);
    let device = &report["device"];
    assert_eq!(device["name"], "disk");
    let of = |value: &Value, arm: &str| value[arm].as_f64().expect("a time");
    for arm in ["a", "b", "control"] {
        let device_ns = of(&device["device_ns"], arm);
        // A request takes as much.
        assert!(device_ns > 12e6, "{device}");
        let cpu_ns = of(&report["cpu_ns"][arm], "value");
        let together = of(&device["elapsed_ns"], arm);
        assert!((together - cpu_ns - device_ns).abs() < 1.0, "{device}");
    }
    let times = &device["device_ns"];
    assert_eq!(
        times["a"], times["control"],
        "it follows from the operations"
    );
    let page = scratch.path("compare.html");
    let output = vellum(&[&with[..], &["-q", "--html", &page]].concat());
    let shown = std::fs::read_to_string(&page).expect("a page");
    assert!(shown.contains("Time of the device"), "not on the page");
    let tables = text(&output.stdout);
    assert!(tables.contains("\nWith the device "), "{tables}");
    assert!(tables.contains("on CPU time alone"), "{tables}");
    let output = vellum(&[&arguments[..], &["-q"]].concat());
    assert!(!text(&output.stdout).contains("With the device"));
}

#[test]
fn a_device_is_refused_where_none_is_modelled() {
    let nvme = ["--device", "nvme"];
    for (arguments, reason) in [
        (
            &["replay", SCRIPT, "--on", "sim"][..],
            "leave it out with --on sim",
        ),
        (
            &["replay", SCRIPT, "--on", "linux"],
            "leave it out with --on linux",
        ),
        (
            &["compare", SCRIPT, "--on", "sim"],
            "leave it out with --on sim",
        ),
        (&["compare", SCRIPT, "--a", "linux"], "has its own"),
        (
            &["compare", "--a", "linux:x.json", "--b", "linux:y.json"],
            "has its own",
        ),
        (&["replay", SCRIPT, "--device", "tape"], "nvme"),
    ] {
        let more = if reason == "nvme" { &[][..] } else { &nvme };
        let output = vellum(&[arguments, more].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(reason), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}
