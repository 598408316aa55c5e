//! Text of ftrace becomes a trace: what the kernel prints, what trace-cmd prints, and the
//! comments of function_graph.

use std::path::Path;

use vellum_import::{Format, Imported, Options, Report, import_text};
use vellum_trace::{Access, EventKind};

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::read_to_string(path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn import(text: &str) -> (Imported, Report) {
    let (format, imported, report) =
        import_text(text.as_bytes(), &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(format, Format::Ftrace);
    (imported, report)
}

fn refusal(text: &str) -> String {
    let options = Options {
        format: Some(Format::Ftrace),
        ..Options::default()
    };
    match import_text(text.as_bytes(), &options) {
        Ok(_) => panic!("{text}"),
        Err(error) => error.to_string(),
    }
}

/// What one task does.
fn kinds(imported: &Imported) -> Vec<EventKind> {
    imported.events().iter().map(|event| event.kind).collect()
}

/// By `fixtures/demo.c`: `sh` executes `env`, and that the program, which forks, makes a thread and
/// spawns `true`.
#[test]
fn the_whole_program_shows() {
    for name in ["ftrace.txt", "trace-cmd.txt", "ftrace-raw.txt"] {
        let (imported, report) = import(&fixture(name));
        assert_eq!(report.skipped, [], "{name}");
        assert_eq!(imported.header().strings, ["sh", "env", "demo", "true"]);
        let count = |wanted: fn(&EventKind) -> bool| {
            kinds(&imported).iter().filter(|kind| wanted(kind)).count()
        };
        let flags: Vec<u64> = kinds(&imported)
            .iter()
            .filter_map(|kind| match kind {
                EventKind::Create { clone_flags, .. } => Some(*clone_flags),
                _ => None,
            })
            .collect();
        assert_eq!(flags, [0x4100, 0x120_0000, 0x3d_0f00, 0x4100], "{name}");
        assert_eq!(
            count(|kind| matches!(kind, EventKind::Wait { .. })),
            2,
            "{name}"
        );
        assert_eq!(
            count(|kind| matches!(kind, EventKind::FileWrite { length: 8192, .. })),
            4,
            "{name}"
        );
        assert_eq!(
            count(|kind| matches!(
                kind,
                EventKind::Remap {
                    new_length: 131_072,
                    ..
                }
            )),
            1,
            "{name}"
        );
        assert_eq!(
            count(|kind| matches!(kind, EventKind::Truncate { size: 8192, .. })),
            1,
            "{name}"
        );
        assert_eq!(
            count(|kind| matches!(kind, EventKind::MapAround { .. })),
            146,
            "{name}"
        );
        // The thread belongs to the process that made it.
        let tasks = &imported.header().tasks;
        let threads = tasks.iter().filter(|task| task.pid != task.process).count();
        assert_eq!(threads, 1, "{name}: {tasks:?}");
        let invisible = &imported.header().invisible;
        assert!(
            invisible[0].starts_with("Imported from ftrace text"),
            "{invisible:?}"
        );
        assert!(
            invisible
                .iter()
                .any(|what| what.contains("mappings of files count as anonymous")),
            "{invisible:?}"
        );
    }
}

#[test]
fn what_the_kernel_and_trace_cmd_print_of_one_recording_is_one_trace() {
    let [kernel, command] = ["ftrace.txt", "trace-cmd.txt"].map(|name| import(&fixture(name)).0);
    assert_eq!(kernel.events(), command.events());
    assert_eq!(kernel.header().tasks, command.header().tasks);
}

#[test]
fn comments_of_function_graph_are_events() {
    let text = "\
# tracer: function_graph
 12.000001 |   0)   demo-7     |               |  /* page_fault_user: address=0x5000 ip=0x1 error_code=0x6 */
 12.000002 |   0)   demo-7     |               |  do_mmap() {
 12.000003 |   0)   demo-7     |   0.105 us    |    up_read();
 12.000004 |   0)   demo-7     |               |  /* sys_munmap(addr: 5000, len: 1000) */
 12.000005 |   0)   demo-7     |               |  /* sys_munmap -> 0x0 */
";
    let (imported, report) = import(text);
    assert_eq!(report.skipped, []);
    let fault = EventKind::Fault {
        address: 0x5000,
        access: Access::Write,
        kernel: false,
        present: false,
    };
    let unmapping = EventKind::Unmap {
        address: 0x5000,
        length: 0x1000,
    };
    assert_eq!(kinds(&imported), [fault, unmapping]);
    for (without, option) in [
        (text.replace("demo-7", "      "), "funcgraph-proc"),
        (text.replace("12.00000", "       "), "funcgraph-abstime"),
    ] {
        let error = refusal(&without);
        assert!(error.contains(option), "{error}");
    }
}

#[test]
fn events_without_room_count_as_lost() {
    for lost in ["CPU:1 [LOST 17 EVENTS]", "CPU:1 [17 EVENTS DROPPED]"] {
        let text = fixture("trace-cmd.txt").replacen('\n', &format!("\n{lost}\n"), 1);
        let (imported, report) = import(&text);
        assert_eq!((imported.header().lost, report.skipped.len()), (17, 0));
    }
}

#[test]
fn lines_of_perf_and_of_ftrace_are_not_mixed() {
    let line =
        "demo-7 [000] d.... 12.000001: page_fault_user: address=0x5000 ip=0x1 error_code=0x6\n";
    let options = Options {
        format: Some(Format::PerfScript),
        ..Options::default()
    };
    let error = import_text(line.repeat(20).as_bytes(), &options)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("lines of ftrace"), "{error}");
    let error =
        refusal(&"demo 7 [000] 12.000001: exceptions:page_fault_user: address=0x5000\n".repeat(20));
    assert!(error.contains("not a line of ftrace"), "{error}");
}
