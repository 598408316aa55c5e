//! Recording a small real workload, and what the trace says of it.
//!
//! Where perf events are not permitted the tests say so and pass; with
//! `VELLUM_REQUIRE_PERF=1` in the environment that is a failure.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use vellum_record::{Options, Recording, Target, check_permission, record};
use vellum_terminal::progress::Interrupt;
use vellum_testing::{Scratch, recording_permitted};
use vellum_trace::model::Model;
use vellum_trace::{Event, EventKind, Header, TraceReader};

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;

fn record_to(output: &str, command: &[&str]) -> Recording {
    let command = Target::Command(command.iter().map(Into::into).collect());
    let options = Options::new(command, output.into());
    record(&options, &Interrupt::manual()).unwrap()
}

fn read(path: &str) -> (Header, Vec<Event>) {
    let trace = TraceReader::open(path).unwrap();
    let events = trace.events().collect::<Result<_, _>>().unwrap();
    (trace.header().clone(), events)
}

/// Writes a file of four pages, reads it back, cuts it to one page, removes it;
/// the subshell is a fork, the commands in it are executed.
const SCRIPT: &str = "cd \"$1\" && (head -c 16384 /dev/zero > data; cat data > /dev/null; \
    truncate -s 4096 data; rm data; exit 3); test $? = 3";

#[test]
fn a_shell_script_leaves_its_forks_files_and_maps_in_the_trace() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-script");
    let output = scratch.path("t.vellum");
    let directory = scratch.directory();
    let recording = record_to(&output, &["sh", "-c", SCRIPT, "sh", directory]);
    assert_eq!((recording.exit_code, recording.lost), (0, 0));
    let (header, events) = read(&output);
    assert_eq!(header.environment.command[..3], ["sh", "-c", SCRIPT]);
    assert!(header.environment.thp_off);
    let executed: BTreeSet<&str> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Exec { name } => Some(header.strings[name as usize].as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        executed,
        BTreeSet::from(["cat", "head", "rm", "sh", "truncate"])
    );
    let count = |wanted: &dyn Fn(&EventKind) -> bool| {
        events.iter().filter(|event| wanted(&event.kind)).count()
    };
    let forks = |kind: &EventKind| matches!(kind, EventKind::Create { clone_flags, .. } if clone_flags & CLONE_VM == 0);
    assert!(count(&forks) >= 1, "the subshell is a fork");
    let exits = count(&|kind| matches!(kind, EventKind::Exit));
    assert_eq!(exits, header.tasks.len(), "every task ends");
    let waits = count(&|kind| matches!(kind, EventKind::Wait { .. }));
    assert_eq!(waits, header.tasks.len() - 1, "every child is waited for");
    assert!(
        header
            .files
            .iter()
            .any(|file| file.name.contains("libc.so"))
    );
    let stacks = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::Map {
                grows_down: true,
                ..
            }
        )
    };
    assert_eq!(count(&stacks), 5, "each program gets a stack");
}

#[test]
fn every_fault_of_a_recording_lies_in_a_mapping_of_its_space() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-maps");
    let output = scratch.path("t.vellum");
    let directory = scratch.directory();
    record_to(&output, &["sh", "-c", SCRIPT, "sh", directory]);
    let (_, events) = read(&output);
    let mut model = Model::default();
    events.iter().for_each(|event| model.take(event));
    assert_eq!(model.totals().unmapped_faults, 0);
    assert!(model.totals().anonymous > 100);
    assert_eq!(model.spaces().count(), 0, "every space ends");
}

#[test]
fn written_and_truncated_files_keep_their_identity() {
    if !recording_permitted(check_permission()) {
        return;
    }
    // A temporary directory on tmpfs shows no writes; the build directory is
    // where a disk is most likely.
    let output = Scratch::new("record-files");
    let disk = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("w{}", std::process::id()));
    std::fs::create_dir_all(&disk).unwrap();
    let kind = Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(&disk)
        .output();
    let kind = String::from_utf8(kind.unwrap().stdout).unwrap();
    if kind.trim() == "tmpfs" || kind.contains("overlay") {
        eprintln!("SKIPPED: {} is on {}", disk.display(), kind.trim());
        return;
    }
    let trace = output.path("t.vellum");
    record_to(&trace, &["sh", "-c", SCRIPT, "sh", disk.to_str().unwrap()]);
    std::fs::remove_dir_all(&disk).unwrap();
    let (header, events) = read(&trace);
    let written = events.iter().find_map(|event| match event.kind {
        EventKind::FileWrite { file, .. } => Some(file),
        _ => None,
    });
    let data = written.expect("head writes the file");
    assert_eq!(
        header.files[data.0 as usize].size, 0,
        "it is the script's own"
    );
    let mut story = Vec::new();
    for event in &events {
        match event.kind {
            EventKind::FileWrite {
                file,
                offset,
                length,
            } if file == data => {
                story.push(("written to", offset + length));
            }
            EventKind::FileRead {
                file,
                offset,
                length,
            } if file == data => {
                story.push(("read to", offset + length));
            }
            EventKind::Truncate { file, size } if file == data => story.push(("cut to", size)),
            _ => {}
        }
    }
    story.dedup_by_key(|(what, _)| *what);
    let order: Vec<&str> = story.iter().map(|(what, _)| *what).collect();
    assert_eq!(order, ["written to", "read to", "cut to"], "{story:?}");
    let furthest = |wanted| {
        story
            .iter()
            .filter(|(what, _)| *what == wanted)
            .map(|(_, at)| *at)
            .max()
    };
    assert_eq!(furthest("read to"), Some(16384), "{story:?}");
}

