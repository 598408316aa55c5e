//! What is wrong with a spec is said before a cell runs: the line, and what is expected.

use std::path::Path;

use vellum_sweep::{Cell, HostId, Known, Spec, SpecError, grid};
use vellum_testing::Scratch;

fn read(scratch: &Scratch, text: &str) -> Result<Spec, SpecError> {
    let path = scratch.write("spec.toml", text);
    let design = |design: &str| match design.contains("wrong") {
        true => Err(format!("no design is `{design}`")),
        false => Ok(()),
    };
    let size = |size: &str| match size.ends_with('G') {
        true => Ok(()),
        false => Err(format!("`{size}` is not a size")),
    };
    let trace = |path: &Path| match path.exists() {
        true => Ok(()),
        false => Err(format!("{}: no such trace", path.display())),
    };
    let known = Known {
        design: &design,
        size: &size,
        trace: &trace,
        workloads: &["faults", "fork-exit"],
        benchmarks: &["fork-family"],
    };
    Spec::read(Path::new(&path), &known)
}

fn hosts(names: &[&str]) -> Vec<HostId> {
    let host = |name: &&str| HostId {
        name: (*name).to_owned(),
        kernel: "6.1".to_owned(),
    };
    names.iter().map(host).collect()
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_what_is_expected() {
    let scratch = Scratch::new("sweep-spec-wrong");
    scratch.write("a.vellum", "a trace");
    // A spec, the line of what is wrong, and parts of what is said.
    let wrong: [(&str, Option<usize>, &[&str]); 24] = [
        ("", None, &["no grid", "[[grid]]"]),
        ("[[grid]]\nrun = ", Some(2), &["spec.toml:2"]),
        (
            "[[grid]]\ntraces = [\"a.vellum\"]\n",
            Some(1),
            &["without `run`", "compare"],
        ),
        (
            "[[grid]]\nrun = \"fly\"\n",
            Some(2),
            &["\"fly\"", "verify, replay"],
        ),
        ("[[grid]]\nrun = \"verify\"\n", Some(1), &["needs `traces`"]),
        (
            "[[grid]]\nrun = \"verify\"\ntrace = [\"a.vellum\"]\n",
            Some(3),
            &["`trace`", "`traces`"],
        ),
        (
            "[[grid]]\nrun = \"verify\"\ntraces = \"a.vellum\"\n",
            Some(3),
            &["string", "sequence"],
        ),
        (
            "[[grid]]\nrun = \"verify\"\ntraces = []\n",
            Some(3),
            &["`traces` is empty"],
        ),
        (
            "[[grid]]\nrun = \"verify\"\ntraces = [\n  \"a.vellum\",\n  \"b.vellum\",\n]\n",
            Some(5),
            &["b.vellum: no such trace"],
        ),
        (
            "[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\", \"a.vellum\"]\n",
            Some(3),
            &["\"a.vellum\" is twice in `traces`"],
        ),
        (
            "[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\ndesigns = [\"wrong\"]\n",
            Some(4),
            &["no design is `wrong`"],
        ),
        (
            "[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\npasses = 3\n",
            Some(4),
            &["`passes` means nothing with run = \"verify\"", "copies"],
        ),
        (
            "[[grid]]\nrun = \"compare\"\ntraces = [\"a.vellum\"]\ndesigns = [\"x\"]\n",
            Some(4),
            &["two at least"],
        ),
        (
            "[[grid]]\nrun = \"scale\"\nworkloads = [\"walks\"]\nmachines = [\"epyc-milan-1s\"]\n",
            Some(3),
            &["no workload is called \"walks\"", "faults"],
        ),
        (
            "[[grid]]\nrun = \"scale\"\nworkloads = [\"faults\"]\nmachines = [\"abacus\"]\n",
            Some(4),
            &["\"abacus\"", "epyc-milan-1s"],
        ),
        (
            "[[grid]]\nrun = \"scale\"\nworkloads = [\"faults\"]\nmachines = [\"epyc-milan-1s\"]\n\
          cpus = [\n1,\n1000]\n",
            Some(7),
            &["1000 CPUs", "has 96"],
        ),
        (
            "[[grid]]\nrun = \"scale\"\nworkloads = [\"faults\"]\nmachines = [\"m.toml\"]\n",
            Some(4),
            &["m.toml"],
        ),
        (
            "[[grid]]\nrun = \"bench\"\nbenchmarks = [\"fork-family\"]\ndesigns = [\"x\", \"y\"]\nscales = [0.0]\n",
            Some(5),
            &["factor above 0"],
        ),
        (
            "[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\nram = [\"much\"]\n",
            Some(4),
            &["not a size"],
        ),
        (
            "[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\nseeds = [-1]\n",
            Some(4),
            &["0 or more"],
        ),
        (
            "[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\noptions = [\"--json=x\"]\n",
            Some(4),
            &["--json is what the sweep says itself"],
        ),
        (
            "jobs = 0\n[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\n",
            Some(1),
            &["jobs = 0", "1 to 1024"],
        ),
        (
            "[slurm]\ntraces = \"mailed\"\n[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\n",
            Some(2),
            &["\"shared\" or \"copied\""],
        ),
        (
            "[slurm]\nhosts = [\"n[1-2]\"]\n[[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\n",
            Some(2),
            &["name of one node"],
        ),
    ];
    for (text, line, parts) in wrong {
        let error = read(&scratch, text).expect_err(text);
        let said = error.to_string();
        assert_eq!(error.line, line, "{text}: {said}");
        assert!(said.contains("spec.toml"), "{said}");
        for part in parts {
            assert!(said.contains(part), "{text}: {said} lacks {part}");
        }
    }
}

#[test]
fn a_file_that_is_no_text_or_not_there_is_refused() {
    let scratch = Scratch::new("sweep-spec-bytes");
    let path = scratch.write("spec.toml", b"name = \"a\"\n\xff");
    let known = Known {
        design: &|_| Ok(()),
        size: &|_| Ok(()),
        trace: &|_| Ok(()),
        workloads: &[],
        benchmarks: &[],
    };
    let error = Spec::read(Path::new(&path), &known).expect_err("no text");
    assert_eq!(error.line, Some(2), "{error}");
    let missing = scratch.path("missing.toml");
    let error = Spec::read(Path::new(&missing), &known).expect_err("not there");
    assert!(
        error.to_string().contains("missing.toml: cannot be read"),
        "{error}"
    );
}

/// The commands of a spec's cells.
fn lines(cells: &[Cell], scratch: &Scratch) -> Vec<String> {
    let directory = format!("{}/", scratch.directory());
    let lines = cells
        .iter()
        .map(|cell| cell.command_line().replace(&directory, ""));
    lines.collect()
}

#[test]
fn each_combination_is_a_cell_once_and_timed_ones_are_there_for_each_host() {
    let scratch = Scratch::new("sweep-grid");
    scratch.write("a.vellum", "a trace");
    scratch.write("same.vellum", "a trace");
    let text = "\
        [[grid]]\nrun = \"verify\"\ntraces = [\"a.vellum\"]\ndesigns = [\"x\", \"y\"]\ncpus = [1, 2]\n\
        [[grid]]\nrun = \"verify\"\ntraces = [\"same.vellum\"]\ndesigns = [\"y\"]\ncpus = [2, 4]\n\
        [[grid]]\nrun = \"compare\"\ntraces = [\"a.vellum\"]\ndesigns = [\"x\", \"y\", \"z\"]\npasses = 6\n\
        options = [\"--no-atomics\"]\n";
    let spec = read(&scratch, text).expect("a spec");
    assert_eq!(spec.name, "spec");
    assert!(spec.results.ends_with("spec.results"));
    let cells = grid::cells(&spec, "program", &hosts(&["n1", "n2"]));
    // The trace with another name is the same one: its cell with y and 2 CPUs is there.
    let expected = [
        "vellum replay a.vellum --verify --audit --design=x --cpus=1 --seed=1 --quiet --json=-",
        "vellum replay a.vellum --verify --audit --design=y --cpus=1 --seed=1 --quiet --json=-",
        "vellum replay a.vellum --verify --audit --design=x --cpus=2 --seed=1 --quiet --json=-",
        "vellum replay a.vellum --verify --audit --design=y --cpus=2 --seed=1 --quiet --json=-",
        "vellum replay same.vellum --verify --audit --design=y --cpus=4 --seed=1 --quiet --json=-",
        "vellum compare a.vellum --a=x --b=y --passes=6 --seed=1 --no-atomics --quiet --json=-",
        "vellum compare a.vellum --a=x --b=y --passes=6 --seed=1 --no-atomics --quiet --json=-",
        "vellum compare a.vellum --a=x --b=z --passes=6 --seed=1 --no-atomics --quiet --json=-",
        "vellum compare a.vellum --a=x --b=z --passes=6 --seed=1 --no-atomics --quiet --json=-",
    ];
    assert_eq!(lines(&cells, &scratch), expected);
    let on: Vec<Option<&str>> = cells
        .iter()
        .map(|cell| cell.host.as_ref().map(|host| host.name.as_str()))
        .collect();
    assert_eq!(on[..5], [None; 5]);
    assert_eq!(on[5..], [Some("n1"), Some("n2"), Some("n1"), Some("n2")]);
}
