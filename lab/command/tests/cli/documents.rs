//! The commands that a newcomer finds in the README, the tutorial and the questions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;
use vellum_lab::cli::Cli;

use crate::command::{Scratch, printed, text, vellum};

const PAGES: [&str; 3] = ["README.md", "docs/tutorial.md", "docs/questions.md"];

/// What the pages call a trace.
const TRACES: [&str; 3] = ["T", "mine.vellum", "build.vellum"];

/// What these commands need is not in a test, or they take minutes, or their answer is another on a
/// busy machine: other tests run them.
const NOT_RUN: [&str; 6] = [
    "--on sim",
    "--a linux",
    "--profile",
    "--against",
    "history compare",
    "history trend",
];

/// The lines of a page that call `vellum`, in their order.
fn lines(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page);
    let text = fs::read_to_string(path).expect(page);
    // Whether the block that the line is in is of a language.
    let mut block = None;
    let mut found = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(language), None) => block = Some(!language.is_empty()),
            (Some(_), Some(_)) => block = None,
            (None, Some(false)) if calls_vellum(line) => found.push(line.to_owned()),
            (None, _) => {}
        }
    }
    found
}

fn calls_vellum(line: &str) -> bool {
    let begins = ["vellum ", "sudo vellum ", "sudo \"$(command -v vellum)\" "];
    let line = line.trim_start_matches("perf script > script.txt && ");
    let own = line.contains("-p vellum-lab -- ");
    own || begins.iter().any(|begin| line.starts_with(begin))
}

/// The arguments that a shell gives `vellum` for a line.
fn words(line: &str) -> Vec<String> {
    let shell = r#"
        vellum() { printf '%s\0' vellum "$@"; }
        cargo() { while [ "$1" != -- ]; do shift; done; shift; vellum "$@"; }
        sudo() { "$@"; }
        perf() { :; }
        pidof() { echo 1; }
        less() { cat; }
    "#;
    let line = line.replace("> script.txt", "");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{shell}\n{line}"));
    let output = command.output().expect("a shell");
    let words = text(&output.stdout);
    words.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn every_command_of_the_first_pages_is_one() {
    let mut count = 0;
    for page in PAGES {
        for line in lines(page) {
            let parsed = Cli::command().try_get_matches_from(words(&line));
            if let Err(error) = parsed {
                panic!("{page}: `{line}`: {error}");
            }
            count += 1;
        }
    }
    assert!(count > 40, "{count} commands were found");
}

/// A program of that name in `folder`, which a shell finds first.
fn program(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
}

#[test]
fn the_commands_of_the_first_pages_that_need_a_trace_only_do_their_work() {
    let scratch = Scratch::new("documents");
    let folder = PathBuf::from(scratch.directory());
    let bin = folder.join("bin");
    fs::create_dir(&bin).expect("made");
    program(
        &bin,
        "vellum",
        &format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_vellum")),
    );
    program(&bin, "less", "exec cat");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/sdet-like.vellum");
    let first = scratch.path(TRACES[0]);
    let cut = [
        "cut",
        &shipped.to_string_lossy(),
        "--to",
        "0.05",
        "-o",
        &first,
    ];
    let output = vellum(&cut);
    assert!(output.status.success(), "{}", printed(&output));
    for name in &TRACES[1..] {
        fs::copy(&first, folder.join(name)).expect("copied");
    }
    let mut path = vec![bin];
    path.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    let path = std::env::join_paths(path).expect("a path");
    let mut count = 0;
    for page in PAGES {
        for line in lines(page) {
            let words = words(&line);
            let has_trace = words.iter().any(|word| TRACES.contains(&word.as_str()));
            let is_listed = words.iter().any(|word| word == "history");
            let is_out = NOT_RUN.iter().any(|part| line.contains(part)) || line.contains("sudo");
            if is_out || !(has_trace || is_listed) {
                continue;
            }
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(&line).current_dir(&folder);
            shell.env("PATH", &path).env("XDG_DATA_HOME", &folder);
            let output = shell.output().expect("a shell");
            assert!(
                output.status.success(),
                "{page}: `{line}`: {}",
                printed(&output)
            );
            count += 1;
        }
    }
    assert!(count > 20, "{count} commands were run");
}
