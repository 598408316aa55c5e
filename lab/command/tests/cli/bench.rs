//! `vellum bench` as a user meets it: every workload on the core, end to end, at a
//! small scale.

use crate::command::{text, vellum};
use serde_json::Value;
use vellum_lab::bench::BENCHMARKS;

/// Runs a benchmark at a small scale with two passes; returns its JSON.
pub fn measured(arguments: &[&str]) -> Value {
    let mut all = vec!["bench"];
    all.extend(arguments);
    all.extend(["-n", "2", "--quiet", "--json", "-", "--resamples", "100"]);
    let output = vellum(&all);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "--quiet is quiet");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["schema"], "vellum-bench/1");
    assert_eq!(value["benchmark"], arguments[0]);
    value
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// The figure called `name` of run `run`.
pub fn figure<'v>(value: &'v Value, run: usize, name: &str) -> &'v Value {
    let figures = list(&value["runs"][run]["figures"]);
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no figure {name} in {figures:#?}"))
}

pub fn counter(value: &Value, run: usize, name: &str, arm: usize) -> u64 {
    let rows = list(&value["runs"][run]["counters"]);
    let found = rows.iter().find(|row| row["name"] == name);
    let row = found.unwrap_or_else(|| panic!("no counter {name}"));
    row["values"][arm].as_u64().expect("counted")
}

/// Every figure of every run has a time above zero for each of `arms`.
pub fn has_figures(value: &Value, arms: usize) {
    assert_eq!(list(&value["arms"]).len(), arms);
    for run in list(&value["runs"]) {
        let figures = list(&run["figures"]);
        assert!(!figures.is_empty(), "{run:#}");
        for figure in figures {
            assert_eq!(list(&figure["arms"]).len(), arms, "{figure:#}");
            for arm in list(&figure["arms"]) {
                assert!(
                    arm["value"].as_f64().is_some_and(|ns| ns > 0.0),
                    "{figure:#}"
                );
                assert_eq!(list(&arm["passes"]).len(), 2);
            }
            assert_eq!(figure["arms"][0]["verdict"], "base");
            assert_eq!(figure["arms"][arms - 1]["verdict"], "control");
        }
    }
}

#[test]
fn forkfault_times_fork_faults_and_exit_of_the_published_program() {
    let value = measured(&[
        "forkfault",
        "--size",
        "forks=16",
        "--ram",
        "64M",
        "--designs",
        "rmap=chains",
        "--designs",
        "rmap=partial",
        "--designs",
        "rmap=chains,direct=off",
    ]);
    has_figures(&value, 4);
    assert_eq!(value["arms"][3]["label"], "A'");
    for arm in 0..4 {
        assert_eq!(counter(&value, 0, "forks", arm), 16);
        assert_eq!(counter(&value, 0, "faults", arm), 16 * 32);
        assert_eq!(counter(&value, 0, "zero-page maps", arm), 16 * 32);
        assert!(
            counter(&value, 0, "tables made", arm) >= 16 * 32,
            "every fault needs a table"
        );
    }
    let fault = figure(&value, 0, "fault");
    assert_eq!(fault["units"], 15.0 * 32.0, "the first child is apart");
    assert_eq!(fault["arms"][0]["spread"]["parts"], 2 * 15);
    assert_eq!(
        figure(&value, 0, "fault, first child of a pass")["units"],
        32.0
    );
    assert_eq!(figure(&value, 0, "fork")["units"], 15.0);
}

#[test]
fn forkfault_runs_in_every_variant() {
    let value = measured(&[
        "forkfault",
        "--variant",
        "all",
        "--size",
        "forks=3",
        "--ram",
        "64M",
    ]);
    has_figures(&value, 3);
    let titles: Vec<&str> = list(&value["runs"])
        .iter()
        .filter_map(|run| run["title"].as_str()?.split(':').next())
        .collect();
    let forkfault = BENCHMARKS.iter().find(|b| b.name == "forkfault");
    let variants = forkfault.expect("there is one").variants;
    assert_eq!(titles, variants.iter().map(|v| v.name).collect::<Vec<_>>());
    let run = |name: &str| titles.iter().position(|title| *title == name).expect("ran");
    assert_eq!(counter(&value, run("write"), "zero fills", 0), 3 * 32);
    assert_eq!(counter(&value, run("migrate"), "faults", 0), 3 * 32);
    assert_eq!(counter(&value, run("fork-exec"), "exits", 0), 2 * 3);
}

