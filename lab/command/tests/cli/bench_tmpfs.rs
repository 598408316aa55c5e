//! The benchmarks that hold files in memory against the host's tmpfs, at a small scale.

use crate::bench::{figure, has_figures, list};
use crate::command::{text, vellum};
use serde_json::Value;

/// Output of a benchmark as JSON; none where this user may mount nothing.
fn measured(arguments: &[&str]) -> Option<Value> {
    let rest = ["-n", "2", "-q", "--json", "-"];
    let output = vellum(&[&["bench"], arguments, &rest[..]].concat());
    if output.status.code() == Some(2) && text(&output.stderr).contains("as root") {
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn files_of_the_core_stand_beside_those_of_the_host_and_memcpy() {
    let Some(value) = measured(&["tmpfs", "--size", "mebibytes=2"]) else {
        return;
    };
    has_figures(&value, 4);
    let arms: Vec<&str> = list(&value["arms"])
        .iter()
        .filter_map(|arm| arm["given"].as_str())
        .collect();
    assert!(arms[1].starts_with("tmpfs of Linux "), "{arms:?}");
    assert_eq!(arms[2], "memcpy");
    for name in ["new pages, 4 KiB", "overwrite, 4 KiB", "read, 1 MiB"] {
        assert_eq!(figure(&value, 0, name)["units"], 2.0);
    }
    let rates = list(&value["blocks"])[0].as_str().expect("a table");
    assert!(rates.starts_with("GB/s "), "{rates}");
    assert_eq!(rates.lines().count(), 7, "{rates}");
}

#[test]
fn mappings_and_truncations_stand_beside_those_of_the_host() {
    let small = ["--size", "mebibytes=8", "--size", "samples=2"];
    let Some(value) = measured(&[&["tmpfs-calls"], &small[..]].concat()) else {
        return;
    };
    has_figures(&value, 3);
    assert_eq!(figure(&value, 0, "truncate 8 MiB")["units"], 8.0);
    let facts = list(&value["runs"][0]["facts"]);
    let taken_off = facts[1].as_str().expect("a fact");
    assert!(taken_off.starts_with("Taken off "), "{taken_off}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |arguments: &[&str], says: &str| {
        let output = vellum(&[&["bench", "tmpfs", "-n", "1", "-q"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(says),
            "{}",
            text(&output.stderr)
        );
    };
    let two = ["--a", "rmap=family", "--b", "rmap=chains"];
    refused(&two, "one design against the host's kernel");
    refused(&["--a", "rmap=none"], "rmap");
    refused(&["--size", "mebibytes=1"], "at least 2");
    refused(&["--on", "linux"], "only with --on core");
}

#[test]
fn too_little_simulated_memory_is_an_error_that_names_the_option() {
    let arguments = ["bench", "tmpfs", "-n", "1", "-q", "--ram", "32M"];
    let output = vellum(&[&arguments[..], &["--size", "mebibytes=64"]].concat());
    if text(&output.stderr).contains("as root") {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("--ram"),
        "{}",
        text(&output.stderr)
    );
}
