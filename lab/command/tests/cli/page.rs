//! `--html` and `vellum report`: pages of what commands measure now, opened in a browser.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use vellum_testing::browser::{Browser, Look};
use vellum_testing::by_hand::{self, PAGE, fork, map, write};
use vellum_trace::{EventKind, TaskId};

use crate::command::{Scratch, printed, text, vellum};

/// A parent that writes pages, forks four children that write some of them, and waits.
fn write_forks(path: &str) {
    let start = 0x1000_0000;
    let mut events = vec![(0, map(start, 64))];
    events.extend((0..64).map(|page| (0, write(start + page * PAGE, false))));
    for child in 1..=4 {
        events.push((0, fork(child)));
        events.extend((0..16).map(|page| (child, write(start + page * PAGE, true))));
        let wait = EventKind::Wait {
            child: TaskId(child),
        };
        events.extend([(child, EventKind::Exit), (0, wait)]);
    }
    events.push((0, EventKind::Exit));
    by_hand::write_trace(path, 4, &events);
}

/// A command, with what a page of its result has: a selector, and how many at least.
const COMMANDS: [(&str, &[&str], &str, u64); 10] = [
    (
        "compare",
        &[
            "compare", "TRACE", "-n", "5", "--ram", "64M", "--slice", "20",
        ],
        ".xy .mark",
        15,
    ),
    (
        "bench",
        &[
            "bench",
            "fork-family",
            "--scale",
            "0.02",
            "-n",
            "5",
            "--ram",
            "64M",
        ],
        "svg.cell .interval",
        10,
    ),
    (
        "reproduce",
        &[
            "reproduce",
            "1",
            "--quick",
            "-n",
            "1",
            "--only",
            "the three problems",
        ],
        "tbody tr",
        3,
    ),
    ("replay", &["replay", "TRACE"], "tbody tr", 10),
    (
        "linux",
        &[
            "replay", "TRACE", "--on", "linux", "-n", "2", "--save", "SAVED",
        ],
        ".bar",
        2,
    ),
    (
        "saved",
        &["compare", "--a", "linux:SAVED", "--b", "linux:SAVED"],
        ".bar",
        4,
    ),
    (
        "simulated",
        &[
            "compare", "TRACE", "--on", "sim", "--cpus", "2", "--seeds", "5",
        ],
        "svg.cell .interval",
        1,
    ),
    (
        "scale",
        &[
            "scale",
            "fork-exit",
            "--cpus",
            "1,2",
            "--seeds",
            "2",
            "--window",
            "50",
        ],
        ".xy .mark",
        4,
    ),
    ("plan", &["plan", "userpte"], ".xy .mark", 10),
    ("sweep", &["sweep", "SPEC"], "svg.cell .mark", 1),
];

/// Two designs on a simulated machine.
const GRID: &str = "\
    [[grid]]\nrun = \"simulate\"\ntraces = [\"forks.vellum\"]\nmachines = [\"epyc-milan-1s\"]\n\
    designs = [\"rmap=chains\", \"rmap=family\"]\n";

