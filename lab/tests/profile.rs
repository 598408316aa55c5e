//! `vellum diffprofile` as a user meets it, and sampling profiles of engines.

mod command;
mod engines;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use command::{Scratch, text, vellum};
use engines::{counts_nothing, has_no_pages};
use serde_json::Value;
use vellum_engine::{
    Access, Arena, Backing, Config, Engine, Op, Outcome, Prot, Sharing, SpaceSlot,
};
use vellum_lab::profile::groups::Groups;
use vellum_lab::profile::read::{self, Options as ReadOptions};
use vellum_lab::profile::sample::Profiler;
use vellum_lab::profile::{Profile, flame};
use vellum_lab::report::diffprofile::{Options, Shown, diffprofile};

/// The profiles posted to linux-kernel on 22 March 2003.
const POSTED: &str = include_str!("data/diffprofile-2003-03-22.txt");

/// A posted list and the ticks below which it left lines out.
fn posted(workload: &str) -> (&'static str, u64) {
    let second = POSTED.find("diffprofile (sdet").expect("two lists");
    match workload {
        "kernbench" => (&POSTED[..second], 31),
        _ => (&POSTED[second..], 50),
    }
}

/// readprofile's text of the old and the new kernel from which a posted list may
/// have come.
fn reconstructed(list: &str) -> [String; 2] {
    let mut profiles = [String::new(), String::new()];
    let mut add = |name: &str, ticks: [u64; 2]| {
        for (profile, ticks) in profiles.iter_mut().zip(ticks) {
            if ticks > 0 {
                let _ = writeln!(profile, "{ticks:6} {name:<40} {:.4}", ticks as f64 / 1000.0);
            }
        }
    };
    // Lines that were not posted because little changed in them.
    add("schedule", [5000, 5003]);
    add("sys_read", [900, 880]);
    for line in list.lines().skip(1).filter(|line| *line != "...") {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let delta: i64 = fields[0].parse().expect("ticks");
        let percent: f64 = fields[1].trim_end_matches('%').parse().expect("percent");
        let old = match percent {
            0.0 => 0,
            -100.0 => -delta,
            _ => (100.0 * delta as f64 / percent).round() as i64,
        };
        let rounds = |old: i64| {
            format!("{:.1}", 100.0 * delta as f64 / old as f64) == format!("{percent:.1}")
        };
        let near = (0..1000).flat_map(|step| [old - step, old + step]);
        let old = match percent {
            0.0 => 0,
            _ => near
                .into_iter()
                .find(|old| *old > 0 && rounds(*old))
                .expect("some old value"),
        };
        add(fields[2], [old as u64, (old + delta) as u64]);
    }
    profiles
}

#[test]
fn the_posted_profiles_come_out_byte_for_byte() {
    for workload in ["kernbench", "sdet"] {
        let (list, threshold) = posted(workload);
        let scratch = Scratch::new(&format!("posted-{workload}"));
        let [old, new] = reconstructed(list);
        let (old, new) = (scratch.write("mm2", &old), scratch.write("mm3", &new));
        let threshold = threshold.to_string();
        let output = vellum(&[
            "diffprofile",
            &old,
            &new,
            "--threshold",
            &threshold,
            "--title",
            workload,
            "--new-name",
            "-mm3",
            "--no-built-in-groups",
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), list, "{workload}");
    }
}

#[test]
fn rmap_sums_of_the_posted_profiles_are_what_the_lines_add_up_to() {
    for (workload, sum, dirty) in [("kernbench", 122, -2), ("sdet", -1937, 16)] {
        let [old, new] = reconstructed(posted(workload).0);
        let read = |text: &String| {
            read::text(text.as_bytes(), Path::new("p"), ReadOptions::default()).expect("read")
        };
        let given = ["dirty=set_page_dirty".to_owned()];
        let options = Options {
            groups: Groups::built_in().preceded_by(&given).expect("a group"),
            ..Options::new("-mm3")
        };
        let diff = diffprofile(&read(&old), &read(&new), &options);
        assert_eq!(diff.group("rmap").expect("rmap").delta, sum, "{workload}");
        // One function under two names: +1508 and -1492 are +16.
        assert_eq!(
            diff.group("dirty").expect("dirty").delta,
            dirty,
            "{workload}"
        );
    }
}