/// A child takes 32 tables of the lowest level on one node and frees them on another.
#[test]
fn children_that_migrate_trap_their_tables_where_nodes_are_not_told_apart() {
    let value = measured(&[
        "forkfault",
        "--variant",
        "migrate",
        "--size",
        "forks=12",
        "--ram",
        "64M",
        "--designs",
        "ptepage=quicklist",
        "--designs",
        "ptepage=quicklist,quicknode=blind",
    ]);
    assert_eq!(counter(&value, 0, "table pages trapped", 0), 0);
    // Tables of the last children may still wait for their epoch.
    let trapped = counter(&value, 0, "table pages trapped", 1);
    assert!((9 * 32..=12 * 40).contains(&trapped), "{trapped}");
}

#[test]
fn rmap_test_looks_every_page_up_in_every_task() {
    let value = measured(&[
        "rmap-test",
        "--size",
        "tasks=3",
        "--size",
        "regions=4",
        "--size",
        "pages=40",
        "--size",
        "wide-regions=50",
        "--ram",
        "64M",
    ]);
    has_figures(&value, 3);
    // Each shape page by page, and sixteen neighbours at a time.
    for arm in 0..3 {
        for run in [0, 1] {
            assert_eq!(counter(&value, run, "pages looked up", arm), 160);
            assert_eq!(counter(&value, run, "lookup hits", arm), 3 * 160);
        }
        for run in [2, 3] {
            assert_eq!(counter(&value, run, "lookup hits", arm), 50 * 7);
        }
    }
    for (run, title) in [(2, "page by page"), (3, "sixteen neighbours at a time")] {
        assert_eq!(figure(&value, run, "scan")["units"], 350.0);
        assert_eq!(figure(&value, run, "all phases")["units"], 1.0);
        let printed = value["runs"][run]["title"].as_str().expect("a title");
        assert!(printed.ends_with(title), "{printed}");
    }
    let notes = value["notes"].to_string();
    assert!(notes.contains("scanner"), "{notes}");
}

#[test]
fn rmap_test_under_pressure_reads_the_file_again_for_each_sweep() {
    let sized = |memory: &str| {
        measured(&[
            "rmap-test",
            "--variant",
            "pressure",
            "--size",
            "tasks=3",
            "--size",
            "regions=10",
            "--size",
            "pages=200",
            "--size",
            "wide-regions=300",
            "--size",
            "sweeps=3",
            "--size",
            memory,
            "--designs",
            "rmap=chains,faultaround=1",
            "--designs",
            "rmap=partial,regions=list,faultaround=1",
        ])
    };
    let short = sized("memory=50");
    has_figures(&short, 3);
    let arms = short["arms"].to_string();
    assert!(arms.contains("reclaim=on"), "{arms}");
    for (run, pages) in [(0, 2000), (1, 2100)] {
        for arm in 0..3 {
            // No more than half can stay from one sweep to the next.
            let read = counter(&short, run, "device: pages read", arm);
            assert!((2 * pages..=3 * pages).contains(&read), "{read}");
            let looked = counter(&short, run, "pages looked up", arm);
            assert!(looked >= read - pages, "{looked} lookups, {read} read");
        }
        let printed = short["runs"][run]["title"].as_str().expect("a title");
        assert!(printed.ends_with("with too little memory"), "{printed}");
        let rows = short["runs"][run]["reclaim"].to_string();
        assert!(rows.contains("lookups for each"), "{rows}");
    }
    let ample = sized("memory=400");
    for arm in 0..3 {
        assert_eq!(counter(&ample, 0, "device: pages read", arm), 2000);
        assert_eq!(counter(&ample, 0, "reclaim: pages reclaimed", arm), 0);
    }
}

#[test]
fn fork_family_tells_lookups_of_parent_and_child_apart() {
    let value = measured(&[
        "fork-family",
        "--size",
        "children=5",
        "--size",
        "pages=8",
        "--size",
        "shared=4",
        "--ram",
        "64M",
    ]);
    has_figures(&value, 3);
    for arm in 0..3 {
        assert_eq!(counter(&value, 0, "copies on write", arm), 5 * 8);
        // 10 visits of the parent's 8 pages, each child's 8, 4 shared by 6.
        assert_eq!(counter(&value, 0, "pages looked up", arm), 80 + 40 + 4);
        assert_eq!(counter(&value, 0, "lookup hits", arm), 80 + 40 + 4 * 6);
    }
    assert_eq!(figure(&value, 0, "lookup of a child's page")["units"], 40.0);
    assert_eq!(
        figure(&value, 0, "lookup of a parent's page")["units"],
        80.0
    );
}

