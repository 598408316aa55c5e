//! Traces on simulated machines: what is printed, what is the same on every host, and
//! what is refused.

use std::process::Output;

use crate::command::{Scratch, printed, text, vellum};
use serde_json::Value;
use vellum_testing::by_hand::{self, PAGE, fork, map, write};
use vellum_trace::{EventKind, TaskId};

/// What each child computes in all, in microseconds.
const COMPUTES_US: u64 = 2000;

/// A parent that begins four children at a time. Each computes, writes 16 pages of its
/// own and ends, which the parent waits for.
fn write_four_children(path: &str, timed: bool) {
    let own = 0x2000_0000;
    let mut events = vec![(0, map(own, 16), 0)];
    events.extend((1..=4).map(|child| (0, fork(child), 10)));
    for child in 1..=4 {
        events.push((child, write(own, false), COMPUTES_US));
        events.extend((1..16).map(|page| (child, write(own + page * PAGE, false), 0)));
        events.push((child, EventKind::Exit, 0));
    }
    events.extend((1..=4).map(|child| {
        let child = TaskId(child);
        (0, EventKind::Wait { child }, 0)
    }));
    events.push((0, EventKind::Exit, 0));
    match timed {
        true => by_hand::write_timed_trace(path, 4, &events),
        false => {
            let plain = events.iter().map(|&(task, kind, _)| (task, kind));
            by_hand::write_trace(path, 4, &plain.collect::<Vec<_>>());
        }
    }
}

fn simulated(command: &str, trace: &str, more: &[&str]) -> Output {
    let machine = ["--machine", "epyc-milan-1s"];
    let common = [command, trace, "--on", "sim", "--quiet"];
    vellum(&[&common[..], &machine, more].concat())
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", printed(output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The median of a figure.
fn median(found: &Value, name: &str) -> f64 {
    let figures = found["sides"][0]["figures"].as_array().expect("a list");
    let figure = figures.iter().find(|figure| figure["name"] == name);
    let median = figure.and_then(|figure| figure["median"].as_f64());
    median.unwrap_or_else(|| panic!("no {name} in {found:#}"))
}

#[test]
fn a_replay_tells_the_times_of_the_whole_machine() {
    let scratch = Scratch::new("simulated-replay");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, true);
    let run = simulated(
        "replay",
        trace,
        &["--cpus", "4", "--seeds", "2", "--profile"],
    );
    assert!(run.status.success(), "{}", printed(&run));
    let table = text(&run.stdout);
    for part in [
        "on 4 CPUs of epyc-milan-1s",
        "1 copy, 5 tasks",
        "elapsed s",
        "user s",
        "system s",
        "CPU %",
        "context switches",
        "moving %",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    assert!(!table.contains("No user time"), "{table}");
    assert!(!table.contains("otherwise than recorded"), "{table}");
}

#[test]
fn tasks_compute_at_the_same_time_on_several_cpus() {
    let scratch = Scratch::new("simulated-cpus");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, true);
    let on = |cpus: &str| {
        let more = ["--cpus", cpus, "--seeds", "1", "--json", "-"];
        json(&simulated("replay", trace, &more))
    };
    let (one, four) = (on("1"), on("4"));
    let computed = (4 * COMPUTES_US + 40) as f64 / 1e6;
    for found in [&one, &four] {
        let user = median(found, "user_s");
        assert!((user / computed - 1.0).abs() < 0.01, "{user} {computed}");
        assert!(median(found, "system_s") > 0.0);
    }
    assert!(median(&one, "elapsed_s") > computed);
    assert!(median(&four, "elapsed_s") < computed / 2.0);
    assert!(median(&one, "percent_cpu") > 90.0);
    assert!(median(&four, "percent_cpu") > 200.0);
}

#[test]
fn copies_run_at_once_and_threads_of_the_host_change_nothing() {
    let scratch = Scratch::new("simulated-jobs");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, false);
    let found = |jobs: &str| {
        let more = [
            "--cpus", "3", "--copies", "2", "--seeds", "3", "--jobs", jobs,
        ];
        let run = simulated("replay", trace, &[&more[..], &["--json", "-"]].concat());
        let mut found = json(&run);
        // When it ran, and how it was asked for, may differ.
        let run = found.as_object_mut().and_then(|found| found.remove("run"));
        assert!(run.is_some(), "it says how it was made");
        found
    };
    let one = found("1");
    assert_eq!(one, found("3"));
    assert_eq!((&one["tasks"], &one["copies"]), (&10.into(), &2.into()));
    assert_eq!(one["service"], serde_json::Value::Null);
    assert_eq!(median(&one, "user_s"), 0.0);
}

