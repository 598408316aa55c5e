//! The table, and whether enough was found.

use crate::NEEDED;
use crate::list::Mutant;
use crate::measure::Known;

/// Prints what became of each mutant and judges the whole.
///
/// # Errors
/// Too few were found, one that brings back a finding was not, or some that are judged
/// equivalent were.
pub fn print(mutants: &[&Mutant], known: &Known) -> Result<(), String> {
    let (mut counted, mut findings) = (Tally::default(), Tally::default());
    let mut wrongly_judged = 0;
    for mutant in mutants {
        let tally = if mutant.finding {
            &mut findings
        } else {
            &mut counted
        };
        let outcome = known.of(mutant);
        let by = outcome.and_then(|outcome| outcome.found_by.as_deref());
        let line = match (&mutant.equivalent, by, outcome) {
            (Some(_), Some(test), _) => {
                wrongly_judged += 1;
                format!("JUDGED EQUIVALENT, AND FOUND by {test}")
            }
            (Some(reason), None, _) => format!("equivalent: {reason}"),
            (None, Some(test), Some(outcome)) => {
                tally.found += 1;
                let how = if outcome.hung { " (did not end)" } else { "" };
                format!("found by {test}{how}")
            }
            (None, _, None) => {
                tally.missed += 1;
                "not run".to_owned()
            }
            (None, None, Some(outcome)) => {
                tally.missed += 1;
                format!(
                    "NOT FOUND by the {} tests that reach it: {}",
                    outcome.passed.len(),
                    mutant.why
                )
            }
        };
        println!("{} {}: {line}", mutant.file, mutant.name);
    }
    let equivalent = mutants.len() - counted.judged() - findings.judged();
    println!(
        "\n{} mutants: {} of {} found ({:.1} %), {} not, {equivalent} judged equivalent\n\
         {} of {} that bring back a finding are found",
        mutants.len(),
        counted.found,
        counted.judged(),
        share(counted.found, counted.judged()),
        counted.missed,
        findings.found,
        findings.judged(),
    );
    if wrongly_judged > 0 {
        return Err(format!(
            "{wrongly_judged} that are judged equivalent were found"
        ));
    }
    if findings.missed > 0 {
        let missed = findings.missed;
        return Err(format!("{missed} that bring back a finding were not found"));
    }
    if is_enough(counted.found, counted.judged()) {
        Ok(())
    } else {
        Err(format!("fewer than {NEEDED} % were found"))
    }
}

/// What became of those that are not judged equivalent.
#[derive(Default)]
struct Tally {
    found: usize,
    missed: usize,
}

impl Tally {
    fn judged(&self) -> usize {
        self.found + self.missed
    }
}

fn share(found: usize, judged: usize) -> f64 {
    100.0 * found as f64 / judged.max(1) as f64
}

/// Whether `found` of `judged` mutants are [`NEEDED`] percent or more.
pub fn is_enough(found: usize, judged: usize) -> bool {
    found * 100 >= judged * NEEDED
}
