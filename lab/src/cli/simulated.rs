//! Traces on a whole simulated machine: `--on sim` of the commands `replay` and `compare`,
//! and `vellum scale` with a trace.

use std::path::PathBuf;
use std::thread;

use clap::builder::ValueHint;
use clap::{Args, ValueEnum};
use vellum_description::Description;
use vellum_engine::Pages;

use super::Failure;
use super::results::{Named, OutputArgs, Results};
use crate::designs::{common_pages, load};
use crate::replay::{Options, Streams};
use crate::simulate::{Findings, Plan, Purpose, measure, program, sweep, text};
use crate::stats::bootstrap::LEAST_PASSES;
use vellum_terminal::progress::{Interrupt, Style};

/// The machine if none is named.
const MACHINE: &str = "epyc-milan-2s";

/// Seeds unless it is said how many.
const SEEDS: u16 = 6;

/// Memory that a simulated machine has at least, so that CPUs take as many frames at a time
/// as they ever do.
const LEAST_RAM: u64 = 4 << 30;
/// The same for each CPU.
const LEAST_RAM_OF_CPU: u64 = 256 << 20;

/// Share of the operations that may diverge without explanation.
const UNEXPLAINED_LIMIT: f64 = 0.01;

/// Where a trace is replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum On {
    /// On the core, with threads of this host as CPUs
    Core,
    /// On the kernel of this machine
    Linux,
    /// On a whole simulated machine, in virtual time
    Sim,
}

/// What only simulated machines can be told
#[derive(Args, Debug)]
#[command(next_help_heading = "With --on sim")]
pub struct SimArgs {
    /// A machine of `vellum machines`, or a file that ends in .toml [default: epyc-milan-2s]
    #[arg(long, value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    machine: Option<String>,
    /// Number of seeds: of start times, of who goes first [default: 6]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: Option<u16>,
    /// Simulations at a time [default: the host's CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

impl SimArgs {
    /// The machine, and how many seeds and jobs.
    pub fn values(self) -> (String, u16, Option<u16>) {
        let machine = self.machine.unwrap_or_else(|| MACHINE.to_owned());
        (machine, self.seeds.unwrap_or(SEEDS), self.jobs)
    }

    /// Refuses them where no machine is simulated. `profile` is another of them.
    ///
    /// # Errors
    /// One of them is given.
    pub fn refuse(&self, profile: bool) -> Result<(), Failure> {
        let given = [
            (self.machine.is_some(), "--machine"),
            (self.seeds.is_some(), "--seeds"),
            (self.jobs.is_some(), "--jobs"),
            (profile, "--profile"),
        ];
        refuse(&given, "only with --on sim: leave it out, or add that")
    }
}

/// Refuses the options that are given, saying `why`.
///
/// # Errors
/// One is.
pub fn refuse(options: &[(bool, &str)], why: &str) -> Result<(), Failure> {
    let given = options.iter().filter(|(given, _)| *given);
    let names: Vec<&str> = given.map(|(_, name)| *name).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(format!("{} {why}", names.join(", ")))),
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
    /// Print the cache lines that cost most.
    pub profile: bool,
    /// Where the result goes.
    pub output: OutputArgs,
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
    let style = Style::detect(request.quiet);
    let plan = request.plan(machine, style)?;
    let seeds = plan.seeds.len();
    if plan.purpose == Purpose::Sweep {
        let sweep = sweep(plan, &request.cpus, style, &interrupt)?;
        results.print(
            || text::render_sweep(&sweep, request.profile),
            &Named {
                schema: "vellum-sim-sweep/1",
                result: &sweep,
            },
        )?;
        sweep.points.iter().try_for_each(trusted)?;
        return match sweep.interrupted {
            true => Err(Failure::interrupted("")),
            false => Ok(()),
        };
    }
    let findings = measure(&plan, style, &interrupt)?;
    results.print(
        || text::render(&findings, request.profile),
        &Named {
            schema: "vellum-sim/1",
            result: &findings,
        },
    )?;
    trusted(&findings)?;
    match findings.interrupted {
        true => Err(Failure::interrupted(format!(
            "interrupted after {} of {seeds} seeds",
            findings.seeds.len(),
        ))),
        false => Ok(()),
    }
}

/// Refuses findings that are wrong, or that are about another workload than was recorded.
fn trusted(findings: &Findings) -> Result<(), Failure> {
    if !findings.repeats() {
        return Err(Failure::refuted(
            "the same seed did not give the same result: a defect of the simulator",
        ));
    }
    if findings.unexplained_share() > UNEXPLAINED_LIMIT {
        return Err(Failure::refuted(format!(
            "{:.2} % of the operations went otherwise than recorded and nothing in the trace \
             explains it; the limit is {} %. The report says what happened",
            findings.unexplained_share() * 100.0,
            UNEXPLAINED_LIMIT * 100.0,
        )));
    }
    Ok(())
}

impl Request {
    /// The machine, after everything was refused that it does not have, before any time is
    /// spent.
    fn machine(&self) -> Result<Description, Failure> {
        let machine =
            Description::named(&self.machine).map_err(|error| Failure::usage(error.to_string()))?;
        let has = machine.cpus();
        if let Some(asked) = self.cpus.iter().find(|&&cpus| cpus == 0 || cpus > has) {
            return Err(Failure::usage(format!(
                "--cpus {asked}: {} has {has} CPUs; expected 1 to {has}, or another --machine",
                self.machine
            )));
        }
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
        let options = Options {
            streams: Streams::ByTask,
            copies: self.copies,
            seed: self.seed,
            ..Options::default()
        };
        let trace = std::slice::from_ref(&self.trace);
        let (_, workload) = load(trace, &self.designs, options, style)?;
        if workload.ops() == 0 {
            return Err(Failure::usage(format!(
                "{}: the workload has no operations",
                self.trace.display()
            )));
        }
        // In a sweep all machines have the memory of the largest.
        let most = self.cpus.iter().copied().max().unwrap_or(1);
        let needed = workload.ram_bytes_on(most);
        let least = LEAST_RAM.max(most as u64 * LEAST_RAM_OF_CPU);
        let (program, about) = program(workload);
        let host = thread::available_parallelism().map_or(1, usize::from);
        let seeds = (0..u64::from(self.seeds)).map(|seed| self.seed.wrapping_add(seed));
        Ok(Plan {
            trace: self.trace.display().to_string(),
            machine_name: self.machine.clone(),
            machine,
            cpus: most,
            // Never what the host has left: the result is the same on every host.
            ram_bytes: self.ram.unwrap_or(needed.max(least)),
            program,
            about,
            designs: self.designs.clone(),
            seeds: seeds.collect(),
            purpose: self.purpose,
            jobs: self.jobs.map_or(host, usize::from),
        })
    }
}
