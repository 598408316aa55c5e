//! `vellum bench NAME --on linux` as a user meets it, at the smallest scale.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::command::{text, vellum};
use serde_json::Value;
use vellum_lab::bench::host::sdet;
use vellum_lab::host::scratch::Scratch;
use vellum_lab::host::tools;

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    command.args(arguments);
    command
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Whether every program that the scripts run is there; says so if not.
fn scripts_can_run() -> bool {
    match tools::require(sdet::script::TOOLS) {
        Ok(()) => true,
        Err(missing) => {
            eprintln!("skipped: {missing}");
            false
        }
    }
}

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory).expect("readable").count()
}

#[test]
fn forkfault_times_each_part_of_the_program_and_states_the_trap() {
    let output = vellum(&[
        "bench",
        "forkfault",
        "--on",
        "linux",
        "--size",
        "forks=6",
        "--size",
        "faults=4",
        "--variant",
        "read",
        "--variant",
        "write",
        "--variant",
        "fork-exit",
        "--variant",
        "fork-exec",
        "-n",
        "2",
        "--quiet",
        "--json",
        "-",
    ]);
    let report = json(&output);
    assert_eq!(report["on"], "linux");
    let arms = report["arms"].as_array().expect("a list");
    assert_eq!(arms.len(), 2, "the kernel and the control");
    let runs = report["runs"].as_array().expect("a list");
    let expected = [
        vec!["fault", "fork", "exit", "fault, first child of a pass"],
        vec!["fault", "fork", "exit", "fault, first child of a pass"],
        vec![
            "fork and exit",
            "fork",
            "exit",
            "fork and exit, first child of a pass",
        ],
        vec![
            "fork and exec",
            "fork",
            "fork and exec, first child of a pass",
        ],
    ];
    assert_eq!(runs.len(), expected.len());
    for (run, expected) in runs.iter().zip(expected) {
        let figures = run["figures"].as_array().expect("a list");
        let names: Vec<&str> = figures.iter().filter_map(|f| f["name"].as_str()).collect();
        assert_eq!(names, expected);
        for figure in figures {
            let value = figure["arms"][0]["value"].as_f64();
            assert!(value.is_some_and(|ns| ns > 0.0), "{figure}");
        }
        let facts = run["facts"].to_string();
        assert!(facts.contains("getppid"), "the cost of a trap: {facts}");
    }
    assert_eq!(
        runs[0]["figures"][0]["units"].as_f64(),
        Some(5.0 * 4.0),
        "the first child is apart"
    );
}

