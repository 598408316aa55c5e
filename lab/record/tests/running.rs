//! Recording processes that run already, and what the trace says of them.
//!
//! Where perf events are not permitted the tests say so and pass; with
//! `VELLUM_REQUIRE_PERF=1` in the environment that is a failure.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use vellum_record::{Ended, Options, Recording, Target, check_permission, record};
use vellum_terminal::progress::Interrupt;
use vellum_testing::{Scratch, recording_permitted};
use vellum_trace::model::{Model, Resident};
use vellum_trace::{Event, EventKind, Header, TaskId, TraceReader};

const PAGE: u64 = 4096;
/// Pages that the helper writes before it is recorded, and those of them that it then protects.
const WRITTEN: u64 = 32;
const PROTECTED: u64 = 8;

fn options(target: Target, output: &str, duration: Option<Duration>) -> Options {
    Options {
        duration,
        ..Options::new(target, output.into())
    }
}

fn record_for(target: Target, output: &str, milliseconds: u64) -> Recording {
    let duration = Some(Duration::from_millis(milliseconds));
    record(&options(target, output, duration), &Interrupt::manual()).unwrap()
}

fn read(path: &str) -> (Header, Vec<Event>) {
    let trace = TraceReader::open(path).unwrap();
    let events = trace.events().collect::<Result<_, _>>().unwrap();
    (trace.header().clone(), events)
}

/// The state with which a trace begins.
fn beginning(header: &Header, events: &[Event]) -> Model {
    let mut model = Model::default();
    let first = events.iter().take(header.beginning as usize);
    first.for_each(|event| model.take(event));
    model
}

/// Faults without a mapping, in the whole trace.
fn unmapped(events: &[Event]) -> u64 {
    let mut model = Model::default();
    events.iter().for_each(|event| model.take(event));
    model.totals().unmapped_faults
}

/// A process that ends when the test does.
struct Helper {
    process: Child,
    input: Option<ChildStdin>,
    /// Open, so that it can go on talking.
    _output: Option<BufReader<ChildStdout>>,
    /// What it said first.
    line: String,
}

impl Helper {
    /// This program again, as the test `name`.
    fn of_test(name: &str) -> Helper {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", name]);
        Helper::of(command, "ready")
    }