#[test]
fn a_comparison_has_an_interval_and_a_control_of_exactly_1() {
    let scratch = Scratch::new("simulated-compare");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, false);
    let file = &scratch.path("found.json");
    let designs = ["--a", "rmap=chains", "--b", "rmap=family"];
    let more = [
        &designs[..],
        &["--cpus", "4", "--seeds", "5", "--json", file],
    ]
    .concat();
    let run = simulated("compare", trace, &more);
    assert!(run.status.success(), "{}", printed(&run));
    let table = text(&run.stdout);
    for part in [
        "A rmap=chains\nB rmap=family\n",
        "Control: A with its first seed once more, ratio 1.000 exactly",
        "No user time",
        "95 % interval",
        "elapsed s",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    let written = std::fs::read(file).expect("it was written");
    let found: Value = serde_json::from_slice(&written).expect("JSON");
    let comparison = &found["comparison"];
    let control = &found["control"];
    assert_eq!(
        (&control["ratio"], &control["repeats"]),
        (&1.0.into(), &true.into())
    );
    let ratio = &comparison["ratios"][0];
    assert_eq!(ratio["name"], "elapsed_s");
    assert!(ratio["low"].as_f64() <= ratio["ratio"].as_f64());
    assert!(ratio["ratio"].as_f64() <= ratio["high"].as_f64());
}

#[test]
fn a_trace_is_scaled_over_numbers_of_cpus() {
    let scratch = Scratch::new("simulated-scale");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, true);
    let scaled = |more: &[&str]| {
        let common = [
            "scale",
            trace,
            "--machine",
            "epyc-milan-1s",
            "--cpus",
            "4,1",
        ];
        let designs = ["--designs", "rmap=family", "--designs", "rmap=chains"];
        vellum(&[&common[..], &designs, &["--seeds", "2", "-q"], more].concat())
    };
    let run = scaled(&["--profile"]);
    assert!(run.status.success(), "{}", printed(&run));
    let table = text(&run.stdout);
    for part in [
        "speed-up",
        "1.000 exactly",
        "A rmap=family",
        "B rmap=chains",
        "/ A",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    let found = json(&scaled(&["--json", "-"]));
    let points = found["points"].as_array().expect("a list");
    let cpus: Vec<&Value> = points.iter().map(|point| &point["cpus"]).collect();
    assert_eq!(cpus, [1, 4]);
    assert!(median(&points[1], "elapsed_s") < median(&points[0], "elapsed_s") / 2.0);
    let picture = scratch.path("scaled.svg");
    let run = scaled(&["--svg", &picture]);
    assert!(run.status.success(), "{}", printed(&run));
    let drawn = std::fs::read_to_string(&picture).expect("drawn");
    for part in ["<svg ", "rmap=family", "rmap=chains", "class=\"mark "] {
        assert!(drawn.contains(part), "{part} is not in the picture");
    }
    let refused = scaled(&["--window", "100"]);
    assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
    let no_trace = vellum(&["scale", "faults", "--copies", "2"]);
    assert_eq!(no_trace.status.code(), Some(2), "{}", printed(&no_trace));
}

#[test]
fn too_little_memory_is_an_error_that_names_the_option() {
    let scratch = Scratch::new("simulated-memory");
    let trace = &scratch.path("t.vellum");
    let start = 0x2000_0000;
    let mut events = vec![(0, map(start, 600))];
    events.extend((0..600).map(|page| (0, write(start + page * PAGE, false))));
    by_hand::write_trace(trace, 0, &events);
    let run = simulated("replay", trace, &["--seeds", "1", "--ram", "1M"]);
    assert_eq!(run.status.code(), Some(1), "{}", printed(&run));
    assert!(text(&run.stderr).contains("--ram 2M"), "{}", printed(&run));
    assert!(run.stdout.is_empty());
}

#[test]
fn a_verification_checks_every_page_and_the_same_seed_takes_the_same_time() {
    let scratch = Scratch::new("simulated-verify");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, false);
    let more = ["--verify", "--cpus", "16", "--copies", "3", "--seeds", "2"];
    let run = simulated("replay", trace, &more);
    assert!(run.status.success(), "{}", printed(&run));
    let table = text(&run.stdout);
    for part in [
        "16 CPUs of epyc-milan-1s",
        "pages written",
        "3 copies",
        "every invariant",
    ] {
        assert!(table.contains(part), "no {part:?} in:\n{table}");
    }
    let result = || {
        json(&simulated(
            "replay",
            trace,
            &[&more[..], &["--json", "-"]].concat(),
        ))
    };
    let (first, again) = (result(), result());
    assert_eq!(first["schema"], "vellum-verify-sim/1");
    assert_eq!(first["runs"], again["runs"]);
    let runs = first["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run["written"], 3 * 64, "{run:#}");
    }
    assert_ne!(runs[0]["virtual_ns"], runs[1]["virtual_ns"]);
}