#[test]
fn compat_rounds_percentages_down_as_integers() {
    let scratch = Scratch::new("compat");
    let old = scratch.write("old", "1000 grew 1.0\n1000 shrank 1.0\n3000 total 1.0\n");
    let new = scratch.write(
        "new",
        "1019 grew 1.0\n999 shrank 1.0\n7 came 1.0\n3025 total 1.0\n",
    );
    let output = vellum(&[
        "diffprofile",
        &old,
        &new,
        "--compat",
        "--no-built-in-groups",
    ]);
    let expected = "\
diffprofile (+ worse in new)
        25     0.0% total
        19     1.0% grew
         7     0.0% came
        -1    -1.0% shrank
";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn every_format_can_be_held_against_every_other() {
    let scratch = Scratch::new("formats");
    let files = [
        scratch.write("folded", "main;f 10\nmain;g 20\n"),
        scratch.write("readprofile", "10 f 0.1\n20 g 0.2\n30 total 0.1\n"),
        scratch.write(
            "oprofile",
            "samples  %        symbol name\n20 66.6 g\n10 33.3 f\n",
        ),
        scratch.write(
            "perf",
            &("main 7 1.5: 1 cycles:  ffff f+0x1 ([kernel.kallsyms])\n".repeat(10)
                + &"main 7 1.5: 1 cycles:  ffff g+0x1 ([kernel.kallsyms])\n".repeat(20)),
        ),
    ];
    for old in &files {
        for new in &files {
            let output = vellum(&["diffprofile", old, new, "--json"]);
            assert!(output.status.success(), "{}", text(&output.stderr));
            let diff: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!(diff["total"]["old"], 30, "{old}");
            assert_eq!(
                diff["changes"].as_array().map(Vec::len),
                Some(0),
                "{old} {new}"
            );
        }
    }
}

#[test]
fn a_real_capture_of_perf_script_is_read() {
    let capture = include_bytes!("data/perf-script-chains.txt");
    let profile = read::text(&capture[..], Path::new("capture"), ReadOptions::default());
    let profile = profile.expect("read");
    let headers = text(capture)
        .lines()
        .filter(|line| line.contains("cpu-clock:"))
        .count();
    assert_eq!(profile.total(), headers as u64);
    assert!(profile.has_callers());
    let flat: BTreeMap<&str, u64> = profile.flat();
    assert!(flat.contains_key("exc_page_fault"), "{flat:?}");
}

