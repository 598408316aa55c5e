//! A trace on more and more CPUs of a machine.

use vellum_results::sim::Sweep;

use super::{Plan, measure};
use crate::failure::Failure;
use vellum_terminal::progress::{Interrupt, Style};

/// Runs a plan with each of the numbers of CPUs.
///
/// # Errors
/// A simulation failed, or the user stopped it before the first number was complete.
pub fn sweep(
    mut plan: Plan,
    cpus: &[usize],
    style: Style,
    interrupt: &Interrupt,
) -> Result<Sweep, Failure> {
    let mut found = Sweep {
        points: Vec::new(),
        interrupted: false,
    };
    for &cpus in cpus {
        plan.cpus = cpus;
        match measure(&plan, style, interrupt) {
            Ok(point) if !point.interrupted => found.points.push(point),
            Err(failure) if failure.code() != Failure::INTERRUPTED => return Err(failure),
            Ok(_) | Err(_) => found.interrupted = true,
        }
        if found.interrupted {
            break;
        }
    }
    match found.points.is_empty() {
        true => Err(Failure::interrupted(
            "interrupted before all designs were through with one number of CPUs",
        )),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Purpose;
    use crate::simulate::findings::findings;
    use crate::simulate::findings::tests::{done, plan};
    use crate::simulate::text::render_sweep;
    use vellum_results::sim::{Control, Findings};

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
        let text = render_sweep(&sweep, false);
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
        assert!(render_sweep(&sweep, false).contains("CONTROL FAILED"));
    }
}
