//! `vellum advise`: what it counts, what it says, and what it refuses.

use serde_json::Value;
use vellum_lab::advise::survey::{Patterns, Survey};
use vellum_lab::advise::text;
use vellum_lab::report::Detail;
use vellum_results::advise::{
    Advice, Asked, Audience, Basis, Host, Measured, Part, Place, Price, Row, Said,
};
use vellum_results::{Figure, Whole};
use vellum_testing::by_hand::{self, PAGE, fork, map, write};
use vellum_trace::{EventKind, TaskId, TraceReader};

use crate::command::{Scratch, printed, text as of_bytes, vellum};

const START: u64 = 0x1000_0000;

fn unmap(address: u64, pages: u64) -> EventKind {
    EventKind::Unmap {
        address,
        length: pages * PAGE,
    }
}

fn touches(address: u64, pages: u64) -> impl Iterator<Item = (u32, EventKind)> {
    (0..pages).map(move |page| (0, write(address + page * PAGE, false)))
}

/// What a trace of task 0 and `children` children asks.
fn survey(name: &str, children: u32, events: &[(u32, EventKind)]) -> (Asked, Patterns) {
    let scratch = Scratch::new(name);
    let path = scratch.path("trace.vellum");
    by_hand::write_trace(&path, children, events);
    let trace = TraceReader::open(&path).expect("a trace");
    let mut survey = Survey::new(trace.header());
    for event in trace.events() {
        survey.take(&event.expect("an event"));
    }
    survey.finish()
}

#[test]
fn a_mapping_that_is_touched_nearly_whole_is_found_and_one_that_is_not_is_none() {
    let mut events = vec![(0, map(START, 100)), (0, map(START + 0x100_0000, 100))];
    events.extend(touches(START, 95));
    events.extend(touches(START + 0x100_0000, 50));
    // Too small to be worth a call.
    events.push((0, map(START + 0x200_0000, 8)));
    events.extend(touches(START + 0x200_0000, 8));
    let (asked, patterns) = survey("advise-filled", 0, &events);
    assert_eq!((asked.faults.all, asked.faults.anonymous), (153, 153));
    assert_eq!((patterns.filled.count, patterns.unfilled_pages), (95, 5));
    let place = "private memory mapped by up to 512 KiB of (before exec)";
    assert_eq!(
        (&*patterns.filled.place, patterns.filled.there),
        (place, 95)
    );
    // The second of them is like the first.
    assert_eq!((patterns.alike.count, asked.calls.mmap), (1, 3));
    assert_eq!(asked.places[0].faults, 145);
}

#[test]
fn memory_that_is_given_up_and_touched_again_is_told_by_who_gave_it_up() {
    let mut events = vec![
        (0, EventKind::Brk { end: START }),
        (
            0,
            EventKind::Brk {
                end: START + 10 * PAGE,
            },
        ),
    ];
    events.extend(touches(START, 10));
    events.push((0, EventKind::Brk { end: START }));
    events.push((
        0,
        EventKind::Brk {
            end: START + 6 * PAGE,
        },
    ));
    events.extend(touches(START, 6));
    let mapped = START + 0x100_0000;
    for _ in 0..2 {
        events.push((0, map(mapped, 4)));
        events.extend(touches(mapped, 4));
        events.push((0, unmap(mapped, 4)));
    }
    let advised = START + 0x200_0000;
    events.push((0, map(advised, 3)));
    events.extend(touches(advised, 3));
    events.push((
        0,
        EventKind::Advise {
            address: advised,
            length: 2 * PAGE,
            advice: 4,
        },
    ));
    events.extend(touches(advised, 2));
    let (_, patterns) = survey("advise-again", 0, &events);
    assert_eq!((patterns.trimmed.count, patterns.trimmed_by_brk), (10, 6));
    assert!(patterns.trimmed.place.starts_with("heap (brk)"));
    assert_eq!(patterns.advised.count, 2);
}

