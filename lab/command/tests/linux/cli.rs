//! Replays on the host's own kernel, as a user meets them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use vellum_trace::{
    Access, DEFAULT_LEVEL, Event, EventKind, File, FileId, MapOrigin, Prot, Task, TaskId,
    TraceWriter,
};

use crate::command::{Scratch, moments, text, vellum};

const PAGE: u64 = 4096;
const SIGCHLD: u64 = 17;
/// `CLONE_VM | CLONE_VFORK`, as `posix_spawn` has them.
const SPAWN: u64 = 0x4100 | SIGCHLD;
/// `CLONE_VM | FS | FILES | SIGHAND | THREAD | SYSVSEM`, and what libraries add.
const THREAD: u64 = 0x3d_0f00;

/// Writes a trace event by event.
struct Story {
    writer: TraceWriter,
    time_us: u64,
}

impl Story {
    /// A trace of tasks that each were created by the one before `|` in `parents`,
    /// in the process beside it; the first was there from the start.
    fn new(path: &str, tasks: &[(Option<u32>, u32)]) -> Self {
        let mut writer = TraceWriter::create(path, DEFAULT_LEVEL).expect("created");
        for (number, (parent, process)) in (1u32..).zip(tasks) {
            let task = Task {
                pid: number,
                process: *process,
                parent: parent.map(TaskId),
            };
            writer.header_mut().tasks.push(task);
        }
        writer.header_mut().strings.push("program".into());
        Self { writer, time_us: 0 }
    }

    fn file(&mut self, pages: u64) -> FileId {
        let files = &mut self.writer.header_mut().files;
        files.push(File {
            name: String::new(),
            device: 1,
            inode: files.len() as u64 + 1,
            size: pages * PAGE,
        });
        FileId(files.len() as u32 - 1)
    }

    fn push(&mut self, task: u32, kind: EventKind) -> &mut Self {
        self.time_us += 1;
        let event = Event {
            time_us: self.time_us,
            task: TaskId(task),
            kind,
            ran_us: None,
        };
        self.writer.push(&event).expect("a consistent event");
        self
    }

    fn create(&mut self, task: u32, child: u32, clone_flags: u64) -> &mut Self {
        let child = TaskId(child);
        self.push(task, EventKind::Create { child, clone_flags })
    }

    fn map(&mut self, task: u32, address: u64, pages: u64, file: Option<FileId>) -> &mut Self {
        let kind = EventKind::Map {
            address,
            length: pages * PAGE,
            prot: Prot(3),
            shared: false,
            grows_down: false,
            file,
            offset: 0,
            origin: MapOrigin::Mmap,
        };
        self.push(task, kind)
    }

    fn touch(&mut self, task: u32, address: u64, pages: u64, access: Access) -> &mut Self {
        for page in 0..pages {
            let kind = EventKind::Fault {
                address: address + page * PAGE,
                access,
                kernel: false,
                present: false,
            };
            self.push(task, kind);
        }
        self
    }

    fn finish(self) {
        self.writer.finish().expect("written");
    }
}

const HEAP: u64 = 0x5555_0000_0000;
const DATA: u64 = 0x7f00_0000_0000;
const STACK: u64 = 0x7ffc_0000_0000;

