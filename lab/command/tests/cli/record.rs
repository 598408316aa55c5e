//! `vellum record` as a user meets it.

use std::io::{BufRead, BufReader};
use std::process::Command;

use crate::command::{Scratch, printed, recording_permitted, vellum};
use vellum_trace::{EventKind, TraceReader};

/// Unmounts tracefs in a mount namespace of its own, and notes what a command sees
/// of the mounts and of its open files, unrecorded and recorded.
const WITHOUT_TRACEFS: &str = "umount -a -t tracefs; ! grep ' tracefs ' /proc/self/mounts && \
    look='cat /proc/self/mounts; ls /proc/self/fd' && sh -c \"$look\" > before && \
    exec \"$0\" record -o t.vellum -- sh -c \"$look\" > during";

#[test]
fn root_records_without_a_mounted_tracefs_and_nobody_sees_a_mount() {
    // SAFETY: takes nothing and cannot fail.
    if !recording_permitted() || unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: this needs the right to record, and root");
        return;
    }
    let scratch = Scratch::new("record-unmounted");
    let mut unshare = Command::new("unshare");
    unshare.args([
        "-m",
        "sh",
        "-c",
        WITHOUT_TRACEFS,
        env!("CARGO_BIN_EXE_vellum"),
    ]);
    let output = unshare.current_dir(scratch.directory()).output().unwrap();
    let messages = printed(&output);
    assert!(output.status.success(), "{messages}");
    assert!(messages.contains("for this process alone"), "{messages}");
    let file = |name| std::fs::read_to_string(scratch.path(name)).unwrap();
    assert!(file("before").contains("/proc"));
    assert_eq!(file("before"), file("during"));
    let trace = TraceReader::open(scratch.path("t.vellum")).unwrap();
    let kinds = trace.events().map(|event| event.unwrap().kind);
    let executed = kinds.filter(|kind| matches!(kind, EventKind::Exec { .. }));
    assert_eq!(executed.count(), 3, "sh, cat, ls");
}

#[test]
fn a_signal_that_ends_programs_leaves_a_trace() {
    if !recording_permitted() {
        return;
    }
    for (signal, code) in [("HUP", 129), ("TERM", 143), ("QUIT", 131), ("PIPE", 141)] {
        let scratch = Scratch::new(&format!("record-{signal}"));
        let (started, trace) = (scratch.path("started"), scratch.path("t.vellum"));
        let script = format!("echo > {started}; exec sleep 600");
        // A program that was told to ignore a signal, as by nohup, goes on doing so.
        let mut recorder = Command::new("env")
            .args(["--default-signal", env!("CARGO_BIN_EXE_vellum")])
            .args(["record", "-o", &trace, "--", "sh", "-c", &script])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while !std::path::Path::new(&started).exists() {
            assert_eq!(recorder.try_wait().unwrap(), None, "it ended at once");
            std::thread::yield_now();
        }
        let kill = format!("kill -{signal} {}", recorder.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
        assert_eq!(recorder.wait().unwrap().code(), Some(code), "{signal}");
        let trace = TraceReader::open(&trace).unwrap();
        assert!(trace.header().events > 0, "{signal}");
    }
}

/// Records into a file system that is too small while the command asks for much.
const FULL_DISK: &str = "mkdir small && mount -t tmpfs -o size=64k tmpfs small && \
    exec \"$0\" record -o small/x.vellum -- sh -c \
    'i=0; while test $i -lt 300; do /bin/true; i=$((i + 1)); done; sleep 1; /bin/true; echo finished'";

#[test]
fn a_full_disk_ends_the_recording_but_not_the_command_and_leaves_what_was_recorded() {
    // SAFETY: takes nothing and cannot fail.
    if !recording_permitted() || unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: this needs the right to record, and root");
        return;
    }
    let scratch = Scratch::new("record-full");
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", FULL_DISK, env!("CARGO_BIN_EXE_vellum")]);
    let output = unshare.current_dir(scratch.directory()).output().unwrap();
    let messages = printed(&output);
    assert_eq!(output.status.code(), Some(1), "{messages}");
    assert!(messages.contains("finished"), "{messages}");
    assert!(
        messages.contains("the command went on to its end"),
        "{messages}"
    );
    let trace = TraceReader::open(scratch.path("x.vellum")).unwrap();
    let notes = trace.header().invisible.join("\n");
    assert!(notes.contains("could not be kept"), "{notes}");
    for event in trace.events() {
        event.unwrap();
    }
}

/// A shell that forks and executes until it is killed, which it is when this is dropped.
struct Shell(std::process::Child);

impl Shell {
    fn new() -> Shell {
        let script = "while :; do (/bin/true; :); done";
        Shell(Command::new("sh").args(["-c", script]).spawn().unwrap())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It cannot have ended otherwise.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ctrl_c_ends_the_recording_of_a_running_process_and_what_it_leaves_replays() {
    if !recording_permitted() {
        return;
    }
    let scratch = Scratch::new("record-running");
    let trace = scratch.path("t.vellum");
    let mut shell = Shell::new();
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["record", "-o", &trace, "--pid", &shell.0.id().to_string()])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let messages = BufReader::new(recorder.stderr.take().unwrap());
    let mut messages = messages.lines().map(Result::unwrap);
    let first = messages.next().unwrap();
    assert!(first.contains("Ctrl-C ends the recording"), "{first}");
    let kill = format!("kill -INT {}", recorder.id());
    let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
    assert!(sent.success());
    let rest: Vec<String> = messages.collect();
    let rest = rest.join("\n");
    assert!(recorder.wait().unwrap().success(), "{rest}");
    for expected in ["begins with", "huge pages were left as they are", "goes on"] {
        assert!(rest.contains(expected), "{expected}: {rest}");
    }
    assert_eq!(shell.0.try_wait().unwrap(), None, "the shell goes on");

    let info = printed(&vellum(&["info", &trace]));
    assert!(info.contains("make the state that was there"), "{info}");
    assert!(info.contains("as the system had them"), "{info}");
    let replay = vellum(&["replay", &trace, "--verify", "--quiet"]);
    assert!(replay.status.success(), "{}", printed(&replay));
}

#[test]
fn processes_that_cannot_be_recorded_are_refused() {
    if !recording_permitted() {
        return;
    }
    let scratch = Scratch::new("record-refused");
    let trace = scratch.path("t.vellum");
    for (args, expected) in [
        (vec!["--pid", "4294967295"], "there is no process"),
        (vec!["--cgroup", "/nonexistent"], "no control group"),
        (vec!["--pid", "1", "--cgroup", "/"], "cannot be used with"),
        (vec!["--pid", "0"], "not in"),
        (vec!["--duration", "30", "true"], "30s"),
    ] {
        let output = vellum(&[&["record", "-o", &trace], &args[..]].concat());
        assert!(!output.status.success());
        let messages = printed(&output);
        assert!(messages.contains(expected), "{args:?}: {messages}");
    }
    assert!(!std::path::Path::new(&trace).exists());
}
