//! What a comparison prints, and what it says to programs.

use crate::synthetic::{Bench, Disturbance, FlatLoad, op};
use serde_json::Value;
use vellum_lab::compare::{Analysis, Resolution};
use vellum_lab::replay::Class;
use vellum_lab::report::{Detail, json, model, text};
use vellum_results::Document;
use vellum_results::compare::{About, Compare};

const STILL: Disturbance = Disturbance {
    jitter: 0.0,
    tail: 0.0,
    luck: 0.0,
    drift: 0.0,
};

/// What was found, and what its resolution is made of.
struct Report {
    found: Compare,
    resolution: Option<Resolution>,
}

fn render(report: &Report) -> String {
    text::render(&report.found, report.resolution.as_ref(), Detail::Full)
}

fn value(report: &Report) -> Value {
    let json = json::render(&Document::new(&report.found)).expect("serialised");
    serde_json::from_str(&json).expect("parsed")
}

fn report(bench: &Bench, load: &FlatLoad, b: &str, wanted: usize) -> Report {
    let measured = bench.measure(load, "1.0", b, wanted).expect("measured");
    let analysis = Analysis::new(&measured, 0.95, 500, 7);
    let about = About {
        trace: "traces/synthetic.vlt".to_owned(),
        a: "rmap=chains".to_owned(),
        b: "rmap=partial,direct=off,pvlock=byte".to_owned(),
        passes: wanted,
        copies: 1,
        ram_bytes: 1 << 30,
        slice_us: 1000,
        confidence: 0.95,
        resamples: 500,
        seed: 7,
    };
    Report {
        found: model::comparison(about, None, &measured, &analysis),
        resolution: analysis.judged.resolution,
    }
}

/// 99 ms of faults and one exit of 1 ms, which B takes twice as long for.
fn slow_exit() -> FlatLoad {
    let mut ops = vec![op(10_000, false); 9900];
    let mut classes = vec![Class::Fault; 9900];
    ops.push(op(1_000_000, true));
    classes.push(Class::Exit);
    FlatLoad::new(ops, classes)
}

#[test]
fn the_report_reads_as_documented() {
    let report = report(&Bench::new(1, STILL), &slow_exit(), "2.0", 6);
    let expected = "\
traces/synthetic.vlt
  A   slow=1.0
  B   slow=2.0
  A'  as A, in an engine of its own: the control
9,901 operations of 1 copy on 1 CPU (1,024 MiB), in 78 slices of 1282 us; 6 passes; seed 7

CPU time in the core   seconds     95 % interval
A slow=1.0            0.1000 *  0.1000 .. 0.1000
B slow=2.0            0.1010    0.1010 .. 0.1010
A'                    0.1000    0.1000 .. 0.1000
* less; the verdict says how surely.

Ratio of CPU times               95 % interval
B / A               1.0100    1.0100 .. 1.0100
A' / A (control)    1.0000    1.0000 .. 1.0000
Not in these times: trap and system call entry and exit, real inter-processor interrupts, cache
and TLB misses of user code, devices.

Verdict: difference. B needs 1.00 % more CPU time than A (1.00 to 1.00 %).
Resolution: 0.00 %. A larger difference is told, a smaller one is not.
  0.00 % of it is chance, 0.00 % is how far an arm may stray.
Of the whole: unknown, since the recording has no CPU times.

Time by class (ms)  operations       A       B  B - A    A %    B %  A ns/op  B ns/op
fault                    9,900   99.00   99.00   0.00   99.0   98.0    10000    10000
exit                         1    1.00    2.00  +1.00    1.0    2.0  1000000  2000000
total                    9,901  100.00  101.00  +1.00  100.0  100.0    10100    10201
Shares of the time in the core, taken from one separate pass, in which each run of operations of
one class was timed by itself: 79 intervals, 0 ns of clock cost taken off each. They have no
interval of their own.

Events in one pass  A slow=1.0    B slow=2.0    B - A
operations               9,901         9,901        0
* fewer in every one of 6 passes; (low .. high) where passes differ.

Memory at the peak (KiB)  A slow=1.0    B slow=2.0    B - A
nothing                            4             4        0
* less.

Kernbench: (replay, 1 copy on 1 CPU)
                              Elapsed      System        User         CPU
               A slow=1.0        0.10        0.10        0.00      100.00
               B slow=2.0        0.10        0.10        0.00      100.00
Elapsed: seconds of wall clock in which the slices ran. System: seconds of CPU time in the core.
User: 0, because no user code is replayed. CPU: System / Elapsed in percent.

diffprofile (time by class in us, + worse in B)
      1000   100.0% exit
      1000     1.0% total
";
    assert_eq!(render(&report), expected);
}

#[test]
fn a_summary_has_the_verdict_first_and_fits_a_screen() {
    let report = report(&Bench::new(1, STILL), &slow_exit(), "2.0", 6);
    let resolution = report.resolution.as_ref();
    let summary = text::render(&report.found, resolution, Detail::Summary);
    assert!(summary.lines().count() <= 24, "{summary}");
    let place = |part: &str| summary.find(part).expect(part);
    assert!(
        place("Verdict:") < place("CPU time in the core"),
        "{summary}"
    );
    for part in [
        "B needs 1.00 % more CPU time than A",
        "B - A by class: exit +1.00 ms (of 1.00).",
        "--details prints",
    ] {
        assert!(summary.contains(part), "{part} in\n{summary}");
    }
    assert!(!summary.contains("Events in one pass"), "{summary}");
}

