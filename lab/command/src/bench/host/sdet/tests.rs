//! Real runs of one and of two scripts.

use super::super::of_this_kernel;
use super::*;
use crate::bench::{Findings, Request};
use crate::on::On;

/// What comes of one pass of up to `most` scripts at once below `directory`.
fn measured(most: u64, directory: &Path, interrupt: &Interrupt) -> Result<Findings, HostError> {
    let given = [format!("most={most}")];
    let mut request = Request::new("sdet", On::Linux, (1.0, &given)).expect("a benchmark");
    request.passes = 1;
    let mut host = Host {
        request: &request,
        interrupt,
        findings: of_this_kernel(),
    };
    below(directory, &mut host).map(|()| host.findings)
}

/// Whether all programs are there; says so if not.
fn installed() -> bool {
    match tools::require(script::TOOLS) {
        Ok(()) => true,
        Err(missing) => {
            eprintln!("skipped: {missing}");
            false
        }
    }
}

#[test]
fn scripts_run_to_their_end_and_nothing_stays_behind() {
    if !installed() {
        return;
    }
    let scratch = Scratch::new(&std::env::temp_dir(), "sdet-test").expect("made");
    let result = measured(2, scratch.path(), &Interrupt::manual()).expect("the scripts succeed");
    assert!(!result.interrupted);
    let titles = result.runs.iter().map(|run| run.title.as_str());
    let titles: Vec<&str> = titles.collect();
    assert_eq!(titles, ["1 script", "2 scripts at once"]);
    for (run, block) in result.runs.iter().zip(&result.blocks) {
        for name in ["elapsed", "system"] {
            let figure = run.figures.iter().find(|figure| figure.name == name);
            let arms = &figure.expect("it is measured").arms;
            assert!(arms.iter().all(|arm| arm.value > 0.0), "{arms:?}");
        }
        assert_ne!(run.facts, ["0 scripts an hour"]);
        assert!(block.contains("100.0%"), "{block}");
    }
    let left = fs::read_dir(scratch.path()).expect("readable").count();
    assert_eq!(left, 0);
}

#[test]
fn an_interruption_removes_the_directories() {
    if !installed() {
        return;
    }
    let scratch = Scratch::new(&std::env::temp_dir(), "sdet-stop-test").expect("made");
    let interrupt = Interrupt::manual();
    interrupt.request();
    let stopped = measured(2, scratch.path(), &interrupt);
    assert!(matches!(stopped, Err(HostError::Interrupted)));
    let left = fs::read_dir(scratch.path()).expect("readable").count();
    assert_eq!(left, 0);
}

#[test]
fn a_failing_script_is_reported_with_what_it_wrote() {
    let scratch = Scratch::new(&std::env::temp_dir(), "sdet-fail-test").expect("made");
    let home = prepare(scratch.path(), 1, 0).expect("prepared");
    fs::write(
        home.join("script"),
        "echo no such thing >&2\nfalse\necho after\n",
    )
    .expect("written");
    let mut jobs = [start(&home).expect("sh can be started")];
    let failed = job::finish(&mut jobs, &Interrupt::manual(), |_, ended| {
        assert_eq!(ended.status.code(), Some(1));
        let output = last_lines(File::open(home.join(ERRORS)));
        Err(HostError::Command {
            command: "script".to_owned(),
            ending: ended.status.to_string(),
            output,
        })
    });
    let text = failed.expect_err("it fails").to_string();
    assert!(text.ends_with("\n    no such thing"), "{text}");
    let output = fs::read_to_string(home.join("output")).expect("readable");
    assert_eq!(output, "", "nothing runs after the failure");
}
