//! The benchmarks of files in memory, of frames and of first stores, end to end, at a
//! small scale.

use crate::bench::{counter, figure, has_figures, list, measured};
use crate::command::{text, vellum};
use serde_json::Value;

fn titles(value: &Value) -> Vec<&str> {
    let runs = list(&value["runs"]).iter();
    runs.map(|run| run["title"].as_str().expect("a title"))
        .collect()
}

#[test]
fn loopdd_writes_its_file_again_and_again_and_has_a_sample_for_each_time() {
    let small = ["--size", "iterations=3", "--size", "mebibytes=2"];
    let arguments = [&["loopdd", "--variant", "all", "--ram", "32M"], &small[..]].concat();
    let value = measured(&arguments);
    has_figures(&value, 4);
    assert_eq!(list(&value["runs"]).len(), 3);
    for run in 0..3 {
        // Each page of each iteration is new.
        assert!(counter(&value, run, "frame allocations", 0) >= 3 * 512);
        assert_eq!(figure(&value, run, "dd")["units"], 6.0);
        let blocks = list(&value["runs"][run]["blocks"]);
        let throughput = &blocks[0]["operations"][0]["samples"];
        assert_eq!(list(throughput).len(), 4, "an arm each");
        for (arm, samples) in list(throughput).iter().enumerate() {
            let times = &blocks[1]["operations"][0]["samples"][arm];
            let elapsed = &blocks[2]["operations"][0]["samples"][arm];
            for iteration in 0..3 {
                let of = |value: &Value| value[iteration].as_f64().expect("a sample");
                let megabytes = of(samples) * of(times);
                assert!((megabytes - 2.097152).abs() < 1e-9, "{megabytes} MB");
                assert!(of(elapsed) > of(times), "it includes the truncation");
            }
        }
    }
}