#[test]
fn mremap_after_fork_finds_pages_at_each_of_their_addresses() {
    let value = measured(&[
        "mremap-after-fork",
        "--size",
        "children=4",
        "--size",
        "pages=24",
        "--ram",
        "64M",
    ]);
    has_figures(&value, 3);
    for arm in 0..3 {
        assert_eq!(counter(&value, 0, "pages looked up", arm), 24);
        assert_eq!(counter(&value, 0, "lookup hits", arm), 24 * 5);
    }
    assert_eq!(figure(&value, 0, "mremap")["units"], 48.0);
}

#[test]
fn shared_file_has_regions_that_map_less_than_they_might() {
    let value = measured(&[
        "shared-file",
        "--size",
        "regions=40",
        "--size",
        "pages=16",
        "--ram",
        "64M",
        "--a",
        "rmap=chains",
        "--b",
        "rmap=partial",
    ]);
    has_figures(&value, 3);
    for arm in 0..3 {
        assert_eq!(counter(&value, 0, "lookup hits", arm), 4 * 40);
    }
    let probes = |arm| counter(&value, 0, "lookup false probes", arm);
    assert_eq!(probes(0), 0, "chains know every entry");
    // 40 regions might map each of 16 pages; a search may end at the last hit.
    assert!(probes(1) > 4 * 40, "{}", probes(1));
}

#[test]
fn rmap_primitives_counts_an_add_a_duplicate_and_a_remove_for_each_page() {
    let value = measured(&[
        "rmap-primitives",
        "--size",
        "pages=64",
        "--size",
        "rounds=2",
        "--ram",
        "64M",
    ]);
    has_figures(&value, 3);
    assert_eq!(counter(&value, 0, "rmap duplicates", 0), 2 * 64);
    assert_eq!(figure(&value, 0, "fork")["units"], 128.0);
}

/// Entries found and false probes of a lookup, under each design of RELATIVES.
fn per_lookup(value: &Value, run: usize, name: &str) -> Vec<f64> {
    let rows = list(&value["runs"][run]["per_lookup"]);
    let row = rows.iter().find(|row| row["name"] == name);
    let values = list(&row.expect("it is counted")["values"]).iter();
    values
        .map(|value| value.as_f64().expect("a number"))
        .collect()
}

const RELATIVES: [&str; 5] = [
    "rmap=chains",
    "rmap=anonmm",
    "rmap=anon_vma",
    "rmap=anon_vma_chain",
    "rmap=family",
];

#[test]
fn late_mappers_make_a_search_from_the_youngest_on_look_at_all_relatives() {
    let value = measured(&[
        "late-mappers",
        "--size",
        "children=40",
        "--size",
        "pages=8",
        "--ram",
        "64M",
    ]);
    let given: Vec<&str> = list(&value["arms"])
        .iter()
        .filter_map(|arm| arm["given"].as_str())
        .collect();
    assert_eq!(given[..5], RELATIVES);
    let found = per_lookup(&value, 0, "entries found");
    assert!(found.iter().all(|entries| *entries == 2.0), "{found:?}");
    let probes = per_lookup(&value, 0, "false probes");
    // The parent and 38 children no longer have the page.
    let [chains, anonmm, anon_vma, chain, family] = probes[..5] else {
        panic!("{probes:?}");
    };
    assert_eq!(chains, 0.0);
    assert_eq!(family, 39.0, "{probes:?}");
    // Searches from the oldest on, and passes the parent.
    assert_eq!(anonmm, 1.0, "{probes:?}");
    // The regions of those that gave the page up are gone with it.
    assert_eq!((anon_vma, chain), (0.0, 0.0), "{probes:?}");
}

#[test]
fn generations_leave_what_each_design_keeps_of_ancestors() {
    let value = measured(&[
        "generations",
        "--variant",
        "all",
        "--size",
        "generations=40",
        "--size",
        "pages=4",
        "--ram",
        "64M",
    ]);
    let nodes = |run: usize, arm: usize| {
        let rows = list(&value["runs"][run]["counters"]);
        let of = |name: &str| {
            let row = rows.iter().find(|row| row["name"] == name);
            row.expect("it is counted")["values"][arm]
                .as_u64()
                .expect("counted")
        };
        of("rmap node allocations")
    };
    let (line, living) = (0, 1);
    for run in [line, living] {
        for arm in 0..5 {
            assert_eq!(counter(&value, run, "pages looked up", arm), 2 * 160);
        }
    }
    // Where each generation ends, a page has one entry; a family finds it through
    // the heir of the one that made it.
    let found = per_lookup(&value, line, "entries found");
    assert!(found.iter().all(|entries| *entries == 1.0), "{found:?}");
    assert_eq!(per_lookup(&value, line, "false probes")[4], 0.0);
    assert!(nodes(line, 4) >= 40, "a node for each generation");
    // Where all live, a page has an entry in its maker and each descendant.
    let found = per_lookup(&value, living, "entries found");
    assert!(found.iter().all(|entries| *entries == 20.5), "{found:?}");
    // k (k + 1) / 2 links of one region.
    assert!(nodes(living, 3) >= 40 * 41 / 2, "{}", nodes(living, 3));
    assert!(nodes(living, 4) < 2 * 40, "{}", nodes(living, 4));
}

