//! `vellum bench kernbench|sdet --on sim`: benchmarks on a whole simulated machine, in their
//! own format or in that of Con Kolivas.

use std::path::PathBuf;

use super::Failure;
use super::kolivas::{self, KolivasArgs};
use super::results::{OutputArgs, Results};
use super::simulated::{MACHINE, SEEDS, SimArgs, machine_with};
use crate::bench::buildkernel::{self, Part};
use crate::bench::core::traces;
use crate::bench::{Benchmark, Replayed, Sizes};
use crate::simulate::bench::{self, Load, Setting};
use crate::simulate::text;
use crate::simulate::{Purpose, Wanted, load, measure, trusted};
use crate::stats::bootstrap::LEAST_PASSES;
use vellum_description::Description;
use vellum_results::kolivas::Kolivas;
use vellum_results::sim::Account;
use vellum_tables::kolivas::{Group, Load as Jobs, Run};
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::TraceReader;

/// Jobs for each CPU that stand for as many as there are: twice the optimal load.
const MAXIMAL: u32 = 8;

/// What is to be simulated.
#[derive(Debug)]
pub struct Request<'a> {
    /// Which benchmark.
    pub benchmark: &'static Benchmark,
    /// What it replays.
    pub replayed: Replayed,
    /// The designs, of which the first is the base.
    pub designs: Vec<String>,
    /// Whether the user has named them.
    pub named: bool,
    /// The benchmark's numbers.
    pub sizes: Sizes,
    /// Traces instead of the shipped ones.
    pub traces: &'a [PathBuf],
    /// Seeds, or runs of each load.
    pub passes: Option<u16>,
    /// CPUs; all of the machine's if it is not said.
    pub cpus: Option<usize>,
    /// Memory of the machine; what the traces need if none is given.
    pub ram: Option<u64>,
    /// The first seed.
    pub seed: u64,
    /// Samples of seeds that intervals are from.
    pub resamples: usize,
    /// The machine.
    pub sim: &'a SimArgs,
    /// Con Kolivas's loads and format instead of the benchmark's own.
    pub kolivas: Option<&'a KolivasArgs>,
    /// Where the result goes.
    pub output: &'a OutputArgs,
    /// How to show progress.
    pub style: Style,
}

/// Simulates, and prints what was found.
///
/// # Errors
/// The arguments or a trace cannot be used, a simulation failed or was interrupted, or
/// what was found is not to be trusted.
pub fn run(request: Request<'_>) -> Result<(), Failure> {
    let name = request.sim.machine().unwrap_or(MACHINE).to_owned();
    let machine = machine_with(&name, request.cpus.as_slice())?;
    match request.kolivas {
        Some(args) => builds(&request, args, name, machine),
        None => loads(&request, name, machine),
    }
}

/// The benchmark's own loads, under each design.
fn loads(request: &Request<'_>, name: String, machine: Description) -> Result<(), Failure> {
    let seeds = request.sim.seeds().or(request.passes).unwrap_or(SEEDS);
    if request.designs.len() > 1 && usize::from(seeds) < LEAST_PASSES {
        return Err(Failure::usage(format!(
            "--seeds {seeds}: a comparison needs {LEAST_PASSES} seeds at least, or there is no \
             interval"
        )));
    }
    let interrupt = Interrupt::on_ctrl_c()?;
    let cpus = request.cpus.unwrap_or(machine.cpus());
    let size = |name: &str| request.sizes.get(name);
    let mut part = None;
    let (loads, in_each): (Vec<Load>, u64) = match request.replayed {
        Replayed::Buildkernel => {
            let milliseconds = size("milliseconds");
            let part = part.insert(Part::of(
                request.traces,
                milliseconds,
                request.style,
                &interrupt,
            )?);
            let load = bench::buildkernel_load(part, buildkernel::jobs(size("jobs"), cpus));
            (vec![load], 1)
        }
        Replayed::Sdet => {
            let traces = traces::scripts(request.traces)?;
            let in_each = size("scripts");
            (bench::sdet_loads(&traces, in_each, size("most")), in_each)
        }
        Replayed::Kernbench => {
            let trace = traces::build(request.traces)?;
            let copies = traces::KERNBENCH.map(|(name, title)| (title, size(name) as u32));
            (bench::kernbench_loads(&trace, &copies), 1)
        }
    };
    if loads.is_empty() {
        return Err(Failure::usage(
            "every load was left out; give one of the sizes light, heavy and unlimited",
        ));
    }
    let setting = Setting {
        benchmark: request.benchmark.name,
        replayed: request.replayed,
        cpus,
        machine_name: name,
        machine,
        ram: request.ram,
        designs: request.designs.clone(),
        seeds,
        seed: request.seed,
        resamples: request.resamples,
        jobs: request.sim.jobs(),
        style: request.style,
    };
    let mut results = Results::open(request.output)?;
    let all: Vec<PathBuf> = match &part {
        Some(part) => vec![part.whole().to_owned()],
        None => loads.iter().flat_map(|load| load.traces.clone()).collect(),
    };
    results.read_from(&all)?;
    let mut found = bench::bench(&setting, loads, in_each, &interrupt)?;
    if let Some(part) = &part {
        for load in &mut found.loads {
            // Not by the name of a file that is gone when this ends.
            load.findings.trace = part.whole().display().to_string();
        }
    }
    let disclaimer = match request.replayed {
        Replayed::Sdet => format!("\n{}", vellum_terminal::text::wrapped(traces::DISCLAIMER)),
        _ => String::new(),
    };
    results.print(
        |detail| text::render_bench(&found, detail) + &disclaimer,
        &found,
    )?;
    bench::trusted(&found)?;
    match found.interrupted {
        true => Err(Failure::interrupted(
            "interrupted; what was complete is printed",
        )),
        false => Ok(()),
    }
}

