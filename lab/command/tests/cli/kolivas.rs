//! `vellum bench kernbench --on linux --format kolivas` as a user meets it.

use std::path::Path;
use std::process::Output;

use crate::command::{text, vellum};
use crate::host::{command, interrupt_when, toy_tree};
use serde_json::Value;
use vellum_lab::host::scratch::Scratch;

/// Two loads that every machine has, in no time.
const QUICK: &str = "--fast --no-half --no-optimal --single -n 2 --quiet";

fn arguments<'a>(tree: &'a str, options: &'a str) -> Vec<&'a str> {
    let begin = "bench kernbench --on linux --format kolivas --tree";
    let begin = begin.split(' ').chain([tree]);
    begin.chain(options.split_whitespace()).collect()
}

/// None, with a word about it, where nothing is installed to build kernels with.
fn kolivas(tree: &str, options: &str) -> Option<Output> {
    let output = vellum(&arguments(tree, options));
    if text(&output.stderr).contains("apt-get install") {
        eprintln!("skipped: {}", text(&output.stderr));
        return None;
    }
    Some(output)
}

fn scratch(name: &str) -> Scratch {
    Scratch::new(&std::env::temp_dir(), name).expect("made")
}

/// The text with an N for each number.
fn shape(block: &str) -> String {
    let word = |word: &str| {
        let number = word.trim_matches(['(', ')']);
        match number.parse::<f64>().is_ok() {
            true => word.replace(number, "N"),
            false => word.to_owned(),
        }
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    block.lines().map(|text| line(text) + "\n").collect()
}

#[test]
fn blocks_are_all_that_is_printed_and_the_tree_is_left_clean() {
    let scratch = scratch("kolivas-block");
    let tree = toy_tree(&scratch, "sleep 0.01");
    let Some(output) = kolivas(&tree, QUICK) else {
        return;
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let block = |load: &str| {
        format!(
            "Average {load} Run (std deviation):\nElapsed Time N (N)\nUser Time N (N)\n\
             System Time N (N)\nPercent CPU N (N)\nContext Switches N (N)\nSleeps N (N)\n\n"
        )
    };
    let expected = block("Single threaded") + &block("Maximal load -j");
    let printed = text(&output.stdout);
    assert_eq!(shape(&printed), expected, "{printed}");
    assert!(!scratch.path().join("vmlinux").exists());
}

/// One measurement is enough for both kinds of figures.
#[test]
fn the_rows_that_are_written_give_the_same_blocks_again() {
    let scratch = scratch("kolivas-rows");
    let tree = toy_tree(&scratch, "sleep 0.03");
    let rows = scratch.path().join("rows").display().to_string();
    for compat in ["", " --compat"] {
        let options = format!("{QUICK}{compat} --runs-out {rows}");
        let Some(output) = kolivas(&tree, &options) else {
            return;
        };
        assert!(output.status.success(), "{}", text(&output.stderr));
        let stats = format!("stats --format kolivas{compat} {rows}");
        let again = vellum(&stats.split(' ').collect::<Vec<_>>());
        assert_eq!(text(&again.stdout), text(&output.stdout), "{compat}");
        let written = std::fs::read_to_string(&rows).expect("written");
        let digits = |column: &str| column.split_once('.').map_or(0, |(_, after)| after.len());
        let columns = written.lines().skip(1).flat_map(|row| row.split(' '));
        let cut = columns.map(digits).all(|digits| digits <= 2);
        assert_eq!(cut, !compat.is_empty(), "{written}");
    }
}

#[test]
fn every_run_is_in_the_json() {
    let scratch = scratch("kolivas-json");
    let tree = toy_tree(&scratch, "true");
    let options =
        "--fast --no-half --no-maximal --optimal-jobs 3 --target vmlinux --quiet --json -";
    let Some(output) = kolivas(&tree, options) else {
        return;
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["schema"], "vellum-kolivas/1");
    assert_eq!(report["loads"][0]["load"], "optimal-3");
    let runs = report["loads"][0]["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 3, "--fast has three");
    for run in runs {
        assert!(run["elapsed_s"].as_f64().is_some_and(|s| s > 0.0), "{run}");
        assert!(run["sleeps"].as_u64().is_some_and(|n| n > 0), "{run}");
    }
    let block = report["block"].as_str().expect("a text");
    let begin = "Average Optimal load -j 3 Run (std deviation):\nElapsed Time ";
    assert!(block.starts_with(begin), "{block}");
    assert_eq!(
        (&report["interrupted"], &report["failure"]),
        (&false.into(), &Value::Null)
    );
}

/// A tree whose build fails from the `builds`-th on.
fn failing(scratch: &Scratch, builds: usize) -> String {
    let count = scratch.path().join("count").display().to_string();
    let recipe = format!(
        "echo >> {count}; test $$(wc -l < {count}) -lt {builds} || {{ echo no memory >&2; exit 1; }}"
    );
    toy_tree(scratch, &recipe)
}

#[test]
fn a_build_that_fails_is_reported_after_the_runs_that_did_not() {
    let scratch = scratch("kolivas-fail");
    let tree = failing(&scratch, 4);
    let Some(output) = kolivas(&tree, QUICK) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1));
    let (printed, message) = (text(&output.stdout), text(&output.stderr));
    assert!(
        message.contains("after the runs that are printed: make -j in "),
        "{message}"
    );
    assert!(message.contains("no memory"), "{message}");
    let maximal = printed.split("Maximal load -j Run").nth(1);
    let one_run = |block: &str| {
        block
            .lines()
            .skip(1)
            .take(6)
            .all(|line| !line.contains('('))
    };
    assert!(maximal.is_some_and(one_run), "{printed}");
}

#[test]
fn where_nothing_was_complete_nothing_is_printed_or_written() {
    let scratch = scratch("kolivas-nothing");
    let tree = failing(&scratch, 1);
    let rows = scratch.path().join("rows");
    let options = format!("{QUICK} --runs-out {}", rows.display());
    let Some(output) = kolivas(&tree, &options) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(text(&output.stderr).contains("no memory"));
    assert_eq!(files_called(scratch.path(), "rows"), 0);
}

fn files_called(directory: &Path, begin: &str) -> usize {
    let entries = std::fs::read_dir(directory).expect("readable").flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(begin))
        .count()
}

