//! What a machine can do, and what mends it.

use std::process::Command;

use crate::command::{printed, text, vellum};
use serde_json::Value;

#[test]
fn everything_is_tried_and_what_is_missing_comes_with_its_cure() {
    let output = vellum(&["doctor", "--json"]);
    assert!(output.status.success(), "{}", printed(&output));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = found.as_array().expect("a list");
    let names: Vec<&str> = found
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    for name in ["record", "compare", "linux", "profile", "simulate"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for one in found {
        assert_ne!(one["detail"], "", "{one}");
        assert!(one["works"] == false || one["mend"] == "", "{one}");
    }
    let simulate = found.iter().find(|one| one["name"] == "simulate");
    assert_eq!(simulate.expect("it is looked at")["works"], true);
}

#[test]
fn what_is_named_must_work() {
    let without_programs = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        let output = command.args(arguments).env("PATH", "/nonexistent").output();
        output.expect("the program can be started")
    };
    let missing = without_programs(&["doctor", "builds", "simulate"]);
    assert_eq!(missing.status.code(), Some(3), "{}", printed(&missing));
    let table = text(&missing.stdout);
    assert!(table.contains("mend it: sudo apt-get install"), "{table}");
    assert!(
        table.contains("simulate  works") && !table.contains("profile"),
        "{table}"
    );
    // Nothing is demanded where nothing is named.
    assert!(without_programs(&["doctor"]).status.success());
    assert_eq!(vellum(&["doctor", "fly"]).status.code(), Some(2));
}
