//! Results that are kept, and held against later ones.

use std::fs;
use std::process::{Command, Output};

use crate::command::{Scratch, printed, text, vellum};
use serde_json::{Value, json};
use vellum_testing::by_hand::{self, PAGE, fork, map, write};
use vellum_trace::{EventKind, TaskId};

/// A parent that writes pages and forks, for long enough that passes are alike.
fn write_trace(path: &str) {
    let (start, pages) = (0x1000_0000, 1024);
    let mut events = vec![(0, map(start, pages))];
    events.extend((0..pages).map(|page| (0, write(start + page * PAGE, false))));
    for child in 1..=16 {
        let wait = EventKind::Wait {
            child: TaskId(child),
        };
        events.extend([(0, fork(child)), (child, EventKind::Exit), (0, wait)]);
    }
    events.push((0, EventKind::Exit));
    by_hand::write_trace(path, 16, &events);
}

fn compare(trace: &str, more: &[&str]) -> Output {
    let arguments = [
        "compare",
        trace,
        "-n",
        "6",
        "--ram",
        "64M",
        "--no-atomics",
        "-q",
    ];
    let designs: &[&str] = match more.contains(&"--a") {
        true => &[],
        false => &["--a", "rmap=chains", "--b", "rmap=partial"],
    };
    vellum(&[&arguments[..], designs, more].concat())
}

/// A result, for tests that change it.
fn result(scratch: &Scratch, trace: &str) -> Value {
    let path = scratch.path("result.json");
    let run = compare(trace, &["--json", &path]);
    assert!(run.status.success(), "{}", printed(&run));
    serde_json::from_str(&fs::read_to_string(path).expect("written")).expect("JSON")
}

/// Changes the time that every pass took.
fn scaled(result: &Value, factor: f64) -> Value {
    let mut result = result.clone();
    for arm in ["a", "b", "control"] {
        for time in result["pass_cpu_ns"][arm].as_array_mut().expect("passes") {
            // To even times: what is tested is what is made of them.
            *time = json!((1e6 * factor) as u64);
        }
    }
    result
}

fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}", printed(output));
    text(&output.stdout)
}

#[test]
fn a_result_is_kept_and_needs_its_trace_no_longer() {
    let scratch = Scratch::new("history-kept");
    let (trace, db) = (scratch.path("fork.vellum"), scratch.path("data/results.db"));
    let page = scratch.path("page.html");
    write_trace(&trace);
    for note in ["first", "second"] {
        let run = compare(&trace, &["--keep", "--note", note, "--db", &db]);
        ok(&run);
        assert!(
            text(&run.stderr).contains("kept as"),
            "{}",
            text(&run.stderr)
        );
    }
    fs::remove_file(&trace).expect("it was there");
    let history = |arguments: &[&str]| vellum(&[&["history", "--db", &db], arguments].concat());
    let list = ok(&history(&[
        "list",
        "--subject",
        "fork",
        "--design",
        "chains",
    ]));
    assert!(list.contains("first") && list.contains("second"), "{list}");
    assert_eq!(list.lines().count(), 3, "{list}");
    let none = ok(&history(&["list", "--since", "2999"]));
    assert!(none.contains("nothing"), "{none}");
    let show = ok(&history(&["show", "1"]));
    for part in [
        "--note first",
        "fork.vellum",
        "sha256",
        "rmap=partial",
        "median of 6",
    ] {
        assert!(show.contains(part), "{part} in\n{show}");
    }
    let difference = ok(&history(&["compare", "1", "2"]));
    assert_eq!(difference.matches("told from").count(), 1, "{difference}");
    assert!(difference.contains("rmap=chains, CPU time"), "{difference}");

    let exported = scratch.path("one.json");
    ok(&history(&["export", "2", "-o", &exported]));
    ok(&vellum(&["report", &exported, "-o", &page]));
    // All of them go to another database, and only once.
    let lines = scratch.write("all.jsonl", ok(&history(&["export"])));
    let other = scratch.path("other.db");
    for _ in 0..2 {
        ok(&vellum(&["history", "add", &lines, "--db", &other]));
    }
    let list = |db: &str| ok(&vellum(&["history", "list", "--db", db, "--json"]));
    assert_eq!(list(&db), list(&other));

    let plan = ok(&history(&["prune", "1", "--dry-run"]));
    assert!(plan.contains("would be removed"), "{plan}");
    ok(&history(&["prune", "1"]));
    assert_eq!(history(&["show", "1"]).status.code(), Some(2));
    let old = ok(&history(&["prune", "--older-than", "2"]));
    assert!(old.starts_with("0 removed"), "{old}");
}

