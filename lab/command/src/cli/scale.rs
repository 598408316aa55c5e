//! `vellum scale`: workloads on more and more simulated CPUs.

use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;

use clap::Args;
use clap::builder::ValueHint;
use vellum_description::Description;
use vellum_scale::{WARM_UP_NS, WORKLOADS, workload};

use super::Failure;
use super::outputs::OutputPath;
use super::results::{self, OutputArgs, Results};
use super::waits::{self, WaitFiles};
use super::{refuse, simulated};
use crate::scale::{Kept, Plan, measure, text};
use crate::simulate::Purpose;
use vellum_terminal::progress::{Interrupt, Style};
use vellum_terminal::table::Table;

/// Virtual microseconds in which things are counted unless it is said how many.
const WINDOW_US: u64 = 400;

const EXAMPLES: &str = "\
Every CPU does the same, over and over, in virtual time. The result is the same on every host. For
each design it says what part of the machine's ceiling it reaches, where it stops scaling, and which
cache line stops it. The ceiling is what one CPU does alone times the number of CPUs, less what
threads that share a core, the bandwidth of the nodes and required shootdowns take.
docs/many-cpus.md says what is simulated and what is not.

With a trace in place of a workload's name, its tasks run under a scheduler: elapsed, user and
system time by number of CPUs.

Examples:
  vellum scale --list
  vellum machines
  vellum scale faults --machine epyc-milan-2s
  vellum scale fork-exit --cpus 1,8,64 --designs rmap=family --designs rmap=chains
  vellum scale faults-one-space --machine mine.toml --cpus 1,2,4,8 --svg faults.svg
  vellum scale traces/sdet-like.vellum --copies 8 --cpus 1,2,4,8     a recorded workload
  vellum scale map-unmap --machine generated-512 --cpus 1,512 --profile --resume done.jsonl

Exit codes: 0 measured, 1 failed, 2 unusable arguments, 3 the same seed did not give the same
result, 130 interrupted (numbers of CPUs that are complete are printed).";

/// Run a workload or a trace on more and more simulated CPUs, and say what stops it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ScaleArgs {
    /// What each CPU does (`--list` describes them), or a trace, a path with a dot or slash in it
    #[arg(required_unless_present = "list", value_hint = ValueHint::FilePath)]
    workload: Option<String>,
    /// List the workloads, and end
    #[arg(long)]
    list: bool,
    /// A machine of `vellum machines`, or a file that ends in .toml
    #[arg(long, value_name = "MACHINE", default_value = "epyc-milan-2s",
          value_hint = ValueHint::FilePath)]
    machine: String,
    /// Numbers of CPUs [default: 1, 2, 4 and so on up to 64, and no more than the machine has]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// A design, as often as there are designs, the base first
    #[arg(long, value_name = "DESIGN", default_value = "rmap=family")]
    designs: Vec<String>,
    /// Number of seeds: of start times, of who goes first, of random numbers
    #[arg(long, value_name = "K", default_value_t = 6,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: u16,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Virtual microseconds in which things are counted [default: 400]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    window: Option<u64>,
    /// Virtual microseconds before those, in which nothing is counted: longer for what is so when
    /// everything that grows has grown [default: 100]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    warm_up: Option<u64>,
    /// With a trace: copies of the recorded process family that run at once
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    copies: Option<u32>,
    /// Simulations at a time [default: the host's CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Keep finished simulations in a file, and take from it those that are there
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    resume: Option<OutputPath>,
    /// Print the cache lines and the locks that cost most with the largest number of CPUs
    #[arg(long)]
    profile: bool,
    /// Write folded stacks of where they waited to DIR: a.folded, a-locks.folded, and, with
    /// several designs, b.folded, diff.svg and diffprofile.txt
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    profile_out: Option<PathBuf>,
    /// Draw throughput and time against CPUs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<OutputPath>,
    #[command(flatten)]
    output: OutputArgs,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

