//! Nothing is lost and nothing runs twice, whatever ends a sweep. The program that cells
//! run here is a script that notes each of its runs; the tests of the lab run the real one.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use vellum_results::sweep::Place;
use vellum_sweep::cell::{Resources, Word};
use vellum_sweep::execute::Runner;
use vellum_sweep::local::{self, Done};
use vellum_sweep::store::State;
use vellum_sweep::{Cell, HostId, Store, SweepError, findings};
use vellum_terminal::progress::{Interrupt, Style};
use vellum_testing::Scratch;

/// Set in a child process: the directory of the test.
const CHILD: &str = "VELLUM_TEST_SWEEP";

fn host() -> HostId {
    HostId {
        name: "one".to_owned(),
        kernel: "6.1".to_owned(),
    }
}

/// The cell number `seed`.
fn cell(seed: u64, timed: bool) -> Cell {
    Cell {
        place: Place {
            run: if timed { "replay" } else { "simulate" }.to_owned(),
            subject: "a.vellum".to_owned(),
            ..Place::default()
        },
        seed,
        timed,
        threads: 1,
        resources: Resources::default(),
        words: vec![
            Word::Text("replay".to_owned()),
            Word::Text(format!("--seed={seed}")),
        ],
        program: "a".repeat(64),
        host: timed.then(host),
    }
}

fn cells(count: u64) -> Vec<Cell> {
    (0..count).map(|seed| cell(seed, false)).collect()
}

/// A program that notes the beginning and the end of each run in `log`, does `more` in
/// between, and prints a result.
fn program(scratch: &Scratch, more: &str) {
    let mut result: serde_json::Value =
        serde_json::from_str(include_str!("../../page/tests/results/replay.json")).expect("JSON");
    result["run"]["traces"] = serde_json::json!([]);
    scratch.write("result.json", result.to_string());
    let script = format!(
        "#!/bin/sh\nlog={0}\nseed=${{2#--seed=}}\necho begin $seed >> $log/log\n{more}\n\
         cat {0}/result.json\necho end $seed >> $log/log\n",
        scratch.directory()
    );
    let path = scratch.write("program", script);
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, executable).expect("it can be started");
}

fn runner(directory: &Path) -> Runner {
    Runner {
        program: directory.join("program"),
        here: host(),
        machine: directory.join("machine.lock"),
    }
}

fn sweep_in(directory: &Path, cells: &[Cell], jobs: usize) -> Result<Done, SweepError> {
    let store = Store::open(&directory.join("results"))?;
    let _claim = store.claim()?;
    store.clear_partial()?;
    let runner = runner(directory);
    let interrupt = Interrupt::manual();
    local::run(cells, &store, &runner, jobs, Style::Quiet, &interrupt)
}

fn sweep(scratch: &Scratch, cells: &[Cell], jobs: usize) -> Result<Done, SweepError> {
    sweep_in(Path::new(scratch.directory()), cells, jobs)
}