#[test]
fn what_is_no_result_is_refused_and_nothing_of_it_is_kept() {
    let scratch = Scratch::new("history-refused");
    let db = scratch.path("results.db");
    let trace = scratch.path("fork.vellum");
    write_trace(&trace);
    let good = scratch.write("good.json", result(&scratch, &trace).to_string());
    for (name, content) in [
        ("text.json", "no JSON at all"),
        ("other.json", "{\"schema\": \"somebody/1\"}"),
        ("cut.json", &fs::read_to_string(&good).expect("read")[..200]),
    ] {
        let bad = scratch.write(name, content);
        let refused = vellum(&["history", "add", &good, &bad, "--db", &db]);
        assert_eq!(refused.status.code(), Some(2), "{name}");
        assert!(
            text(&refused.stderr).contains(name),
            "{}",
            text(&refused.stderr)
        );
    }
    let nothing = vellum(&["history", "list", "--db", &db]);
    assert_eq!(nothing.status.code(), Some(2));
    let message = text(&nothing.stderr);
    assert!(message.contains("no history yet"), "{message}");
    let foreign = vellum(&["history", "list", "--db", &good]);
    assert!(
        text(&foreign.stderr).contains("not a history"),
        "{}",
        text(&foreign.stderr)
    );
}

#[test]
fn a_trend_is_told_on_each_machine_by_itself_and_not_beyond_what_runs_differ_by() {
    let scratch = Scratch::new("history-trend");
    let trace = scratch.path("fork.vellum");
    write_trace(&trace);
    let base = result(&scratch, &trace);
    let run = |month: u32, program: &str, host: &str, factor: f64| {
        let mut run = scaled(&base, factor);
        run["run"]["started"] = json!(format!("2026-{month:02}-01T00:00:00Z"));
        run["run"]["program"] = json!(program);
        run["run"]["host"]["name"] = json!(host);
        let path = scratch.path(&format!("{host}-{month}.json"));
        fs::write(&path, run.to_string()).expect("written");
        path
    };
    let trend = |name: &str, files: &[String]| {
        let db = scratch.path(name);
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        ok(&vellum(
            &[&["history", "add", "--db", &db], &files[..]].concat(),
        ));
        let design = ["rmap=partial", "--since", "2026-02"];
        ok(&vellum(
            &[&["history", "trend", "--db", &db, "fork"], &design[..]].concat(),
        ))
    };
    let told = trend(
        "two.db",
        &[
            run(1, "p", "one", 9.0),
            run(3, "p", "one", 1.0),
            run(4, "q", "one", 1.1),
            run(5, "p", "two", 5.0),
        ],
    );
    // January is left out, and the machines are apart.
    assert!(told.contains("slower by 10.00 %, proven"), "{told}");
    assert!(
        told.contains("not known, and not in the resolution"),
        "{told}"
    );
    assert!(
        told.contains("on one (") && told.contains("on two ("),
        "{told}"
    );
    assert_eq!(told.matches("One result is no trend").count(), 1, "{told}");
    let noisy = trend(
        "noisy.db",
        &[
            run(3, "p", "one", 1.0),
            run(4, "p", "one", 1.12),
            run(5, "q", "one", 1.1),
        ],
    );
    assert!(
        noisy.contains("no difference proven (within-control)"),
        "{noisy}"
    );
}

#[test]
fn results_of_different_machines_are_not_held_against_each_other() {
    let scratch = Scratch::new("history-machines");
    let trace = scratch.path("fork.vellum");
    write_trace(&trace);
    let mut other = result(&scratch, &trace);
    let here = scratch.write("here.json", other.to_string());
    other["run"]["host"]["cpu"] = json!("another <b>model</b>");
    let there = scratch.write("there.json", other.to_string());
    let table = ok(&vellum(&["history", "compare", &here, &there]));
    assert!(table.contains("not held against each other"), "{table}");
    assert!(!table.contains("new / old"), "{table}");
    let gate = compare(&trace, &["--against", &there]);
    assert_eq!(gate.status.code(), Some(2), "{}", printed(&gate));
    assert!(
        text(&gate.stderr).contains("another machine"),
        "{}",
        text(&gate.stderr)
    );
}