/// Measures, and prints what was found.
pub fn run(args: ScaleArgs) -> Result<(), Failure> {
    let Some(name) = args.workload.as_deref().filter(|_| !args.list) else {
        io::stdout().lock().write_all(list().as_bytes())?;
        return Ok(());
    };
    if name.contains(['.', '/']) {
        return trace(name.into(), args);
    }
    if args.copies.is_some() {
        return Err(Failure::usage(
            "--copies only with a trace: each CPU does the same as the others anyway",
        ));
    }
    let plan = plan(name, &args)?;
    let results = Results::open(&args.output)?;
    let drawing = args.svg.as_ref().map(OutputPath::create);
    let drawing = drawing.transpose()?;
    let files = WaitFiles::create(args.profile_out.as_deref())?;
    let mut kept = Kept::open_if(args.resume.as_deref())?;
    let interrupt = Interrupt::on_ctrl_c()?;
    let findings = measure(&plan, &mut kept, Style::detect(args.quiet), &interrupt)?;
    if let Some(file) = drawing {
        file.commit(&results::picture(&findings)?)?;
    }
    results.print(|_| text::render(&findings, args.profile), &findings)?;
    let sides = findings.curves.iter().filter_map(|curve| {
        let cell = &curve.points.last()?.cell;
        Some(waits::Side {
            design: &curve.design,
            waits: &cell.waits,
            locks: &cell.locks,
        })
    });
    files.write(&sides.collect::<Vec<_>>(), &findings.workload)?;
    if findings.control != 1.0 {
        return Err(Failure::refuted(
            "the same seed did not give the same result: a defect of the simulator",
        ));
    }
    match findings.interrupted {
        true => Err(Failure::interrupted("")),
        false => Ok(()),
    }
}

/// A trace on more and more CPUs.
fn trace(path: PathBuf, args: ScaleArgs) -> Result<(), Failure> {
    let others = [
        (args.window.is_some(), "--window"),
        (args.warm_up.is_some(), "--warm-up"),
        (args.resume.is_some(), "--resume"),
    ];
    refuse(&others, "cannot be had with a trace: leave it out")?;
    let machine = machine(&args)?;
    simulated::run(simulated::Request {
        trace: path,
        cpus: numbers(&args, &machine)?,
        designs: args.designs,
        machine: args.machine,
        purpose: Purpose::Sweep,
        copies: args.copies.unwrap_or(1),
        ram: None,
        seeds: args.seeds,
        seed: args.seed,
        jobs: args.jobs,
        profile: args.profile,
        output: args.output,
        svg: args.svg,
        profile_out: args.profile_out,
        quiet: args.quiet,
    })
}

fn machine(args: &ScaleArgs) -> Result<Description, Failure> {
    Description::named(&args.machine).map_err(|error| Failure::usage(error.to_string()))
}

/// The numbers of CPUs, ascending.
fn numbers(args: &ScaleArgs, machine: &Description) -> Result<Vec<usize>, Failure> {
    let has = machine.cpus();
    let mut cpus: Vec<usize> = match args.cpus.is_empty() {
        true => (0..=6)
            .map(|power| 1 << power)
            .filter(|&cpus| cpus <= has)
            .collect(),
        false => args.cpus.clone(),
    };
    cpus.sort_unstable();
    cpus.dedup();
    if let Some(asked) = cpus.iter().find(|&&cpus| cpus == 0 || cpus > has) {
        return Err(Failure::usage(format!(
            "--cpus {asked}: {} has {has} CPUs; expected 1 to {has}, or another --machine",
            args.machine
        )));
    }
    Ok(cpus)
}

fn plan(name: &str, args: &ScaleArgs) -> Result<Plan, Failure> {
    let workload = workload(name).ok_or_else(|| {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        Failure::usage(format!(
            "no workload is `{name}`; expected a trace, with its path, or one of {}",
            names.join(", ")
        ))
    })?;
    let machine = machine(args)?;
    let cpus = numbers(args, &machine)?;
    let host = thread::available_parallelism().map_or(1, usize::from);
    Ok(Plan {
        machine_name: args.machine.clone(),
        machine,
        workload,
        cpus,
        designs: args.designs.clone(),
        seeds: (0..u64::from(args.seeds))
            .map(|seed| args.seed.wrapping_add(seed))
            .collect(),
        warm_up_ns: args.warm_up.map_or(WARM_UP_NS, |us| us * 1000),
        window_ns: args.window.unwrap_or(WINDOW_US) * 1000,
        jobs: args.jobs.map_or(host, usize::from),
    })
}

fn list() -> String {
    let lines = WORKLOADS.iter().map(|workload| {
        vec![
            workload.name.to_owned(),
            format!("each CPU {} ({})", workload.summary, workload.unit),
        ]
    });
    Table::lines(lines)
}