fn log(scratch: &Scratch) -> Vec<String> {
    let text = std::fs::read_to_string(scratch.path("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// How often each of `count` cells began.
fn begun(scratch: &Scratch, count: u64) -> Vec<usize> {
    let log = log(scratch);
    let times = |seed| {
        let line = format!("begin {seed}");
        log.iter().filter(|one| **one == line).count()
    };
    (0..count).map(times).collect()
}

#[test]
fn a_finished_cell_never_runs_again_and_a_failed_one_does() {
    let scratch = Scratch::new("sweep-again");
    program(
        &scratch,
        "if [ $seed = 2 ] && [ ! -e $log/mended ]; then echo 'no memory' >&2; exit 1; fi",
    );
    let cells = cells(5);
    let done = sweep(&scratch, &cells, 3).expect("it ran");
    assert_eq!((done.finished.len(), done.failed.len()), (4, 1));
    let why = done.failed.values().next().expect("one failed");
    assert!(
        why.contains("exit code 1: no memory") && why.contains("--seed=2"),
        "{why}"
    );
    let found = findings::findings("test", &cells, &done);
    assert_eq!((found.cells, found.finished, found.failed.len()), (5, 4, 1));
    assert_eq!(found.failed[0].seed, 2);
    scratch.write("mended", "");
    let done = sweep(&scratch, &cells, 3).expect("it ran");
    assert_eq!((done.finished.len(), done.failed.len()), (5, 0));
    assert_eq!(begun(&scratch, 5), [1, 1, 2, 1, 1]);
    sweep(&scratch, &cells, 3).expect("it ran");
    assert_eq!(begun(&scratch, 5), [1, 1, 2, 1, 1]);
}

#[test]
fn a_check_that_does_not_hold_is_a_result() {
    let scratch = Scratch::new("sweep-refuted");
    program(
        &scratch,
        "if [ $seed = 1 ]; then echo 'page 7 differs' >&2; exit 3; fi",
    );
    let cells = cells(2);
    for _ in 0..2 {
        let done = sweep(&scratch, &cells, 1).expect("it ran");
        let found = findings::findings("test", &cells, &done);
        assert!(found.rows[0].refuted, "{found:?}");
        assert_eq!(found.rows[0].answer, "seed 1: page 7 differs");
    }
    assert_eq!(begun(&scratch, 2), [1, 1]);
}

#[test]
fn what_prints_no_result_is_not_finished() {
    let scratch = Scratch::new("sweep-nonsense");
    program(
        &scratch,
        "if [ $seed = 0 ]; then echo '{\"schema\": '; exit 0; fi",
    );
    let done = sweep(&scratch, &cells(2), 1).expect("it ran");
    assert_eq!((done.finished.len(), done.failed.len()), (1, 1));
    let why = done.failed.values().next().expect("one failed");
    assert!(why.contains("no result as JSON"), "{why}");
}

#[test]
fn timed_cells_are_alone_among_all_sweeps_of_a_machine() {
    let scratch = Scratch::new("sweep-alone");
    program(&scratch, "");
    // Two sweeps at once, with the machine's lock and the log in common.
    for name in ["one", "two"] {
        std::fs::create_dir(scratch.path(name)).expect("made");
    }
    thread::scope(|scope| {
        for (name, first) in [("one", 0), ("two", 100)] {
            let root = scratch.path(name);
            let directory = Path::new(scratch.directory());
            scope.spawn(move || {
                let cells: Vec<Cell> = (first..first + 12)
                    .map(|seed| cell(seed, seed % 2 == 1))
                    .collect();
                let store = Store::open(Path::new(&root)).expect("opened");
                let runner = runner(directory);
                let interrupt = Interrupt::manual();
                let done = local::run(&cells, &store, &runner, 4, Style::Quiet, &interrupt);
                assert_eq!(done.expect("it ran").finished.len(), 12);
            });
        }
    });
    let log = log(&scratch);
    assert_eq!(log.len(), 48);
    let is_timed = |line: &str| {
        let (_, seed) = line.split_once(' ').expect("a number");
        seed.parse::<u64>().expect("a number") % 2 == 1
    };
    for (place, line) in log.iter().enumerate() {
        if line.starts_with("begin") && is_timed(line) {
            let next = log[place + 1].replace("end", "begin");
            assert_eq!(next, *line, "somebody ran beside it: {log:?}");
        }
    }
}

#[test]
fn a_damaged_cell_is_set_aside_and_runs_again() {
    let scratch = Scratch::new("sweep-damaged");
    program(&scratch, "");
    let cells = cells(3);
    sweep(&scratch, &cells, 1).expect("it ran");
    let place = |seed: usize| {
        PathBuf::from(scratch.path(&format!("results/cells/{}.json", cells[seed].key())))
    };
    let whole = std::fs::read(place(0)).expect("there");
    std::fs::write(place(0), &whole[..whole.len() / 2]).expect("damaged");
    // The file of another cell under this one's name.
    std::fs::copy(place(2), place(1)).expect("copied");
    let done = sweep(&scratch, &cells, 1).expect("it ran");
    assert_eq!(done.finished.len(), 3);
    assert_eq!(begun(&scratch, 3), [2, 2, 1]);
    let aside = std::fs::read_dir(scratch.path("results/failed")).expect("read");
    assert_eq!(aside.count(), 2);
}

#[test]
fn of_a_cell_that_was_finished_twice_the_first_one_stays() {
    let scratch = Scratch::new("sweep-twice");
    program(&scratch, "");
    let cells = cells(1);
    sweep(&scratch, &cells, 1).expect("it ran");
    let store = Store::open(Path::new(&scratch.path("results"))).expect("opened");
    let key = cells[0].key();
    let path = scratch.path(&format!("results/cells/{key}.json"));
    let bytes = std::fs::read(&path).expect("there");
    let mut record: vellum_sweep::record::Record =
        serde_json::from_slice(&bytes).expect("a record");
    record.seconds = 1e9;
    store.finish(&record).expect("kept");
    assert_eq!(std::fs::read(&path).expect("there"), bytes);
    let partial = std::fs::read_dir(scratch.path("results/partial")).expect("read");
    assert_eq!(partial.count(), 0);
    assert!(matches!(store.state(&key), Ok(State::Finished(_))));
}

#[test]
fn seeds_share_a_row_and_hosts_do_not() {
    let scratch = Scratch::new("sweep-rows");
    program(&scratch, "");
    let on = |name: &str| {
        let host = HostId {
            name: name.to_owned(),
            kernel: "6.1".to_owned(),
        };
        let cells = (1..=3).map(|seed| Cell {
            host: Some(host.clone()),
            ..cell(seed, true)
        });
        cells.collect::<Vec<Cell>>()
    };
    let directory = Path::new(scratch.directory());
    let store = Store::open(&directory.join("results")).expect("opened");
    let cells = [on("one"), on("two")].concat();
    for name in ["one", "two"] {
        let runner = Runner {
            here: on(name)[0].host.clone().expect("a host"),
            ..runner(directory)
        };
        let interrupt = Interrupt::manual();
        let done = local::run(&on(name), &store, &runner, 1, Style::Quiet, &interrupt);
        assert_eq!(done.expect("it ran").finished.len(), 3);
    }
    let done = Done::read(&store, &cells).expect("read");
    let found = findings::findings("test", &cells, &done);
    let rows: Vec<(&str, usize)> = found
        .rows
        .iter()
        .map(|row| (row.host.as_str(), row.seeds.len()))
        .collect();
    assert_eq!(rows, [("one", 3), ("two", 3)]);
    assert_eq!(found.hosts.len(), 2);
    let text = vellum_sweep::text::render(&found);
    assert!(text.contains("nothing is averaged over hosts"), "{text}");
}

#[test]
fn two_sweeps_do_not_write_the_same_results_at_once() {
    let scratch = Scratch::new("sweep-busy");
    let store = Store::open(Path::new(&scratch.path("results"))).expect("opened");
    let claim = store.claim().expect("nobody else");
    let busy = store.claim().expect_err("somebody else");
    assert!(
        busy.to_string().contains("another sweep is at work"),
        "{busy}"
    );
    drop(claim);
    store.claim().expect("nobody else");
}

/// What the tests below run in a process of its own: a sweep of twelve cells.
#[test]
fn child() {
    let Ok(directory) = std::env::var(CHILD) else {
        return;
    };
    let directory = Path::new(&directory);
    let store = Store::open(&directory.join("results")).expect("opened");
    let _claim = store.claim().expect("nobody else");
    let interrupt = Interrupt::on_ctrl_c().expect("caught");
    let runner = runner(directory);
    match local::run(&cells(12), &store, &runner, 1, Style::Quiet, &interrupt) {
        Ok(done) => println!("finished {}, {}", done.finished.len(), done.interrupted),
        Err(error) => println!("error: {error}"),
    }
}

fn in_child(scratch: &Scratch, command: &mut Command) -> Output {
    let program = std::env::current_exe().expect("this test");
    command
        .arg(program)
        .args(["--exact", "child", "--nocapture"]);
    let output = command.env(CHILD, scratch.directory()).output();
    output.expect("a child can be started")
}

/// Ends a sweep while cell 5 runs, and lets another go on.
fn ended_while_a_cell_runs(name: &str, how: &str, says: &str) {
    let scratch = Scratch::new(name);
    let more = format!("if [ $seed = 5 ] && [ ! -e $log/ended ]; then touch $log/ended; {how}; fi");
    program(&scratch, &more);
    let output = in_child(&scratch, &mut Command::new("env"));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains(says), "{printed}");
    let store = Store::open(Path::new(&scratch.path("results"))).expect("opened");
    let cells = cells(12);
    let finished: Vec<bool> = cells.iter().map(|cell| store.has(&cell.key())).collect();
    assert!(
        !finished[5] && finished[..4].iter().all(|finished| *finished),
        "{finished:?}"
    );
    assert!(!finished[9..].contains(&true), "it went on: {finished:?}");
    let before = begun(&scratch, 12);
    let done = sweep(&scratch, &cells, 2).expect("it ran");
    assert_eq!(done.finished.len(), 12);
    let after = begun(&scratch, 12);
    for (seed, finished) in finished.iter().enumerate() {
        let again = usize::from(!finished);
        assert_eq!(
            after[seed],
            before[seed] + again,
            "cell {seed}: {before:?} {after:?}"
        );
    }
}

#[test]
fn a_sweep_that_is_killed_goes_on_where_it_stopped() {
    ended_while_a_cell_runs(
        "sweep-killed",
        "kill -KILL $PPID; sleep 1",
        "running 1 test",
    );
}

#[test]
fn ctrl_c_ends_what_runs_and_keeps_what_is_finished() {
    // It would sleep for long if nobody ended it.
    ended_while_a_cell_runs("sweep-ctrl-c", "kill -INT $PPID; sleep 600", ", true");
}

#[test]
fn a_full_disk_loses_nothing_and_is_told() {
    let scratch = Scratch::new("sweep-full");
    program(&scratch, "");
    std::fs::create_dir(scratch.path("results")).expect("made");
    // Room for some cells, and then for all.
    let script = "mount -t tmpfs -o size=32k tmpfs \"$0/results\" || exit 77; \"$@\"; \
                  ls \"$0/results/cells\" > \"$0/first\"; ls \"$0/results/partial\" > \"$0/partial\"; \
                  mount -o remount,size=4m \"$0/results\"; \"$@\"";
    let mut shell = Command::new("unshare");
    shell.args([
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        scratch.directory(),
    ]);
    let output = in_child(&scratch, &mut shell);
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(77) || !printed.contains("running 1 test") {
        // Mounting is not for everybody; who runs all checks is root.
        eprintln!("SKIPPED: no file system can be mounted: {output:?}");
        return;
    }
    assert!(
        printed.contains("finished cells are kept: make room"),
        "{printed}"
    );
    assert!(printed.contains("finished 12, false"), "{printed}");
    let kept = std::fs::read_to_string(scratch.path("first")).expect("written");
    assert!((1..12).contains(&kept.lines().count()), "{kept}");
    let partial = std::fs::read_to_string(scratch.path("partial")).expect("written");
    assert_eq!(partial, "", "something is left behind");
    let begun = begun(&scratch, 12);
    for (seed, cell) in cells(12).iter().enumerate() {
        match kept.contains(&cell.key()) {
            true => assert_eq!(begun[seed], 1, "cell {seed} ran again"),
            false => assert!((1..=2).contains(&begun[seed]), "{begun:?}"),
        }
    }
}