/// A process that forks, spawns, has a thread, executes a program, moves, shrinks
/// and drops memory, writes and cuts a file, and grows heap and stack.
fn write_story(path: &str) {
    let tasks = [(None, 1), (Some(0), 2), (Some(0), 3), (Some(0), 1)];
    let mut story = Story::new(path, &tasks);
    let library = story.file(40);
    let log = story.file(0);
    story.map(0, DATA, 64, None);
    story.touch(0, DATA, 64, Access::Write);
    story.map(0, DATA + 64 * PAGE, 40, Some(library));
    // A second mapping over part of the first, as a loader makes it.
    story.map(0, DATA + 70 * PAGE, 8, Some(library));
    story.touch(0, DATA + 64 * PAGE, 40, Access::Execute);
    story.push(0, EventKind::Brk { end: HEAP });
    story.push(
        0,
        EventKind::Brk {
            end: HEAP + 16 * PAGE,
        },
    );
    story.touch(0, HEAP, 16, Access::Write);
    story.push(
        0,
        EventKind::Brk {
            end: HEAP + 8 * PAGE,
        },
    );
    story.push(
        0,
        EventKind::Map {
            address: STACK,
            length: 4 * PAGE,
            prot: Prot(3),
            shared: false,
            grows_down: true,
            file: None,
            offset: 0,
            origin: MapOrigin::Exec,
        },
    );
    story.touch(0, STACK - 8 * PAGE, 2, Access::Write);
    // A child that writes what it shares, while the parent does the same.
    story.create(0, 1, SIGCHLD);
    for page in 0..16 {
        story.touch(1, DATA + page * PAGE, 1, Access::Write);
        story.touch(0, DATA + page * PAGE, 1, Access::Write);
    }
    story.push(1, EventKind::Exit);
    story.push(0, EventKind::Wait { child: TaskId(1) });
    // One that executes a program; the parent waits in the kernel until it does.
    story.create(0, 2, SPAWN);
    story.touch(2, DATA + 20 * PAGE, 1, Access::Write);
    story.push(2, EventKind::Exec { name: 0 });
    story.map(2, DATA, 32, Some(library));
    story.touch(2, DATA, 32, Access::Read);
    let write = EventKind::FileWrite {
        file: log,
        offset: 0,
        length: 5 * PAGE,
    };
    story.push(2, write);
    let read = EventKind::FileRead {
        file: log,
        offset: 0,
        length: 4 * PAGE,
    };
    story.push(0, read);
    story.push(
        2,
        EventKind::Truncate {
            file: log,
            size: PAGE,
        },
    );
    story.push(2, EventKind::Exit);
    story.push(0, EventKind::Wait { child: TaskId(2) });
    // A thread.
    story.create(0, 3, THREAD);
    story.map(3, DATA + 0x1000 * PAGE, 8, None);
    story.touch(3, DATA + 0x1000 * PAGE, 4, Access::Write);
    story.touch(0, DATA + 0x1004 * PAGE, 4, Access::Write);
    story.push(3, EventKind::Exit);
    let moved = EventKind::Remap {
        address: DATA,
        length: 64 * PAGE,
        new_address: DATA + 0x2000 * PAGE,
        new_length: 80 * PAGE,
    };
    story.push(0, moved);
    story.touch(0, DATA + 0x2040 * PAGE, 16, Access::Write);
    let drop = EventKind::Advise {
        address: DATA + 0x2000 * PAGE,
        length: 16 * PAGE,
        advice: 4,
    };
    story.push(0, drop);
    for advice in [libc::MADV_COLD, libc::MADV_PAGEOUT] {
        let advise = EventKind::Advise {
            address: DATA + 0x2010 * PAGE,
            length: 16 * PAGE,
            advice: advice as u32,
        };
        story.push(0, advise);
    }
    story.touch(0, DATA + 0x2000 * PAGE, 16, Access::Read);
    let protect = EventKind::Protect {
        address: DATA + 0x2000 * PAGE,
        length: 8 * PAGE,
        prot: Prot(1),
    };
    story.push(0, protect);
    let unmap = EventKind::Unmap {
        address: DATA + 0x2010 * PAGE,
        length: 16 * PAGE,
    };
    story.push(0, unmap);
    story.push(0, EventKind::Exit);
    story.finish();
}

/// Entries of `/dev/shm` that the process `pid` made.
fn scratch_of(pid: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten();
    let own = |path: &PathBuf| path.to_string_lossy().ends_with(&format!("-{pid}"));
    entries.map(|entry| entry.path()).filter(own).collect()
}

/// Processes that run the stub for the driver `pid`: their descriptors' directory
/// is its scratch directory.
fn stubs_of(pid: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id: &u32| {
        let directory = std::fs::read_link(format!("/proc/{id}/fd/6")).unwrap_or_default();
        let directory = directory.to_string_lossy().replace(" (deleted)", "");
        directory.contains("vellum-files") && directory.ends_with(&format!("-{pid}"))
    })
    .collect()
}