#[test]
fn forks_count_if_their_child_executes_a_program_with_what_the_copies_cost() {
    let child = |number: u32, event| (number, event);
    let mut events = vec![(0, map(START, 20))];
    events.extend(touches(START, 20));
    events.push((0, fork(1)));
    // Two of the parent's stores, and one of the child's.
    events.push((0, write(START, true)));
    events.push((0, write(START + PAGE, true)));
    events.push(child(1, write(START + 5 * PAGE, true)));
    events.push(child(1, EventKind::Exit));
    events.push((0, fork(2)));
    events.push((0, write(START, true)));
    events.push(child(2, EventKind::Exit));
    let (asked, patterns) = survey("advise-forks", 2, &events);
    assert_eq!((asked.calls.fork, asked.faults.present), (2, 4));
    assert_eq!(patterns.fork_execs.forks.count, 0, "nothing is executed");
    // The same, but the first child executes a program instead of ending.
    let scratch = Scratch::new("advise-exec");
    let path = scratch.path("trace.vellum");
    by_hand::write_trace(&path, 2, &events);
    let trace = TraceReader::open(&path).expect("a trace");
    let mut survey = Survey::new(trace.header());
    for event in trace.events() {
        let mut event = event.expect("an event");
        if (event.task, event.kind) == (TaskId(1), EventKind::Exit) {
            event.kind = EventKind::Exec { name: 0 };
        }
        survey.take(&event);
    }
    let (_, patterns) = survey.finish();
    let execs = &patterns.fork_execs;
    assert_eq!((execs.forks.count, execs.pages, execs.copies), (1, 20, 3));
}

fn figure(value: f64) -> Figure {
    Figure {
        value,
        low: Some(value - 0.01),
        high: Some(value + 0.01),
    }
}

fn row(what: &str, said: Said, cpu: Option<f64>) -> Row {
    Row {
        what: what.to_owned(),
        audience: Audience::User,
        said,
        basis: Basis::HostReplay,
        cpu: cpu.map(figure),
        bound: (said == Said::Nothing).then_some(0.004),
        peak: Some(0.12),
        faults: Some(-0.85),
        place: "43 % of faults".to_owned(),
        how: vec!["echo always".to_owned()],
        note: "Without TLB misses.".to_owned(),
        measured: None,
    }
}

fn advice() -> Advice {
    let mut thp = row("THP always", Said::Less, Some(-0.08));
    thp.measured = Some(Measured {
        cpu: figure(-0.1),
        told: true,
        resident: 0.2,
        faults: -0.9,
    });
    Advice {
        trace: "build.vellum".to_owned(),
        command: vec!["make".to_owned(), "-j4".to_owned()],
        part: Part {
            events: 1000,
            of_events: 2000,
        },
        whole: Some(Whole {
            cpu_ns: 2_000_000_000,
            memory_ns: None,
        }),
        whole_of_part: Some(Whole {
            cpu_ns: 1_000_000_000,
            memory_ns: Some(250_000_000),
        }),
        host: Host {
            kernel: "6.18".to_owned(),
            thp: "madvise".to_owned(),
            mthp: vec!["64kB never".to_owned(), "2048kB inherit".to_owned()],
        },
        asked: Asked {
            peak_bytes: 4 << 20,
            places: vec![Place {
                command: "cc1".to_owned(),
                mapping: "heap (brk)".to_owned(),
                faults: 0,
            }],
            ..Asked::default()
        },
        prices: vec![Price {
            what: "a touch".to_owned(),
            ns: figure(300.0),
        }],
        rows: vec![
            thp,
            row("mTHP of 64 KiB", Said::Nothing, Some(0.0)),
            row("50 % of the memory", Said::Modelled, Some(0.3)),
        ],
        checked: None,
        unseen: vec!["TLB misses.".to_owned()],
        interrupted: false,
    }
}

