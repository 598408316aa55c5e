//! `vellum reproduce`: the published figures are what was published, and the
//! command prints them with ours beside them.

use std::process::{Command, Output};

use crate::command::{Scratch, text};
use serde_json::Value;
use vellum_lab::reproduce::{formats, published};

fn vellum(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let output = command.args(arguments).output();
    output.expect("the program was built and can be started")
}

/// Sums that were worked out from the post by hand.
#[test]
fn groups_of_the_published_profiles_add_up() {
    let kernbench = published::DIFFPROFILE_KERNBENCH;
    let sdet = published::DIFFPROFILE_SDET;
    let rmap = published::RMAP_GROUP;
    assert_eq!(published::group_sum(kernbench, rmap), 122);
    assert_eq!(published::group_sum(sdet, rmap), -1937);
    let dirty = published::SET_PAGE_DIRTY_GROUP;
    assert_eq!(published::group_sum(kernbench, dirty), -2);
    assert_eq!(published::group_sum(sdet, dirty), 16);
    let total = published::total_ticks(sdet).expect("there is a total");
    assert!((total - 648_600.0).abs() < 1.0, "{total}");
}

#[test]
fn published_profiles_are_in_order_and_their_signs_fit() {
    for profile in [
        published::DIFFPROFILE_KERNBENCH,
        published::DIFFPROFILE_SDET,
    ] {
        assert!(profile.windows(2).all(|pair| pair[0].0 >= pair[1].0));
        for (ticks, percent, name) in profile {
            // What the old kernel lacked counts as 0 %.
            assert!(
                *percent == 0.0 || (*ticks > 0) == (*percent > 0.0),
                "{name}"
            );
        }
    }
}

#[test]
fn cpu_percent_of_the_published_tables_follows_from_their_times() {
    for row in published::KERNBENCH_2003.iter().flatten() {
        let (user, cpu) = row.user_and_cpu.expect("the post has it");
        let follows = 100.0 * (row.system_s + user) / row.elapsed_s;
        assert!((follows - cpu).abs() < 0.01 * cpu, "{row:?}: {follows}");
    }
}

/// What later texts say about the tables of March 2004.
#[test]
fn most_of_the_published_gain_was_in_the_first_step() {
    for load in published::KERNBENCH_2004 {
        let change = |old: usize, new: usize| 1.0 - load[new].system_s / load[old].system_s;
        assert!((0.16..0.24).contains(&change(0, 1)), "{}", change(0, 1));
        assert!(change(1, 2) < 0.04 && change(1, 3) < 0.04);
    }
    assert_eq!(published::SDET_2004[7], [100.0, 123.1, 124.7, 123.9]);
    let [tasks, wide] = published::RMAP_TEST;
    assert_eq!((tasks.list.0 / tasks.chains_s).round(), 13.0);
    assert_eq!((wide.list.0 / wide.chains_s).round(), 39.0);
}

#[test]
fn a_published_block_is_printed_as_it_was_posted() {
    let block = formats::kernbench(published::LOADS[0], &published::KERNBENCH_2003[0]);
    let posted = "\
Kernbench: (make -j N vmlinux, where N = 2 x num_cpus)
                              Elapsed      System        User         CPU
               2.5.65-mm2       44.04       80.63      566.83     1469.25
               2.5.65-mm3       44.21       80.57      567.61     1466.00
";
    assert_eq!(block, posted);
}