#[test]
fn ctrl_c_in_the_first_run_leaves_nothing_behind() {
    let scratch = scratch("kolivas-stop");
    let tree = toy_tree(&scratch, "echo begun > vmlinux; sleep 1000");
    let Some(_) = kolivas("/", QUICK) else {
        return;
    };
    let built = scratch.path().join("vmlinux");
    let rows = scratch.path().join("rows").display().to_string();
    let options = format!("{QUICK} --runs-out {rows}");
    let code = interrupt_when(command(&arguments(&tree, &options)), || built.exists());
    assert_eq!(code, Some(130));
    assert!(!built.exists(), "as after make clean");
    assert_eq!(files_called(scratch.path(), "rows"), 0);
}

#[test]
fn arguments_that_do_not_fit_are_refused_with_what_does() {
    let refused = |arguments: &str, expected: &str| {
        let output = vellum(&arguments.split_whitespace().collect::<Vec<_>>());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
        assert!(message.contains(expected), "{arguments}: {message}");
        assert!(output.stdout.is_empty(), "{arguments}");
    };
    let host = "bench kernbench --on linux --format kolivas";
    refused(host, "--tree");
    for (options, expected) in [
        ("-n 11", "10 runs of a load at most"),
        ("-n 0", "1..=1000"),
        ("--optimal-jobs 0", "1..=1000000"),
        ("--optimal-jobs 4 --no-optimal", "cannot be used with"),
        ("--no-half --no-optimal --no-maximal", "no load is left"),
        ("--size heavy=0", "--size is not for --format kolivas"),
        ("--scale 2", "--scale is not for"),
        ("--ram 1G", "--ram is not for"),
        ("--a rmap=chains", "leave them out with --on linux"),
    ] {
        refused(&format!("{host} --tree / {options}"), expected);
    }
    let elsewhere = "is for `vellum bench kernbench`, with --on linux or --on sim";
    refused("bench kernbench --format kolivas", elsewhere);
    refused("bench sdet --on linux --format kolivas", elsewhere);
    refused("compare x --format kolivas", "mmtests, ministat");
    for option in [
        "--single",
        "--fast",
        "--compat",
        "--runs-out x",
        "--no-half",
    ] {
        let expected = format!("{} is for --format kolivas", option.replace(" x", ""));
        refused(&format!("bench kernbench --on linux {option}"), &expected);
    }
}
