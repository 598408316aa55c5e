//! Workloads on simulated CPUs: tables, JSON, a picture, and runs that go on.

use std::fs;
use std::process::Output;

use crate::command::{text, vellum};
use serde_json::Value;
use vellum_testing::Scratch;

fn scale(more: &[&str]) -> Output {
    let mut arguments = vec![
        "scale",
        "fork-exit",
        "--cpus",
        "1,2",
        "--window",
        "100",
        "-q",
    ];
    arguments.extend(more);
    vellum(&arguments)
}

#[test]
fn a_table_has_ratios_ceilings_and_the_control() {
    let run = scale(&[
        "--seeds",
        "2",
        "--designs",
        "rmap=family",
        "--designs",
        "rmap=chains",
        "--profile",
    ]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let table = text(&run.stdout);
    for part in [
        "ratio 1.000 exactly",
        "A rmap=family",
        "B rmap=chains",
        "of ceiling",
        "/ A",
        "It scales up to 2 CPUs.",
        "moving %",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
}

#[test]
fn results_are_the_same_on_any_number_of_threads() {
    let json = |jobs: &str| {
        let run = scale(&["--seeds", "3", "--jobs", jobs, "--json", "-"]);
        assert!(run.status.success(), "{}", text(&run.stderr));
        let mut found: Value = serde_json::from_slice(&run.stdout).expect("JSON");
        // When it ran, and how it was asked for, may differ.
        let run = found.as_object_mut().and_then(|found| found.remove("run"));
        assert!(run.is_some(), "it says how it was made");
        found
    };
    let found = json("1");
    assert_eq!(found, json("3"));
    assert_eq!(found["control"], 1.0);
    let points = found["curves"][0]["points"].as_array().expect("a list");
    assert_eq!(points.len(), 2);
    assert!(points[1]["rate"]["median"].as_f64() > points[0]["rate"]["most"].as_f64());
}

#[test]
fn what_was_kept_is_not_run_again_and_a_torn_line_is_dropped() {
    let scratch = Scratch::new("scale");
    let (keep, picture) = (&scratch.path("done.jsonl"), &scratch.path("fork.svg"));
    let first = scale(&["--seeds", "2", "--resume", keep, "--json", "-"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let lines = fs::read_to_string(keep).expect("it was written");
    assert_eq!(lines.lines().count(), 4, "{lines}");
    // What is kept is what is shown: a line is changed, and another is torn.
    let mut kept: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for line in &mut kept {
        line["cell"]["moving"] = 0.75.into();
    }
    let torn: String = kept[..3].iter().map(|line| format!("{line}\n")).collect();
    fs::write(keep, torn + "{\"program\":12").expect("it can be written");
    let again = scale(&[
        "--seeds", "2", "--resume", keep, "--svg", picture, "--json", "-",
    ]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains("0.75"));
    let lines = fs::read_to_string(keep).expect("it is there");
    assert_eq!(lines.lines().count(), 4, "{lines}");
    assert!(
        fs::read_to_string(picture)
            .expect("drawn")
            .contains("rmap=family")
    );

    fs::write(keep, "nonsense\n").expect("it can be written");
    let refused = scale(&["--resume", keep]);
    assert_eq!(refused.status.code(), Some(2));
    let message = text(&refused.stderr);
    assert!(message.contains("done.jsonl:1:"), "{message}");
}

#[test]
fn what_a_machine_does_not_have_is_refused() {
    for (arguments, wanted) in [
        (&["--machine", "numa-q-16", "--cpus", "17"][..], "16"),
        (&["--machine", "vax"], "epyc-milan-2s"),
        (&["--designs", "format=sv39"], "x86-64"),
        (&["--designs", "rmap=none"], "family"),
    ] {
        let mut all = vec!["scale", "fork-exit", "--seeds", "1", "--window", "10", "-q"];
        all.extend(arguments);
        let refused = vellum(&all);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let message = text(&refused.stderr);
        assert!(message.contains(wanted), "{arguments:?}: {message}");
        assert!(refused.stdout.is_empty());
    }
    let listed = vellum(&["scale", "--list"]);
    assert!(text(&listed.stdout).contains("read-one-file"));
}
