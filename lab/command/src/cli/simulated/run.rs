//! Traces on a whole simulated machine: `--on sim` of the commands `replay` and `compare`,
//! and `vellum scale` with a trace.

use std::path::PathBuf;

use vellum_description::Description;
use vellum_engine::Pages;

use super::super::Failure;
use super::super::outputs::OutputPath;
use super::super::results::{self, OutputArgs, Results};
use super::super::waits::{self, WaitFiles};
use super::host_cpus;
use crate::designs::common_pages;
use crate::simulate::{Plan, Purpose, Wanted, load, measure, sweep, text, trusted};
use crate::stats::bootstrap::LEAST_PASSES;
use vellum_results::sim::Findings;
use vellum_terminal::progress::{Interrupt, Style};

/// A machine with as many CPUs as are asked for.
///
/// # Errors
/// There is no such machine, or it has fewer.
pub fn machine_with(name: &str, cpus: &[usize]) -> Result<Description, Failure> {
    let machine = Description::named(name).map_err(|error| Failure::usage(error.to_string()))?;
    let has = machine.cpus();
    match cpus.iter().find(|&&cpus| cpus == 0 || cpus > has) {
        None => Ok(machine),
        Some(asked) => Err(Failure::usage(format!(
            "--cpus {asked}: {name} has {has} CPUs; expected 1 to {has}, or another --machine"
        ))),
    }
}

/// What is to be simulated.
#[derive(Debug)]
pub struct Request {
    /// The trace.
    pub trace: PathBuf,
    /// The designs, of which the first is the base.
    pub designs: Vec<String>,
    /// What the user called the machine.
    pub machine: String,
    /// Numbers of its CPUs, of which a replay or a comparison has one.
    pub cpus: Vec<usize>,
    /// What for.
    pub purpose: Purpose,
    /// Copies of the process family.
    pub copies: u32,
    /// Memory of the machine; what the trace needs if none is given.
    pub ram: Option<u64>,
    /// How many seeds.
    pub seeds: u16,
    /// The first seed.
    pub seed: u64,
    /// Simulations at a time; as many as the host has CPUs if it is not said.
    pub jobs: Option<u16>,
    /// Print the cache lines and locks that cost most.
    pub profile: bool,
    /// Where files of that are written.
    pub profile_out: Option<PathBuf>,
    /// Where the result goes.
    pub output: OutputArgs,
    /// Where a picture of a sweep goes.
    pub svg: Option<OutputPath>,
    /// No progress.
    pub quiet: bool,
}

/// Simulates, and prints what was found.
///
/// # Errors
/// The arguments or the trace cannot be used, a simulation failed or was interrupted, or
/// what was found is not to be trusted.
pub fn run(request: Request) -> Result<(), Failure> {
    let machine = request.machine()?;
    let interrupt = Interrupt::on_ctrl_c()?;
    let mut results = Results::open(&request.output)?;
    results.read_from(std::slice::from_ref(&request.trace))?;
    let files = WaitFiles::create(request.profile_out.as_deref())?;
    let drawing = request.svg.as_ref().map(OutputPath::create);
    let drawing = drawing.transpose()?;
    let style = Style::detect(request.quiet);
    let plan = request.plan(machine, style)?;
    let seeds = plan.seeds.len();
    if plan.purpose == Purpose::Sweep {
        let sweep = sweep(plan, &request.cpus, style, &interrupt)?;
        if let Some(file) = drawing {
            file.commit(&results::picture(&sweep)?)?;
        }
        results.print(
            |detail| text::render_sweep(&sweep, request.profile, detail),
            &sweep,
        )?;
        if let Some(last) = sweep.points.last() {
            write_waits(files, last)?;
        }
        sweep.points.iter().try_for_each(trusted)?;
        return match sweep.interrupted {
            true => Err(Failure::interrupted("")),
            false => Ok(()),
        };
    }
    let findings = measure(&plan, style, &interrupt)?;
    results.print(
        |detail| text::render(&findings, request.profile, detail),
        &findings,
    )?;
    write_waits(files, &findings)?;
    trusted(&findings)?;
    match findings.interrupted {
        true => Err(Failure::interrupted(format!(
            "interrupted after {} of {seeds} seeds",
            findings.seeds.len(),
        ))),
        false => Ok(()),
    }
}

/// Writes where the CPUs waited in the simulations in the middle.
fn write_waits(files: WaitFiles, findings: &Findings) -> Result<(), Failure> {
    let sides = findings.sides.iter().filter_map(|side| {
        let run = side.middle()?;
        Some(waits::Side {
            design: &side.design,
            waits: &run.waits,
            locks: &run.locks,
        })
    });
    let sides: Vec<waits::Side<'_>> = sides.collect();
    files.write(&sides, &findings.trace)
}

impl Request {
    /// The machine, after everything was refused that it does not have, before any time is
    /// spent.
    fn machine(&self) -> Result<Description, Failure> {
        let machine = machine_with(&self.machine, &self.cpus)?;
        let compares = matches!(self.purpose, Purpose::Compare { .. });
        if compares && usize::from(self.seeds) < LEAST_PASSES {
            return Err(Failure::usage(format!(
                "--seeds {}: a comparison needs {LEAST_PASSES} seeds at least, or there is no \
                 interval",
                self.seeds
            )));
        }
        match common_pages(&self.designs)? == Pages::X86_64 {
            true => Ok(machine),
            false => Err(Failure::usage(
                "simulated CPUs have page tables of x86-64 only: leave out format=",
            )),
        }
    }

    /// The trace, ready to be simulated.
    fn plan(&self, machine: Description, style: Style) -> Result<Plan, Failure> {
        let wanted = Wanted {
            traces: vec![self.trace.clone()],
            designs: self.designs.clone(),
            machine_name: self.machine.clone(),
            machine,
            // In a sweep all machines have the memory of the largest.
            cpus: self.cpus.iter().copied().max().unwrap_or(1),
            copies: self.copies,
            ram: self.ram,
            seeds: self.seeds,
            seed: self.seed,
            purpose: self.purpose,
            jobs: self.jobs.map_or_else(host_cpus, usize::from),
        };
        load(wanted, style)
    }
}