#[test]
fn tables_name_designs_phases_and_verdicts() {
    let output = vellum(&[
        "bench",
        "fork-family",
        "--scale",
        "0.01",
        "--ram",
        "64M",
        "-n",
        "5",
        "--quiet",
        "--details",
        "--resamples",
        "100",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for part in [
        "fork-family on the core: ",
        "  A   rmap=chains\n  B   rmap=partial\n  A'  as A, once more: the control\n  all direct=on,",
        "\nA rmap=chains  ",
        "children=10 pages=1 shared=1 visits=10; 64 MiB each; 5 passes; seed 1",
        "lookup of a child's page, ns per lookup",
        "told from",
        "Events in one pass       A rmap=chains  B rmap=partial\n",
        "Memory at the peak (KiB)  A rmap=chains  B rmap=partial\n",
        "Not in these times",
    ] {
        assert!(printed.contains(part), "{part} is missing in\n{printed}");
    }
    assert!(
        printed.lines().all(|line| line.chars().count() <= 140),
        "{printed}"
    );
}

#[test]
fn what_does_not_exist_is_refused_naming_what_does() {
    for (arguments, named) in [
        (vec!["bench", "quake"], "rmap-test"),
        (vec!["bench"], "NAME"),
        (vec!["bench", "rmap-test", "--on", "linux"], "--on core"),
        (vec!["bench", "rmap-test", "--on", "mars"], "linux"),
        (
            vec!["bench", "rmap-test", "--device", "nvme"],
            "--variant pressure",
        ),
        (
            vec![
                "bench",
                "rmap-test",
                "--variant",
                "pressure",
                "--a",
                "reclaim=off",
            ],
            "leave it out",
        ),
        (
            vec!["bench", "rmap-test", "--size", "forks=1"],
            "wide-regions",
        ),
        (
            vec!["bench", "fork-family", "--variant", "read"],
            "no variants",
        ),
        (vec!["bench", "forkfault", "--variant", "odd"], "migrate"),
        (vec!["bench", "forkfault", "--scale", "-1"], "--scale"),
        (
            vec!["bench", "forkfault", "--size", "stride=9999999999"],
            "address space",
        ),
        (
            vec![
                "bench",
                "fork-family",
                "--a",
                "rmap=telepathy",
                "--scale",
                "0.01",
            ],
            "chains",
        ),
        (
            vec!["bench", "kernbench", "--trace", "/no/such.vellum"],
            "/no/such.vellum",
        ),
        (
            vec!["bench", "kernbench", "--on", "linux", "--a", "rmap=chains"],
            "--on linux",
        ),
    ] {
        let output = vellum(&arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(named), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_machine_without_memory_is_an_error_that_names_the_option() {
    let output = vellum(&["bench", "fork-family", "--ram", "8M", "-n", "1", "--quiet"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("--ram"), "{message}");
    assert!(output.stdout.is_empty());
}

#[test]
fn the_list_has_every_benchmark_with_its_sizes() {
    let output = vellum(&["bench", "--list"]);
    assert_eq!(output.status.code(), Some(0));
    let printed = text(&output.stdout);
    for benchmark in BENCHMARKS {
        assert!(
            printed.contains(&format!("{} (", benchmark.name)),
            "{printed}"
        );
        for size in benchmark.sizes {
            let line = format!("--size {}={}", size.name, size.default);
            assert!(printed.contains(&line), "{line} in {printed}");
        }
    }
}

#[test]
fn figures_are_operations_of_mmtests_and_ministat() {
    let small = "bench forkfault --size forks=12 --ram 64M -n 3 --quiet --resamples 100";
    let small: Vec<&str> = small.split(' ').collect();
    let printed = |format: &str| {
        let output = vellum(&[&small[..], &["--format", format]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let mmtests = printed("mmtests");
    for statistic in [
        "Min ",
        "Amean ",
        "Stddev ",
        "CoeffVar ",
        "Max ",
        "BAmean-95 ",
    ] {
        let row = |line: &&str| line.starts_with(statistic) && line.contains(" per fault");
        assert!(
            mmtests.lines().any(|line| row(&line)),
            "{statistic} in\n{mmtests}"
        );
    }
    let ministat = printed("ministat");
    assert!(ministat.contains(" per fault\nx A"), "{ministat}");
    assert!(ministat.contains("at 95.0% confidence\n"), "{ministat}");
}
