//! What is printed of simulations.

use super::*;
use crate::simulate::Purpose;
use crate::simulate::findings::findings;
use crate::simulate::findings::tests::{done, plan};

#[test]
fn one_design_is_shown_with_the_range_of_its_seeds() {
    let mut plan = plan(&["rmap=family"], 6);
    plan.about.service = None;
    let findings = findings(&plan, &done(&plan, 1.0)).expect("all is done");
    let text = render(&findings, true, Detail::Summary);
    for part in [
        "some.vellum on 8 CPUs of epyc-milan-1s, 4,096 MiB",
        "2 copies, 20 tasks, 1,000 operations; the median of 6 seeds",
        "No user time",
        "elapsed s         0.001004  0.001001 .. 0.001006",
        "CPU %                400.0",
        "15 of 1,000 operations went otherwise than recorded, 5 of them",
        "25.00 % moving lines, 12.50 % spinning, 50.00 % shootdowns",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains("Control"), "{text}");
}

#[test]
fn what_was_taken_out_of_the_user_time_is_said() {
    let mut plan = plan(&["rmap=family"], 6);
    let text = |plan: &crate::simulate::Plan| {
        let findings = findings(plan, &done(plan, 1.0)).expect("all is done");
        render(&findings, false, Detail::Summary).replace('\n', " ")
    };
    let said = text(&plan);
    let expected = "less 0.250000 s of service by the recorded kernel: fault 1.50 us.";
    assert!(said.contains(expected), "{said}");
    plan.about.service.as_mut().expect("set").prices.clear();
    assert!(text(&plan).contains("too few faults and calls in a row"));
}

#[test]
fn two_designs_are_told_apart_only_if_the_interval_excludes_1() {
    let plan = plan(&["rmap=chains", "rmap=family"], 6);
    let text = |ratio| {
        let findings = findings(&plan, &done(&plan, ratio)).expect("all is done");
        render(&findings, false, Detail::Summary)
    };
    let less = text(0.75);
    for part in [
        "A rmap=chains\nB rmap=family\n",
        "ratio 1.000 exactly",
        "0.7500",
        "B takes less time: 25.00 to 25.00 % less.",
    ] {
        assert!(less.contains(part), "{part} in\n{less}");
    }
    assert!(text(1.5).contains("B takes more time: 50.00 to 50.00 % more."));
    let same = text(1.0);
    assert!(same.contains("No difference is proven"), "{same}");
}

#[test]
fn a_failed_control_and_an_interrupt_are_said_aloud() {
    let plan = plan(&["rmap=chains", "rmap=family"], 6);
    let mut done = done(&plan, 1.0);
    done.truncate(12);
    let control = done.iter_mut().find(|(task, _)| task.is_control);
    control.expect("a comparison has one").1.elapsed_ns += 1;
    let findings = findings(&plan, &done).expect("five seeds");
    let text = render(&findings, false, Detail::Summary);
    assert!(text.contains("CONTROL FAILED"), "{text}");
    assert!(text.contains("INTERRUPTED"), "{text}");
}

fn point(cpus: usize, ratio: f64) -> Findings {
    let mut plan = plan(&["rmap=chains", "rmap=family"], 3);
    plan.purpose = Purpose::Sweep;
    plan.cpus = cpus;
    let mut done = done(&plan, ratio);
    for (_, account) in &mut done {
        account.elapsed_ns /= cpus as u64;
    }
    findings(&plan, &done).expect("all is done")
}

#[test]
fn designs_are_shown_by_number_of_cpus_with_speed_up_and_ratio() {
    let sweep = Sweep {
        points: vec![point(1, 0.5), point(4, 0.25)],
        interrupted: true,
    };
    let text = render_sweep(&sweep, false, Detail::Summary);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let row = |first: &str, last: &str| {
        let mut found = lines.iter();
        found.any(|line| line.first() == Some(&first) && line.last() == Some(&last))
    };
    assert!(row("1", "0.5000") && row("4", "0.2500"), "{text}");
    for part in ["  4.00  ", "  8.00  ", "1.000 exactly", "INTERRUPTED"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn the_control_that_did_not_repeat_is_the_one_that_is_told() {
    let mut sweep = Sweep {
        points: vec![point(1, 1.0), point(2, 1.0), point(4, 1.0)],
        interrupted: false,
    };
    let told = |sweep: &Sweep| sweep.worst_control().expect("a sweep has one");
    assert!(told(&sweep).repeats);
    sweep.points[1].control = Some(Control {
        ratio: 1.0,
        repeats: false,
    });
    assert!(!told(&sweep).repeats);
    assert!(render_sweep(&sweep, false, Detail::Summary).contains("CONTROL FAILED"));
}