#[test]
fn variants_that_a_host_has_not_are_refused() {
    let output = vellum(&[
        "bench",
        "forkfault",
        "--on",
        "linux",
        "--variant",
        "migrate",
    ]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(
        message.contains("fork-exec"),
        "names what there is: {message}"
    );
}

#[test]
fn kernbench_refuses_what_is_no_configured_kernel_tree() {
    let none = vellum(&["bench", "kernbench", "--on", "linux"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(
        text(&none.stderr).contains("--tree"),
        "{}",
        text(&none.stderr)
    );
    let scratch = Scratch::new(&std::env::temp_dir(), "cli-tree").expect("made");
    let tree = scratch.path().display().to_string();
    let refused = |expected: &str| {
        let output = vellum(&["bench", "kernbench", "--on", "linux", "--tree", &tree]);
        // A machine without compilers is refused for that first.
        let message = text(&output.stderr);
        let missing = message.contains("apt-get install");
        assert!(missing || message.contains(expected), "{message}");
        assert!(output.stdout.is_empty());
    };
    refused("not a kernel tree");
    let makefile = "# KERNELRELEASE\nall:\n";
    std::fs::write(scratch.path().join("Makefile"), makefile).expect("written");
    refused("not configured");
}

/// A tree that looks like a kernel's and builds in no time.
pub fn toy_tree(scratch: &Scratch, recipe: &str) -> String {
    let path = scratch.path();
    let makefile = format!(
        "# KERNELRELEASE\nvmlinux:\n\t{recipe}\n\techo built > vmlinux\nclean:\n\trm -f vmlinux\n"
    );
    std::fs::write(path.join("Makefile"), makefile).expect("written");
    std::fs::write(path.join(".config"), "").expect("written");
    path.display().to_string()
}

#[test]
fn kernbench_prints_the_block_and_leaves_the_tree_clean() {
    let scratch = Scratch::new(&std::env::temp_dir(), "cli-build").expect("made");
    let tree = toy_tree(&scratch, "true");
    let arguments = ["bench", "kernbench", "--on", "linux", "--tree", &tree];
    let mut arguments = arguments.to_vec();
    arguments.extend(["--size", "heavy=0", "-n", "2", "--quiet"]);
    let output = vellum(&arguments);
    if text(&output.stderr).contains("apt-get install") {
        eprintln!("skipped: {}", text(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let header = "                              Elapsed      System        User         CPU\n";
    let light = format!("Kernbench: (make -j N vmlinux, where N = 2 x num_cpus)\n{header}");
    let unlimited = format!("Kernbench: (make -j vmlinux, maximal tasks)\n{header}");
    assert!(printed.contains(&light), "{printed}");
    assert!(printed.contains(&unlimited), "{printed}");
    assert!(!printed.contains("16 x num_cpus"), "left out: {printed}");
    assert!(
        !scratch.path().join("vmlinux").exists(),
        "as after make clean"
    );
}

/// The same, built where `O` says, when it has been configured.
fn toy_tree_apart(scratch: &Scratch, recipe: &str) -> String {
    let path = scratch.path();
    let makefile = format!(
        "# KERNELRELEASE\nall:\n\ttest -e $(O)/.config\n\t{recipe}\n\techo built > \
         $(O)/vmlinux\nclean:\n\trm -f $(O)/vmlinux\ntinyconfig:\n\techo > \
         $(O)/.config\nolddefconfig:\n\tgrep -q MINE $(O)/.config\n"
    );
    std::fs::write(path.join("Makefile"), makefile).expect("written");
    path.display().to_string()
}

#[test]
fn buildkernel_builds_on_a_tmpfs_and_leaves_the_tree_as_it_was() {
    let scratch = Scratch::new(&std::env::temp_dir(), "cli-buildkernel").expect("made");
    let tree = toy_tree_apart(&scratch, "case $(O) in $(CURDIR)*) exit 1;; esac");
    let common = [
        "bench",
        "buildkernel",
        "--on",
        "linux",
        "--tree",
        &tree,
        "--quiet",
    ];
    let build = |more: &[&str]| vellum(&[&common[..], more].concat());
    let output = build(&["--config", "tinyconfig", "--size", "jobs=3"]);
    let message = text(&output.stderr);
    if message.contains("apt-get install") || message.contains("may not mount") {
        eprintln!("skipped: {message}");
        return;
    }
    assert!(output.status.success(), "{message}");
    let printed = text(&output.stdout);
    let lines = printed.lines().filter(|line| line.ends_with(" sys"));
    assert_eq!(lines.count(), 6, "three runs of each arm: {printed}");
    for part in [
        "make -s -j 3\n",
        "\nreal\nx ",
        " again\n",
        "configured by tinyconfig",
    ] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    assert_eq!(entries(scratch.path()), 1, "the Makefile alone");
    let mine = scratch.path().join("mine.config");
    std::fs::write(&mine, "MINE\n").expect("written");
    let file = mine.display().to_string();
    let output = build(&["-n", "1", "--config", &file]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = build(&["--config", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    std::fs::write(scratch.path().join(".config"), "").expect("written");
    let output = build(&[]);
    assert!(text(&output.stderr).contains("make mrproper"));
    let output = vellum(&[
        "bench",
        "kernbench",
        "--on",
        "linux",
        "--tree",
        &tree,
        "--config",
        "x",
    ]);
    assert!(text(&output.stderr).contains("--config is for buildkernel"));
}

#[test]
fn ctrl_c_ends_a_build_on_a_tmpfs_with_all_its_processes() {
    let scratch = Scratch::new(&std::env::temp_dir(), "cli-stop-tmpfs").expect("made");
    let note = scratch.path().join("pid").display().to_string();
    let tree = toy_tree_apart(&scratch, &format!("echo $$$$ > {note}; sleep 1000"));
    let arguments = ["bench", "buildkernel", "--on", "linux", "--tree", &tree];
    let arguments = [&arguments[..], &["--config", "tinyconfig"]].concat();
    let missing = ["bench", "buildkernel", "--on", "linux", "--tree", "/"];
    let why = text(&vellum(&missing).stderr);
    if why.contains("apt-get install") || why.contains("may not mount") {
        eprintln!("skipped: {why}");
        return;
    }
    let sleeping = std::cell::Cell::new(0);
    let code = interrupt_when(command(&arguments), || {
        let pid = std::fs::read_to_string(&note).unwrap_or_default();
        sleeping.set(pid.trim().parse::<libc::pid_t>().unwrap_or(0));
        sleeping.get() != 0
    });
    assert_eq!(code, Some(130));
    // SAFETY: signal 0 only asks whether the process is there.
    let gone = unsafe { libc::kill(sleeping.get(), 0) } < 0;
    assert!(gone, "the build's shell {} still runs", sleeping.get());
}

#[test]
fn a_failing_build_is_reported_with_its_last_words() {
    let scratch = Scratch::new(&std::env::temp_dir(), "cli-fail").expect("made");
    let tree = toy_tree(&scratch, "echo no such header >&2; exit 1");
    let output = vellum(&[
        "bench",
        "kernbench",
        "--on",
        "linux",
        "--tree",
        &tree,
        "--quiet",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    if !message.contains("apt-get install") {
        assert!(message.contains("no such header"), "{message}");
    }
}

/// Sends SIGINT once `ready` holds, and returns the exit code.
pub fn interrupt_when(mut command: Command, ready: impl Fn() -> bool) -> Option<i32> {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program can be started");
    let patience = Instant::now() + Duration::from_secs(300);
    while !ready() && Instant::now() < patience {
        assert!(child.try_wait().expect("it can be waited for").is_none());
        std::thread::yield_now();
    }
    let pid = child.id() as libc::pid_t;
    // SAFETY: our own child, which has not been waited for.
    unsafe { libc::kill(pid, libc::SIGINT) };
    child.wait().expect("it ends").code()
}

#[test]
fn ctrl_c_ends_a_build_with_all_its_processes_and_cleans_the_tree() {
    let scratch = Scratch::new(&std::env::temp_dir(), "cli-stop").expect("made");
    let tree = toy_tree(&scratch, "echo $$$$ > vmlinux; sleep 1000");
    if text(&vellum(&["bench", "kernbench", "--on", "linux", "--tree", "/"]).stderr)
        .contains("apt-get install")
    {
        eprintln!("skipped: what kernels are built with is not installed");
        return;
    }
    let arguments = ["bench", "kernbench", "--on", "linux", "--tree", &tree];
    let shell = scratch.path().join("vmlinux");
    let pid = || {
        let pid = std::fs::read_to_string(&shell).unwrap_or_default();
        pid.trim().parse::<libc::pid_t>().ok()
    };
    let sleeping = std::cell::Cell::new(0);
    let code = interrupt_when(command(&arguments), || {
        sleeping.set(pid().unwrap_or(0));
        sleeping.get() != 0
    });
    assert_eq!(code, Some(130));
    assert!(!shell.exists(), "as after make clean");
    // SAFETY: signal 0 only asks whether the process is there.
    let gone = unsafe { libc::kill(sleeping.get(), 0) } < 0;
    assert!(gone, "the build's shell {} still runs", sleeping.get());
}

#[test]
fn scripts_are_timed_and_their_directories_removed() {
    if !scripts_can_run() {
        return;
    }
    let scratch = Scratch::new(&std::env::temp_dir(), "cli-sdet").expect("made");
    let arguments = [
        "bench", "sdet", "--on", "linux", "--size", "most=1", "-n", "1",
    ];
    let mut run = command(&arguments);
    let output = run.arg("--quiet").env("TMPDIR", scratch.path()).output();
    let output = output.expect("the program can be started");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let block =
        "SDET-like 1  (see disclaimer)\n                           Throughput    Std. Dev\n";
    assert!(printed.contains(block), "{printed}");
    assert!(printed.contains("       100.0%"), "{printed}");
    assert!(printed.contains("sdet-like and not SDET"), "{printed}");
    assert_eq!(entries(scratch.path()), 0);
}

#[test]
fn ctrl_c_ends_scripts_and_removes_their_directories() {
    if !scripts_can_run() {
        return;
    }
    let scratch = Scratch::new(&std::env::temp_dir(), "cli-sdet-stop").expect("made");
    let mut run = command(&[
        "bench", "sdet", "--on", "linux", "--size", "most=4", "-n", "50",
    ]);
    run.env("TMPDIR", scratch.path());
    let code = interrupt_when(run, || entries(scratch.path()) > 0);
    assert_eq!(code, Some(130));
    assert_eq!(entries(scratch.path()), 0);
}
