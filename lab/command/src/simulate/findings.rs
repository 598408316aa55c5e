//! What the simulations of a plan say together.

use vellum_results::Spread;
use vellum_results::sim::{Account, Comparison, Control, Findings, Measured, Ratio, Side};

use super::account::FIGURES;
use super::{Plan, Purpose, Task};
use crate::failure::Failure;
use crate::stats::{Bootstrap, Samples, median};

/// Confidence of intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Share of the operations that may diverge without explanation.
const UNEXPLAINED_LIMIT: f64 = 0.01;

/// What ratios are counted in while they are resampled: billionths.
const BILLION: f64 = 1e9;

/// Of the simulations that are done. `None` if they are too few: none with all designs,
/// or too few for an interval, or without the control that a comparison needs.
pub fn findings(plan: &Plan, done: &[(Task, Account)]) -> Option<Findings> {
    let of = |design: usize, seed: u64, is_control: bool| {
        let task = Task {
            design,
            seed,
            is_control,
        };
        let mut found = done.iter().filter(|(other, _)| *other == task);
        found.next().map(|(_, account)| account)
    };
    let is_complete =
        |seed: u64| (0..plan.designs.len()).all(|design| of(design, seed, false).is_some());
    let seeds: Vec<u64> = plan
        .seeds
        .iter()
        .copied()
        .filter(|&s| is_complete(s))
        .collect();
    if seeds.is_empty() {
        return None;
    }
    let sides = plan.designs.iter().enumerate().map(|(number, design)| {
        let runs = seeds.iter().filter_map(|&seed| of(number, seed, false));
        side_of(design, runs.cloned().collect())
    });
    let sides: Vec<Side> = sides.collect();
    let first = plan.seeds[0];
    let control = match plan.purpose {
        Purpose::Alone => None,
        _ => Some(control_of(of(0, first, false)?, of(0, first, true)?)),
    };
    let comparison = match (plan.purpose, &sides[..]) {
        (Purpose::Compare { resamples }, [a, b]) => Some(compared(a, b, resamples, first)?),
        _ => None,
    };
    Some(Findings {
        trace: plan.trace.clone(),
        machine: plan.machine_name.clone(),
        title: plan.machine.title.clone(),
        cpus: plan.cpus,
        ram_bytes: plan.ram_bytes,
        about: plan.about.clone(),
        interrupted: seeds.len() < plan.seeds.len(),
        seeds,
        sides,
        control,
        comparison,
    })
}

/// A design against the first, seed by seed, with intervals from so many samples of the
/// seeds. `None` if there are too few seeds.
pub fn to_base(findings: &Findings, number: usize, resamples: usize) -> Option<Comparison> {
    let (base, side) = (findings.sides.first()?, findings.sides.get(number)?);
    compared(base, side, resamples, *findings.seeds.first()?)
}

/// The elapsed time of a design by that of the first, seed by seed.
pub fn elapsed_to_base(findings: &Findings, number: usize) -> Spread {
    let pairs = findings.sides[number]
        .runs
        .iter()
        .zip(&findings.sides[0].runs);
    Spread::of(pairs.map(|(run, base)| run.elapsed_ns as f64 / base.elapsed_ns.max(1) as f64))
}

/// Refuses what is wrong, or about another workload than was recorded.
///
/// # Errors
/// The control is not the same, or too much went otherwise than recorded.
pub fn trusted(findings: &Findings) -> Result<(), Failure> {
    if !findings.repeats() {
        return Err(Failure::refuted(
            "the same seed did not give the same result: a defect of the simulator",
        ));
    }
    let share = findings.unexplained_share();
    match share > UNEXPLAINED_LIMIT {
        false => Ok(()),
        true => Err(Failure::refuted(format!(
            "{:.2} % of the operations went otherwise than recorded and nothing in the trace \
             explains it; the limit is {} %. The report says what happened",
            share * 100.0,
            UNEXPLAINED_LIMIT * 100.0,
        ))),
    }
}

fn side_of(design: &str, runs: Vec<Account>) -> Side {
    let figures = FIGURES.iter().map(|figure| Measured {
        name: figure.name.to_owned(),
        spread: Spread::of(runs.iter().map(figure.of)),
    });
    Side {
        design: design.to_owned(),
        figures: figures.collect(),
        runs,
    }
}

fn control_of(once: &Account, again: &Account) -> Control {
    Control {
        ratio: again.elapsed_ns as f64 / once.elapsed_ns.max(1) as f64,
        repeats: once == again,
    }
}

/// One design against another; `None` if there are too few seeds for an interval.
fn compared(a: &Side, b: &Side, resamples: usize, seed: u64) -> Option<Comparison> {
    let mut ratios = Vec::new();
    for figure in &FIGURES {
        let pairs = a.runs.iter().zip(&b.runs);
        let each: Vec<f64> = pairs
            .map(|(a, b)| (figure.of)(b) / (figure.of)(a))
            .collect();
        // A figure that is 0 on the first side has no ratio.
        if each.iter().all(|ratio| ratio.is_finite()) {
            ratios.push(ratio_of(figure.name, &each, resamples, seed)?);
        }
    }
    Some(Comparison {
        confidence: CONFIDENCE,
        ratios,
    })
}

