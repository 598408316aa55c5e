//! `vellum import` and `vellum export` as a user runs them.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::command::{Scratch, printed, vellum};
use vellum_trace::{Event, Header, TraceReader};

fn here(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(path)
        .display()
        .to_string()
}

fn fixture(name: &str) -> String {
    here(&format!("../import/tests/fixtures/{name}"))
}

fn done(arguments: &[&str]) -> Output {
    let output = vellum(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        printed(&output)
    );
    output
}

fn with_stdin(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may stop reading early.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn read(path: &str) -> (Header, Vec<Event>) {
    let trace = TraceReader::open(path).unwrap();
    let events = trace.events().map(|event| event.unwrap()).collect();
    (trace.header().clone(), events)
}

#[test]
fn imported_traces_replay_verified() {
    let scratch = Scratch::new("inout-replay");
    for name in [
        "perf-script-records.txt",
        "perf-script-raw.txt",
        "page-faults.txt",
        "page-faults-sampled.txt",
        "strace.txt",
        "strace-y.txt",
        "strace-seccomp.txt",
        "lackey.txt",
    ] {
        let trace = scratch.path("t.vellum");
        done(&[
            "import",
            &fixture(name),
            "-o",
            &trace,
            "--level",
            "1",
            "--strict",
        ]);
        let output = done(&["info", "--details", &trace]);
        assert!(
            printed(&output).contains("Imported from"),
            "{name}: {}",
            printed(&output)
        );
        let output = done(&[
            "replay", &trace, "--verify", "--audit", "--quiet", "--ram", "256M",
        ]);
        assert!(
            !printed(&output).contains("no explanation"),
            "{name}: {}",
            printed(&output)
        );
    }
}

/// Its samples of accesses count as those of a recording.
#[test]
fn what_damon_saw_replays_and_answers_how_much_memory_is_needed() {
    let scratch = Scratch::new("inout-damon");
    let (text, trace) = (scratch.path("damon.txt"), scratch.path("t.vellum"));
    let mut report = String::new();
    for second in 1..=8 {
        // A window of 1 MiB moves through 8 MiB.
        let start = 0x5555_0000_0000u64 + (second - 1) * 0x10_0000;
        report += &format!(
            "monitoring_start: {}.0 s\nmonitoring_end: {second}.0 s\ntarget_id: 7\n\
             {start:x}-{:x} (   1.000 MiB)  {second}  0\n",
            second - 1,
            start + 0x10_0000,
        );
    }
    fs::write(&text, report).unwrap();
    done(&["import", &text, "-o", &trace, "--strict"]);
    let output = done(&["info", "--details", &trace]);
    let info = printed(&output);
    assert!(info.contains("one page of each region"), "{info}");
    let output = done(&[
        "replay", &trace, "--verify", "--audit", "--quiet", "--ram", "256M",
    ]);
    assert!(
        !printed(&output).contains("no explanation"),
        "{}",
        printed(&output)
    );
    done(&["plan", "memory", &text, "--parts", "1,0.5", "--quiet"]);
}

/// What was read is said, and nothing of it stays.
#[test]
fn texts_are_read_by_info_and_plan_without_an_import() {
    let dump = fixture("smaps.txt");
    let output = done(&["info", "--details", &dump]);
    let text = printed(&output);
    assert!(
        text.contains("smaps.txt is no trace; one was made of 950 lines of smaps text"),
        "{text}"
    );
    assert!(text.contains("mappings with "), "{text}");
    let output = done(&["plan", "memory", &dump, "--parts", "1", "--quiet"]);
    let text = printed(&output);
    assert!(
        text.contains("smaps.txt") && !text.contains("no trace"),
        "{text}"
    );
    let quiet = done(&["info", "--json", "--quiet", &fixture("lackey.txt")]);
    let json: serde_json::Value = serde_json::from_slice(&quiet.stdout).unwrap();
    assert_eq!(json["trace"], fixture("lackey.txt"));
    assert!(quiet.stderr.is_empty());
    let scratch = Scratch::new("inout-neither");
    let neither = scratch.path("neither");
    fs::write(&neither, "hello\nworld\n").unwrap();
    let output = vellum(&["info", &neither]);
    assert_eq!(output.status.code(), Some(2));
    let text = printed(&output);
    assert!(
        text.contains("not a Vellum trace") && text.contains("nor text that"),
        "{text}"
    );
}

#[test]
fn csv_has_a_row_for_each_event_and_parquet_the_same_values() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    let scratch = Scratch::new("inout-tables");
    let (trace, csv) = (scratch.path("t.vellum"), scratch.path("t.csv"));
    let table = scratch.path("t.parquet");
    done(&[
        "import",
        &fixture("perf-script-records.txt"),
        "-o",
        &trace,
        "--level",
        "1",
    ]);
    done(&["export", &trace, "--format", "csv", "-o", &csv]);
    done(&["export", &trace, "--format", "parquet", "-o", &table]);
    let (header, events) = read(&trace);
    let csv = fs::read_to_string(csv).unwrap();
    let mut lines = csv.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(
        columns[..6],
        ["time_us", "task", "pid", "process", "event", "address"]
    );
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), events.len());
    for (row, event) in rows.iter().zip(&events) {
        assert_eq!(row.len(), columns.len());
        assert_eq!(row[0], event.time_us.to_string());
        assert_eq!(row[2], header.tasks[event.task.0 as usize].pid.to_string());
    }
    let reader = SerializedFileReader::new(fs::File::open(table).unwrap()).unwrap();
    let mut count = 0;
    for (row, expected) in reader.get_row_iter(None).unwrap().zip(&rows) {
        let row = row.unwrap();
        let fields: Vec<String> = row
            .get_column_iter()
            .map(|(_, field)| match field {
                Field::Null => String::new(),
                Field::Str(text) => text.clone(),
                other => other.to_string(),
            })
            .collect();
        assert_eq!(fields, *expected);
        count += 1;
    }
    assert_eq!(count, events.len());
}

