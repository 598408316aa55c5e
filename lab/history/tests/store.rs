//! Results are kept whole or not at all, whoever else writes and whatever goes wrong.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Barrier;
use std::thread;

use vellum_history::{Added, Facts, HistoryError, Store, VERSION, digest};
use vellum_testing::Scratch;

fn facts(subject: &str) -> Facts {
    Facts {
        started: "2026-11-24T08:30:00Z".to_owned(),
        schema: "vellum-compare/1".to_owned(),
        subject: subject.to_owned(),
        designs: "rmap=chains rmap=partial".to_owned(),
        host: "one".to_owned(),
        answer: "B needs 4 % less".to_owned(),
        note: String::new(),
    }
}

/// Text of `bytes` bytes that does not repeat.
fn document(seed: usize, bytes: usize) -> String {
    let blocks = (0..=bytes / 64).map(|block| digest(format!("{seed} {block}").as_bytes()));
    let mut text: String = blocks.collect();
    text.truncate(bytes);
    text
}

#[test]
fn what_is_kept_is_there_byte_for_byte_and_once() {
    let scratch = Scratch::new("history-kept");
    let path = scratch.path("deep/below/history.db");
    let mut store = Store::create(Path::new(&path)).expect("made with its directory");
    let text = "{\"schema\": \"\u{1f600} <script>\"}\n";
    let facts = facts("a'; DROP TABLE results; --");
    assert_eq!(store.add(&facts, text).expect("kept"), Added::New(1));
    assert_eq!(store.add(&facts, text).expect("kept"), Added::Known(1));
    let (entry, document) = store.get(1).expect("read").expect("there");
    assert_eq!((&entry.facts, document.as_str()), (&facts, text));
    assert_eq!(entry.bytes, text.len() as u64);
    assert_eq!(store.entries().expect("read"), [entry]);
    assert_eq!(store.remove(&[1, 7]).expect("removed"), 1);
    // A number is never used again.
    assert_eq!(store.add(&facts, text).expect("kept"), Added::New(2));
    assert!(store.get(1).expect("read").is_none());
}

#[test]
fn a_file_is_made_by_those_who_write_and_not_by_those_who_read() {
    let scratch = Scratch::new("history-missing");
    let path = scratch.path("history.db");
    let missing = Store::open(Path::new(&path)).expect_err("there is none");
    assert!(
        missing.to_string().contains("vellum history add"),
        "{missing}"
    );
    assert!(scratch.files().is_empty());
    // Somebody was ended right after making it.
    std::fs::write(&path, "").expect("written");
    let store = Store::open(Path::new(&path)).expect("nothing in it yet");
    assert!(store.entries().expect("read").is_empty());
    assert!(store.get(1).expect("read").is_none());
}

#[test]
fn other_files_and_newer_ones_are_refused_and_not_touched() {
    let scratch = Scratch::new("history-refused");
    let text = scratch.path("text.db");
    std::fs::write(&text, "a text that somebody wrote\n".repeat(400)).expect("written");
    let foreign = scratch.path("foreign.db");
    let newer = scratch.path("newer.db");
    drop(Store::create(Path::new(&newer)).expect("made"));
    let sql = |path: &str, sql: &str| {
        let connection = rusqlite::Connection::open(path).expect("opened");
        connection.execute_batch(sql).expect("changed");
    };
    sql(&foreign, "CREATE TABLE notes (text)");
    sql(&newer, &format!("PRAGMA user_version = {}", VERSION + 1));
    for (path, wanted) in [
        (&text, "not a history"),
        (&foreign, "not a history"),
        (&newer, "newer version of vellum"),
    ] {
        let before = std::fs::read(path).expect("read");
        for open in [Store::open, Store::create] {
            let refused = open(Path::new(path)).expect_err("refused").to_string();
            assert!(
                refused.contains(wanted) && refused.contains(path),
                "{refused}"
            );
        }
        assert_eq!(std::fs::read(path).expect("read"), before, "{path}");
    }
}

#[test]
fn a_newer_program_may_come_while_the_file_is_open() {
    let scratch = Scratch::new("history-meanwhile");
    let path = scratch.path("history.db");
    let mut store = Store::create(Path::new(&path)).expect("made");
    let connection = rusqlite::Connection::open(&path).expect("opened");
    let sql = format!("PRAGMA user_version = {}", VERSION + 1);
    connection.execute_batch(&sql).expect("changed");
    let refused = store.add(&facts("late"), "{}").expect_err("newer");
    assert!(matches!(refused, HistoryError::Newer { .. }), "{refused}");
}

#[test]
fn many_write_at_once_and_nothing_is_lost_or_kept_twice() {
    const EACH: usize = 12;
    let scratch = Scratch::new("history-many");
    let path = scratch.path("history.db");
    thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for number in 0..EACH {
                    // Opened anew each time, as commands do; the first of them make the file.
                    let mut store = Store::create(Path::new(path)).expect("opened");
                    let own = document(100 * writer + number, 20_000);
                    let own = store.add(&facts("own"), &own).expect("kept");
                    assert!(matches!(own, Added::New(_)));
                    // All writers have this one.
                    store
                        .add(&facts("same"), &document(number, 500))
                        .expect("kept");
                    assert!(!store.entries().expect("read").is_empty());
                }
            });
        }
    });
    let store = Store::open(Path::new(&path)).expect("opened");
    let entries = store.entries().expect("read");
    let count = |subject| {
        entries
            .iter()
            .filter(|e| e.facts.subject == subject)
            .count()
    };
    assert_eq!((count("own"), count("same")), (4 * EACH, EACH));
}

