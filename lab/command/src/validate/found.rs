//! What came out, both sides beside each other.

use super::Request;
use super::cases::Case;
use super::plain::Measured;
use vellum_calibrate::rounds::shortened;
use vellum_results::validation::{LineBetween, Ratio, Total, Validation};

/// How far a total may be off, as a share of what was measured.
pub const TOTAL_WITHIN: f64 = 0.10;

/// For how much of the time two CPUs have to be at work at once, or nothing is known.
const OVERLAP: f64 = 0.8;

/// How far a ratio may be off.
pub const RATIO_WITHIN: f64 = 0.03;

/// Puts the sides together.
pub fn found(
    request: &Request<'_>,
    cases: &[Case],
    measured: &[Measured],
    simulated: impl Fn(usize, usize) -> f64,
    line_between: Option<LineBetween>,
) -> Validation {
    let mut totals = Vec::new();
    let mut ratios = Vec::new();
    for (number, (case, plain)) in cases.iter().zip(measured).enumerate() {
        for (design, name) in case.designs.iter().enumerate() {
            let (ns, simulated_ns) = (plain.ns(design), simulated(number, design));
            let (error, within) = judged(simulated_ns / ns.max(1.0) - 1.0);
            totals.push(Total {
                workload: case.name.to_owned(),
                cpus: case.load.cpus(),
                design: (*name).to_owned(),
                measured_ns: shortened(ns),
                spread: shortened(plain.spread(design)),
                simulated_ns: shortened(simulated_ns),
                error,
                within,
                overlap: case.is_parallel.then(|| shortened(plain.overlap(design))),
                cause: None,
            });
            if design > 0 {
                let base = (plain.ns(0).max(1.0), simulated(number, 0).max(1.0));
                let (was, is) = (ns / base.0, simulated_ns / base.1);
                ratios.push(Ratio {
                    workload: case.name.to_owned(),
                    cpus: case.load.cpus(),
                    design: (*name).to_owned(),
                    base: case.designs[0].to_owned(),
                    measured: was,
                    simulated: is,
                    difference: is - was,
                    within: (is - was).abs() <= RATIO_WITHIN,
                });
            }
        }
    }
    let moved = line_between.as_ref().is_some_and(|line| line.kept > 0);
    let why = |total| cause(total, &totals, moved);
    let causes: Vec<Option<String>> = totals.iter().map(why).collect();
    for (total, cause) in totals.iter_mut().zip(causes) {
        total.cause = cause;
    }
    let machine = request.machine;
    let kinds = vellum_description::WorkKind::ALL.into_iter();
    let missing = kinds.filter(|&kind| machine.work.of(kind).is_none());
    Validation {
        machine: request.name.clone(),
        title: machine.title.clone(),
        aims: (TOTAL_WITHIN, RATIO_WITHIN),
        totals,
        ratios,
        uncalibrated: missing.map(|kind| kind.key().to_owned()).collect(),
        line_between,
    }
}

/// An error as it is printed, and whether that is within the aim: what a reader of the figure
/// would say, too.
fn judged(error: f64) -> (f64, bool) {
    let error = shortened(error);
    (error, error.abs() <= TOTAL_WITHIN)
}

/// What the other figures say of a miss.
fn cause(total: &Total, all: &[Total], moved: bool) -> Option<String> {
    if total.within {
        return None;
    }
    if total.spread > total.error.abs() {
        return Some("the passes of the measurement lie farther apart than that".to_owned());
    }
    if let Some(overlap) = total.overlap.filter(|&overlap| overlap < OVERLAP) {
        return Some(format!(
            "when it was measured, both CPUs worked at once for {:.0} % of the time only, since \
             other programs ran",
            overlap * 100.0
        ));
    }
    let alone = |other: &&Total| {
        (&*other.workload, other.cpus, &*other.design) == (&*total.workload, 1, &*total.design)
    };
    match (total.cpus, all.iter().find(alone)) {
        (1, _) | (_, None) => None,
        (_, Some(alone)) if (total.error - alone.error).abs() <= TOTAL_WITHIN => {
            Some("as on one CPU".to_owned())
        }
        _ if moved => {
            Some("the CPUs were not always as far from each other as described".to_owned())
        }
        (_, Some(alone)) => Some(format!(
            "{:+.0} % on one CPU, so the rest is from sharing: measured {:.2} times the time of \
             one, simulated {:.2} times",
            alone.error * 100.0,
            total.measured_ns / alone.measured_ns.max(1.0),
            total.simulated_ns / alone.simulated_ns.max(1.0),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::judged;

    #[test]
    fn an_error_is_judged_as_it_is_printed() {
        assert_eq!(judged(0.10049), (0.1, true));
        assert_eq!(judged(-0.1004), (-0.1, true));
        assert_eq!(judged(0.1009), (0.101, false));
    }
}
