//! `vellum reproduce`: the published measurements, made again.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::ValueHint;

use super::outputs::OutputPath;
use super::results::{OutputArgs, Results};
use super::simulated::{SimArgs, machine_with};
use super::{Failure, OrFail};
use crate::reproduce::bench::{Setting, Simulated};
use crate::reproduce::published::SDET_SCRIPTS;
use crate::reproduce::{
    self,
    model::{self, Reproduction},
};
use crate::shipped::shipped_trace;
use crate::stats::bootstrap::LEAST_PASSES;
use vellum_terminal::progress::{Interrupt, Style};

/// The machine of source 0, if none is named: most of its figures are from one of its kind.
const MACHINE: &str = "numa-q-16";

/// That of source 1, which is about such.
const MACHINE_OF_SOURCE_1: &str = "altix-512";

const EXAMPLES: &str = "\
Source 0: reverse mapping, M. J. Bligh, March 2003 (partial against full object-based) and March
2004 (four schemes): kernbench, SDET, profiles, the share of singletons, rmap-test.
Source 1: page-table quicklists, R. Holt, August 2004, and the figures of 2007.
Source 2: tmpfs, the page cache, the page allocator, M. Gorman, May 2014: loopdd, lat_mmap.
Source 3: page tables in high memory, I. Campbell, February 2010: kernbench.
Source 4: locks of pv lists, K. Belousov, March 2020: buildkernel on two machines, superpages, 512 CPUs.

Sections, for --only:
  0  kernbench, March 2003; kernbench, March 2004; SDET, March 2003; SDET, March 2004; diffprofiles;
     singletons; rmap-test; lookups of rmap-test
  1  forkfault; the three problems; cost of a call; whole workloads; the host's kernel
     (the first two and whole workloads with --on sim)
  2  loopdd; each patch alone; shares of a dd; lat_mmap; the host's kernel
  3  kernbench, February 2010
  4  buildkernel, 16 cores; buildkernel, second machine; superpages, first machine;
     superpages, larger machine; up to 512 CPUs; family against pv

Each published table is printed with ours beside it. Where ours has the other sign, or is more than
twice or less than half, the output says so; docs/reproductions.md explains it.

With --on sim source 0 is made on a simulated machine, numa-q-16 with all its CPUs unless --machine
and --cpus say otherwise: kernbench and SDET. Source 1 is made there on two nodes of altix-512:
tables that were freed on another CPU or another node. Passes are seeds then. Source 4 is always made on
simulated machines: xeon-e5-2690, xeon-104 and generated-512, or all of it on that of --machine.

Examples:
  vellum reproduce 0 --quick
  vellum reproduce 0 --json source0.json
  vellum reproduce 0 --on sim --machine numa-q-16 --cpus 16 --only kernbench
  vellum reproduce 0 --on sim --only sdet --scripts 64 --resume sdet.jsonl
  vellum reproduce 1 -n 12
  vellum reproduce 1 --on sim --machine epyc-milan-2s --cpus 128
  vellum reproduce 2 --only loopdd --only lat_mmap
  vellum reproduce 3
  vellum reproduce 4 --only 16 --json source4.json
  vellum reproduce 4 -n 5 --only second --resume done.jsonl

Exit codes: 0 reproduced (whatever the figures), 1 a table could not be measured, 2 unusable
arguments or traces, 130 interrupted (complete tables are printed).";

/// Run a published comparison again and print each of its tables with ours beside it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReproduceArgs {
    /// Number of the source
    #[arg(value_parser = clap::value_parser!(u8).range(0..=4))]
    source: u8,
    /// Small workloads: shows that it works, proves nothing
    #[arg(long)]
    quick: bool,
    /// Passes of each measurement; with fewer than 5 nothing is judged
    #[arg(short = 'n', long, value_name = "PASSES", default_value_t = 6,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    passes: u16,
    /// Directory of the shipped traces [default: traces/ of the source tree]
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    traces: Option<PathBuf>,
    /// Where: `core`, or `sim` for a simulated machine (sources 0, 1 and 4) [default: core, and sim
    /// for source 4]
    #[arg(long, value_name = "WHERE", value_parser = ["core", "sim"])]
    on: Option<String>,
    /// With --on sim: CPUs [default: all that the machine has; for source 1 those
    /// of two nodes]
    #[arg(long, value_name = "N", help_heading = "With --on sim")]
    cpus: Option<usize>,
    #[command(flatten)]
    sim: SimArgs,
    /// Only the sections whose title has this in it, as in `--only sdet`; may be given more
    /// than once
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Of SDET only the rows with so many scripts at once, as in `--scripts 64,128`
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = scripts_at_once,
          help_heading = "With --on sim")]
    scripts: Vec<u32>,
    /// With a simulated machine: keep finished simulations in a file, and take from it those that
    /// are there
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          help_heading = "With --on sim")]
    resume: Option<OutputPath>,
    /// Seed of the order of execution and of the bootstrap
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