#[test]
fn a_gate_lets_pass_what_is_not_slower_and_stops_what_is() {
    let scratch = Scratch::new("history-gate");
    let (trace, db) = (scratch.path("fork.vellum"), scratch.path("results.db"));
    write_trace(&trace);
    let base = result(&scratch, &trace);
    // A replay of some microseconds against a thousandth of one, and against a minute.
    let faster = scratch.write("faster.json", scaled(&base, 1e-6).to_string());
    let slower = scratch.write("slower.json", scaled(&base, 6e4).to_string());
    let json = scratch.path("new.json");
    let stopped = compare(
        &trace,
        &["--against", &faster, "--limit", "2", "--json", &json],
    );
    assert_eq!(stopped.status.code(), Some(4), "{}", printed(&stopped));
    let message = text(&stopped.stderr);
    assert!(message.contains("by more than 2.00 %: rmap="), "{message}");
    assert!(
        text(&stopped.stdout).contains("Against "),
        "{}",
        text(&stopped.stdout)
    );
    // What stopped it is in the result, too.
    let written: Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("written")).expect("JSON");
    assert_eq!(written["against"]["changes"][0]["verdict"], "more");
    assert_eq!(written["against"]["limit"], 0.02);
    ok(&compare(&trace, &["--against", &slower]));
    // The limit is what may be lost.
    ok(&compare(&trace, &["--against", &slower, "--limit", "0"]));
    ok(&vellum(&["history", "add", &faster, "--db", &db]));
    let kept = compare(&trace, &["--against", "1", "--db", &db]);
    assert_eq!(kept.status.code(), Some(4), "{}", printed(&kept));
}

#[test]
fn a_saved_result_of_something_else_is_refused_before_anything_is_measured() {
    let scratch = Scratch::new("history-fits");
    let trace = scratch.path("fork.vellum");
    write_trace(&trace);
    let base = result(&scratch, &trace);
    let changed = |name: &str, change: fn(&mut Value)| {
        let mut result = base.clone();
        change(&mut result);
        scratch.write(name, result.to_string())
    };
    let other_trace = changed("trace.json", |r| {
        r["run"]["traces"][0]["sha256"] = json!("00")
    });
    let copies = changed("copies.json", |r| r["about"]["copies"] = json!(4));
    let nowhere = changed("host.json", |r| r["run"] = json!({}));
    for (saved, more, wanted) in [
        (&other_trace, &[][..], "another trace"),
        (&copies, &[], "--copies 4"),
        (&nowhere, &[], "on which machine"),
        (&other_trace, &["--on", "sim"], "--against"),
        (&scratch.path("none.json"), &[], "none.json"),
    ] {
        let refused = compare(&trace, &[&["--against", saved], more].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
        let message = text(&refused.stderr);
        assert!(message.contains(wanted), "{message}");
        assert!(refused.stdout.is_empty());
    }
    let base = scratch.write("base.json", base.to_string());
    let designs = [
        "--a",
        "rmap=family",
        "--b",
        "rmap=anon_vma",
        "--against",
        &base,
    ];
    let refused = compare(&trace, &designs);
    assert!(
        text(&refused.stderr).contains("it has the designs"),
        "{}",
        printed(&refused)
    );
}

#[test]
fn what_was_measured_is_in_a_file_if_it_cannot_be_kept() {
    let scratch = Scratch::new("history-rescued");
    let trace = scratch.path("fork.vellum");
    write_trace(&trace);
    fs::create_dir(scratch.path("disk")).expect("made");
    let script = "mount -t tmpfs -o size=40k tmpfs disk || exit 77; exec \"$@\"";
    let output = Command::new("unshare")
        .current_dir(scratch.directory())
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .args([
            env!("CARGO_BIN_EXE_vellum"),
            "compare",
            &trace,
            "-n",
            "5",
            "--ram",
            "64M",
        ])
        .args(["-q", "--keep", "--db", "disk/results.db"])
        .output()
        .expect("unshare is in every Debian");
    let message = text(&output.stderr);
    if output.status.code() == Some(77) || message.contains("unshare failed") {
        // Mounting is not for everybody; who runs all checks is root.
        eprintln!("SKIPPED: no file system can be mounted: {message}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("the disk is full; nothing was changed"),
        "{message}"
    );
    assert!(
        text(&output.stdout).contains("Verdict"),
        "{}",
        printed(&output)
    );
    let files = scratch.files();
    let rescued = files.iter().find(|name| name.contains("vellum-2"));
    let rescued = rescued.unwrap_or_else(|| panic!("{files:?}"));
    let path = scratch.path(rescued.rsplit('/').next().expect("a name"));
    ok(&vellum(&[
        "history",
        "add",
        &path,
        "--db",
        &scratch.path("later.db"),
    ]));
}
