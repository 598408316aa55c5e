//! What larger pages would save in TLB misses.

use std::fmt::Write;
use std::fs;

use serde_json::Value;
use vellum_testing::Scratch;
use vellum_testing::by_hand::{accessed, map, write, write_trace};

use crate::command::{printed, text, vellum};

const START: u64 = 0x4000_0000;

/// A stream of lackey's that stores to each of so many pages in turn, so many times.
fn stores(path: &str, pages: u64, times: u64) {
    let mut lines = String::new();
    for _ in 0..times {
        for page in 0..pages {
            writeln!(lines, " S {:x},8", START + (page << 12)).expect("a string");
        }
    }
    fs::write(path, lines).expect("a file");
}

fn planned(arguments: &[&str]) -> Value {
    let all = [&["plan", "tlb", "-q", "--json", "-"], arguments].concat();
    let output = vellum(&all);
    assert!(output.status.success(), "{}", printed(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn refused(arguments: &[&str]) -> String {
    let output = vellum(&[&["plan", "tlb", "-q"], arguments].concat());
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    text(&output.stderr).replace('\n', " ")
}

#[test]
fn misses_and_walks_are_those_that_can_be_counted_by_hand() {
    let scratch = Scratch::new("plan-tlb");
    let stream = scratch.path("lackey.txt");
    // More pages than the second level has entries, even coalesced by four: 4 * 4096.
    stores(&stream, 16384, 2);
    let plan = planned(&["--stream", &stream, "--machine", "epyc-milan-1s"]);
    assert_eq!(plan["schema"], "vellum-plan-tlb/1");
    assert_eq!(plan["stream"]["data"], 2 * 16384);
    let rows = plan["rows"].as_array().expect("a list");
    let walks: Vec<u64> = rows
        .iter()
        .map(|row| row["walks"].as_u64().expect("a number"))
        .collect();
    assert_eq!(walks, [2 * 16384, 2 * 4096, 2 * 4096, 32]);
    let first = |row: &Value| row["misses"][0].as_u64().expect("a number");
    // 32 pages of 2 MiB stay in the first level.
    assert_eq!(
        rows.iter().map(first).collect::<Vec<_>>(),
        [32768, 8192, 8192, 32]
    );
    let page = scratch.path("page.html");
    let output = vellum(&["plan", "tlb", "-q", "--stream", &stream, "--html", &page]);
    let page = fs::read_to_string(page).expect("a page");
    assert!(
        page.contains("blocks of 16 KiB") && page.contains("go away"),
        "{page}"
    );
    let said = text(&output.stdout).replace('\n', " ");
    assert!(said.contains("99.9 % of the page walks go away"), "{said}");
    assert!(said.contains("32,768 loads and stores"), "{said}");
}

#[test]
fn designs_are_simulated_as_they_have_mapped_the_pages() {
    let scratch = Scratch::new("plan-tlb-designs");
    let stream = scratch.path("lackey.txt");
    stores(&stream, 1024, 2);
    let designs = [
        "--designs",
        "folio=64k",
        "--designs",
        "superpage=eager",
        "--designs",
        "",
    ];
    let plan = planned(&[&[stream.as_str(), "--stream", &stream], &designs[..]].concat());
    let row = |design: &str| {
        let rows = plan["rows"].as_array().expect("a list");
        rows.iter()
            .find(|row| row["design"] == design)
            .expect(design)
    };
    let by_size = |design: &str| {
        let sizes = row(design)["by_size"].as_array().expect("a list");
        sizes
            .iter()
            .map(|count| count.as_u64().expect("a number"))
            .collect::<Vec<_>>()
    };
    assert_eq!(by_size("folio=64k"), [0, 0, 2048, 0]);
    assert_eq!(by_size("superpage=eager"), [0, 0, 0, 2048]);
    assert_eq!(row("superpage=eager")["walks"], 2);
    assert_eq!(row("folio=64k")["walks"], 256);
    for design in ["", "folio=64k", "superpage=eager"] {
        assert_eq!(row(design)["unmapped"], 0, "{design}");
        assert_eq!(row(design)["accesses"], 2048, "{design}");
    }
}

#[test]
fn a_stream_of_another_run_is_refused() {
    let scratch = Scratch::new("plan-tlb-other");
    let (stream, trace) = (scratch.path("lackey.txt"), scratch.path("other.vellum"));
    stores(&stream, 16, 1);
    let elsewhere = 0x7000_0000;
    write_trace(
        &trace,
        1,
        &[(0, map(elsewhere, 4)), (0, write(elsewhere, false))],
    );
    let said = refused(&[&trace, "--stream", &stream, "--designs", "folio=64k"]);
    assert!(said.contains("of different runs"), "{said}");
}

#[test]
fn what_is_missing_is_said() {
    let scratch = Scratch::new("plan-tlb-missing");
    let (stream, trace) = (scratch.path("lackey.txt"), scratch.path("faults.vellum"));
    stores(&stream, 16, 1);
    let said = refused(&["--stream", &stream, "--machine", "altix-512"]);
    assert!(
        said.contains("altix-512: the description has no table `translation`"),
        "{said}"
    );
    write_trace(&trace, 1, &[(0, map(START, 4)), (0, write(START, false))]);
    let said = refused(&[&trace]);
    assert!(said.contains("a trace of faults has no accesses"), "{said}");
    let said = refused(&[
        &stream,
        "--stream",
        &stream,
        "--designs",
        "format=aarch64-64k",
    ]);
    assert!(said.contains("pages of 64 KiB"), "{said}");
    fs::write(&stream, " L zzzz,8\n".repeat(30)).expect("a file");
    let output = vellum(&["plan", "tlb", "-q", "--stream", &stream, "--from", "lackey"]);
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
}

#[test]
fn walks_that_hardware_counted_are_a_bound_and_called_one() {
    let plan = planned(&["--walks", "1000000"]);
    // Four entries, each from memory.
    assert_eq!(plan["bound"]["most_ns"], 1e6 * 4.0 * 128.0);
    let output = vellum(&["plan", "tlb", "-q", "--walks", "1000000"]);
    let said = text(&output.stdout).replace('\n', " ");
    assert!(said.contains("A bound, no simulation"), "{said}");
    assert!(said.contains("at most 0.512 s"), "{said}");
}

#[test]
fn samples_of_used_pages_are_a_bound_and_called_one() {
    let scratch = Scratch::new("plan-tlb-samples");
    let trace = scratch.path("sampled.vellum");
    let mut events = vec![(0, map(START, 4096))];
    events.extend((0..4096).map(|page| (0, write(START + (page << 12), false))));
    events.extend([(0, accessed(START, 4096)), (0, accessed(START, 64))]);
    write_trace(&trace, 1, &events);
    let plan = planned(&[&trace, "--machine", "xeon-e5-2690"]);
    let bound = &plan["bound"];
    assert_eq!(
        (&bound["samples"], &plan["stream"]),
        (&2.into(), &Value::Null)
    );
    // Both first levels and the second hold 64 + 128 + 512 translations.
    assert_eq!(bound["least"][0]["walks"], 4096 - 704);
    assert_eq!(bound["least"][1]["walks"], 0);
    let output = vellum(&["plan", "tlb", "-q", &trace]);
    let said = text(&output.stdout).replace('\n', " ");
    assert!(
        said.contains("there may have been any number more"),
        "{said}"
    );
    assert!(said.contains("would save is not known"), "{said}");
}