#[test]
fn graph_and_folded_stacks_are_written_where_there_are_callers() {
    let scratch = Scratch::new("graph");
    let old = scratch.write("old", "main;f 100\nmain;g 20\n");
    let new = scratch.write("new", "main;f 10\nmain;h 25\n");
    let (svg, folded) = (scratch.path("diff.svg"), scratch.path("diff.folded"));
    let output = vellum(&[
        "diffprofile",
        &old,
        &new,
        "--svg",
        &svg,
        "--folded",
        &folded,
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(&folded).expect("written");
    assert_eq!(written, "main;f 100 10\nmain;g 20 0\nmain;h 0 25\n");
    let svg_text = std::fs::read_to_string(&svg).expect("written");
    assert!(svg_text.starts_with("<?xml") && svg_text.ends_with("</svg>\n"));

    let flat = scratch.write("flat", "10 f 0.1\n");
    let refused = scratch.path("refused.svg");
    let output = vellum(&["diffprofile", &flat, &new, "--svg", &refused]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("call stacks"),
        "{}",
        text(&output.stderr)
    );
    assert!(!Path::new(&refused).exists());
}

#[test]
fn unusable_input_is_named_and_exits_with_2() {
    let scratch = Scratch::new("unusable");
    let good = scratch.write("good", "main;f 100\n");
    let damaged = scratch.write("damaged", "main;f 100\nmain;g\n");
    let missing = scratch.path("missing");
    for (arguments, named) in [
        (vec!["diffprofile", &good, &damaged], "damaged:2: expected"),
        (vec!["diffprofile", &missing, &good], "missing"),
        (vec!["diffprofile", "-", "-"], "standard input"),
        (
            vec!["diffprofile", &good, &good, "--group", "rmap"],
            "NAME=REGEX",
        ),
        (
            vec!["diffprofile", &good, &good, "--format", "gprof"],
            "readprofile",
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
fn a_threshold_keeps_only_what_changed_by_as_much() {
    let mut profiles = [Profile::new("old"), Profile::new("new")];
    for (name, ticks) in [
        ("a", [10, 60]),
        ("b", [10, 59]),
        ("c", [70, 20]),
        ("d", [69, 20]),
    ] {
        for (profile, ticks) in profiles.iter_mut().zip(ticks) {
            profile.add(vec![name.into()], ticks);
        }
    }
    let options = Options {
        shown: Shown::AtLeast(50),
        ..Options::new("new")
    };
    let lines = diffprofile(&profiles[0], &profiles[1], &options).lines();
    assert_eq!(
        lines,
        ["        50   500.0% a", "...", "       -50   -71.4% c"]
    );
}

/// An engine that spends all its time in one function.
struct Busy {
    work: fn(u64) -> u64,
}

/// Arithmetic that no optimiser removes.
fn arithmetic(seed: u64) -> u64 {
    let mut state = std::hint::black_box(seed | 1);
    for _ in 0..20_000 {
        state = std::hint::black_box(state.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    state
}

#[inline(never)]
fn time_in_amber(seed: u64) -> u64 {
    std::hint::black_box(arithmetic(seed)) + 1
}

#[inline(never)]
fn time_in_indigo(seed: u64) -> u64 {
    std::hint::black_box(arithmetic(seed)) + 2
}

impl Engine for Busy {
    fn run(&self, _: usize, ops: &[Op], _: &mut Outcome) {
        std::hint::black_box((self.work)(ops.len() as u64));
    }

    fn design(&self) -> String {
        "busy".to_owned()
    }

    fn cpus(&self) -> usize {
        1
    }

    has_no_pages!();
    counts_nothing!();
}

/// Runs `round` until the profiler has taken `wanted` samples.
fn until_sampled(profiler: &Profiler, wanted: u64, mut round: impl FnMut()) {
    for _ in 0..1_000_000 {
        if profiler.taken() >= wanted {
            return;
        }
        round();
    }
    panic!("a million rounds and only {} samples", profiler.taken());
}

/// Ticks of stacks in which a function's name contains `name`.
fn ticks_in(profile: &Profile, name: &str) -> u64 {
    let stacks = profile.stacks();
    let stacks = stacks.filter(|(stack, _)| stack.iter().any(|frame| frame.contains(name)));
    stacks.map(|(_, ticks)| ticks).sum()
}

#[test]
fn samples_count_for_the_design_that_was_running() {
    let profiler = Profiler::start(5000).expect("timers need no permission");
    let engines =
        [time_in_amber as fn(u64) -> u64, time_in_indigo].map(|work| Arc::new(Busy { work }));
    let attached: Vec<Arc<dyn Engine>> = (0..)
        .zip(engines)
        .map(|(arm, engine)| profiler.attach(arm, engine))
        .collect();
    let mut outcome = Outcome::default();
    until_sampled(&profiler, 400, || {
        for engine in &attached {
            engine.run(0, &[], &mut outcome);
        }
        // Time outside of every engine belongs to neither.
        std::hint::black_box(arithmetic(3));
    });
    let names = ["A".to_owned(), "B".to_owned()];
    let samples = profiler.finish(&names).expect("both have samples");
    let [amber, indigo] = [&samples.profiles[0], &samples.profiles[1]];
    assert_eq!(ticks_in(amber, "time_in_indigo"), 0, "{}", amber.folded());
    assert_eq!(ticks_in(indigo, "time_in_amber"), 0, "{}", indigo.folded());
    // What is not in them is in the frames around them, a few instructions long.
    let work = amber.total() - ticks_in(amber, "(sampler)");
    assert!(
        ticks_in(amber, "time_in_amber") * 10 > work * 9,
        "{}",
        amber.folded()
    );
    assert!(
        ticks_in(indigo, "time_in_indigo") * 10
            > (indigo.total() - ticks_in(indigo, "(sampler)")) * 9,
        "{}",
        indigo.folded()
    );
    assert_eq!(ticks_in(amber, "callers unknown"), 0, "{}", amber.folded());
    let svg = flame::svg(amber, indigo, "amber against indigo");
    assert!(svg.contains("time_in_amber") && svg.contains("time_in_indigo"));
}

#[test]
fn an_engine_that_never_ran_is_reported() {
    let profiler = Profiler::start(1000).expect("timers need no permission");
    let error = profiler.finish(&["A".to_owned()]).expect_err("nothing ran");
    assert!(error.to_string().contains("--profile-rate"), "{error}");
}

/// A space of 64 written pages is forked; the child writes half of them; both
/// end.
fn fork_and_write() -> Vec<Op> {
    const PAGES: u64 = 64;
    let (parent, child) = (SpaceSlot(0), SpaceSlot(1));
    let touch = |space, page| Op::Touch {
        space,
        page: 0x1000 + page,
        access: Access::Write,
    };
    let mut ops = vec![
        Op::Create { space: parent },
        Op::Map {
            space: parent,
            page: 0x1000,
            pages: PAGES,
            prot: Prot {
                read: true,
                write: true,
                execute: false,
            },
            sharing: Sharing::Private,
            backing: Backing::Anonymous,
            grows_down: false,
        },
    ];
    ops.extend((0..PAGES).map(|page| touch(parent, page)));
    ops.push(Op::Fork { parent, child });
    ops.extend((0..PAGES / 2).map(|page| touch(child, page)));
    ops.extend([Op::Exit { space: child }, Op::Exit { space: parent }]);
    ops
}

#[test]
fn a_profile_of_the_core_names_its_functions() {
    let designs = ["rmap=chains", "rmap=partial"];
    let profiler = Profiler::start(5000).expect("timers need no permission");
    let engine = |(arm, design): (usize, &str)| {
        let config = Config {
            design: design.to_owned(),
            cpus: 1,
            nodes: 1,
            ram_bytes: 64 << 20,
        };
        let arena = Arena::new(64 << 20).expect("memory");
        let engine = vellum_engine::build(&config, arena).expect("a design");
        profiler.attach(arm, Arc::from(engine))
    };
    let engines: Vec<Arc<dyn Engine>> = designs.into_iter().enumerate().map(engine).collect();
    let ops = fork_and_write();
    let mut outcome = Outcome::default();
    until_sampled(&profiler, 1000, || {
        for engine in &engines {
            engine.run(0, &ops, &mut outcome);
            assert!(outcome.divergences.is_empty(), "{:?}", outcome.divergences);
        }
    });
    let names = designs.map(str::to_owned);
    let samples = profiler.finish(&names).expect("both have samples");
    for profile in &samples.profiles {
        for function in [
            "vellum::space::fork::",
            "vellum::space::fault::",
            "vellum::rmap::",
        ] {
            assert!(
                ticks_in(profile, function) > 0,
                "{function} in {}",
                profile.folded()
            );
        }
        let outermost = ticks_in(profile, "vellum_engine::");
        assert!(outermost * 10 > profile.total() * 9, "{}", profile.folded());
    }
    let [chains, partial] = [&samples.profiles[0], &samples.profiles[1]];
    assert!(ticks_in(chains, "rmap::chains") > 0, "{}", chains.folded());
    let diff = diffprofile(chains, partial, &Options::new("partial"));
    for group in ["rmap", "fork", "fault", "zeroing and copying"] {
        assert!(diff.group(group).is_some(), "{group} in\n{}", diff.text());
    }
}
