//! Descriptions of machines: listed, shown, checked, and measured.

use std::fs;
use std::path::Path;

use crate::command::{text, vellum};
use vellum_testing::Scratch;

#[test]
fn machines_are_listed_and_one_is_shown_with_its_sources() {
    let list = vellum(&["machines"]);
    assert!(list.status.success());
    let list = text(&list.stdout);
    for part in ["epyc-milan-2s", "192", "altix-512", "measured", "assumed"] {
        assert!(list.contains(part), "{part} in\n{list}");
    }
    let shown = vellum(&["machines", "epyc-milan-2s"]);
    let shown = text(&shown.stdout);
    for part in ["192 CPUs", "lines.hit", "GB/s", "measured: "] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let json = vellum(&["machines", "--json", "numa-q-16"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["machines"][0]["cpus"], 16);
    let figures = json["machines"][0]["figures"].as_array().expect("a list");
    assert!(figures.iter().any(|figure| figure["key"] == "lines.hit"));
}

#[test]
fn a_description_that_was_printed_can_be_changed_and_is_checked() {
    let scratch = Scratch::new("machines");
    let name = &scratch.path("mine.toml");
    let printed = vellum(&["machines", "numa-q-16", "--toml"]);
    let printed = text(&printed.stdout);
    fs::write(name, &printed).expect("written");
    assert!(vellum(&["machines", name]).status.success());
    fs::write(name, printed.replace("[flush]", "[flash]")).expect("written");
    let refused = vellum(&["machines", name]);
    assert_eq!(refused.status.code(), Some(2));
    let message = text(&refused.stderr);
    assert!(message.contains("mine.toml"), "{message}");
    assert!(message.contains("flash"), "{message}");
    let unknown = vellum(&["machines", "vax"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("numa-q-16"));
}

#[test]
fn calibrating_writes_a_description_or_nothing() {
    let scratch = Scratch::new("calibrate");
    let name = &scratch.path("this.toml");
    let measured = vellum(&["calibrate", "--quick", "--quiet", "-o", name]);
    match measured.status.code() {
        Some(0) => assert!(vellum(&["machines", name]).status.success()),
        // Figures of a few rounds on a busy machine may contradict one another.
        Some(1) => {
            let message = text(&measured.stderr);
            assert!(message.contains("contradict"), "{message}");
            assert!(!Path::new(name).exists());
        }
        other => panic!("{other:?}: {}", text(&measured.stderr)),
    }
    let elsewhere = vellum(&["calibrate", "--quick", "-o", "this.json"]);
    assert_eq!(elsewhere.status.code(), Some(2));
    assert!(text(&elsewhere.stderr).contains(".toml"));
    let nowhere = vellum(&["calibrate", "--quick", "-o", "/no/such/place/this.toml"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("/no/such/place"));
}

#[test]
fn a_description_is_held_against_this_machine_and_its_work_is_measured() {
    let scratch = Scratch::new("against");
    let name = &scratch.path("this.toml");
    let printed = vellum(&["machines", "epyc-milan-1s", "--toml"]);
    let source = "source = \"assumed: test\"";
    let lost = format!("[lines]\ncached = {{ ns = 12, {source} }}");
    let own = format!("[processor]\nown_cache = {{ count = 512, {source} }}");
    let printed = text(&printed.stdout)
        .replacen("[lines]", &lost, 1)
        .replacen("[processor]", &own, 1);
    fs::write(name, &printed).expect("written");
    let measured = vellum(&["calibrate", "--quick", "--quiet", "--work", name]);
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let work = text(&measured.stdout);
    for key in [
        "[work]\n",
        "fault = { ns = ",
        "map = ",
        "fork = ",
        "exit = ",
        "file = ",
    ] {
        assert!(work.contains(key), "{key} in\n{work}");
    }
    let (exposed, work) = work.split_once("\n\n").expect("two tables");
    assert!(
        exposed.starts_with("[processor]\nexposed = { share = "),
        "{exposed}"
    );
    let printed = printed.replacen("[processor]", exposed, 1);
    fs::write(name, format!("{printed}\n{work}")).expect("written");
    let json = &scratch.path("truth.json");
    let against = [
        "calibrate",
        "--quick",
        "--quiet",
        "--against",
        name,
        "--json",
        json,
    ];
    let against = vellum(&against);
    assert!(against.status.success(), "{}", text(&against.stderr));
    let table = text(&against.stdout);
    for part in [
        "kernel build",
        "snapshot server",
        "forkfault",
        "A line from the nearest other core took ",
        "totals are within",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    let found = fs::read_to_string(json).expect("written");
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(found["schema"], "vellum-sim-validation/1");
    let totals = found["totals"].as_array().expect("a list");
    assert_eq!(totals.len(), 20);
    for total in totals {
        let is_within = total["error"].as_f64().expect("a number").abs() <= 0.1;
        assert_eq!(total["within"], is_within, "{total}");
        assert!(total["simulated_ns"].as_f64() > Some(0.0), "{total}");
    }
    assert_eq!(found["ratios"].as_array().map(Vec::len), Some(8));
    let both = vellum(&["calibrate", "--work", name, "--against", name]);
    assert_eq!(both.status.code(), Some(2));
    let missing = vellum(&["calibrate", "--against", "/no/such/this.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/no/such/this.toml"));
}