#[test]
fn a_file_that_others_are_just_making_is_not_taken_for_another_program_s() {
    let scratch = Scratch::new("history-made");
    for round in 0..100 {
        let path = scratch.path(&format!("{round}.db"));
        let together = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    Store::create(Path::new(&path)).expect("opened");
                });
            }
        });
    }
}

/// What a child of these tests does: it keeps a large result in the file that the
/// environment names. Of no effect in a test run.
#[test]
fn child() {
    let Some(path) = std::env::var_os("VELLUM_TEST_HISTORY") else {
        return;
    };
    let added = Store::create(Path::new(&path)).and_then(|mut store| {
        let large = document(1, 300_000);
        store.add(&facts("large"), &large)
    });
    match added {
        Ok(_) => println!("kept"),
        Err(error) => println!("refused: {error}"),
    }
}

fn in_child(path: &str, command: &mut Command) -> Output {
    let program = std::env::current_exe().expect("this test");
    command
        .arg(program)
        .args(["--exact", "child", "--nocapture"]);
    let output = command.env("VELLUM_TEST_HISTORY", path).output();
    output.expect("a child can be started")
}

/// A file with two results, to be damaged.
fn with_two(path: &str) {
    let mut store = Store::create(Path::new(path)).expect("made");
    for seed in [7, 8] {
        store
            .add(&facts("first"), &document(seed, 30_000))
            .expect("kept");
    }
}

fn is_sound(path: &str) -> bool {
    let connection = rusqlite::Connection::open(path).expect("opened");
    let check = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let answer = connection.query_row("PRAGMA integrity_check", (), check);
    answer.expect("checked") == "ok"
}

#[test]
fn a_process_that_is_killed_while_it_writes_leaves_what_was_there() {
    let scratch = Scratch::new("history-killed");
    let (mut killed, mut with_journal) = (0, 0);
    // The system ends the child at the first byte beyond the limit.
    for limit in [
        0, 10, 600, 5_000, 40_000, 70_000, 100_001, 200_000, 330_000, 9_000_000,
    ] {
        let path = scratch.path(&format!("{limit}.db"));
        with_two(&path);
        let mut shell = Command::new("env");
        let set_limit = move || {
            let limit = libc::rlimit {
                rlim_cur: limit,
                rlim_max: limit,
            };
            // SAFETY: takes a struct of integers; may be called between fork and exec.
            match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: `set_limit` only makes a system call.
        unsafe { shell.pre_exec(set_limit) };
        let output = in_child(&path, &mut shell);
        let is_killed = output.status.signal() == Some(libc::SIGXFSZ);
        killed += u32::from(is_killed);
        with_journal += u32::from(Path::new(&format!("{path}-journal")).exists());

        let mut store = Store::open(Path::new(&path)).expect("it can be opened");
        let entries = store.entries().expect("read");
        assert_eq!(
            entries.len(),
            3 - usize::from(is_killed),
            "{limit}: {output:?}"
        );
        for (id, seed) in [(1, 7), (2, 8)] {
            let (_, text) = store.get(id).expect("read").expect("there");
            assert_eq!(text, document(seed, 30_000), "{limit}");
        }
        store
            .add(&facts("large"), &document(1, 300_000))
            .expect("kept");
        assert_eq!(store.entries().expect("read").len(), 3, "{limit}");
        drop(store);
        assert!(is_sound(&path), "{limit}");
    }
    assert!(killed >= 6 && with_journal >= 3, "{killed} {with_journal}");
}

#[test]
fn a_full_disk_loses_nothing_and_is_told() {
    let scratch = Scratch::new("history-full");
    let path = scratch.path("disk/history.db");
    std::fs::create_dir(scratch.path("disk")).expect("made");
    let fill = "mount -t tmpfs -o size=200k tmpfs \"$0\" || exit 77; cp \"$1\" \"$0/history.db\"; \
                shift; \"$@\"; cp \"$0/history.db\" \"$0/../after.db\"";
    let before = scratch.path("before.db");
    with_two(&before);
    let mut shell = Command::new("unshare");
    shell.args(["--map-root-user", "--mount", "sh", "-c", fill]);
    shell.args([&scratch.path("disk"), &before]);
    let output = in_child(&path, &mut shell);
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(77) || !printed.contains("running 1 test") {
        // Mounting is not for everybody; who runs all checks is root.
        eprintln!("SKIPPED: no file system can be mounted: {output:?}");
        return;
    }
    assert!(
        printed.contains("the disk is full; nothing was changed"),
        "{printed}"
    );
    let after = scratch.path("after.db");
    let store = Store::open(Path::new(&after)).expect("it can be opened");
    assert_eq!(store.entries().expect("read").len(), 2);
    assert!(is_sound(&after));
}