    fn of(mut command: Command, sign: &str) -> Helper {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.by_ref().lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains(sign)).unwrap();
        Helper {
            input: process.stdin.take(),
            _output: Some(output),
            process,
            line,
        }
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether it goes on; then it is told to end, and whether it ended well.
    fn goes_on_and_ends_well(mut self) -> bool {
        let goes_on = self.process.try_wait().unwrap().is_none();
        drop(self.input.take());
        goes_on && self.process.wait().unwrap().success()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Fresh pages of memory, small ones.
fn fresh(pages: u64) -> *mut u8 {
    let length = (pages * PAGE) as usize;
    let (rights, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: the range was mapped above.
    unsafe { libc::madvise(at, length, libc::MADV_NOHUGEPAGE) };
    at.cast()
}

fn write_pages(at: *mut u8, pages: u64) {
    for page in 0..pages {
        // SAFETY: the caller mapped so many pages.
        unsafe { at.add((page * PAGE) as usize).write_volatile(1) };
    }
}

#[test]
#[ignore = "a process that other tests record"]
fn helper_that_maps_and_touches_until_its_input_ends() {
    let at = fresh(2 * WRITTEN);
    write_pages(at, WRITTEN);
    // SAFETY: inside the mapping, of which nothing is used any more.
    unsafe { libc::mprotect(at.cast(), (PROTECTED * PAGE) as usize, libc::PROT_READ) };
    let thread = std::thread::spawn(|| {
        let mut line = String::new();
        while std::io::stdin().read_line(&mut line).unwrap() > 0 {}
    });
    println!("\nready {}", at as u64);
    std::io::stdout().flush().unwrap();
    while !thread.is_finished() {
        let more = fresh(16);
        write_pages(more, 4);
        // SAFETY: what was mapped above, of which nothing is used any more.
        unsafe { libc::munmap(more.cast(), 16 * PAGE as usize) };
    }
    thread.join().unwrap();
}

#[test]
fn the_trace_of_a_running_process_begins_with_its_memory_and_the_process_goes_on() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-running");
    let output = scratch.path("t.vellum");
    let helper = Helper::of_test("helper_that_maps_and_touches_until_its_input_ends");
    let recording = record_for(Target::Processes(vec![helper.pid()]), &output, 300);
    assert_eq!((recording.ended, recording.exit_code), (Ended::Time, 0));
    assert!(recording.going_on.is_none());
    let at = helper
        .line
        .rsplit(' ')
        .next()
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / PAGE;
    assert!(helper.goes_on_and_ends_well());

    let (header, events) = read(&output);
    assert!(!header.environment.thp_off, "nothing was switched off");
    let command = header.environment.command.join(" ");
    assert!(command.contains("helper_that_maps"), "{command}");
    let told = header.invisible.join("\n");
    for expected in ["which ran already", "huge pages were left as they are"] {
        assert!(told.contains(expected), "{told}");
    }
    let model = beginning(&header, &events);
    assert_eq!(model.spaces().count(), 1, "threads share their space");
    let (_, space) = model.space_of(TaskId(0)).unwrap();
    let (written, untouched) = (at..at + WRITTEN, at + WRITTEN..at + 2 * WRITTEN);
    for page in written {
        let entry = space.entries.get(&page).expect("it was written");
        assert!(matches!(entry.page, Resident::Anonymous(_)), "{entry:?}");
        let (.., region) = space.regions.find(page).unwrap();
        let rights = if page < at + PROTECTED { 1 } else { 3 };
        assert_eq!(region.prot.0, rights, "page {}", page - at);
    }
    assert_eq!(space.entries.range(untouched).count(), 0);
    assert!(space.heap.is_some());
    assert!(
        header
            .files
            .iter()
            .any(|file| file.name.contains("libc.so"))
    );
    // Its threads are there from the start.
    let tasks: Vec<u32> = header.tasks.iter().map(|task| task.process).collect();
    assert!(
        tasks.len() >= 2 && tasks.iter().all(|process| *process == tasks[0]),
        "{tasks:?}"
    );

    let after = &events[header.beginning as usize..];
    let count = |what: fn(&EventKind) -> bool| after.iter().filter(|e| what(&e.kind)).count();
    assert!(count(|kind| matches!(kind, EventKind::Map { .. })) > 0);
    assert!(count(|kind| matches!(kind, EventKind::Fault { .. })) > 0);
    assert!(count(|kind| matches!(kind, EventKind::Unmap { .. })) > 0);
    assert_eq!(unmapped(&events), 0);
}

#[test]
fn what_a_shell_forks_while_it_is_read_is_followed() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-forking");
    let output = scratch.path("t.vellum");
    let mut command = Command::new("sh");
    command.args(["-c", "echo started; while :; do (/bin/true; :); done"]);
    let helper = Helper::of(command, "started");
    record_for(Target::Processes(vec![helper.pid()]), &output, 400);
    let (header, events) = read(&output);
    let executed = events[header.beginning as usize..]
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Exec { name } => Some(header.strings[name as usize].as_str()),
            _ => None,
        });
    assert!(executed.clone().count() > 0);
    assert!(executed.into_iter().all(|name| name == "true"));
    assert_eq!(unmapped(&events), 0);
}

#[test]
fn the_recording_ends_when_its_processes_have_ended() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-ending");
    let output = scratch.path("t.vellum");
    // The number of rounds after which it ends grows until it is read in time.
    for rounds in [100, 1000, 10_000, 100_000] {
        let script =
            format!("echo started; i=0; while test $i -lt {rounds}; do i=$((i + 1)); done; exit 3");
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        let helper = Helper::of(command, "started");
        let target = Target::Processes(vec![helper.pid()]);
        let recorded = record(&options(target, &output, None), &Interrupt::manual());
        match recorded {
            Ok(recording) => {
                assert_eq!((recording.ended, recording.exit_code), (Ended::ByItself, 0));
                let (header, events) = read(&output);
                let exits = events.iter().filter(|event| event.kind == EventKind::Exit);
                assert!(exits.count() <= header.tasks.len());
                return;
            }
            Err(error) => assert!(error.to_string().contains("ended"), "{error}"),
        }
    }
    panic!("no process ran for long enough");
}