/// Reproduces, prints.
pub fn run(args: ReproduceArgs) -> Result<(), Failure> {
    let results = Results::open(&args.output)?;
    let setting = Setting {
        passes: usize::from(args.sim.seeds().unwrap_or(args.passes)),
        quick: args.quick,
        seed: args.seed,
        style: Style::detect(args.quiet),
        traces: traces(args.traces.clone())?,
        only: args.only.clone(),
        scripts: args.scripts.clone(),
        resume: args.resume.as_deref().map(Path::to_owned),
        simulated: simulated(&args)?,
    };
    results.spare(&vellum_files(&setting.traces))?;
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let result = reproduce::run(args.source, &setting, &interrupt)?;
    results.print(|detail| model::render(&result, detail), &result)?;
    ending(&result)
}

/// The machine that is to be simulated, if one is.
fn simulated(args: &ReproduceArgs) -> Result<Option<Simulated>, Failure> {
    let always = reproduce::ALWAYS_SIMULATED.iter();
    let always = always.clone().find(|(source, _)| *source == args.source);
    let is_simulated = match &args.on {
        Some(place) => place == "sim",
        None => always.is_some(),
    };
    if !is_simulated {
        let others = [
            (args.cpus.is_some(), "--cpus"),
            (args.resume.is_some(), "--resume"),
            (!args.scripts.is_empty(), "--scripts"),
        ];
        args.sim.refuse(&others)?;
        return Ok(None);
    }
    if !args.scripts.is_empty() && (args.source != 0 || args.quick) {
        return Err(Failure::usage(
            "--scripts: only source 0 has SDET, and a quick one few rows of it; leave it out",
        ));
    }
    if args.resume.is_some() && args.source == 1 {
        return Err(Failure::usage(
            "--resume: the simulations of source 1 are short, and none is kept; leave it out",
        ));
    }
    let seeds = args.sim.seeds().unwrap_or(args.passes);
    if always.is_none() && usize::from(seeds) < LEAST_PASSES {
        return Err(Failure::usage(format!(
            "--seeds {seeds}: with --on sim {LEAST_PASSES} seeds are needed at least, or there is \
             no interval"
        )));
    }
    let usual = match (args.source, always) {
        (_, Some((_, machine))) => machine,
        (1, None) => MACHINE_OF_SOURCE_1,
        (_, None) => MACHINE,
    };
    let machine_name = args.sim.machine().unwrap_or(usual).to_owned();
    let machine = machine_with(&machine_name, args.cpus.as_slice())?;
    let usual = match args.source {
        1 => machine.cpus() / machine.nodes() * machine.nodes().min(2),
        _ => machine.cpus(),
    };
    Ok(Some(Simulated {
        cpus: args.cpus.unwrap_or(usual),
        machine,
        machine_name,
        jobs: args.sim.jobs(),
    }))
}

/// A number of scripts at once for which there are published figures.
fn scripts_at_once(text: &str) -> Result<u32, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| SDET_SCRIPTS.contains(number));
    number.ok_or_else(|| format!("published are {SDET_SCRIPTS:?}"))
}

fn ending(result: &Reproduction) -> Result<(), Failure> {
    if result.interrupted {
        return Err(Failure::interrupted(format!(
            "interrupted after {} tables",
            result.sections.len()
        )));
    }
    match result.failures() {
        0 => Ok(()),
        n => Err(Failure::failed(format!(
            "{n} of {} sections could not be measured",
            result.sections.len()
        ))),
    }
}

/// The traces in a directory.
fn vellum_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "vellum")
        })
        .collect()
}

/// The directory of the shipped traces. Not all sections need one: those that do say so
/// if it is not there.
fn traces(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    match given {
        Some(directory) if directory.is_dir() => Ok(directory),
        Some(directory) => Err(Failure::usage(format!(
            "--traces {}: no such directory",
            directory.display()
        ))),
        None => {
            let trace = shipped_trace("kernel-build.vellum").ok();
            let directory = trace.as_deref().and_then(Path::parent);
            Ok(directory.unwrap_or(Path::new("traces")).to_owned())
        }
    }
}
