//! How figures, intervals and verdicts are put into words, wherever they are printed.

use crate::compare::order::even_passes;
use crate::compare::{Reason, Resolution, Verdict};
use crate::stats::bootstrap::LEAST_PASSES;
use vellum_results::{Figure, Standing};
use vellum_terminal::text::{plural, wrapped};

/// Stands for the interval of a few passes.
const NO_INTERVAL: &str = "too few passes";

/// The interval of a figure, with so many digits after the point.
pub fn bounds(figure: &Figure, digits: usize) -> String {
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format!("{low:.digits$} .. {high:.digits$}"),
        _ => NO_INTERVAL.to_owned(),
    }
}

/// What is said of an arm, in words.
pub fn said(standing: Standing) -> String {
    let Standing::Judged(verdict) = standing else {
        return String::new();
    };
    match verdict {
        Verdict::Less => "less".to_owned(),
        Verdict::More => "more".to_owned(),
        Verdict::NotProven(Reason::WithinChance) => "not proven".to_owned(),
        Verdict::NotProven(Reason::WithinStray) => "not proven (A strays as far)".to_owned(),
        Verdict::NotProven(Reason::TooFewPasses) => {
            format!("not proven (needs {LEAST_PASSES} passes)")
        }
    }
}

/// Which differences are told.
pub fn told_from(resolution: &Resolution) -> String {
    format!(
        "Resolution: {:.2} %. A larger difference is told, a smaller one is not.\n",
        resolution.total() * 100.0
    )
}

/// What makes up the limit.
pub fn made_up(resolution: &Resolution) -> String {
    format!(
        "  {:.2} % of it is chance, {:.2} % is how far an arm may stray.\n",
        resolution.chance * 100.0,
        resolution.stray * 100.0,
    )
}

/// What it costs that `passes` are no multiple of the orders of `arms` arms; nothing
/// where they are one, or too few for an interval.
pub fn uneven(passes: usize, arms: usize) -> String {
    let (lower, upper) = even_passes(passes, arms);
    if passes < LEAST_PASSES || lower == upper {
        return String::new();
    }
    let even = match lower {
        0 => upper.to_string(),
        lower => format!("{lower} or {upper}"),
    };
    wrapped(&format!(
        "Places in the order of the {arms} arms, and arenas, are not shared out evenly by {}, as \
         they are by {even}: what they do to an arm widens the intervals instead of cancelling.",
        plural(passes, "pass", "passes")
    ))
}
