//! `vellum diffprofile` as a user meets it.

use std::path::Path;

use crate::command::{Scratch, text, vellum};
use serde_json::Value;

/// The posted format, whole: title, name of the new profile, threshold.
#[test]
fn a_difference_is_headed_cut_and_named_as_asked() {
    let scratch = Scratch::new("headed");
    let old = scratch.write(
        "mm2",
        "10 grew 1.0\n100 shrank 1.0\n7 stayed 1.0\n117 total 1.0\n",
    );
    let new = scratch.write(
        "mm3",
        "60 grew 1.0\n25 shrank 1.0\n8 stayed 1.0\n93 total 1.0\n",
    );
    let arguments = "--threshold 30 --title kernbench --new-name -mm3 --no-built-in-groups";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = vellum(&[&["diffprofile", &old, &new], &arguments[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = "\
diffprofile (kernbench, + worse in -mm3)
        50   500.0% grew
...
       -75   -75.0% shrank
";
    assert_eq!(text(&output.stdout), expected);
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
fn a_stack_of_30000_frames_is_drawn() {
    let scratch = Scratch::new("deep");
    let names: Vec<String> = (0..30_000).map(|frame| format!("f{frame}")).collect();
    let deep = scratch.write("in.folded", format!("{} 1\n", names.join(";")));
    let (svg, folded) = (scratch.path("d.svg"), scratch.path("d.folded"));
    let output = vellum(&[
        "diffprofile",
        &deep,
        &deep,
        "--svg",
        &svg,
        "--folded",
        &folded,
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert!(drawn.contains("<title>f29999\n"));
}