#[test]
fn a_command_goes_on_when_the_time_of_its_recording_is_over() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-duration");
    let (output, end) = (scratch.path("t.vellum"), scratch.path("end"));
    let script = format!("while test ! -e {end}; do /bin/true; done; exit 5");
    let words = ["sh", "-c", &script].map(Into::into).to_vec();
    let recording = record_for(Target::Command(words), &output, 200);
    assert_eq!(recording.ended, Ended::Time);
    assert!(read(&output).1.len() > 10);
    let command = recording.going_on.expect("it runs until the file is there");
    fs::write(end, "").unwrap();
    assert_eq!(command.wait(&Interrupt::manual()).unwrap(), 5);
}

/// A control group that goes with the test.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that were killed leave it when they have ended.
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// Groups of both versions, as far as they may be made here.
fn groups() -> Vec<(Group, bool)> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut found = Vec::new();
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let is_memory = words[3].split(',').any(|option| option == "memory");
        if words[2] == "cgroup2" || (words[2] == "cgroup" && is_memory) {
            let path = Path::new(words[1]).join(format!("vellum-test-{}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => found.push((Group(path), words[2] == "cgroup")),
                Err(error) => eprintln!("SKIPPED: {}: {error}", path.display()),
            }
        }
    }
    found
}

#[test]
fn the_processes_of_a_group_are_recorded_with_its_limit() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let groups = groups();
    if groups.is_empty() {
        eprintln!("SKIPPED: no control group can be made here");
    }
    for (group, has_limit) in groups {
        let scratch = Scratch::new("record-group");
        let output = scratch.path("t.vellum");
        let refusal = record(
            &options(Target::Group(group.0.clone()), &output, None),
            &Interrupt::manual(),
        );
        let refusal = refusal.unwrap_err().to_string();
        assert!(refusal.contains("no process is in"), "{refusal}");
        let name = "helper_that_maps_and_touches_until_its_input_ends";
        let helpers = [Helper::of_test(name), Helper::of_test(name)];
        let below = Group(group.0.join("below"));
        fs::create_dir(&below.0).unwrap();
        if has_limit {
            fs::write(group.0.join("memory.limit_in_bytes"), "1073741824").unwrap();
        }
        for (helper, group) in helpers.iter().zip([&group, &below]) {
            fs::write(group.0.join("cgroup.procs"), helper.pid().to_string()).unwrap();
        }
        record_for(Target::Group(group.0.clone()), &output, 300);
        let (header, events) = read(&output);
        let model = beginning(&header, &events);
        assert_eq!(model.spaces().count(), 2, "one of each group");
        assert_eq!(unmapped(&events), 0);
        if has_limit {
            let limits: Vec<u64> = header.groups.iter().map(|group| group.limit).collect();
            assert_eq!(
                limits,
                [1 << 30, 1 << 30],
                "the limit above counts below, too"
            );
        }
        for helper in helpers {
            assert!(helper.goes_on_and_ends_well());
        }
        drop(below);
    }
}

/// A program of 32 bits that waits for a signal: its headers, and `pause` in a loop.
fn narrow_program() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    let code: &[u8] = &[0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7];
    let length = 52 + 32 + code.len() as u32;
    let mut bytes = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |bytes: &mut Vec<u8>, value: u16| bytes.extend(value.to_le_bytes());
    let word = |bytes: &mut Vec<u8>, value: u32| bytes.extend(value.to_le_bytes());
    half(&mut bytes, 2);
    half(&mut bytes, 3);
    for value in [1, BASE + 84, 52, 0, 0] {
        word(&mut bytes, value);
    }
    for value in [52, 32, 1, 0, 0, 0] {
        half(&mut bytes, value);
    }
    for value in [1, 0, BASE, BASE, length, length, 5, 4096] {
        word(&mut bytes, value);
    }
    bytes.extend(code);
    bytes
}

#[test]
fn a_program_of_32_bits_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    if !recording_permitted(check_permission()) {
        return;
    }
    let scratch = Scratch::new("record-narrow");
    let (program, output) = (scratch.path("program"), scratch.path("t.vellum"));
    fs::write(&program, narrow_program()).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let process = match Command::new(&program).spawn() {
        Ok(process) => process,
        Err(error) => return eprintln!("SKIPPED: no programs of 32 bits run here: {error}"),
    };
    let helper = Helper {
        process,
        input: None,
        _output: None,
        line: String::new(),
    };
    let target = Target::Processes(vec![helper.pid()]);
    let refusal = record(&options(target, &output, None), &Interrupt::manual());
    let refusal = refusal.unwrap_err().to_string();
    assert!(refusal.contains("32 bits"), "{refusal}");
    assert!(!Path::new(&output).exists());
}
