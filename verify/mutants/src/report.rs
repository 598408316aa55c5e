//! The table, and whether enough was found.

use crate::NEEDED;
use crate::list::Mutant;
use crate::measure::Known;

/// Prints what became of each mutant and judges the whole.
///
/// # Errors
/// Too few were found, or some that are judged equivalent were.
pub fn print(mutants: &[&Mutant], known: &Known) -> Result<(), String> {
    let (mut found, mut missed, mut wrongly_judged) = (0, 0, 0);
    for mutant in mutants {
        let outcome = known.of(mutant);
        let by = outcome.and_then(|outcome| outcome.found_by.as_deref());
        let line = match (&mutant.equivalent, by, outcome) {
            (Some(_), Some(test), _) => {
                wrongly_judged += 1;
                format!("JUDGED EQUIVALENT, AND FOUND by {test}")
            }
            (Some(reason), None, _) => format!("equivalent: {reason}"),
            (None, Some(test), Some(outcome)) => {
                found += 1;
                let how = if outcome.hung { " (did not end)" } else { "" };
                format!("found by {test}{how}")
            }
            (None, _, None) => {
                missed += 1;
                "not run".to_owned()
            }
            (None, None, Some(outcome)) => {
                missed += 1;
                format!(
                    "NOT FOUND by the {} tests that reach it: {}",
                    outcome.passed.len(),
                    mutant.why
                )
            }
        };
        println!("{} {}: {line}", mutant.file, mutant.name);
    }
    let judged = found + missed;
    let equivalent = mutants.len() - judged;
    println!(
        "\n{} mutants: {found} of {judged} found ({:.1} %), {missed} not, {equivalent} judged equivalent",
        mutants.len(),
        share(found, judged),
    );
    if wrongly_judged > 0 {
        return Err(format!(
            "{wrongly_judged} that are judged equivalent were found"
        ));
    }
    if is_enough(found, judged) {
        Ok(())
    } else {
        Err(format!("fewer than {NEEDED} % were found"))
    }
}

fn share(found: usize, judged: usize) -> f64 {
    100.0 * found as f64 / judged.max(1) as f64
}

/// Whether `found` of `judged` mutants are [`NEEDED`] percent or more.
pub fn is_enough(found: usize, judged: usize) -> bool {
    found * 100 >= judged * NEEDED
}
