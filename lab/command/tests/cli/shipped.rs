//! The shipped traces are what `traces/README.md` says, and the commands that
//! read traces agree with one another about them.

use std::path::{Path, PathBuf};
use std::process::Command;

use vellum_lab::bench::host::sdet::SHIPPED;
use vellum_trace::{Header, TraceReader};

/// Length in bytes that a shipped trace must stay below.
const MOST_BYTES: u64 = 12_000_000;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../traces")
        .join(name)
}

fn checked(name: &str) -> Header {
    let trace = TraceReader::open(shipped(name)).unwrap();
    let header = trace.header().clone();
    let bytes = trace.file_length();
    assert!(bytes < MOST_BYTES, "{name}: {bytes} bytes");
    let per_event = bytes as f64 / header.events as f64;
    assert!(per_event <= 1.5, "{name}: {per_event} bytes an event");
    assert_eq!(header.lost, 0, "{name}");
    assert!(header.environment.thp_off, "{name}");
    assert!(header.cpu_times, "{name}: a replay has no user time");
    header
}

#[test]
fn the_kernel_build_is_whole_and_small() {
    let header = checked("kernel-build.vellum");
    assert_eq!(header.environment.command, ["make", "-j4"]);
    assert!(header.environment.cuts.is_empty());
    assert!(header.events > 9_000_000 && header.tasks.len() > 10_000);
    assert!(header.strings.iter().any(|name| name == "cc1"));
}

#[test]
fn the_build_on_a_tmpfs_is_whole_and_shows_what_it_writes_there() {
    let header = checked("kernel-build-tmpfs.vellum");
    let command = &header.environment.command;
    assert_eq!((command[0].as_str(), command[2].as_str()), ("make", "-j4"));
    assert!(command[1].starts_with("O="), "{command:?}");
    let followed = |note: &&String| note.contains("were followed from the descriptors");
    assert!(header.invisible.iter().any(|note| followed(&note)));
    assert!(header.events > 9_000_000 && header.tasks.len() > 10_000);
}

#[test]
fn the_snapshot_server_is_whole_and_small() {
    let header = checked("snapshot-server.vellum");
    assert!(header.events > 1_000_000 && header.tasks.len() > 8_000);
}

/// Steps run these, beside the shell that runs the script.
const SCRIPT_PROGRAMS: [&str; 8] = ["cc1", "make", "ed", "spell", "cpio", "troff", "find", "ps"];

#[test]
fn the_scripts_are_whole_small_and_run_every_kind_of_program() {
    SHIPPED.iter().for_each(|name| check_script(name));
}

fn check_script(name: &str) {
    let header = checked(name);
    assert_eq!(header.environment.command, ["sh", "-e", "script"]);
    assert!(header.environment.cuts.is_empty());
    assert!(header.events > 50_000 && header.tasks.len() > 250);
    let roots = header.tasks.iter().filter(|task| task.parent.is_none());
    assert_eq!(roots.count(), 1, "one script, nothing around it");
    for program in SCRIPT_PROGRAMS {
        assert!(
            header.strings.iter().any(|name| name == program),
            "{program}"
        );
    }
}

fn vellum(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn info_and_dump_agree_about_the_beginning_of_a_trace() {
    let id = std::process::id();
    let part = std::env::temp_dir().join(format!("vellum-shipped-{id}.vellum"));
    let part = part.to_str().unwrap();
    let whole = shipped("snapshot-server.vellum");
    let whole = whole.to_str().unwrap();
    vellum(&[
        "cut", whole, "-o", part, "--to", "0.2", "--level", "3", "--quiet",
    ]);
    let info: serde_json::Value =
        serde_json::from_str(&vellum(&["info", "--json", "--quiet", part])).unwrap();
    let lines = vellum(&["dump", part]);
    assert_eq!(info["total_events"], lines.lines().count());
    assert_eq!(info["unmapped_faults"], 0);
    for row in info["events"].as_array().unwrap() {
        let kind = row["kind"].as_str().unwrap();
        let listed = vellum(&["dump", part, "--kind", kind]);
        assert_eq!(row["count"], listed.lines().count(), "{kind}");
    }
    // The cut's beginning is the trace's: the same lines.
    let same = vellum(&["dump", whole, "--to", "0.2"]);
    assert_eq!(same.lines().count(), lines.lines().count());
    let text = vellum(&["info", "--details", "--quiet", part]);
    for heading in [
        "tasks by origin",
        "events by kind",
        "faults",
        "what was invisible",
    ] {
        assert!(text.contains(heading), "{heading} is missing in:\n{text}");
    }
    std::fs::remove_file(part).unwrap();
}
