//! A small real workload is recorded and replayed, verified, on the core.
//!
//! Where perf events are not permitted the test says so and passes; with
//! `VELLUM_REQUIRE_PERF=1` in the environment that is a failure.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Scratch, printed, recording_permitted, text, vellum};

/// Tells this program, run again under the recorder, where to work.
const WORKPLACE: &str = "VELLUM_TEST_WORKPLACE";

const PAGE: usize = 4096;

/// Records this test program as the workload.
fn record(directory: &str, trace: &str) {
    let program = std::env::current_exe().expect("the test program has a path");
    let output = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["record", "--quiet", "-o", trace, "--"])
        .arg(program)
        .args(["--exact", "replay::the_workload_itself", "--test-threads=2"])
        .env(WORKPLACE, directory)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", printed(&output));
}

#[test]
fn a_recorded_workload_replays_verified_on_the_core() {
    if !recording_permitted() {
        return;
    }
    let scratch = Scratch::new("replay");
    let trace = &scratch.path("t.vellum");
    record(scratch.directory(), trace);
    let cases: [&[&str]; 4] = [
        &["--design", "rmap=chains"],
        &["--design", "rmap=partial"],
        &["--cpus", "3"],
        &["--cpus", "2", "--copies", "3"],
    ];
    for case in cases {
        let mut arguments = vec!["replay", trace, "--verify", "--audit", "--quiet"];
        arguments.extend(["--json", "-"]);
        arguments.extend(case);
        let output = vellum(&arguments);
        assert!(output.status.success(), "{case:?}: {}", printed(&output));
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("the report is JSON");
        check(&report, case);
    }
    let refused = vellum(&["replay", trace, "--design", "rmap=telepathy"]);
    assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
    assert!(
        printed(&refused).contains("chains"),
        "{}",
        printed(&refused)
    );
}

fn check(report: &serde_json::Value, case: &[&str]) {
    let figure = |list: &str, name: &str| {
        let figures = report[list].as_array().expect("a list of figures");
        let found = figures.iter().find(|figure| figure["name"] == name);
        found
            .and_then(|figure| figure["count"].as_u64())
            .unwrap_or(0)
    };
    // The forked child, the thread, the two programs started by vfork.
    assert!(figure("ops_by_class", "fork") >= 2, "{case:?}: {report:#}");
    assert!(figure("ops_by_class", "share") >= 3, "{case:?}: {report:#}");
    assert!(figure("ops_by_class", "exec") >= 3, "{case:?}: {report:#}");
    let verified = |name: &str| report["verified"][name].as_u64().unwrap_or(0);
    assert!(verified("written") > 500, "{case:?}: {report:#}");
    assert!(verified("read_back") >= verified("written"), "{case:?}");
    // Two pages written through the mapping and kept, at least.
    assert!(verified("stored") >= 2, "{case:?}: {report:#}");
    assert_eq!(report["unexplained"], 0, "{case:?}: {report:#}");
    assert_eq!(report["audited"], true, "{case:?}");
}

#[test]
fn what_is_not_a_trace_is_refused_as_input() {
    let output = vellum(&["replay", env!("CARGO_MANIFEST_PATH")]);
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_number_of_cpus_that_cannot_be_is_refused_as_an_argument() {
    let output = vellum(&["replay", "t.vellum", "--cpus", "0"]);
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    assert!(printed(&output).contains("--cpus"), "{}", printed(&output));
}

/// Does nothing unless the recorder runs it.
#[test]
fn the_workload_itself() {
    let Some(directory) = std::env::var_os(WORKPLACE) else {
        return;
    };
    let directory = PathBuf::from(directory);
    // Pages that a fork shares and both sides write.
    let mut shared = vec![1u8; 300 * PAGE];
    fork_and_write(&mut shared);
    // A thread with memory of its own.
    let thread = std::thread::spawn(|| {
        let mut memory = vec![0u8; 200 * PAGE];
        memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 2);
        memory.iter().map(|byte| u64::from(*byte)).sum::<u64>()
    });
    assert_eq!(thread.join().expect("the thread ends"), 400);
    // The standard library starts programs by vfork.
    for _ in 0..2 {
        assert!(
            Command::new("true")
                .status()
                .expect("`true` runs")
                .success()
        );
    }
    map_write_and_truncate(&directory.join("data"));
    shared.iter_mut().step_by(PAGE).for_each(|byte| *byte = 3);
}

/// Forks; the child writes every other page and ends.
fn fork_and_write(memory: &mut [u8]) {
    // SAFETY: the child only writes memory that exists and then ends with
    // `_exit`, which is allowed after a fork of a process with threads.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        memory
            .iter_mut()
            .step_by(2 * PAGE)
            .for_each(|byte| *byte = 4);
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(0) };
    }
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 5);
    let mut status = 0;
    // SAFETY: `status` outlives the call; `child` is a child of this process.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((ended, status), (child, 0));
}

