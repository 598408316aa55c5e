//! The simulator held against this machine: what lies between the core's accesses is
//! calibrated by runs of the plain core ([`work`]), and workloads are run by the plain core
//! and by simulated CPUs, one beside the other ([`validate`]).

mod between;
mod cases;
mod found;
mod plain;
pub mod text;
pub mod work;

use vellum_calibrate::Effort;
use vellum_description::Description;
use vellum_terminal::jobs::run_all;
use vellum_terminal::progress::{Interrupt, Progress, Style};

use crate::failure::Failure;
use crate::simulate::lanes;
use crate::stats::median;
use between::Between;
use cases::Case;
use plain::Measured;
pub use vellum_results::validation::Validation;

/// How much is measured.
struct Amounts {
    /// Passes of a workload.
    passes: usize,
    /// How often all workloads are measured, one after the other, each time in other memory: what
    /// disturbs a virtual machine lasts for minutes.
    rounds: usize,
    /// How often a workload is measured at the most until both CPUs are as far from each other
    /// before and afterwards as described.
    tries: usize,
    /// How many times the programs that are calibrated with run beside one another, so that a
    /// core's caches do not hold their lines.
    crowd: u32,
    /// Seeds of a simulation of several CPUs.
    seeds: u64,
    /// How many times shorter workloads are than they could be.
    share: u64,
}

impl Amounts {
    fn of(effort: Effort) -> Amounts {
        match effort {
            Effort::Full => Amounts {
                passes: 5,
                rounds: 3,
                tries: 6,
                crowd: 8,
                seeds: 3,
                share: 1,
            },
            Effort::Quick => Amounts {
                passes: 1,
                rounds: 1,
                tries: 2,
                crowd: 2,
                seeds: 1,
                share: 20,
            },
        }
    }
}

/// What is to be held against this machine.
#[derive(Debug)]
pub struct Request<'r> {
    /// What the user called the description.
    pub name: String,
    /// A description of this machine.
    pub machine: &'r Description,
    /// How much to measure.
    pub effort: Effort,
    /// The first seed.
    pub seed: u64,
    /// Simulations at a time.
    pub jobs: usize,
    /// How to show progress.
    pub style: Style,
}

/// A simulation that is to be run.
struct Task {
    case: usize,
    design: usize,
    seed: u64,
}

/// Runs everything on the plain core first, while nothing else runs, and then on simulated
/// CPUs.
///
/// # Errors
/// A shipped trace is missing, a run failed or diverged, or the user stopped it.
pub fn validate(request: &Request<'_>, interrupt: &Interrupt) -> Result<Validation, Failure> {
    let cpus = request.machine.cpus().min(2);
    let amounts = Amounts::of(request.effort);
    let mut cases = cases::all(amounts.share)?;
    cases.retain(|case| case.load.cpus() <= cpus);
    let mut measured: Vec<Measured> = cases.iter().map(Measured::none).collect();
    let mut between = Between::new(request);
    for _ in 0..amounts.rounds {
        for (case, measured) in cases.iter().zip(&mut measured) {
            let measure = || plain::measure(case, request, interrupt);
            measured.add(match case.load.cpus() {
                1 => measure()?,
                _ => between.measure(measure)?,
            });
        }
    }
    let mut tasks = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        // One CPU has nobody whom it could meet otherwise.
        let seeds = if case.load.cpus() == 1 {
            1
        } else {
            amounts.seeds
        };
        for design in 0..case.designs.len() {
            tasks.extend((0..seeds).map(|seed| Task {
                case: number,
                design,
                seed: request.seed.wrapping_add(seed),
            }));
        }
    }
    let label = format!("simulating {}", request.name);
    let mut progress = Progress::new(request.style, label, tasks.len() as u64, "simulations");
    let mut done: Vec<Vec<Vec<f64>>> = cases
        .iter()
        .map(|case| vec![Vec::new(); case.designs.len()])
        .collect();
    let run = |task: &Task| {
        let case: &Case = &cases[task.case];
        let design = (case.designs[task.design], case.ram_bytes);
        let run = lanes(request.machine, &*case.load, design, task.seed, &case.timed);
        run.map(|run| run.total_ns)
            .map_err(|failure| failure.context(case.name))
    };
    let wanted = tasks.len();
    let mut count = 0;
    run_all(tasks, request.jobs, interrupt, run, |task, ns| {
        progress.advance(1);
        count += 1;
        done[task.case][task.design].push(ns);
        Ok::<(), Failure>(())
    })?;
    progress.finish();
    if count < wanted {
        return Err(Failure::interrupted("interrupted; nothing is known yet"));
    }
    let simulated = |case: usize, design: usize| median(&done[case][design]).unwrap_or(0.0);
    Ok(found::found(
        request,
        &cases,
        &measured,
        simulated,
        between.found(),
    ))
}
