//! What the simulations of a plan say together.

use serde::Serialize;

use super::account::{Account, FIGURES};
use super::program::About;
use super::{Plan, Purpose, Task};
use crate::failure::Failure;
use crate::scale::Spread;
use crate::stats::{Bootstrap, Samples, median};

/// Confidence of intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Share of the operations that may diverge without explanation.
const UNEXPLAINED_LIMIT: f64 = 0.01;

/// What ratios are counted in while they are resampled: billionths.
const BILLION: f64 = 1e9;

/// Everything that was found.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// The trace.
    pub trace: String,
    /// What the user called the machine.
    pub machine: String,
    /// What it is.
    pub title: String,
    /// How many of its CPUs.
    pub cpus: usize,
    /// Its memory in bytes.
    pub ram_bytes: u64,
    /// What was replayed.
    #[serde(flatten)]
    pub about: About,
    /// The seeds with which all designs are through.
    pub seeds: Vec<u64>,
    /// Whether some seeds are missing, since the user stopped it.
    pub interrupted: bool,
    /// One for each design.
    pub sides: Vec<Side>,
    /// The first design with the first seed once more, unless one design is replayed alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// The second design against the first, if two are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// One design.
#[derive(Debug, Serialize)]
pub struct Side {
    /// The design.
    pub design: String,
    /// Its figures over the seeds, in the order of [`FIGURES`].
    pub figures: Vec<Measured>,
    /// The simulations, by seed.
    pub runs: Vec<Account>,
}

/// A figure over the seeds.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Which.
    pub name: &'static str,
    /// Its median, the least and the most.
    #[serde(flatten)]
    pub spread: Spread,
}

/// The same simulation once more.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Control {
    /// Its elapsed time, as a ratio.
    pub ratio: f64,
    /// Whether everything about it was the same.
    pub repeats: bool,
}

impl Control {
    fn of(once: &Account, again: &Account) -> Control {
        Control {
            ratio: again.elapsed_ns as f64 / once.elapsed_ns.max(1) as f64,
            repeats: once == again,
        }
    }
}

/// Two designs, seed by seed.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The confidence of the intervals.
    pub confidence: f64,
    /// The second design's figures by those of the first.
    pub ratios: Vec<Ratio>,
}

/// A figure of the second design by that of the first.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ratio {
    /// Which figure.
    pub name: &'static str,
    /// The median of the seeds' ratios.
    pub ratio: f64,
    /// The interval of that.
    pub low: f64,
    /// Its other end.
    pub high: f64,
}

impl Side {
    /// The median of a figure over the seeds.
    pub fn median(&self, name: &str) -> f64 {
        let mut found = self.figures.iter().filter(|figure| figure.name == name);
        found.next().map_or(f64::NAN, |figure| figure.spread.median)
    }

    /// The simulation in the middle by its elapsed time, or the one before it.
    pub fn middle(&self) -> Option<&Account> {
        let mut runs: Vec<&Account> = self.runs.iter().collect();
        runs.sort_by_key(|run| run.elapsed_ns);
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }

    fn new(design: &str, runs: Vec<Account>) -> Side {
        let figures = FIGURES.iter().map(|figure| Measured {
            name: figure.name,
            spread: Spread::of(runs.iter().map(figure.of)),
        });
        Side {
            design: design.to_owned(),
            figures: figures.collect(),
            runs,
        }
    }
}