#[test]
fn page_cache_requests_have_the_columns_that_libcachesim_reads() {
    let scratch = Scratch::new("inout-requests");
    let (trace, pages) = (scratch.path("t.vellum"), scratch.path("pages.csv"));
    done(&[
        "import",
        &fixture("perf-script-records.txt"),
        "-o",
        &trace,
        "--level",
        "1",
    ]);
    done(&["export", &trace, "--format", "libcachesim", "-o", &pages]);
    let text = fs::read_to_string(pages).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("time,obj_id,obj_size,op"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert!(!rows.is_empty());
    for row in &rows {
        assert!(
            row[0].parse::<f64>().is_ok_and(|time| time >= 0.0),
            "{row:?}"
        );
        assert!(
            row[1].parse::<u64>().is_ok_and(|id| id >= 1 << 40),
            "{row:?}"
        );
        assert_eq!(row[2], "4096");
        assert!(matches!(row[3], "read" | "write"), "{row:?}");
    }
    // Four writes of two pages each, and the touch of the shared mapping.
    let writes = rows.iter().filter(|row| row[3] == "write").count();
    assert_eq!(writes, 4 * 2 + 1);
}

#[test]
fn unusable_input_is_refused_and_leaves_nothing_behind() {
    let scratch = Scratch::new("inout-refused");
    let inputs = Scratch::new("inout-refused-inputs");
    let binary = inputs.write("perf.data", b"PERFILE2\x68\0\0\0");
    let zero = inputs.write("zero", b"some\0thing");
    let empty = inputs.write("empty", b"");
    let prose = inputs.write("prose", b"Dear all,\nthis is no trace.\n");
    let whole = fs::read(fixture("strace.txt")).unwrap();
    let cut = inputs.write("cut", &whole[..whole.len() - 5]);
    let out = scratch.path("out.vellum");
    let lackey = fixture("lackey.txt");
    let strace = fixture("strace.txt");
    for (arguments, message) in [
        (vec![binary.as_str()], "perf script"),
        (vec![zero.as_str()], "byte 4 is zero"),
        (vec![empty.as_str()], "it is empty"),
        (vec![prose.as_str()], "--from"),
        (
            vec![prose.as_str(), "--from", "strace"],
            "nothing to import",
        ),
        (
            vec![lackey.as_str(), "--from", "perf-script"],
            "nothing to import",
        ),
        (
            vec![lackey.as_str(), strace.as_str()],
            "import them one by one",
        ),
        (vec![cut.as_str(), "--strict"], "line 246"),
        (vec!["-", "-"], "only once"),
        (vec!["/nonexistent/x"], "/nonexistent/x"),
        (vec![inputs.directory()], "directory"),
        (vec![strace.as_str(), "--from", "dtrace"], "dtrace"),
        (vec![], "FILE"),
    ] {
        let mut all = vec!["import", "-o", &out];
        all.extend(&arguments);
        let output = vellum(&all);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            printed(&output)
        );
        assert!(
            printed(&output).contains(message),
            "{arguments:?}: {}",
            printed(&output)
        );
        assert_eq!(scratch.files(), Vec::<String>::new(), "{arguments:?}");
    }
    // Without --strict the damaged line is told, and the rest imported.
    let output = done(&["import", &cut, "-o", &out]);
    assert!(
        printed(&output).contains("skipped 1 line"),
        "{}",
        printed(&output)
    );
    assert_eq!(scratch.files(), ["out.vellum"]);
}

#[test]
fn text_comes_from_standard_input_too() {
    let scratch = Scratch::new("inout-stdin");
    let out = scratch.path("out.vellum");
    let sample = fs::read(fixture("strace-y.txt")).unwrap();
    let output = with_stdin(&["import", "-", "-o", &out, "--level", "1"], &sample);
    assert!(output.status.success(), "{}", printed(&output));
    assert!(read(&out).1.len() > 100);
    let output = with_stdin(&["import", "-", "-o", &out, "--level", "1"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        printed(&output).contains("standard input"),
        "{}",
        printed(&output)
    );
}

#[test]
fn an_export_that_fails_or_is_interrupted_leaves_nothing_behind() {
    let scratch = Scratch::new("inout-export");
    let out = scratch.path("out.csv");
    let shipped = here("../../traces/sdet-like.vellum");
    for (arguments, code) in [
        (
            vec!["export", "/nonexistent", "--format", "csv", "-o", &out],
            2,
        ),
        (vec!["export", &shipped, "--format", "xml", "-o", &out], 2),
        (vec!["export", &shipped, "--format", "csv"], 2),
        (
            vec!["export", &shipped, "--format", "csv", "-o", &shipped],
            2,
        ),
        (
            vec![
                "export",
                &shipped,
                "--format",
                "csv",
                "-o",
                "/nonexistent/out.csv",
            ],
            1,
        ),
    ] {
        let output = vellum(&arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            printed(&output)
        );
        assert_eq!(scratch.files(), Vec::<String>::new(), "{arguments:?}");
    }
    // Ten million rows take long enough to be interrupted while they are written.
    let build = here("../../traces/kernel-build.vellum");
    let mut child = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["export", &build, "--format", "csv", "-o", &out, "--quiet"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while scratch.files().is_empty() {
        assert_eq!(
            child.try_wait().unwrap(),
            None,
            "it ended before it began to write"
        );
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    let kill = Command::new("sh")
        .args(["-c", &format!("kill -INT {pid}")])
        .status()
        .unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(scratch.files(), Vec::<String>::new());
}