/// Writes a file through a shared mapping, reads it through a private one, and
/// cuts it short while both exist.
fn map_write_and_truncate(path: &Path) {
    const PAGES: usize = 8;
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .expect("the file is new");
    file.set_len((PAGES * PAGE) as u64).expect("it grows");
    let map = |flags| {
        // SAFETY: a new mapping of an open file, placed by the kernel.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        address.cast::<u8>()
    };
    let shared = map(libc::MAP_SHARED);
    let private = map(libc::MAP_PRIVATE);
    for page in 0..PAGES {
        // SAFETY: the page lies in both mappings, which are `PAGES` long, and
        // the file still has that length.
        unsafe {
            shared.add(page * PAGE).write_volatile(6);
            let seen = private.add(page * PAGE).read_volatile();
            assert_eq!(seen, 6);
            if page % 2 == 0 {
                private.add(page * PAGE).write_volatile(7);
            }
        }
    }
    file.set_len(2 * PAGE as u64).expect("it shrinks");
    // SAFETY: the first page is inside the file and both mappings.
    unsafe { shared.write_volatile(8) };
    for mapping in [shared, private] {
        // SAFETY: nobody uses the mapping any more.
        assert_eq!(unsafe { libc::munmap(mapping.cast(), PAGES * PAGE) }, 0);
    }
}

/// A shipped trace.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/sdet-like.vellum");

fn report(arguments: &[&str]) -> serde_json::Value {
    let fixed = ["replay", SCRIPT, "--quiet", "--json", "-"];
    let output = vellum(&[&fixed, arguments].concat());
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        printed(&output)
    );
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

/// The figure called `name` in a list of a report.
fn figure(list: &serde_json::Value, name: &str, what: &str) -> u64 {
    let rows = list.as_array().expect("a list");
    let row = rows.iter().find(|row| row["name"] == name);
    row.map_or(0, |row| row[what].as_u64().expect("a number"))
}

