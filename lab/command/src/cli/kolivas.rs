//! `vellum bench kernbench --format kolivas`: kernbench of Con Kolivas, on the host's kernel;
//! `bench_sim` runs it on simulated machines.

use std::path::Path;

use clap::Args;
use clap::builder::ValueHint;

use super::outputs::{OutputFile, OutputPath};
use super::results::{OutputArgs, Results};
use super::{Failure, OrFail};
use crate::bench::host::kolivas::{self as measured, Choice, Measured, Options, Plan, Preparation};
use crate::host::{self, HostError};
use vellum_results::kolivas::{Build as OneBuild, Kolivas, Load};
use vellum_tables::kolivas::{self, Group, Run};
use vellum_terminal::progress::{Interrupt, Style};

/// Runs of a load, and with `--fast`.
const RUNS: [usize; 2] = [5, 3];

/// Runs of a load at the most.
const MOST_RUNS: usize = 10;

/// Options of `--format kolivas`
#[derive(Args, Debug)]
#[command(next_help_heading = "Options of --format kolivas")]
pub struct KolivasArgs {
    /// One job, too (-s of kernbench)
    #[arg(long, hide_short_help = true)]
    single: bool,
    /// Not the half load: half as many jobs as CPUs, but 3 instead of 2 (-H)
    #[arg(long, hide_short_help = true)]
    no_half: bool,
    /// Not the optimal load (-O)
    #[arg(long, conflicts_with = "optimal_jobs", hide_short_help = true)]
    no_optimal: bool,
    /// Not the maximal load: as many jobs as there are (-M)
    #[arg(long, hide_short_help = true)]
    no_maximal: bool,
    /// Jobs of the optimal load (-o) [default: 4 for each CPU]
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(u32).range(1..=1_000_000),
          hide_short_help = true)]
    optimal_jobs: Option<u32>,
    /// Three runs, with no files read, no build and no pauses before them (-f)
    #[arg(long, hide_short_help = true)]
    fast: bool,
    /// The figures of kernbench, mistakes included, from what GNU time would print
    #[arg(long, hide_short_help = true)]
    compat: bool,
    /// Write a row for each run to a file, which `vellum stats --format kolivas` reads
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    runs_out: Option<OutputPath>,
}

impl KolivasArgs {
    /// One of these options that was given.
    pub fn given(&self) -> Option<&'static str> {
        let options = [
            (self.single, "--single"),
            (self.no_half, "--no-half"),
            (self.no_optimal, "--no-optimal"),
            (self.no_maximal, "--no-maximal"),
            (self.optimal_jobs.is_some(), "--optimal-jobs"),
            (self.fast, "--fast"),
            (self.compat, "--compat"),
            (self.runs_out.is_some(), "--runs-out"),
        ];
        let given = options.into_iter().find(|option| option.0);
        given.map(|option| option.1)
    }

    /// The loads on a machine of `cpus` CPUs and `mebibytes` of memory, if that is known.
    ///
    /// # Errors
    /// There is none left.
    pub fn plan(&self, cpus: usize, mebibytes: Option<u64>) -> Result<Plan, Failure> {
        let choice = Choice {
            single: self.single,
            half: !self.no_half,
            optimal: !self.no_optimal,
            maximal: !self.no_maximal,
            optimal_jobs: self.optimal_jobs,
        };
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        let plan = choice.plan(cpus, mebibytes);
        match plan.loads.is_empty() {
            false => Ok(plan),
            true => Err(Failure::usage(format!(
                "no load is left on a machine of {cpus} CPUs (the half load needs 4): leave out \
                 --no-optimal or --no-maximal, or add --single"
            ))),
        }
    }

    /// How many runs of each load, if `passes` does not say.
    ///
    /// # Errors
    /// They are more than kernbench makes.
    pub fn runs(&self, passes: Option<u16>) -> Result<usize, Failure> {
        let runs = passes.map_or(RUNS[usize::from(self.fast)], usize::from);
        match runs <= MOST_RUNS {
            true => Ok(runs),
            false => Err(Failure::usage(format!(
                "kernbench makes {MOST_RUNS} runs of a load at most: give -n 1 to -n {MOST_RUNS}"
            ))),
        }
    }

    /// The file of `--runs-out`, if there is to be one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn rows(&self) -> Result<Option<Rows>, Failure> {
        let file = self.runs_out.as_ref().map(OutputPath::create);
        Ok(file.transpose()?.map(Rows))
    }

    /// Runs as they are printed and written.
    fn shown(&self, groups: &[Group]) -> Vec<Group> {
        let run = |run: &Run| match self.compat {
            true => kolivas::cut_as_time(run),
            false => *run,
        };
        let groups = groups.iter().map(|group| Group {
            load: group.load,
            runs: group.runs.iter().map(run).collect(),
        });
        groups.collect()
    }

    /// What is reported of builds, but for what was built and where: so many `runs` of each load
    /// were asked for.
    pub fn report(&self, runs: usize, groups: &[Group]) -> Kolivas {
        let shown = self.shown(groups);
        let loads = shown.iter().map(|group| Load {
            load: group.load.name(),
            runs: group.runs.iter().map(build).collect(),
        });
        Kolivas {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            runs,
            fast: self.fast,
            compat: self.compat,
            loads: loads.collect(),
            block: kolivas::blocks(&shown, self.compat),
            ..Kolivas::default()
        }
    }
}