/// The loads of Con Kolivas, under one design. Runs are seeds, and copies of the trace stand
/// for jobs: each for as many as the machine had CPUs on which it was recorded.
fn builds(
    request: &Request<'_>,
    args: &KolivasArgs,
    name: String,
    machine: Description,
) -> Result<(), Failure> {
    let design = match (request.named, &request.designs[..]) {
        (false, _) => String::new(),
        (true, [one]) => one.clone(),
        (true, several) => {
            return Err(Failure::usage(format!(
                "--format kolivas is about one design, and {} are named: give one with --a, or \
                 leave out --format to compare them",
                several.len()
            )));
        }
    };
    let trace = traces::build(request.traces)?;
    let recorded_on = TraceReader::open(&trace)?.header().environment.cpus.max(1);
    let runs = args.runs(request.sim.seeds().or(request.passes))?;
    let cpus = request.cpus.unwrap_or(machine.cpus());
    let plan = args.plan(cpus, None)?;
    let rows = args.rows()?;
    let interrupt = Interrupt::on_ctrl_c()?;
    let mut results = Results::open(request.output)?;
    results.read_from(std::slice::from_ref(&trace))?;
    let mut notes = plan.notes;
    for note in &notes {
        eprintln!("vellum: {note}");
    }
    notes.push(format!(
        "A copy of the trace stands for {recorded_on} jobs, as many as the machine had CPUs on \
         which it was recorded, and as many jobs as there are are {MAXIMAL} for each CPU; times, \
         switches and sleeps are those of all copies by their number: of one build."
    ));
    let mut groups = Vec::new();
    let mut interrupted = false;
    for &jobs in &plan.loads {
        let copies = copies(jobs, cpus as u32, recorded_on);
        let wanted = Wanted {
            traces: vec![trace.clone()],
            designs: vec![design.clone()],
            machine_name: name.clone(),
            machine: machine.clone(),
            cpus,
            copies,
            ram: request.ram,
            seeds: runs as u16,
            seed: request.seed,
            purpose: Purpose::Alone,
            jobs: request.sim.jobs(),
        };
        let findings = match measure(&load(wanted, request.style)?, request.style, &interrupt) {
            Ok(findings) => findings,
            Err(failure) if failure.code() == Failure::INTERRUPTED && !groups.is_empty() => {
                interrupted = true;
                break;
            }
            Err(failure) => return Err(failure),
        };
        trusted(&findings)?;
        groups.push(Group {
            load: jobs,
            runs: findings.sides[0]
                .runs
                .iter()
                .map(|run| of_one(run, copies))
                .collect(),
        });
        if findings.interrupted {
            interrupted = true;
            break;
        }
    }
    let report = Kolivas {
        kernel: match design.is_empty() {
            true => format!("vellum on {name}"),
            false => format!("vellum, {design}, on {name}"),
        },
        cpus,
        memory_mebibytes: request.ram.map(|bytes| bytes >> 20),
        tree: trace.display().to_string(),
        notes,
        interrupted,
        ..args.report(runs, &groups)
    };
    kolivas::print(args, &report, &groups, rows, results)?;
    match interrupted {
        true => Err(Failure::interrupted(
            "interrupted; the runs that were complete are printed",
        )),
        false => Ok(()),
    }
}

/// How many copies of a trace stand for a load.
fn copies(load: Jobs, cpus: u32, recorded_on: u32) -> u32 {
    let jobs = match load {
        Jobs::Single => 1,
        Jobs::Half(jobs) | Jobs::Optimal(jobs) | Jobs::Custom(jobs) => jobs,
        Jobs::Maximal => cpus.saturating_mul(MAXIMAL),
    };
    jobs.div_ceil(recorded_on)
}

/// What GNU time would say of one of so many builds.
fn of_one(run: &Account, copies: u32) -> Run {
    let one = |of_all: u64| of_all as f64 / f64::from(copies);
    let seconds = |ns: u64| (one(ns) / 1e3).round() / 1e6;
    [
        seconds(run.elapsed_ns),
        seconds(run.user_ns),
        seconds(run.system_ns),
        run.percent_cpu(),
        one(run.preemptions).round(),
        one(run.sleeps).round(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_stand_for_as_many_jobs_as_the_recorded_machine_had_cpus() {
        let loads = [
            Jobs::Single,
            Jobs::Half(3),
            Jobs::Optimal(16),
            Jobs::Maximal,
        ];
        assert_eq!(loads.map(|load| copies(load, 4, 2)), [1, 2, 8, 16]);
        assert_eq!(loads.map(|load| copies(load, 4, 64)), [1, 1, 1, 1]);
    }
}