#[test]
fn a_difference_is_stated_with_its_bounds() {
    let printed = render(&report(&Bench::new(1, STILL), &slow_exit(), "2.0", 6));
    assert!(
        printed
            .contains("Verdict: difference. B needs 1.00 % more CPU time than A (1.00 to 1.00 %)."),
        "{printed}"
    );
}

#[test]
fn an_unproven_difference_says_what_is_missing() {
    let same = render(&report(&Bench::new(1, STILL), &slow_exit(), "1.0", 6));
    for sentence in [
        "Verdict: no difference proven.",
        "B / A is no farther from 1 than chance can come to.",
        "Resolution: 0.00 %.",
    ] {
        assert!(same.contains(sentence), "{sentence} is missing in\n{same}");
    }
    let short = render(&report(&Bench::new(1, STILL), &slow_exit(), "2.0", 2));
    let sentence = "2 passes are complete, and a verdict needs 5 (option -n).";
    assert!(short.contains(sentence), "{short}");
}

#[test]
fn a_few_passes_have_no_interval_and_no_resolution_and_say_so() {
    for passes in 1..5 {
        let report = report(&Bench::new(1, STILL), &slow_exit(), "2.0", passes);
        let printed = render(&report);
        assert!(printed.contains("too few passes"), "{printed}");
        assert!(!printed.contains("Resolution"), "{printed}");
        let value = value(&report);
        assert_eq!(value["ratio"]["low"], Value::Null);
        assert_eq!(value["resolution"], Value::Null);
        assert_eq!(value["verdict"]["outcome"], "not-proven");
        assert_eq!(value["verdict"]["reasons"][0], "too-few-passes");
    }
}

#[test]
fn passes_that_are_no_multiple_of_the_orders_say_what_that_costs() {
    let line = |passes| {
        let report = report(&Bench::new(1, STILL), &slow_exit(), "2.0", passes);
        let printed = render(&report);
        let words: Vec<&str> = printed.split_whitespace().collect();
        words.join(" ")
    };
    assert!(line(5).contains("not shared out evenly by 5 passes, as they are by 6:"));
    assert!(line(7).contains("not shared out evenly by 7 passes, as they are by 6 or 12:"));
    for passes in [1, 6, 12] {
        assert!(!line(passes).contains("evenly"), "{passes} passes");
    }
}

#[test]
fn an_interrupted_run_is_marked() {
    let mut bench = Bench::new(1, STILL);
    let load = FlatLoad::with_affected_slices(10, None);
    bench.events.interrupt_after = Some(100 + 20 + 30 + 2 * 30 + 10);
    let report = report(&bench, &load, "1.25", 12);
    let printed = render(&report);
    let line = "INTERRUPTED: 2 of 12 passes are complete, and the figures are of those";
    assert!(printed.contains(line), "{printed}");
    assert!(report.found.interrupted);
}

#[test]
fn atomic_operations_stand_among_the_events_and_say_where_they_come_from() {
    let mut bench = Bench::new(1, STILL);
    bench.events.count_atomics = true;
    let report = report(&bench, &slow_exit(), "2.0", 6);
    let printed = render(&report);
    let table = "\
Events in one pass  A slow=1.0    B slow=2.0      B - A
operations               9,901         9,901          0
atomic loads            39,604 *      79,208    +39,604
* fewer in every one of 6 passes; (low .. high) where passes differ.
From one separate pass on an instrumented build of the same source, not timed: atomic loads.
";
    assert!(printed.contains(table), "{printed}");
    let value = value(&report);
    let rows = &value["counters"];
    assert_eq!(rows.as_array().map(Vec::len), Some(2));
    assert_eq!(rows[0]["pass"], "timed");
    assert_eq!(rows[0]["count"]["control"]["median"], 9901);
    assert_eq!(rows[1]["name"], "atomic loads");
    assert_eq!(rows[1]["pass"], "atomics");
    assert_eq!(rows[1]["count"]["a"]["median"], 39_604);
    assert_eq!(rows[1]["count"]["b"]["high"], 79_208);
    assert_eq!(rows[1]["count"]["control"], Value::Null);
}

#[test]
fn json_holds_what_the_tables_show() {
    let report = report(&Bench::new(1, STILL), &slow_exit(), "2.0", 6);
    let value = value(&report);
    assert_eq!(value["schema"], "vellum-compare/1");
    assert_eq!(value["about"]["trace"], "traces/synthetic.vlt");
    assert_eq!(value["designs"]["b"], "slow=2.0");
    assert_eq!(value["cpu_ns"]["a"]["value"], 100e6);
    assert_eq!(value["ratio"]["value"], 1.01);
    assert_eq!(value["control_ratio"]["high"], 1.0);
    assert_eq!(value["verdict"]["outcome"], "difference");
    assert_eq!(value["verdict"]["less"], "a");
    let classes = value["classes"].as_array().expect("a list");
    assert_eq!(classes.len(), 2);
    assert_eq!(classes[1]["class"], "exit");
    assert_eq!(classes[1]["cpu_ns"]["b"], 2_000_000);
    assert_eq!(value["counters"][0]["name"], "operations");
    assert_eq!(value["counters"][0]["count"]["a"]["median"], 9901);
    assert_eq!(value["memory"][0]["peak_bytes"]["b"]["high"], 4096);
    assert_eq!(value["kernbench"][0]["user_s"], 0.0);
    assert_eq!(
        value["pass_cpu_ns"]["control"].as_array().map(Vec::len),
        Some(6)
    );
}