impl Findings {
    /// Of the simulations that are done. `None` if they are too few: none with all designs,
    /// or too few for an interval, or without the control that a comparison needs.
    pub fn new(plan: &Plan, done: &[(Task, Account)]) -> Option<Findings> {
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
            Side::new(design, runs.cloned().collect())
        });
        let sides: Vec<Side> = sides.collect();
        let first = plan.seeds[0];
        let control = match plan.purpose {
            Purpose::Alone => None,
            _ => Some(Control::of(of(0, first, false)?, of(0, first, true)?)),
        };
        let comparison = match (plan.purpose, &sides[..]) {
            (Purpose::Compare { resamples }, [a, b]) => {
                Some(Comparison::new(a, b, resamples, first)?)
            }
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
    pub fn to_base(&self, number: usize, resamples: usize) -> Option<Comparison> {
        let (base, side) = (self.sides.first()?, self.sides.get(number)?);
        Comparison::new(base, side, resamples, *self.seeds.first()?)
    }

    /// The elapsed time of a design by that of the first, seed by seed.
    pub fn elapsed_to_base(&self, number: usize) -> Spread {
        let pairs = self.sides[number].runs.iter().zip(&self.sides[0].runs);
        Spread::of(pairs.map(|(run, base)| run.elapsed_ns as f64 / base.elapsed_ns.max(1) as f64))
    }

    /// Whether the same seed gave the same result, as far as that was tried.
    pub fn repeats(&self) -> bool {
        self.control.is_none_or(|control| control.repeats)
    }

    /// Refuses what is wrong, or about another workload than was recorded.
    ///
    /// # Errors
    /// The control is not the same, or too much went otherwise than recorded.
    pub fn trusted(&self) -> Result<(), Failure> {
        if !self.repeats() {
            return Err(Failure::refuted(
                "the same seed did not give the same result: a defect of the simulator",
            ));
        }
        let share = self.unexplained_share();
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

    /// The largest share of operations that went otherwise than recorded without an
    /// explanation, of all simulations, at the least.
    pub fn unexplained_share(&self) -> f64 {
        let runs = self.sides.iter().flat_map(|side| &side.runs);
        let shares = runs.map(|run| run.unexplained as f64 / run.ops.max(1) as f64);
        shares.fold(0.0, f64::max)
    }
}

impl Comparison {
    /// `None` if there are too few seeds for an interval.
    fn new(a: &Side, b: &Side, resamples: usize, seed: u64) -> Option<Comparison> {
        let mut ratios = Vec::new();
        for figure in &FIGURES {
            let pairs = a.runs.iter().zip(&b.runs);
            let each: Vec<f64> = pairs
                .map(|(a, b)| (figure.of)(b) / (figure.of)(a))
                .collect();
            // A figure that is 0 on the first side has no ratio.
            if each.iter().all(|ratio| ratio.is_finite()) {
                ratios.push(Ratio::of(figure.name, &each, resamples, seed)?);
            }
        }
        Some(Comparison {
            confidence: CONFIDENCE,
            ratios,
        })
    }

    /// The ratio of a figure, if there is one.
    pub fn ratio(&self, name: &str) -> Option<&Ratio> {
        self.ratios.iter().find(|ratio| ratio.name == name)
    }
}

impl Ratio {
    /// Of these ratios, one for each seed; `None` if they are too few for an interval.
    pub fn of(name: &'static str, ratios: &[f64], resamples: usize, seed: u64) -> Option<Ratio> {
        let counted = ratios
            .iter()
            .map(|ratio| [(ratio * BILLION).round() as u64]);
        let counted: Vec<[u64; 1]> = counted.collect();
        let seeds: Vec<&[u64]> = counted.iter().map(|ratio| &ratio[..]).collect();
        let samples = Samples::from_passes(&seeds);
        let drawn = Bootstrap::new(&[&samples], resamples, CONFIDENCE, seed);
        let interval = drawn.ok()?.total(0);
        Some(Ratio {
            name,
            ratio: median(ratios)?,
            low: interval.low / BILLION,
            high: interval.high / BILLION,
        })
    }

    /// Whether it is told from 1: the interval excludes that.
    pub fn differs(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::replay::Served;
    use crate::simulate::account::Diverged;
    use crate::simulate::program::{ServicePrice, TakenService};
    use vellum_description::Description;
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
        let findings = Findings::new(&plan, &done(&plan, 0.5)).expect("all is done");
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
        let findings = Findings::new(plan, &done(plan, 1.0));
        findings.expect("all is done").unexplained_share()
    }

    #[test]
    fn a_control_that_differs_in_anything_does_not_repeat() {
        let plan = plan(&["rmap=chains", "rmap=family"], 5);
        let mut done = done(&plan, 1.0);
        let control = done.iter_mut().find(|(task, _)| task.is_control);
        control.expect("a comparison has one").1.migrations += 1;
        let findings = Findings::new(&plan, &done).expect("all is done");
        assert!(!findings.repeats());
        assert_eq!(findings.control.expect("there").ratio, 1.0);
        let comparison = findings.comparison.expect("two designs");
        assert!(!comparison.ratios[0].differs());
    }

    #[test]
    fn an_interrupt_leaves_the_seeds_that_are_complete() {
        let one = plan(&["rmap=family"], 6);
        let found = Findings::new(&one, &done(&one, 1.0)[..2]).expect("two seeds");
        assert_eq!((found.seeds, found.interrupted), (vec![1, 2], true));
        assert!(Findings::new(&one, &[]).is_none());
        let two = plan(&["rmap=chains", "rmap=family"], 6);
        let done = done(&two, 1.0);
        assert!(
            Findings::new(&two, &done[..9]).is_none(),
            "4 seeds and the control"
        );
        let found = Findings::new(&two, &done[..12]).expect("5 seeds and the control");
        assert_eq!((found.seeds.len(), found.interrupted), (5, true));
    }
}
