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