fn build(&[elapsed_s, user_s, system_s, cpu_percent, switches, sleeps]: &Run) -> OneBuild {
    OneBuild {
        elapsed_s,
        user_s,
        system_s,
        cpu_percent,
        context_switches: switches as u64,
        sleeps: sleeps as u64,
    }
}

/// What else `vellum bench` is told about a build.
#[derive(Debug)]
pub struct Build<'a> {
    /// Kernel source tree.
    pub tree: Option<&'a Path>,
    /// Target of `make`.
    pub target: Option<&'a str>,
    /// Runs of each load.
    pub passes: Option<u16>,
    /// Where the result goes.
    pub output: &'a OutputArgs,
    /// How to show progress.
    pub style: Style,
}

/// Builds the tree under each load and prints a block for each.
///
/// # Errors
/// The arguments do not fit, a file cannot be written, a build fails, or the user
/// interrupts. What was complete before the last two is printed.
pub fn run(args: &KolivasArgs, build: &Build<'_>) -> Result<(), Failure> {
    let tree = build.tree.ok_or_else(|| {
        Failure::usage(
            "kernbench on linux builds a kernel: give a configured tree with --tree PATH",
        )
    })?;
    let runs = args.runs(build.passes)?;
    let plan = args.plan(host::cpus(), host::memory_mebibytes())?;
    let results = Results::open(build.output)?;
    let rows = args.rows()?;
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    for note in &plan.notes {
        eprintln!("vellum: {note}");
    }
    let options = Options {
        tree: tree.to_owned(),
        target: build.target.map(str::to_owned),
        loads: plan.loads.clone(),
        runs,
        preparation: (!args.fast).then(|| Preparation::usual(plan.warm_up_jobs)),
        style: build.style,
    };
    let found = measured::run(&options, &interrupt).map_err(HostError::into_failure)?;
    let Measured { groups, stopped } = found;
    let interrupted = matches!(stopped, Some(HostError::Interrupted));
    let failure = stopped.as_ref().filter(|_| !interrupted);
    let report = Kolivas {
        kernel: host::kernel_release(),
        cpus: host::cpus(),
        memory_mebibytes: host::memory_mebibytes(),
        tree: options.tree.display().to_string(),
        target: options.target.clone(),
        notes: plan.notes,
        interrupted,
        failure: failure.map(ToString::to_string),
        ..args.report(runs, &groups)
    };
    print(args, &report, &groups, rows, results)?;
    match stopped {
        None => Ok(()),
        Some(HostError::Interrupted) => Err(Failure::interrupted(
            "interrupted; the runs that were complete are printed",
        )),
        Some(error) => Err(error.into_failure()).doing(|| "after the runs that are printed"),
    }
}

/// Prints a block for each load, and writes what else is wanted.
///
/// # Errors
/// A file cannot be written.
pub fn print(
    args: &KolivasArgs,
    report: &Kolivas,
    groups: &[Group],
    rows: Option<Rows>,
    results: Results,
) -> Result<(), Failure> {
    if let Some(rows) = rows {
        rows.write(&args.shown(groups))?;
    }
    results.print(|_| report.block.clone(), report)
}

/// The file of `--runs-out`.
#[derive(Debug)]
pub struct Rows(OutputFile);

impl Rows {
    fn write(self, groups: &[Group]) -> Result<(), Failure> {
        self.0.commit(&format!(
            "# Columns: load, then elapsed, user and system seconds, percent of a CPU, context \
             switches, sleeps.\n{}",
            kolivas::rows(groups)
        ))
    }
}