#[test]
fn what_a_simulated_machine_does_not_have_is_refused() {
    let scratch = Scratch::new("simulated-refused");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, false);
    let refused = |arguments: &[&str], wanted: &str| {
        let output = vellum(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let message = text(&output.stderr);
        assert!(message.contains(wanted), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    };
    let replay = ["replay", trace, "--quiet"];
    let compare = ["compare", trace, "--quiet"];
    let sim = ["--on", "sim"];
    for (first, more, wanted) in [
        (replay, &["--verify", "--device", "ssd"][..], "--device"),
        (replay, &["--verify", "--profile"], "--profile"),
        (replay, &["--verify", "--html", "page.html"], "--html"),
        (replay, &["--verify", "--cpus", "97"], "96 CPUs"),
        (
            replay,
            &["--verify", "--design", "rmap=telepathy"],
            "chains",
        ),
        (replay, &["--idle", "5", "--tmpfs", "/"], "--idle, --tmpfs"),
        (replay, &["--cpus", "97"], "96 CPUs"),
        (replay, &["--design", "format=sv39"], "x86-64"),
        (replay, &["--design", "rmap=telepathy"], "chains"),
        (replay, &["--machine", "vax"], "epyc-milan-2s"),
        (compare, &["--slice", "50"], "--slice"),
        (compare, &["--seeds", "4"], "5 seeds"),
        (compare, &["--a", "linux"], "`linux`"),
    ] {
        let machine: &[&str] = match more.contains(&"--machine") {
            true => &[],
            false => &["--machine", "epyc-milan-1s"],
        };
        refused(&[&first[..], &sim, machine, more].concat(), wanted);
    }
    for (first, more) in [
        (replay, ["--machine", "numa-q-16"]),
        (replay, ["--seeds", "5"]),
        (compare, ["--jobs", "2"]),
    ] {
        refused(&[&first[..], &more].concat(), "only with --on sim");
    }
    refused(
        &[&replay[..], &["--profile"]].concat(),
        "only with --on sim",
    );
    refused(&[&compare[..], &["--on", "linux"]].concat(), "--a linux");
    refused(
        &["replay", "missing.vellum", "--on", "sim"],
        "missing.vellum",
    );
}

fn benchmark(name: &str, trace: &str, more: &[&str]) -> Output {
    let common = ["bench", name, "--on", "sim", "--quiet", "--trace", trace];
    vellum(&[&common[..], more].concat())
}

#[test]
fn kernbench_runs_under_its_loads_on_a_simulated_machine() {
    let scratch = Scratch::new("simulated-kernbench");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, true);
    let loads = ["--size", "heavy=0", "--size", "unlimited=2"];
    let machine = ["--machine", "epyc-milan-1s", "--cpus", "2", "--seeds", "5"];
    let all = [&loads[..], &machine].concat();
    let run = benchmark("kernbench", trace, &all);
    assert!(run.status.success(), "{}", printed(&run));
    let table = text(&run.stdout);
    for part in [
        "kernbench on 2 CPUs of epyc-milan-1s",
        "2 x num_cpus (simulated, 1 copy))",
        "maximal tasks (simulated, 2 copies))",
        "A rmap=chains",
        "ratio 1.000 exactly",
        "B system s",
        "95 % interval",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    let found = json(&benchmark(
        "kernbench",
        trace,
        &[&all[..], &["--json", "-"]].concat(),
    ));
    assert_eq!(found["schema"], "vellum-sim-bench/1");
    let loads = found["loads"].as_array().expect("a list");
    assert_eq!(loads.len(), 2);
    let times = loads.iter().map(|load| median(load, "user_s"));
    let times: Vec<f64> = times.collect();
    let ratio = times[1] / times[0];
    assert!((1.9..2.1).contains(&ratio), "twice the builds: {times:?}");
    for load in loads {
        assert_eq!(load["control"]["repeats"], true);
        assert_eq!(load["against_base"].as_array().map(Vec::len), Some(1));
        assert_eq!(load["seeds"].as_array().map(Vec::len), Some(5));
    }
}

#[test]
fn buildkernel_has_lines_of_time_and_verdicts_on_a_simulated_machine() {
    let scratch = Scratch::new("simulated-buildkernel");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, true);
    let machine = ["--machine", "epyc-milan-1s", "--cpus", "2", "--seeds", "5"];
    let all = [&machine[..], &["--size", "jobs=2"]].concat();
    let run = benchmark("buildkernel", trace, &all);
    assert!(run.status.success(), "{}", printed(&run));
    let table = text(&run.stdout);
    for part in [
        "buildkernel on 2 CPUs of epyc-milan-1s",
        "make -s -j 2: ",
        "\nA as=freebsd-13-hashed\n        0.0",
        " real         0.0",
        "\nsys\nx A as=freebsd-13-hashed\n+ B as=freebsd-13-obm\n",
        "ratio 1.000 exactly",
        "B system s",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    let lines = table.lines().filter(|line| line.ends_with(" sys"));
    assert_eq!(lines.count(), 10, "a line for each run: {table}");
    let json_too = [&all[..], &["--json", "-", "--size", "milliseconds=3"]].concat();
    let found = json(&benchmark("buildkernel", trace, &json_too));
    assert_eq!(found["schema"], "vellum-sim-bench/1");
    let load = &found["loads"][0];
    assert_eq!(load["trace"], *trace, "not the part that is gone");
    assert_eq!(load["control"]["repeats"], true);
    assert!(
        load["load"]
            .as_str()
            .is_some_and(|load| load.contains("the first 3 ms of")),
        "{load}"
    );
}

#[test]
fn scripts_of_sdet_double_on_a_simulated_machine() {
    let scratch = Scratch::new("simulated-sdet");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, true);
    let options = ["--size", "most=2", "--cpus", "2", "--seeds", "5"];
    let run = benchmark("sdet", trace, &options);
    assert!(run.status.success(), "{}", printed(&run));
    let table = text(&run.stdout);
    for part in ["SDET-like 1 ", "SDET-like 2 ", "100.0%", "Disclaimer"] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
}

