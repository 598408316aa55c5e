//! Real runs of one and of two scripts.

use super::*;

fn options(scripts: Vec<usize>, directory: &Path) -> Options {
    Options {
        scripts,
        passes: 1,
        seed: 1,
        directory: directory.to_owned(),
        style: Style::Quiet,
    }
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
    let options = options(vec![1, 2], scratch.path());
    let result = run(&options, &Interrupt::manual()).expect("the scripts succeed");
    assert!(!result.interrupted);
    for (load, scripts) in result.loads.iter().zip([1, 2]) {
        assert_eq!(load.scripts, scripts);
        for run in load.runs.arms.iter().flatten() {
            assert!(run.elapsed_s > 0.0 && run.throughput(scripts) > 0.0);
            assert!(run.usage.system_s > 0.0, "{run:?}");
        }
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
    let stopped = run(&options(vec![2], scratch.path()), &interrupt);
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