#[test]
fn only_sources_that_there_are_can_be_reproduced() {
    let output = vellum(&["reproduce", "7"]);
    assert_eq!(output.status.code(), Some(2));
    let output = vellum(&["reproduce", "0", "--quick", "--traces", "/no/such/place"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("--traces"), "says what to do: {message}");
}

fn quick(source: &str) -> (String, Value) {
    let name = format!("vellum-reproduce-{source}-{}.json", std::process::id());
    let file = std::env::temp_dir().join(name);
    let path = file.display().to_string();
    let output = vellum(&[
        "reproduce",
        source,
        "--quick",
        "--details",
        "-n",
        "1",
        "--quiet",
        "--json",
        &path,
    ]);
    let printed = text(&output.stdout);
    let json = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    let report: Value = serde_json::from_str(&json).unwrap_or_default();
    let failed: Vec<&Value> = (report["sections"].as_array().into_iter().flatten())
        .filter(|section| !section["failed"].is_null())
        .collect();
    assert!(failed.is_empty(), "{failed:#?}\n{}", text(&output.stderr));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(report["schema"], "vellum-reproduce/1");
    let help = vellum(&["reproduce", "--help"]);
    let help = text(&help.stdout).replace("\n     ", " ");
    for title in titles(&report) {
        assert!(help.contains(title), "{title} in\n{help}");
    }
    (printed, report)
}

fn titles(report: &Value) -> Vec<&str> {
    let sections = report["sections"].as_array().into_iter().flatten();
    sections
        .filter_map(|section| section["title"].as_str())
        .collect()
}

#[test]
fn source_0_has_every_published_table_with_ours_beside_it() {
    let (printed, report) = quick("0");
    assert_eq!(
        titles(&report),
        [
            "kernbench, March 2003",
            "kernbench, March 2004",
            "SDET, March 2003",
            "SDET, March 2004",
            "diffprofiles",
            "singletons",
            "rmap-test",
            "lookups of rmap-test"
        ]
    );
    for line in [
        "               2.5.65-mm2       44.04       80.63      566.83     1469.25\n",
        "                  partial       44.84       85.75\n",
        "      -330    -0.2% total\n",
        "     -6486    -1.0% total\n",
        "SDET 1  (see disclaimer)",
        "up to 8 different recorded scripts at once",
        "QUICK",
    ] {
        assert!(printed.contains(line), "{line:?} in\n{printed}");
    }
    let kernbench = &report["sections"][1]["comparisons"];
    let row = kernbench.as_array().into_iter().flatten();
    let mut row = row.filter(|row| row["what"] == "2 x CPUs: System, partial against chains");
    let row = row.next().expect("the main result of 2004");
    assert_eq!(row["published"], "-16.3 % (-17.3 to -15.3)");
    assert!(row["ours"].is_string(), "{row}");
}

#[test]
fn source_1_has_the_claim_the_calls_and_the_host() {
    let (printed, report) = quick("1");
    assert_eq!(
        titles(&report),
        [
            "forkfault",
            "the three problems",
            "cost of a call",
            "whole workloads",
            "the host's kernel"
        ]
    );
    assert!(printed.contains("9.00 x"), "{printed}");
    let problems = &report["sections"][1]["comparisons"];
    let trapped = |state: &str| {
        let what = format!("4 KiB tables, {state}: table pages trapped by a migration");
        let rows = problems.as_array().into_iter().flatten();
        let mut rows = rows.filter(|row| row["what"] == *what);
        let row = rows
            .next()
            .unwrap_or_else(|| panic!("no {what} in {problems:#}"));
        assert_eq!(row["published"], "about 40");
        let ours = row["ours"].as_str().and_then(|count| count.parse().ok());
        ours.unwrap_or_else(|| panic!("no count in {row}"))
    };
    let found: [u64; 4] = ["none of them", "levels", "node", "all"].map(trapped);
    assert_eq!(found[..2], [0, 0], "home tables only");
    // 32 of the lowest level and those above.
    assert!((33..=40).contains(&found[2]), "{found:?}");
    assert_eq!(found[2], found[3]);
    assert!(
        printed.contains("not judged: that needs 5 passes"),
        "one pass says nothing about times: {printed}"
    );
    assert!(printed.contains("2700 / 1300 ns"), "{printed}");
    assert!(printed.contains("ns per fault"), "{printed}");
}

#[test]
fn source_2_has_the_tables_of_2014_and_each_patch() {
    let (printed, report) = quick("2");
    let expected = [
        "loopdd",
        "each patch alone",
        "shares of a dd",
        "lat_mmap",
        "the host's kernel",
    ];
    assert_eq!(titles(&report), expected);
    let rows = |section: usize| {
        let rows = report["sections"][section]["comparisons"].as_array();
        rows.cloned().unwrap_or_default()
    };
    let published = |row: &Value| row["published"].as_str().unwrap_or("").to_owned();
    assert!(
        published(&rows(0)[0]).starts_with("+6.5 %"),
        "{:?}",
        rows(0)
    );
    assert!(
        published(&rows(0)[1]).starts_with("-12.1 %"),
        "{:?}",
        rows(0)
    );
    let patches: Vec<Value> = rows(1).iter().map(|row| row["what"].clone()).collect();
    for patch in ["pagelock=waiters", "accessed=init", "flags=plain"] {
        let what = format!("time of dd, {patch}");
        assert!(patches.contains(&Value::from(what)), "{patches:?}");
    }
    let shares: Vec<String> = rows(2).iter().map(published).collect();
    assert_eq!(
        shares,
        ["1.48 to 0.0002 %", "3.03 to 0.06 %", "1.27 to 0.5 %"]
    );
    assert_eq!(rows(3).len(), 20);
    for line in ["TrimMean elapsed", "5154.1333", "Procs 16777K", "vanilla"] {
        assert!(printed.contains(line), "{line:?} in\n{printed}");
    }
}

#[test]
fn source_3_has_both_blocks_and_charges_windows() {
    let (printed, report) = quick("3");
    assert_eq!(titles(&report), ["kernbench, February 2010"]);
    let rows = report["sections"][0]["comparisons"].as_array();
    let rows = rows.expect("a list");
    let row = |what: &str| {
        let mut found = rows.iter().filter(|row| row["what"] == what);
        found
            .next()
            .unwrap_or_else(|| panic!("no {what} in {rows:#?}"))
    };
    let system = row("system time, nohigh against high");
    assert_eq!(system["published"], "-6.4 % (-8.1 to -4.7)");
    let a_fault: f64 = row("windows a fault")["ours"]
        .as_str()
        .and_then(|count| count.parse().ok())
        .expect("a number");
    assert!((1.5..3.0).contains(&a_fault), "{a_fault}");
    let elapsed = row("elapsed time");
    assert_eq!(elapsed["published"], "-0.6 %");
    assert!(elapsed["ours"].is_null(), "no user code: {elapsed}");
    for line in [
        "System Time 59.737 (1.26727)\n",
        "System Time 55.9 (1.07799)\n",
        "ours: page tables, userpte=auto",
        "addresses flushed",
    ] {
        assert!(printed.contains(line), "{line:?} in\n{printed}");
    }
}

#[test]
fn source_0_is_reproduced_on_a_simulated_machine() {
    let of_2003 = [
        "reproduce",
        "0",
        "--quick",
        "--details",
        "--on",
        "sim",
        "--cpus",
        "4",
        "--seeds",
        "5",
        "--only",
        "kernbench, March 2003",
        "--quiet",
    ];
    let run = vellum(&of_2003);
    let out = text(&run.stdout);
    assert!(run.status.success(), "{out}{}", text(&run.stderr));
    for part in [
        "on 4 CPUs of numa-q-16",
        "with 5 seeds",
        "User time is the recorded CPU time less",
        "2 x CPUs: System, anonmm2003 against partial",
        "ours: where CPUs waited, anonmm2003 against partial",
        "virtual times",
    ] {
        let out = out.replace('\n', " ");
        assert!(out.contains(part), "{part} in {out}");
    }
}

/// Source 1 on a simulated machine, and how it ended.
fn source_1_on(machine: &str) -> (String, Option<i32>) {
    let run = vellum(&[
        "reproduce",
        "1",
        "--quick",
        "--details",
        "--on",
        "sim",
        "--machine",
        machine,
        "--seeds",
        "5",
        "--only",
        "forkfault",
        "--only",
        "problems",
        "--quiet",
    ]);
    (text(&run.stdout), run.status.code())
}

#[test]
fn source_1_is_reproduced_on_two_nodes_of_a_simulated_machine() {
    let (out, code) = source_1_on("altix-512");
    assert_eq!(code, Some(0), "{out}");
    let fresh = |row: &str| -> f64 {
        let found = out.lines().find_map(|line| line.strip_prefix(row));
        let first = found.and_then(|rest| rest.split_whitespace().next());
        first.and_then(|cell| cell.parse().ok()).expect("a figure")
    };
    // What another node has had costs more to take back than what another CPU has had.
    let [own, near, far] = [
        "one CPU, exit ",
        "freed on another CPU, exit ",
        "freed on another node, exit ",
    ]
    .map(fresh);
    assert!(own < near && near < far, "{out}");
    for part in [
        "CPUs of altix-512",
        "run where others have ended: ns per fault",
        "node: table pages trapped by a migration",
        "agrees",
        "virtual times",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
}

#[test]
fn source_1_needs_two_nodes_and_says_what_one_has_not() {
    let (out, code) = source_1_on("epyc-milan-1s");
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("freed on another CPU, exit"), "{out}");
    assert!(out.contains("the CPUs are all on one node"), "{out}");
}

#[test]
fn source_4_has_the_builds_of_both_machines_and_curves() {
    let scratch = Scratch::new("reproduce-4");
    let file = scratch.path("four.json");
    let run = vellum(&[
        "reproduce",
        "4",
        "--quick",
        "--details",
        "--cpus",
        "2",
        "-n",
        "1",
        "--quiet",
        "--json",
        &file,
    ]);
    let out = text(&run.stdout);
    assert!(run.status.success(), "{out}{}", text(&run.stderr));
    let json = std::fs::read_to_string(&file).expect("written");
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let expected = [
        "buildkernel, 16 cores",
        "buildkernel, second machine",
        "superpages, first machine",
        "superpages, larger machine",
        "up to 512 CPUs",
        "family against pv",
    ];
    assert_eq!(titles(&report), expected);
    let row = |section: usize, what: &str| {
        let rows = report["sections"][section]["comparisons"].as_array();
        let mut rows = rows.into_iter().flatten();
        let row = rows.find(|row| row["what"] == what);
        row.unwrap_or_else(|| panic!("no {what} in {out}"))
    };
    for (section, what, published) in [
        (0, "sys, patched against stock", "-46.3 % (-46.8 to -45.8)"),
        (0, "real, patched against stock", "-4.4 % (-5.0 to -3.9)"),
        (1, "sys, only obm against stock", "-2.5 % (-3.7 to -1.2)"),
        (
            1,
            "sys, obm + removal of pvc locks against stock",
            "-3.7 % (-4.8 to -2.7)",
        ),
    ] {
        let row = row(section, what);
        assert_eq!(row["published"], published, "{row}");
        assert!(row["ours"].is_string(), "{row}");
        assert_eq!(row["says"], "not judged: that needs 5 passes");
    }
    let farm = row(
        1,
        "waiting for list of chunks, a lock for each 2 MiB to hashed",
    );
    assert!(
        farm["published"]
            .as_str()
            .is_some_and(|text| text.starts_with("0.3")),
        "{farm}"
    );
    for part in [
        "      237.53 real      6782.41 user       567.74 sys\n",
        "\t-46.2953% +/- 0.463659%\n",
        "on 2 CPUs of xeon-e5-2690",
        "on 2 CPUs of xeon-104",
        "ours: cached-faults, CPU time of each in us",
        "fork-exit, family: first lock that is saturated",
        "QUICK",
    ] {
        // Sentences are wrapped.
        let is_there = out.contains(part) || out.replace('\n', " ").contains(part);
        assert!(is_there, "{part} in {out}");
    }
}

#[test]
fn a_build_that_was_kept_is_not_simulated_again() {
    let scratch = Scratch::new("reproduce-kept");
    let kept = scratch.path("kept.jsonl");
    let run = || {
        vellum(&[
            "reproduce",
            "4",
            "--quick",
            "--details",
            "--only",
            "second",
            "--cpus",
            "2",
            "-n",
            "1",
            "--quiet",
            "--jobs",
            "1",
            "--resume",
            &kept,
        ])
    };
    let first = run();
    assert!(first.status.success(), "{}", text(&first.stderr));
    let lines = std::fs::read_to_string(&kept).expect("it was written");
    assert_eq!(lines.lines().count(), 7, "a line for each design: {lines}");
    assert_eq!(text(&run().stdout), text(&first.stdout));
    // What is kept is what is shown.
    let shown = lines.lines().enumerate().map(|(number, line)| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        if number > 0 {
            line["cell"]["user_ns"] = 1_234_560_000_000u64.into();
        }
        format!("{line}\n")
    });
    std::fs::write(&kept, shown.collect::<String>()).expect("it can be written");
    let again = text(&run().stdout);
    assert!(again.contains("1234.56 user"), "{again}");
    // Another machine is another simulation.
    let other = vellum(&[
        "reproduce",
        "4",
        "--quick",
        "--details",
        "--only",
        "second",
        "--cpus",
        "1",
        "-n",
        "1",
        "--quiet",
        "--resume",
        &kept,
    ]);
    assert!(!text(&other.stdout).contains("1234.56 user"));

    std::fs::write(&kept, "{\"program\":1}\n").expect("it can be written");
    let refused = run();
    assert_eq!(refused.status.code(), Some(2));
    let message = text(&refused.stderr);
    assert!(message.contains("kept.jsonl:1:"), "{message}");
}