/// Of these ratios, one for each seed; `None` if they are too few for an interval.
pub fn ratio_of(name: &str, ratios: &[f64], resamples: usize, seed: u64) -> Option<Ratio> {
    let counted = ratios
        .iter()
        .map(|ratio| [(ratio * BILLION).round() as u64]);
    let counted: Vec<[u64; 1]> = counted.collect();
    let seeds: Vec<&[u64]> = counted.iter().map(|ratio| &ratio[..]).collect();
    let samples = Samples::from_passes(&seeds);
    let drawn = Bootstrap::new(&[&samples], resamples, CONFIDENCE, seed);
    let interval = drawn.ok()?.total(0);
    Some(Ratio {
        name: name.to_owned(),
        ratio: median(ratios)?,
        low: interval.low / BILLION,
        high: interval.high / BILLION,
    })
}
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use vellum_description::Description;
    use vellum_results::sim::{About, Diverged, Served, ServicePrice, TakenService};
    use vellum_scale::replay::Program;

    pub(in crate::simulate) fn plan(designs: &[&str], seeds: u64) -> Plan {
        Plan {
            trace: "some.vellum".to_owned(),
            machine_name: "epyc-milan-1s".to_owned(),
            machine: Description::named("epyc-milan-1s").expect("it comes with the program"),
            cpus: 8,
            ram_bytes: 4 << 30,
            checksum: 7,
            program: Program::default(),
            about: About {
                tasks: 20,
                copies: 2,
                events: 900,
                ops: 1000,
                service: Some(TakenService {
                    seconds: 0.25,
                    prices: vec![ServicePrice {
                        of: Served::Fault,
                        ns: 1500,
                    }],
                }),
                may_be_mapped: 10,
                may_fail: 0,
            },
            designs: designs.iter().map(|&design| design.to_owned()).collect(),
            seeds: (1..=seeds).collect(),
            purpose: match designs {
                [_] => Purpose::Alone,
                _ => Purpose::Compare { resamples: 500 },
            },
            jobs: 1,
        }
    }

    pub(in crate::simulate) fn account(seed: u64, elapsed_ns: u64) -> Account {
        Account {
            seed,
            elapsed_ns,
            user_ns: 0,
            system_ns: elapsed_ns * 4,
            idle_ns: elapsed_ns * 4,
            context_switches: 50,
            migrations: 5,
            preemptions: 3,
            sleeps: 8,
            ops: 1000,
            divergences: vec![Diverged {
                how: "the page was mapped already".to_owned(),
                count: 15,
            }],
            unexplained: 5,
            moving: 0.25,
            spinning: 0.125,
            flushing: 0.5,
            lines: Vec::new(),
            locks: Vec::new(),
            waits: Vec::new(),
        }
    }

    /// The simulations of a plan; the second design takes `ratio` of the first's time.
    pub(in crate::simulate) fn done(plan: &Plan, ratio: f64) -> Vec<(Task, Account)> {
        let tasks = plan.tasks().into_iter();
        let account = |task: Task| {
            let elapsed = 1_000_000.0 + 1000.0 * task.seed as f64;
            let part = if task.design == 1 { ratio } else { 1.0 };
            (task, account(task.seed, (elapsed * part).round() as u64))
        };
        tasks.map(account).collect()
    }

    #[test]
    fn designs_are_compared_seed_by_seed() {
        let plan = plan(&["rmap=chains", "rmap=family"], 6);
        let findings = findings(&plan, &done(&plan, 0.5)).expect("all is done");
        let control = findings.control.expect("a comparison has one");
        assert_eq!((control.ratio, control.repeats), (1.0, true));
        let comparison = findings.comparison.expect("two designs");
        let elapsed = comparison.ratio("elapsed_s").expect("it took time");
        assert!((elapsed.ratio - 0.5).abs() < 1e-6, "{elapsed:?}");
        assert!(elapsed.low <= elapsed.ratio && elapsed.ratio <= elapsed.high);
        assert!(elapsed.differs() && elapsed.high - elapsed.low < 1e-5);
        assert!(comparison.ratio("user_s").is_none(), "there was none");
        let middle = findings.sides[0].middle().expect("there are six");
        assert_eq!(middle.seed, 3);
        assert_eq!(middle.percent_cpu(), 400.0);
        assert!((findings_share(&plan) - 0.005).abs() < 1e-12);
    }

    fn findings_share(plan: &Plan) -> f64 {
        let findings = findings(plan, &done(plan, 1.0));
        findings.expect("all is done").unexplained_share()
    }

    #[test]
    fn a_control_that_differs_in_anything_does_not_repeat() {
        let plan = plan(&["rmap=chains", "rmap=family"], 5);
        let mut done = done(&plan, 1.0);
        let control = done.iter_mut().find(|(task, _)| task.is_control);
        control.expect("a comparison has one").1.migrations += 1;
        let findings = findings(&plan, &done).expect("all is done");
        assert!(!findings.repeats());
        assert_eq!(findings.control.expect("there").ratio, 1.0);
        let comparison = findings.comparison.expect("two designs");
        assert!(!comparison.ratios[0].differs());
    }

    #[test]
    fn an_interrupt_leaves_the_seeds_that_are_complete() {
        let one = plan(&["rmap=family"], 6);
        let found = findings(&one, &done(&one, 1.0)[..2]).expect("two seeds");
        assert_eq!((found.seeds, found.interrupted), (vec![1, 2], true));
        assert!(findings(&one, &[]).is_none());
        let two = plan(&["rmap=chains", "rmap=family"], 6);
        let done = done(&two, 1.0);
        assert!(
            findings(&two, &done[..9]).is_none(),
            "4 seeds and the control"
        );
        let found = findings(&two, &done[..12]).expect("5 seeds and the control");
        assert_eq!((found.seeds.len(), found.interrupted), (5, true));
    }
}
