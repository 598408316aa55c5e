//! `vellum sweep` with the real commands as cells. What happens when it is killed or the
//! disk is full is tested in the crate of its own, and on a cluster in `tests/slurm`.

use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use serde_json::Value;
use vellum_testing::by_hand::{self, PAGE, map, write};
use vellum_trace::EventKind;

use crate::command::{Scratch, printed, text, vellum};

fn write_pages(path: &str) {
    let start = 0x1000_0000;
    let mut events = vec![(0, map(start, 16))];
    events.extend((0..16).map(|page| (0, write(start + page * PAGE, false))));
    events.push((0, EventKind::Exit));
    by_hand::write_trace(path, 1, &events);
}

const SPEC: &str = r#"
name = "every kind"
jobs = 2

[[grid]]
run = "verify"
traces = ["a.vellum"]
designs = ["rmap=chains", "rmap=family"]
ram = ["64M"]

[[grid]]
run = "replay"
traces = ["a.vellum"]
ram = ["64M"]
seeds = [1, 2]

[[grid]]
run = "compare"
traces = ["a.vellum"]
designs = ["rmap=chains", "rmap=partial"]
ram = ["64M"]
passes = 5
options = ["--slice", "20", "--no-atomics"]

[[grid]]
run = "simulate"
traces = ["a.vellum"]
machines = ["epyc-milan-1s", "mine.toml"]
designs = ["rmap=chains", "rmap=family"]
cpus = [2]

[[grid]]
run = "scale"
workloads = ["fork-exit"]
machines = ["epyc-milan-1s"]
cpus = [1, 2]
window = 10

[[grid]]
run = "bench"
benchmarks = ["fork-family"]
designs = ["rmap=chains", "rmap=partial"]
scales = [0.02]
ram = ["64M"]
passes = 5

[[grid]]
run = "linux"
traces = ["a.vellum"]
"#;

/// When the files of the finished cells were written.
fn finished(scratch: &Scratch) -> BTreeMap<String, SystemTime> {
    let entries = fs::read_dir(scratch.path("grid.results/cells")).expect("read");
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("read");
        let written = entry.metadata().and_then(|data| data.modified());
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, written.expect("read"))
    };
    entries.map(entry).collect()
}

#[test]
fn cells_of_every_kind_run_once_and_say_their_host() {
    let scratch = Scratch::new("sweep-kinds");
    write_pages(&scratch.path("a.vellum"));
    let machine = vellum(&["machines", "epyc-milan-1s", "--toml"]);
    scratch.write("mine.toml", machine.stdout);
    let spec = scratch.write("grid.toml", SPEC);
    let dry = vellum(&["sweep", &spec, "--dry-run"]);
    assert!(
        text(&dry.stdout).starts_with("13 cells, 5 of them timed; 0 finished"),
        "{}",
        printed(&dry)
    );
    let run = vellum(&["sweep", &spec, "--quiet", "--json", "-"]);
    assert!(run.status.success(), "{}", printed(&run));
    let result: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    assert_eq!(
        (&result["schema"], &result["finished"]),
        (&"vellum-sweep/1".into(), &13.into())
    );
    let host = &result["run"]["host"]["name"];
    assert_eq!(&result["hosts"][0]["name"], host);
    let rows = result["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 12, "the two seeds are one row");
    for row in rows {
        assert_eq!(&row["host"], host, "{row}");
        assert_eq!(row["refuted"], false, "{row}");
    }
    // A machine and a copy of its description give the same virtual time.
    let simulated = |machine: &str| {
        let of = |row: &&Value| row["run"] == "simulate" && row["machine"] == machine;
        let values = rows
            .iter()
            .filter(of)
            .map(|row| row["value"]["median"].clone());
        values.collect::<Vec<Value>>()
    };
    assert_eq!(simulated("epyc-milan-1s"), simulated("mine.toml"));
    let before = finished(&scratch);
    assert_eq!(before.len(), 13);
    let again = vellum(&["sweep", &spec, "--quiet"]);
    assert!(again.status.success(), "{}", printed(&again));
    assert!(
        text(&again.stdout).contains("13 of 13 cells finished"),
        "{}",
        printed(&again)
    );
    assert_eq!(finished(&scratch), before);
    // A cell is a result of its own.
    let name = before.keys().next().expect("some");
    let cell = scratch.path(&format!("grid.results/cells/{name}"));
    let page = vellum(&["report", &cell, "-o", &scratch.path("cell.html")]);
    assert!(page.status.success(), "{}", printed(&page));
    // What has changed runs again, and nothing else.
    fs::write(&spec, SPEC.replace("cpus = [1, 2]", "cpus = [1, 4]")).expect("written");
    let dry = vellum(&["sweep", &spec, "--dry-run"]);
    assert!(
        text(&dry.stdout).contains("13 cells, 5 of them timed; 12 finished"),
        "{}",
        printed(&dry)
    );
}

#[test]
fn a_spec_that_cannot_be_used_is_refused_with_its_line() {
    let scratch = Scratch::new("sweep-refused");
    scratch.write("a.vellum", "no trace");
    for (spec, said) in [
        (
            "[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\n",
            "grid.toml:3: ",
        ),
        (
            "[[grid]]\nrun = \"scale\"\nworkloads = [\"faults\"]\nmachines = [\"epyc-milan-1s\"]\n\
          designs = [\"rmap=lists\"]\n",
            "grid.toml:5: ",
        ),
    ] {
        let path = scratch.write("grid.toml", spec);
        let run = vellum(&["sweep", &path]);
        assert_eq!(run.status.code(), Some(2), "{}", printed(&run));
        assert!(text(&run.stderr).contains(said), "{}", printed(&run));
        assert!(!std::path::Path::new(&scratch.path("grid.results")).exists());
    }
}

#[test]
fn a_cell_that_fails_leaves_the_others_and_is_told() {
    let scratch = Scratch::new("sweep-fails");
    write_pages(&scratch.path("a.vellum"));
    // Not enough memory for the trace in one of them.
    let spec = "[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\nram = [\"4K\", \"64M\"]\n";
    let spec = scratch.write("grid.toml", spec);
    let run = vellum(&["sweep", &spec]);
    assert_eq!(run.status.code(), Some(1), "{}", printed(&run));
    assert!(
        text(&run.stdout).contains("1 of 2 cells finished"),
        "{}",
        printed(&run)
    );
    assert!(text(&run.stdout).contains("--ram=4K"), "{}", printed(&run));
}