#[test]
fn a_whole_story_runs_on_this_kernel_and_is_refused_nothing() {
    let scratch = Scratch::new("linux-story");
    let trace = scratch.path("story.vellum");
    write_story(&trace);
    let saved = scratch.path("saved.json");
    let output = vellum(&[
        "replay", &trace, "--on", "linux", "-n", "2", "--quiet", "--json", "-", "--save", &saved,
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let times = &report["times"];
    assert_eq!(times["refused"], 0, "{report:#}");
    assert_eq!(times["own_ns"].as_array().map(Vec::len), Some(2));
    // Every touch of the story faults, but those that the kernel maps around a
    // fault of the file or finds mapped; what is sure are the pages of its own.
    for faults in times["host"]["faults"].as_array().expect("faults by pass") {
        let faults = faults.as_u64().expect("a number");
        assert!(
            (64 + 16 + 32..400).contains(&faults),
            "{faults} faults: {report:#}"
        );
    }
    for kind in ["fault", "fork", "exec", "exit", "map", "unmap"] {
        let rows = report["kinds"].as_array().expect("kinds");
        assert!(
            rows.iter().any(|row| row["kind"] == kind),
            "{kind} is missing"
        );
    }
    let again = vellum(&[
        "compare",
        "--a",
        &format!("linux:{saved}"),
        "--b",
        &format!("linux:{saved}"),
    ]);
    let said = text(&again.stdout);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(said.contains("no difference proven"), "{said}");
}

#[test]
fn a_cut_of_a_shipped_trace_faults_here_as_it_did_where_it_was_recorded() {
    let scratch = Scratch::new("linux-shipped");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/sdet-like.vellum");
    let cut = scratch.path("cut.vellum");
    let [from, to] = &moments(&shipped, [20, 60]);
    let shipped = shipped.display().to_string();
    let output = vellum(&[
        "cut", &shipped, "-o", &cut, "--from", from, "--to", to, "--level", "1",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = vellum(&["replay", &cut, "--on", "linux", "--quiet", "--json", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["times"]["refused"], 0, "{report:#}");
    let kinds = report["kinds"].as_array().expect("kinds");
    let touches = kinds
        .iter()
        .find(|row| row["kind"] == "fault")
        .expect("faults");
    let touches = touches["ops"].as_u64().expect("a number");
    let faults = report["times"]["host"]["faults"][0]
        .as_u64()
        .expect("a number");
    // Another kernel may map more or fewer pages around a fault.
    assert!(touches > 1000, "{touches}");
    assert!(
        faults.abs_diff(touches) * 10 < touches,
        "{faults} of {touches}"
    );
}

#[test]
fn the_host_stands_beside_a_design_with_its_coverage() {
    let scratch = Scratch::new("linux-compare");
    let trace = scratch.path("story.vellum");
    write_story(&trace);
    let json = scratch.path("report.json");
    let output = vellum(&[
        "compare",
        &trace,
        "--a",
        "linux",
        "--b",
        "rmap=chains",
        "-n",
        "2",
        "--ram",
        "64M",
        "--quiet",
        "--details",
        "--json",
        &json,
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for part in [
        "before subtracting entries",
        "what each side does that the other does not",
        "trap and system call entry",
        "fault-around",
        "no difference proven (",
        "the unit of the statistics",
    ] {
        assert!(said.contains(part), "`{part}` is missing in\n{said}");
    }
    let report = std::fs::read(&json).expect("written");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["schema"], "vellum-compare-linux/1");
    let ratio = |of: &str| report[of]["ratio"]["value"].as_f64().expect("a ratio");
    assert!(ratio("before") > 0.0);
    assert!(ratio("after") >= ratio("before"));
    assert!(
        report["host"]["entry"]["syscall_ns"]
            .as_f64()
            .expect("a cost")
            > 0.0
    );
    assert_eq!(report["core_ns"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_mapping_in_the_stubs_place_is_an_error_that_names_both_ranges() {
    let scratch = Scratch::new("linux-collision");
    let trace = scratch.path("collision.vellum");
    let mut story = Story::new(&trace, &[(None, 1)]);
    story.map(0, 0x0fff_ffff_f000, 16, None);
    story.push(0, EventKind::Exit);
    story.finish();
    let output = vellum(&["replay", &trace, "--on", "linux", "--quiet"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    for part in ["0xffffffff000-0x10000000f000", "0x100000000000-", "stub"] {
        assert!(said.contains(part), "`{part}` is missing in {said}");
    }
    assert!(output.stdout.is_empty());
}

#[test]
fn a_parent_that_did_not_wait_for_its_vfork_does_not_stop_the_replay() {
    let scratch = Scratch::new("linux-vfork");
    let trace = scratch.path("vfork.vellum");
    let mut story = Story::new(&trace, &[(None, 1), (Some(0), 2)]);
    story.map(0, DATA, 4, None);
    story.create(0, 1, SPAWN);
    story.touch(0, DATA, 2, Access::Write);
    story.touch(1, DATA + 2 * PAGE, 2, Access::Write);
    story.finish();
    let output = vellum(&["replay", &trace, "--on", "linux", "--quiet"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("1 vforks without waiting"), "{said}");
}

#[test]
fn a_program_executed_by_a_thread_ends_the_others() {
    let scratch = Scratch::new("linux-exec");
    let trace = scratch.path("exec.vellum");
    let mut story = Story::new(&trace, &[(None, 1), (Some(0), 1), (Some(0), 1)]);
    story.map(0, DATA, 4, None);
    story.create(0, 1, THREAD).create(0, 2, THREAD);
    story.touch(2, DATA, 1, Access::Write);
    story.push(1, EventKind::Exec { name: 0 });
    story.push(0, EventKind::Exit).push(2, EventKind::Exit);
    story.map(1, DATA, 4, None);
    story.touch(1, DATA, 4, Access::Write);
    story.push(1, EventKind::Exit);
    story.finish();
    let output = vellum(&["replay", &trace, "--on", "linux", "--quiet", "--json", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["times"]["refused"], 0, "{report:#}");
}

#[test]
fn saved_results_that_are_damaged_or_foreign_are_refused() {
    let scratch = Scratch::new("linux-saved");
    let trace = scratch.path("story.vellum");
    write_story(&trace);
    let saved = scratch.path("saved.json");
    let output = vellum(&[
        "replay", &trace, "--on", "linux", "--quiet", "--save", &saved,
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let whole = std::fs::read_to_string(&saved).expect("written");
    let refuses = |name: &str, contents: &str, why: &str| {
        let path = scratch.path(name);
        std::fs::write(&path, contents).expect("written");
        let side = format!("linux:{path}");
        let output = vellum(&["compare", "--a", &side, "--b", &side]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        let said = text(&output.stderr);
        assert!(said.contains(why) && said.contains(name), "{name}: {said}");
    };
    refuses("cut.json", &whole[..whole.len() / 2], "damaged");
    refuses("text.json", "a text", "not a saved result");
    let side = format!("linux:{trace}");
    let output = vellum(&["compare", "--a", &side, "--b", &side]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    refuses(
        "other.json",
        "{\"schema\": \"vellum-linux/0\"}",
        "vellum-linux/1",
    );
    refuses("foreign.json", "{\"runs\": []}", "no saved result");
    let calls = whole
        .lines()
        .find(|line| line.contains("\"calls\""))
        .expect("a field");
    refuses(
        "changed.json",
        &whole.replace(calls, "\"calls\": 1,"),
        "checksum",
    );
    let lacks = whole.replace("\"calls\"", "\"cals\"");
    refuses("lacks.json", &lacks, "damaged");
}

#[test]
fn the_host_cannot_be_asked_for_what_only_the_core_has() {
    for arguments in [
        &["replay", "x.vellum", "--on", "linux", "--cpus", "2"][..],
        &["replay", "x.vellum", "--on", "linux", "--verify"],
        &["replay", "x.vellum", "--save", "x.json"],
        &["compare", "x.vellum", "--a", "rmap=chains", "--b", "linux"],
        &["compare", "x.vellum", "--a", "linux", "--b", "linux:x.json"],
        &["compare", "x.vellum", "--a", "linux", "--b", "rmap=none"],
    ] {
        let output = vellum(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

/// A program that is killed at the end of a test, whatever the test comes to.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `done`, for as long as a slow machine may need.
fn eventually(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what}: still not"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a replay that goes on for long, and waits until its processes work.
fn started(trace: &Path) -> Running {
    let child = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["replay", &trace.display().to_string()])
        .args(["--on", "linux", "-n", "1000", "--quiet"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let running = Running(child.expect("the program was built and can be started"));
    let pid = running.0.id();
    eventually("a tree of processes", || stubs_of(pid).len() > 1);
    assert!(!scratch_of(pid).is_empty());
    running
}

#[test]
fn a_killed_driver_leaves_no_process_and_no_file() {
    let scratch = Scratch::new("linux-killed");
    let trace = scratch.path("story.vellum");
    write_story(&trace);
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGABRT] {
        let mut running = started(Path::new(&trace));
        let pid = running.0.id();
        // SAFETY: the process is our child and was not waited for.
        unsafe { libc::kill(pid as libc::pid_t, signal) };
        let status = running.0.wait().expect("it is our child");
        assert!(!status.success(), "{status:?} after signal {signal}");
        eventually("the end of all processes", || stubs_of(pid).is_empty());
        eventually("the end of all files", || scratch_of(pid).is_empty());
    }
}

#[test]
fn a_killed_process_of_the_tree_is_an_error_and_leaves_nothing() {
    let scratch = Scratch::new("linux-member");
    let trace = scratch.path("story.vellum");
    write_story(&trace);
    let mut running = started(Path::new(&trace));
    let pid = running.0.id();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = running.0.try_wait().expect("it is our child") {
            break status;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the driver goes on"
        );
        for stub in stubs_of(pid) {
            // SAFETY: signals a process of the tree; should it have ended, nothing.
            unsafe { libc::kill(stub as libc::pid_t, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(1));
    assert!(stubs_of(pid).is_empty());
    assert!(scratch_of(pid).is_empty());
}