#[test]
fn a_machine_that_is_too_small_says_where_and_what_to_give() {
    for command in ["replay", "compare", "bench"] {
        let mut arguments = vec![command];
        match command {
            "bench" => arguments.extend(["sdet", "--size", "most=1", "-n", "1", "--trace", SCRIPT]),
            "compare" => arguments.extend([SCRIPT, "-n", "1", "--no-atomics"]),
            _ => arguments.push(SCRIPT),
        }
        let too_small = vellum(&[&arguments[..], &["--quiet", "--ram", "6M"]].concat());
        let message = text(&too_small.stderr);
        assert_eq!(too_small.status.code(), Some(1), "{message}");
        assert!(too_small.stdout.is_empty(), "no results: {message}");
        for part in [
            "at event ",
            " (fault, ",
            " s after the beginning)",
            "has 6 MiB",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let (_, advice) = message.trim_end().rsplit_once(' ').expect("words");
        let again = vellum(&[&arguments[..], &["--quiet", "--ram", advice]].concat());
        assert!(again.status.success(), "{advice}: {}", printed(&again));
    }
}

#[test]
fn a_machine_that_nobody_chose_is_large_enough_for_all_copies() {
    for (copies, cpus) in [("1", "1"), ("12", "2")] {
        let report = report(&["--copies", copies, "--cpus", cpus]);
        let ram = report["ram_bytes"].as_u64().expect("a number");
        let peak = figure(&report["memory"], "all frames", "peak_bytes");
        assert!(peak > 0 && peak < ram, "{peak} of {ram}");
        assert!(ram < (256 << 20) + 40 * peak, "{ram} for {peak}");
        assert_eq!(
            figure(&report["divergences"], "failed: out of memory", "count"),
            0
        );
    }
}

#[test]
fn idle_cpus_trim_and_zero_where_the_recording_paused_and_only_if_asked() {
    let design = ["--design", "ptepage=zeroaware", "--verify", "--audit"];
    let idle = report(&[&design[..], &["--idle", "500"]].concat());
    let times = figure(&idle["ops_by_class"], "idle", "count");
    assert!(times > 20, "{times}");
    let zeroed = |report: &serde_json::Value| {
        figure(&report["counters"], "bytes zeroed in idle time", "count")
    };
    assert!(zeroed(&idle) > 0);
    let again = report(&[&design[..], &["--idle", "500"]].concat());
    assert_eq!(zeroed(&idle), zeroed(&again), "the same each time");
    let rarely = report(&[&design[..], &["--idle", "5000"]].concat());
    let fewer = figure(&rarely["ops_by_class"], "idle", "count");
    assert!(fewer > 0 && fewer < times, "{fewer} of {times}");
    let never = report(&design);
    assert_eq!(figure(&never["ops_by_class"], "idle", "count"), 0);
    assert_eq!(zeroed(&never), 0);
    let lanes = report(&["--idle", "500", "--cpus", "3", "--copies", "2", "--verify"]);
    assert!(figure(&lanes["ops_by_class"], "idle", "count") > times);
}

#[test]
fn a_group_of_all_processes_keeps_within_its_limit() {
    let design = ["--design", "reclaim=on,groups=on", "--verify", "--audit"];
    let of = |report: &serde_json::Value, what: &str| {
        figure(&report["counters"], &format!("group: {what}"), "count")
    };
    let limited = report(&[&design[..], &["--group-limit", "4M"]].concat());
    assert_eq!(of(&limited, "pages it may have"), 1024);
    let peak = of(&limited, "pages at the peak");
    assert!((900..=1024).contains(&peak), "{peak}");
    assert!(of(&limited, "pages reclaimed") > 500);
    assert!(of(&limited, "limit reached") > 10);
    let reclaimed = |report| figure(report, "reclaim: pages reclaimed", "count");
    assert_eq!(
        reclaimed(&limited["counters"]),
        of(&limited, "pages reclaimed"),
        "nothing else leaves"
    );
    let roomy = report(&[&design[..], &["--group-limit", "1G"]].concat());
    assert!(of(&roomy, "pages at the peak") > 1024);
    assert_eq!(of(&roomy, "limit reached"), 0);
    assert_eq!(reclaimed(&roomy["counters"]), 0);
    let without = report(&design);
    assert_eq!(of(&without, "pages at the peak"), 0);
}

#[test]
fn a_group_that_cannot_be_is_refused() {
    let grouped = ["--design", "reclaim=on,groups=on", "--group-limit"];
    for (arguments, code, why) in [
        (&["--group-limit", "4M"][..], 2, "reclaim=on,groups=on"),
        (
            &["--design", "reclaim=on", "--group-limit", "4M"],
            2,
            "groups=on",
        ),
        (
            &[grouped[0], grouped[1], grouped[2], "some"],
            2,
            "--group-limit",
        ),
        (&["--group-limit", "4M", "--on", "sim"], 2, "leave it out"),
        (&["--group-limit", "4M", "--on", "linux"], 2, "leave it out"),
    ] {
        let output = vellum(&[&["replay", SCRIPT, "-q"], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
}

#[test]
fn what_ran_out_is_named_with_its_option_be_it_a_group_or_the_machine() {
    let refused = |more: &[&str], code| {
        let design = ["replay", SCRIPT, "-q", "--design", "reclaim=on,groups=on"];
        let output = vellum(&[&design[..], more].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{more:?}: {error}");
        error
    };
    let error = refused(&["--group-limit", "4K"], 1);
    for said in [
        "--group-limit: the group ran out of memory at event ",
        " s after the beginning)",
        ": it may have 4 KiB",
        "--group-limit 256K",
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
    assert!(!error.contains("--ram"), "{error}");
    let machine = ["--ram", "512K", "--group-limit"];
    for limit in ["512K", "1G"] {
        let error = refused(&[&machine[..], &[limit]].concat(), 1);
        assert!(
            error.contains("--ram ") && !error.contains("--group-limit"),
            "{error}"
        );
    }
    let verified = [
        "--on",
        "sim",
        "--verify",
        "--cpus",
        "2",
        "--group-limit",
        "4K",
    ];
    let error = refused(&verified, 3);
    assert!(error.contains("raise --group-limit"), "{error}");
}

#[test]
fn a_directory_says_which_recorded_files_were_on_a_tmpfs() {
    let replay = |more: &[&str]| {
        let fixed = ["replay", SCRIPT, "--quiet", "--verify", "--json", "-"];
        let output = vellum(&[&fixed[..], more].concat());
        assert!(output.status.success(), "{more:?}: {}", printed(&output));
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("the report is JSON");
        let counters = report["counters"].as_array().expect("counters");
        let read = counters.iter().find(|count| count["name"] == "pages read");
        read.and_then(|count| count["count"].as_u64())
            .expect("counted")
    };
    assert!(replay(&[]) > 0);
    // All that it mapped, and its files have no store to be read from.
    assert_eq!(replay(&["--tmpfs", "/usr", "--design", "huge=always"]), 0);
    for (arguments, why) in [
        (
            &["replay", SCRIPT, "--tmpfs", "/tmp/nowhere"][..],
            "was mapped",
        ),
        (
            &["compare", SCRIPT, "--tmpfs", "/tmp/nowhere"],
            "was mapped",
        ),
        (
            &["replay", SCRIPT, "--tmpfs", "/usr", "--on", "sim"],
            "--tmpfs",
        ),
        (
            &["replay", SCRIPT, "--tmpfs", "/usr", "--on", "linux"],
            "--tmpfs",
        ),
        (
            &["compare", SCRIPT, "--tmpfs", "/usr", "--a", "linux"],
            "--tmpfs",
        ),
    ] {
        let output = vellum(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(printed(&output).contains(why), "{}", printed(&output));
    }
}