#[test]
fn kernbench_of_kolivas_has_his_loads_for_one_build_on_a_simulated_machine() {
    let scratch = Scratch::new("simulated-kolivas");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, true);
    let rows = &scratch.path("rows.txt");
    let options = [
        "--format",
        "kolivas",
        "--cpus",
        "4",
        "-n",
        "2",
        "--a",
        "rmap=chains",
    ];
    let more = ["--single", "--runs-out", rows, "--json", "-"];
    let found = json(&benchmark(
        "kernbench",
        trace,
        &[&options[..], &more].concat(),
    ));
    assert_eq!(found["schema"], "vellum-kolivas/1");
    assert_eq!(found["kernel"], "vellum, rmap=chains, on epyc-milan-2s");
    assert_eq!(found["cpus"], 4);
    let block = found["block"].as_str().expect("text");
    for load in [
        "Single threaded",
        "Half load -j 3",
        "Optimal load -j 16",
        "Maximal load -j",
    ] {
        assert!(block.contains(load), "{load} in\n{block}");
    }
    let loads = found["loads"].as_array().expect("a list");
    for load in loads {
        let runs = load["runs"].as_array().expect("a list");
        assert_eq!(runs.len(), 2);
        for run in runs {
            let user = run["user_s"].as_f64().expect("a number");
            // Four children, whatever the number of copies; what they were served is less.
            let one_build = 4.0 * COMPUTES_US as f64 / 1e6;
            assert!(user > 0.5 * one_build && user <= 1.01 * one_build, "{run}");
            assert!(run["elapsed_s"].as_f64() > Some(0.0), "{run}");
        }
    }
    let written = std::fs::read_to_string(rows).expect("rows");
    let rows = written.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(rows.count(), 8, "{written}");
}

#[test]
fn a_benchmark_that_cannot_be_simulated_says_which_can() {
    let scratch = Scratch::new("simulated-refused");
    let trace = &scratch.path("t.vellum");
    write_four_children(trace, true);
    let refused = |arguments: &[&str], parts: &[&str]| {
        let run = vellum(&[&["bench"], arguments].concat());
        assert_eq!(
            run.status.code(),
            Some(2),
            "{arguments:?}: {}",
            printed(&run)
        );
        let error = text(&run.stderr);
        for part in parts {
            assert!(error.contains(part), "{part} in {error}");
        }
    };
    let on_sim = ["kernbench", "--on", "sim", "--trace", trace];
    let with = |more: &[&'static str]| -> Vec<String> {
        let all = on_sim.iter().copied().chain(more.iter().copied());
        all.map(str::to_owned).collect()
    };
    refused(
        &["forkfault", "--on", "sim"],
        &["kernbench, buildkernel, sdet", "vellum scale"],
    );
    refused(
        &["kernbench", "--machine", "numa-q-16"],
        &["--machine", "--on sim"],
    );
    for (more, parts) in [
        (&["--cpus", "100000"][..], &["--cpus 100000"][..]),
        (&["--seeds", "3"], &["5 seeds"]),
        (&["--format", "ministat"], &["kolivas"]),
        (&["--compat"], &["--compat", "--format kolivas"]),
        (
            &[
                "--format",
                "kolivas",
                "--a",
                "rmap=chains",
                "--b",
                "rmap=family",
            ],
            &["one design"],
        ),
        (&["--tree", "/"], &["--tree"]),
        (&["--machine", "no-such"], &["no-such"]),
    ] {
        let arguments = with(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        refused(&arguments, parts);
    }
}