#[test]
fn vforks_and_threads_are_told_from_forks() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-threads");
    let output = scratch.path("t.vellum");
    // This test program itself starts a thread for every test, and `Command`
    // starts programs by vfork.
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    record_to(
        &output,
        &[
            own,
            "--ignored",
            "--exact",
            "helper_that_starts_a_thread_and_a_program",
        ],
    );
    let (header, events) = read(&output);
    let mut flags = Vec::new();
    for event in &events {
        if let EventKind::Create { child, clone_flags } = event.kind {
            let task = header.tasks[child.0 as usize];
            let parent = header.tasks[event.task.0 as usize];
            let thread = clone_flags & 0x1_0000 != 0;
            assert_eq!(thread, task.process == parent.process, "{clone_flags:#x}");
            flags.push(clone_flags);
        }
    }
    let vforked = flags.iter().any(|flags| flags & CLONE_VFORK != 0);
    let threads = flags.iter().filter(|flags| *flags & 0x1_0000 != 0).count();
    assert!(vforked, "{flags:x?}");
    assert!(threads >= 2, "{flags:x?}");
}

#[test]
#[ignore = "a workload for the test above"]
fn helper_that_starts_a_thread_and_a_program() {
    let thread = std::thread::spawn(|| vec![1u8; 1 << 20].iter().map(|b| u32::from(*b)).sum());
    let sum: u32 = thread.join().unwrap();
    assert_eq!(sum, 1 << 20);
    assert!(Command::new("true").status().unwrap().success());
}

#[test]
fn cpu_times_count_computing_and_not_sleeping() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-cpu-time");
    let output = scratch.path("t.vellum");
    let own = std::env::current_exe().unwrap();
    let helper = "helper_that_computes_and_sleeps";
    let command = [own.to_str().unwrap(), "--ignored", "--exact", helper];
    let recording = record_to(&output, &command);
    let (header, events) = read(&output);
    if let Some(why) = recording.without_cpu_times {
        eprintln!("SKIPPED: no records of context switches: {why}");
        assert!(!header.cpu_times && events.iter().all(|event| event.ran_us.is_none()));
        return;
    }
    assert!(header.cpu_times);
    let mut ran = vec![0; header.tasks.len()];
    for event in &events {
        // Nothing was lost, so every time is known.
        ran[event.task.0 as usize] += event.ran_us.unwrap();
    }
    let busiest = *ran.iter().max().unwrap();
    assert!(busiest >= COMPUTES_US * 9 / 10, "{ran:?}");
    let awake = header.duration_us - SLEEPS_US;
    assert!(busiest <= awake, "{ran:?} of {} us", header.duration_us);
}

const COMPUTES_US: u64 = 50_000;
const SLEEPS_US: u64 = 200_000;

#[test]
#[ignore = "a workload for the test above"]
fn helper_that_computes_and_sleeps() {
    let computed = || {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the struct outlives the call.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
    };
    let begin = computed();
    while computed() < begin + COMPUTES_US {}
    std::thread::sleep(std::time::Duration::from_micros(SLEEPS_US));
}

#[test]
fn a_failed_recording_leaves_nothing_behind() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-failed");
    let command = Target::Command(vec!["/nonexistent/command".into()]);
    let options = Options {
        buffer: 1 << 16,
        ..Options::new(command, scratch.path("t.vellum").into())
    };
    let error = record(&options, &Interrupt::manual())
        .unwrap_err()
        .to_string();
    assert!(error.contains("/nonexistent/command"), "{error}");
    // A buffer far too small for a burst of faults loses events.
    let burst = Options {
        target: Target::Command(
            [
                "sh",
                "-c",
                "dd if=/dev/zero of=/dev/null bs=256M count=1 2>&1",
            ]
            .iter()
            .map(Into::into)
            .collect(),
        ),
        ..options
    };
    match record(&burst, &Interrupt::manual()) {
        Err(error) => assert!(error.to_string().contains("--buffer"), "{error}"),
        // The drain thread was quick enough: the trace is whole.
        Ok(recording) => {
            assert_eq!(recording.lost, 0);
            std::fs::remove_file(scratch.path("t.vellum")).unwrap();
        }
    }
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn the_commands_exit_code_is_passed_on() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-code");
    let output = scratch.path("t.vellum");
    assert_eq!(record_to(&output, &["sh", "-c", "exit 7"]).exit_code, 7);
    assert_eq!(
        record_to(&output, &["sh", "-c", "kill -TERM $$"]).exit_code,
        143
    );
}

#[test]
fn a_trace_is_kept_though_its_directory_is_moved_or_removed() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-moved");
    for (change, is_moved) in [("mv \"$1\" \"$1.old\"", true), ("rmdir \"$1\"", false)] {
        let directory = scratch.path("build");
        std::fs::create_dir(&directory).unwrap();
        let output = scratch.path("build/record-moved.vellum");
        let recording = record_to(&output, &["sh", "-c", change, "sh", &directory]);
        assert_eq!(recording.exit_code, 0);
        assert_eq!(recording.elsewhere.is_some(), !is_moved);
        let path = recording.path.to_str().unwrap();
        let (_, events) = read(path);
        assert!(!events.is_empty());
        match is_moved {
            true => assert!(path.ends_with("build.old/record-moved.vellum"), "{path}"),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
}