#[test]
fn every_command_that_measures_writes_a_page_and_report_the_same_of_its_json() {
    let scratch = Scratch::new("page-commands");
    let (trace, saved) = (scratch.path("forks.vellum"), scratch.path("earlier.json"));
    write_forks(&trace);
    let spec = scratch.write("grid.toml", GRID);
    let mut browser = Browser::start("commands");
    let mut results = Vec::new();
    for (name, arguments, selector, least) in COMMANDS {
        let place = |end: &str| scratch.path(&format!("{name}.{end}"));
        let (json, html, again) = (place("json"), place("html"), place("again.html"));
        let mut words: Vec<String> = arguments
            .iter()
            .map(|word| word.replace("TRACE", &trace).replace("SAVED", &saved))
            .map(|word| word.replace("SPEC", &spec))
            .collect();
        let more = ["--json", &json, "--html", &html];
        words.extend(more.map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let run = vellum(&[&words[..], &["--quiet"]].concat());
        assert!(run.status.success(), "{name}: {}", printed(&run));
        let page = fs::read_to_string(&html).expect("the page was written");
        let run = vellum(&["report", &json, "-o", &again]);
        assert!(run.status.success(), "{name}: {}", printed(&run));
        let from_json = fs::read_to_string(&again).expect("the page was written");
        // They differ in where they read it from.
        let same = from_json.replace(&format!("read from {json}"), "read from this run");
        assert!(page == same, "{name}: the pages differ");
        let value: Value =
            serde_json::from_str(&fs::read_to_string(&json).expect("JSON")).expect("JSON");
        assert_eq!(value["run"]["command"][0], "vellum", "{name}");
        assert_eq!(value["run"]["version"], env!("CARGO_PKG_VERSION"), "{name}");
        if arguments.contains(&"TRACE") {
            let found = &value["run"]["traces"][0];
            assert_eq!(found["path"], trace.as_str(), "{name}");
            let hash = found["sha256"].as_str().expect("a hash");
            assert_eq!(hash.len(), 64, "{name}");
            assert!(page.contains(hash), "{name}");
        }
        results.push(json);
        let Some(browser) = &mut browser else {
            continue;
        };
        browser.open(Path::new(&html));
        browser.show(360, Look::Dark);
        let found = browser.value(&format!("document.querySelectorAll({selector:?}).length"));
        assert!(found.as_u64() >= Some(least), "{name}: {found} {selector}");
        let wide = browser.value("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(360), "{name}: {wide} pixels");
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{name}: {complaints:#?}");
    }
    let all = scratch.path("all.html");
    let results: Vec<&str> = results.iter().map(String::as_str).collect();
    let more = ["--output", &all, "--title", "All <of> them"];
    let run = vellum(&[&["report"][..], &results, &more].concat());
    assert!(run.status.success(), "{}", printed(&run));
    let page = fs::read_to_string(&all).expect("the page was written");
    assert!(page.contains("<h1>All &lt;of&gt; them</h1>"));
    assert_eq!(page.matches("<article ").count(), COMMANDS.len());
    if let Some(browser) = &mut browser {
        browser.open(Path::new(&all));
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}

fn report_from(input: &[u8], arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .arg("report")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_result_can_be_piped_and_its_page_printed() {
    let scratch = Scratch::new("page-pipe");
    let run = vellum(&["plan", "userpte", "--json", "-"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let page = report_from(&run.stdout, &["-", "-o", "-"]);
    assert!(page.status.success(), "{}", text(&page.stderr));
    assert!(text(&page.stdout).starts_with("<!DOCTYPE html>"));
    assert!(scratch.files().is_empty());
}

#[test]
fn a_result_is_drawn_as_one_picture_for_a_document() {
    let scratch = Scratch::new("page-picture");
    let (json, svg) = (scratch.path("plan.json"), scratch.path("plan.svg"));
    let run = vellum(&["plan", "userpte", "--json", &json]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let run = vellum(&["report", &json, "--svg", &svg]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let picture = fs::read_to_string(&svg).expect("drawn");
    assert!(picture.starts_with("<svg ") && picture.contains("frame table"));
    let run = vellum(&["report", &json, &json, "--svg", &svg]);
    assert_eq!(run.status.code(), Some(2));
    let run = vellum(&["report", &json]);
    assert_eq!(run.status.code(), Some(2), "neither a page nor a picture");
}

#[test]
fn what_is_no_result_is_refused_and_no_page_is_left() {
    let scratch = Scratch::new("page-refused");
    let page = scratch.path("page.html");
    for (name, content, says) in [
        ("empty.json", "", "no result"),
        ("other.json", "{\"a\": 1}", "without a `schema`"),
        (
            "new.json",
            "{\"schema\": \"vellum-compare/7\"}",
            "vellum-compare/7",
        ),
        ("cut.json", "{\"schema\": \"vellum-compare/1\"", "no result"),
        (
            "odd.json",
            "{\"schema\": \"vellum-scale/1\"}",
            "missing field",
        ),
    ] {
        let path = scratch.write(name, content);
        let run = vellum(&["report", &path, "-o", &page]);
        assert_eq!(run.status.code(), Some(2), "{name}");
        let message = text(&run.stderr);
        assert!(
            message.contains(name) && message.contains(says),
            "{message}"
        );
        assert!(!Path::new(&page).exists(), "{name}");
        fs::remove_file(path).expect("it was there");
    }
    assert!(scratch.files().is_empty(), "{:?}", scratch.files());
    let run = vellum(&["report", &scratch.path("absent.json"), "-o", &page]);
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run.stderr).contains("absent.json"));
    let run = report_from(b"\xff\xfe", &["-", "-o", &page]);
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run.stderr).contains("UTF-8"), "{}", text(&run.stderr));
}

#[test]
fn a_page_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let scratch = Scratch::new("page-unwritable");
    let trace = scratch.path("forks.vellum");
    write_forks(&trace);
    for html in [&scratch.path("no/such/page.html"), "-"] {
        let run = vellum(&["compare", &trace, "--ram", "64M", "--html", html]);
        assert!(
            matches!(run.status.code(), Some(1 | 2)),
            "{}",
            printed(&run)
        );
        assert!(text(&run.stdout).is_empty(), "{}", text(&run.stdout));
        assert!(!text(&run.stderr).contains("pass"), "{}", text(&run.stderr));
    }
    assert_eq!(scratch.files(), ["forks.vellum"]);
}