#[test]
fn what_cannot_be_reproduced_on_a_simulated_machine_is_refused() {
    for (arguments, why) in [
        (&["2", "--on", "sim"][..], "only the sources 0, 1 and 4"),
        (&["3", "--on", "sim"], "only the sources 0, 1 and 4"),
        (&["1", "--cpus", "4"], "only with --on sim"),
        (&["0", "--resume", "kept.jsonl"], "only with --on sim"),
        (
            &["1", "--on", "sim", "--resume", "kept.jsonl"],
            "none is kept",
        ),
        (&["1", "--on", "sim", "--seeds", "4"], "5 seeds"),
        (&["4", "--on", "core"], "on simulated machines only"),
        (&["4", "--machine", "pdp-11"], "pdp-11"),
        (&["0", "--cpus", "4"], "only with --on sim"),
        (&["0", "--machine", "numa-q-16"], "only with --on sim"),
        (&["0", "--on", "sim", "--cpus", "17"], "has 16 CPUs"),
        (&["0", "--on", "sim", "--machine", "pdp-11"], "pdp-11"),
        (&["0", "--on", "sim", "--seeds", "4"], "5 seeds"),
        (&["0", "--scripts", "64"], "only with --on sim"),
        (&["0", "--on", "sim", "--scripts", "65"], "published are"),
        (&["1", "--on", "sim", "--scripts", "64"], "only source 0"),
        (
            &["0", "--on", "sim", "--quick", "--scripts", "2"],
            "only source 0",
        ),
    ] {
        let run = vellum(&[&["reproduce"], arguments].concat());
        let error = text(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
}