#[test]
fn loopdd_takes_a_tenth_of_memory_and_prints_the_tables_of_mmtests() {
    let arguments = ["bench", "loopdd", "-n", "1", "--ram", "40M", "-q"];
    let of = |format: &[&str]| {
        let output = vellum(&[&arguments[..], &["--size", "iterations=2"], format].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let ours = of(&[]);
    assert!(
        ours.contains("2 iterations of 4 MiB in blocks of 1 MiB"),
        "{ours}"
    );
    assert!(ours.contains("\nTrimMean elapsed "), "as of 2014: {ours}");
    let mmtests = of(&["--format", "mmtests"]);
    assert!(
        mmtests.contains("loopdd elapsed time, seconds\n"),
        "{mmtests}"
    );
    assert!(mmtests.contains("\nBAmean-95 elapsed "), "{mmtests}");
    assert!(
        !mmtests.contains("us per MiB"),
        "no figures of ours: {mmtests}"
    );
}

#[test]
fn lat_mmap_faults_once_for_each_byte_that_it_stores() {
    let small = ["--size", "mebibytes=16", "--size", "samples=2"];
    let value = measured(&[&["lat_mmap", "--ram", "32M"], &small[..]].concat());
    has_figures(&value, 4);
    let figures = list(&value["runs"][0]["figures"]);
    assert_eq!(figures.len(), 20);
    assert_eq!(figures[19]["name"], "16777K");
    let step = ((16 << 20) - (64 << 10)) / 20;
    let bytes = |number: u64| (65_536 + number * step) & !4095;
    let stores = |number: u64| (bytes(number) / 10).div_ceil(16_384);
    let faults: u64 = (1..=20).map(|number| 3 * stores(number)).sum();
    for arm in 0..3 {
        assert_eq!(counter(&value, 0, "faults", arm), faults);
    }
    let row = &value["runs"][0]["blocks"][0];
    assert_eq!(row["value"], "Procs");
    let ns = figures[4]["arms"][1]["value"].as_f64().expect("a time");
    assert_eq!(row["operations"][4]["samples"][1][0], ns / 1e3);
}

#[test]
fn pagealloc_takes_blocks_of_five_orders_in_batches() {
    let small = ["--size", "mebibytes=2", "--size", "rounds=1"];
    let value = measured(&[&["pagealloc", "--ram", "32M"], &small[..]].concat());
    has_figures(&value, 4);
    assert_eq!(list(&value["runs"]).len(), 5);
    for (order, batches) in [4, 3, 3, 3, 2].into_iter().enumerate() {
        let found = list(&value["runs"][order]["figures"]).len();
        assert_eq!(found, batches, "2 MiB of blocks of order {order}");
    }
    assert_eq!(figure(&value, 0, "batches of 64")["units"], 4096.0);
}

#[test]
fn pft_touches_the_pages_of_every_thread_and_process() {
    let small = ["--size", "pages=64", "--size", "rounds=2", "--cpus", "2"];
    let value = measured(&[&["pft", "--variant", "all", "--ram", "32M"], &small[..]].concat());
    has_figures(&value, 3);
    let expected = ["1 thread", "2 threads", "1 process", "2 processes"];
    assert_eq!(titles(&value), expected);
    for (run, tasks) in [1, 2, 1, 2].into_iter().enumerate() {
        assert_eq!(counter(&value, run, "zero fills", 1), 128 * tasks);
        let figures = list(&value["runs"][run]["figures"]).iter();
        let elapsed = figures.filter(|figure| figure["clock"] == "monotonic clock");
        assert_eq!(elapsed.count() > 0, tasks > 1, "where several run at once");
    }
}

#[test]
fn write_and_read_go_through_every_size_of_block_alone_and_together() {
    let small = ["--size", "mebibytes=1", "--size", "least=262144"];
    let rest = ["--size", "most=1048576", "--cpus", "2", "--ram", "32M"];
    for name in ["write", "read"] {
        let all = [&[name, "--variant", "all"], &small[..], &rest[..]].concat();
        let value = measured(&all);
        has_figures(&value, 4);
        let expected = [
            format!("{name}s, 1 CPU, a file for each"),
            format!("{name}s, 2 CPUs, a file for each"),
            format!("{name}s, 1 CPU, one file"),
            format!("{name}s, 2 CPUs, one file"),
        ];
        assert_eq!(titles(&value), expected);
        for run in 0..4 {
            let what = if name == "write" { "new pages" } else { "read" };
            for size in ["256 KiB", "512 KiB", "1 MiB"] {
                figure(&value, run, &format!("{what}, {size}"));
            }
        }
    }
}

#[test]
fn readonce_reads_every_page_of_its_files_from_the_store() {
    let small = ["--size", "mebibytes=1", "--size", "rounds=2", "--cpus", "2"];
    let value = measured(&[&["readonce", "--ram", "32M"], &small[..]].concat());
    has_figures(&value, 4);
    for (run, files) in [2, 4].into_iter().enumerate() {
        assert_eq!(counter(&value, run, "pages read", 2), 256 * files);
    }
}

#[test]
fn blocks_that_do_not_fit_and_pages_of_two_sizes_are_refused() {
    let refused = |arguments: &[&str], reason: &str| {
        let output = vellum(&[&["bench"], arguments, &["-q"]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = text(&output.stderr);
        assert!(error.contains(reason), "{error}");
        assert!(output.stdout.is_empty());
    };
    refused(
        &["write", "--size", "mebibytes=1"],
        "not more than the 1 MiB",
    );
    refused(
        &["read", "--size", "least=8192", "--size", "most=4096"],
        "least=8192",
    );
    let formats = [
        "--designs",
        "format=x86-64",
        "--designs",
        "format=aarch64-16k",
    ];
    let sizes = [&["lat_mmap"], &formats[..]].concat();
    refused(&sizes, "pages of one size");
    refused(&["lat_mmap", "--size", "mebibytes=1"], "at least 2");
    refused(&["pagealloc", "--on", "linux"], "only with --on core");
}

/// Runs a benchmark on the host's kernel; none where this user may mount nothing.
fn on_linux(arguments: &[&str]) -> Option<Value> {
    let rest = ["--on", "linux", "-n", "2", "-q", "--json", "-"];
    let output = vellum(&[&["bench"], arguments, &rest].concat());
    if output.status.code() == Some(2) && text(&output.stderr).contains("as root") {
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn the_real_dd_writes_to_a_tmpfs_of_its_own() {
    let small = ["--size", "iterations=2", "--size", "mebibytes=2"];
    let all = [&["loopdd", "--variant", "all"], &small[..]].concat();
    let Some(value) = on_linux(&all) else { return };
    has_figures(&value, 2);
    for run in list(&value["runs"]) {
        let fact = run["facts"][0].as_str().expect("a fact");
        assert!(fact.contains("on a tmpfs of its own"), "{fact}");
        let samples = &run["blocks"][2]["operations"][0]["samples"];
        assert_eq!(list(&samples[1]).len(), 2, "{samples}");
    }
}

#[test]
fn lat_mmap_names_the_file_system_and_what_it_took_off() {
    let small = ["--size", "mebibytes=8", "--size", "samples=2"];
    let value = on_linux(&[&["lat_mmap"], &small[..]].concat()).expect("no mount is needed");
    has_figures(&value, 2);
    let facts = list(&value["runs"][0]["facts"]).iter();
    let facts: Vec<&str> = facts.filter_map(Value::as_str).collect();
    assert!(facts[0].contains("The file is on "), "{facts:?}");
    assert!(facts[1].starts_with("Taken off: "), "{facts:?}");
}

#[test]
fn writes_reads_and_first_stores_of_the_host_have_the_rows_of_the_core() {
    let small = [
        "--size",
        "mebibytes=1",
        "--size",
        "least=65536",
        "--size",
        "most=131072",
    ];
    let names = |value: &Value, run: usize| -> Vec<String> {
        let figures = list(&value["runs"][run]["figures"]).iter();
        figures
            .map(|figure| figure["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    for name in ["write", "read"] {
        let all = [&[name, "--variant", "all", "--cpus", "2"], &small[..]].concat();
        let Some(host) = on_linux(&all) else { return };
        let core = measured(&all);
        assert_eq!(titles(&host), titles(&core));
        has_figures(&host, 2);
        for run in 0..4 {
            let (mut host, mut core) = (names(&host, run), names(&core, run));
            // One CPU cuts the files of all.
            core.retain(|name| name != "truncate, elapsed");
            host.sort_unstable();
            core.sort_unstable();
            assert_eq!(host, core, "{name}");
        }
    }
    let small = ["--size", "pages=64", "--size", "rounds=2", "--cpus", "2"];
    let all = [&["pft", "--variant", "all"], &small[..]].concat();
    let (host, core) = (on_linux(&all).expect("no mount is needed"), measured(&all));
    assert_eq!(titles(&host), titles(&core));
    has_figures(&host, 2);
    assert_eq!(figure(&host, 0, "fault")["units"], 128.0);
    assert_eq!(figure(&host, 3, "fault, elapsed")["units"], 256.0);
    let small = ["--size", "mebibytes=1", "--size", "rounds=2"];
    let once = on_linux(&[&["readonce"], &small[..]].concat()).expect("no mount is needed");
    has_figures(&once, 2);
    assert_eq!(figure(&once, 0, "read once")["units"], 2.0);
}