#[test]
fn the_page_begins_with_the_workload_and_says_what_each_row_is_from() {
    let text = text::render(&advice(), Detail::Summary);
    let expected = [
        "Workload      build.vellum (make -j4)\n",
        "CPU time      2.000 s, with recording; about 25.0 % of the part that was replayed in the kernel",
        "Replayed      the first 1,000 of 2,000 events",
        "This machine  Linux 6.18, THP madvise, mTHP 2048kB inherit, other sizes never\n",
        " 1  THP always    -8.0 %  -9.0 % .. -7.0 %      +12.0 %  -85.0 %\n",
        "1. THP always: takes less CPU time; a setting.\n        where: 43 % of faults\n        try: echo always\n        \
         from: replays on this machine's kernel. Without TLB misses.\n",
        "the bound is what could be:\n                    at most  peak memory   faults\n 2  mTHP of 64 KiB   0.40 %",
        "With less memory, at least, as a model of the device says, without an interval:\n",
        "Not in any figure:\n* TLB misses.\n",
    ];
    for part in expected {
        assert!(text.contains(part), "{part}\nin\n{text}");
    }
    assert!(!text.contains("a touch"), "prices are details");
    let all = self::text::render(&advice(), Detail::Full);
    assert!(all.contains("300") && all.contains("a touch"), "{all}");
}

#[test]
fn nothing_to_advise_is_an_answer() {
    let mut advice = advice();
    advice.rows.remove(0);
    advice.whole = None;
    let text = text::render(&advice, Detail::Summary);
    assert!(
        text.contains("Nothing that was tried or counted changes the CPU time"),
        "{text}"
    );
    assert!(
        text.contains("unknown: the recording has no CPU times"),
        "{text}"
    );
}

#[test]
fn a_recording_gets_rows_with_exact_counts_and_intervals() {
    let scratch = Scratch::new("advise-command");
    let trace = scratch.path("timed.vellum");
    let pages = 400;
    let mut events = vec![(0, map(START, pages), 100_000)];
    events.extend((0..pages).map(|page| (0, write(START + page * PAGE, false), 2)));
    events.push((0, EventKind::Exit, 2));
    by_hand::write_timed_trace(&trace, 0, &events);
    let page = scratch.path("advice.html");
    let output = vellum(&[
        "advise",
        &trace,
        "-q",
        "--seconds",
        "1",
        "--json",
        "-",
        "--html",
        &page,
    ]);
    assert!(output.status.success(), "{}", printed(&output));
    let advice: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(advice["schema"], "vellum-advise/1");
    assert_eq!(advice["asked"]["faults"]["anonymous"], pages);
    assert_eq!(advice["asked"]["calls"]["mmap"], 1);
    let rows = advice["rows"].as_array().expect("rows");
    let of = |text: &str| {
        let mut found = rows
            .iter()
            .filter(|row| row["what"].as_str().is_some_and(|what| what.contains(text)));
        found.next().unwrap_or_else(|| panic!("{text} in {rows:?}"))
    };
    // Each of 25 folios of 16 pages needs one fault.
    let folios = of("mTHP of 64 KiB");
    assert_eq!(
        folios["faults"]
            .as_f64()
            .map(|share| (share * 16.0).round()),
        Some(-15.0)
    );
    let filled = of("MAP_POPULATE");
    assert_eq!(
        (&filled["basis"], filled["faults"].as_f64()),
        (&"counted".into(), Some(-1.0))
    );
    for row in rows
        .iter()
        .filter(|row| row["said"] == "less" || row["said"] == "more")
    {
        assert!(
            row["cpu"]["low"].is_f64() && row["cpu"]["high"].is_f64(),
            "{row}"
        );
        assert!(
            row["how"].as_array().is_some_and(|how| !how.is_empty()),
            "{row}"
        );
    }
    let html = std::fs::read_to_string(page).expect("a page");
    assert!(html.contains("<h1>Advice for timed.vellum</h1>"), "{html}");
}

#[test]
fn what_cannot_be_advised_on_is_refused_with_a_reason() {
    let scratch = Scratch::new("advise-refused");
    let empty = scratch.path("empty.vellum");
    by_hand::write_trace(&empty, 0, &[]);
    let damaged = scratch.path("damaged.vellum");
    std::fs::write(&damaged, "no trace").expect("written");
    for (arguments, why) in [
        (&["advise"][..], "required"),
        (&["advise", &empty, "-q"], "the trace is empty"),
        (&["advise", &damaged, "-q"], "damaged.vellum"),
        (&["advise", &empty, "--", "true"], "cannot be used with"),
        (&["advise", "--check", &empty], "--check runs the command"),
        (&["advise", &empty, "--seconds", "0"], "--seconds"),
    ] {
        let output = vellum(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            printed(&output)
        );
        let said = of_bytes(&output.stderr);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}
