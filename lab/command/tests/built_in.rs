//! What is not built in stays known, and names the command that brings it.
//!
//! `VELLUM_PROGRAM=target/release/vellum` tests that program instead of the one that cargo has
//! built with the same features as this test: `.ci/run` gives the one with the default features.

use std::process::{Command, Output};

use vellum_lab::built_in::{
    ATOMICS, BENCH, DESIGNS, FULL, HISTORY, PARQUET, PARTS, Part, SIMULATION, SWEEP,
};
use vellum_testing::Scratch;
use vellum_testing::by_hand::{PAGE, map, write, write_trace};

fn vellum(arguments: &[&str]) -> Output {
    let own = env!("CARGO_BIN_EXE_vellum").into();
    let program = std::env::var_os("VELLUM_PROGRAM").unwrap_or(own);
    let output = Command::new(program).args(arguments).output();
    output.expect("it can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether `vellum --help` lists the part among those that are not built in.
fn is_absent(part: &Part) -> bool {
    text(&vellum(&["--help"]).stdout).contains(&format!("  {:<12} {}\n", part.feature, part.brings))
}

/// The program refuses what `arguments` ask for if it says that `part` is not built in. Where the
/// part is there, other tests use it.
fn needs(part: &Part, arguments: &[&str]) {
    if !is_absent(part) {
        return;
    }
    let output = vellum(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    let feature = format!("--features {}`", part.feature);
    for told in ["is not built in", FULL, feature.as_str()] {
        assert!(said.contains(told), "{arguments:?}: {said}");
    }
}

/// A trace of two pages.
fn trace(scratch: &Scratch) -> String {
    let path = scratch.path("two.vellum");
    let events = [
        map(0x10_0000, 2),
        write(0x10_0000, false),
        write(0x10_0000 + PAGE, false),
    ];
    write_trace(&path, 0, &events.map(|event| (0, event)));
    path
}

#[test]
fn help_says_what_cargo_has_built_in() {
    if std::env::var_os("VELLUM_PROGRAM").is_none() {
        for part in &PARTS {
            assert_eq!(is_absent(part), !part.built_in, "{}", part.feature);
        }
    }
}

#[test]
fn commands_that_are_left_out_are_listed_and_name_what_brings_them() {
    let help = text(&vellum(&["--help"]).stdout);
    let commands = [
        ("bench", &BENCH),
        ("reproduce", &SIMULATION),
        ("scale", &SIMULATION),
        ("calibrate", &SIMULATION),
        ("history", &HISTORY),
        ("sweep", &SWEEP),
    ];
    for (command, part) in commands {
        needs(part, &[command, "--help"]);
        let line = help.lines().find(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(command)
        });
        let line = line.unwrap_or_else(|| panic!("{command} is not in {help}"));
        assert_eq!(line.contains("Not built in"), is_absent(part), "{line}");
    }
}

#[test]
fn options_and_values_that_are_left_out_name_what_brings_them() {
    let scratch = Scratch::new("built-in");
    let trace = trace(&scratch);
    let (table, database) = (scratch.path("t.parquet"), scratch.path("history.db"));
    needs(&SIMULATION, &["replay", &trace, "--on", "sim"]);
    needs(&SIMULATION, &["compare", &trace, "--on", "sim"]);
    if !is_absent(&BENCH) {
        let on_sim = ["bench", "kernbench", "--on", "sim", "--trace", &trace];
        needs(&SIMULATION, &on_sim);
    }
    needs(&DESIGNS, &["replay", &trace, "--design", "format=sv39"]);
    needs(&DESIGNS, &["replay", &trace, "--design", "rmap=pv"]);
    let (four, eight) = ("format=sv39", "format=sv48");
    needs(&DESIGNS, &["compare", &trace, "--a", four, "--b", eight]);
    needs(&PARQUET, &["export", &trace, "-f", "parquet", "-o", &table]);
    needs(&HISTORY, &["replay", &trace, "--keep", "--db", &database]);
    needs(
        &HISTORY,
        &["compare", &trace, "--against", "7", "--db", &database],
    );
}

#[test]
fn a_comparison_without_counts_of_atomics_says_what_would_count_them() {
    let scratch = Scratch::new("built-in-atomics");
    let output = vellum(&["compare", &trace(&scratch), "-n", "2"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.contains(FULL), is_absent(&ATOMICS), "{said}");
    let quiet = vellum(&["compare", &trace(&scratch), "-n", "2", "--quiet"]);
    assert_eq!(text(&quiet.stderr), "");
}
