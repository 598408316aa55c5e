//! `vellum sweep`: a grid of measurements.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::ValueHint;
use vellum_results::sweep::Sweep;
use vellum_sweep::cell::Word;
use vellum_sweep::execute::Runner;
use vellum_sweep::local::{self, Done};
use vellum_sweep::{Cell, HostId, Known, Spec, Store, findings, grid, slurm, text};

use super::results::{OutputArgs, Results};
use super::{Failure, OrFail, simulated, size};
use crate::bench::BENCHMARKS;
use crate::designs::common_pages;
use crate::linux::environment::{self, host_name};
use vellum_scale::WORKLOADS;
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::TraceReader;

/// The file whose lock means this machine, for all users and all sweeps.
const MACHINE_LOCK: &str = "/tmp/vellum-machine.lock";

const EXAMPLES: &str = "\
A cell is a command of vellum for one combination of the values in a grid. A finished cell is a
file, named by the hash of the program, the command, the content of traces and machines, and the
host if it is timed. So the same command goes on where an earlier one stopped, whatever stopped it,
and runs nothing twice. Cells that are not timed run in parallel; timed ones have the machine for
themselves. docs/sweep.md describes the file, the results, and how a sweep goes to a cluster.

A grid:
  [[grid]]
  run = \"compare\"                      # or verify, replay, simulate, scale, bench, linux
  traces = [\"kernel-build.vellum\"]     # from the directory of this file
  designs = [\"rmap=chains\", \"rmap=partial\", \"rmap=family\"]
  copies = [1, 4]
  seeds = [1, 2, 3]

Examples:
  vellum sweep designs.toml --dry-run
  vellum sweep designs.toml --html designs.html --json designs.json
  vellum sweep designs.toml --jobs 8
  vellum sweep designs.toml --slurm
  vellum report designs.results/cells/KEY.json -o cell.html       the page of one cell

Exit codes: 0 all cells are finished, 1 some failed, 2 unusable spec, 3 a check did not hold in some
cell, 130 interrupted (what is finished is kept and printed).";

/// Run a grid of traces, designs, machines, CPUs, sizes and seeds, and go on where it stopped
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SweepArgs {
    /// The file that describes the sweep
    #[arg(value_name = "SPEC", value_hint = ValueHint::FilePath)]
    spec: PathBuf,
    /// Directory of the results [default: what the spec says, or SPEC.results]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    results: Option<PathBuf>,
    /// Cells at a time that are not timed [default: what the spec says, or the host's CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Run the cells as jobs of a Slurm cluster
    #[arg(long)]
    slurm: bool,
    /// Print which cells are finished and the commands of the others, and end
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

/// Runs what is missing, prints the table.
pub fn run(args: SweepArgs) -> Result<(), Failure> {
    let spec = read(&args.spec)?;
    let runner = runner();
    let hosts = match (args.slurm, grid::is_timed(&spec)) {
        (true, true) if spec.slurm.hosts.is_empty() => {
            return Err(Failure::usage(format!(
                "{}: timed cells say something of the host that they ran on: name the nodes to \
                 time them on, as in `hosts = [\"node1\"]` under [slurm]",
                args.spec.display()
            )));
        }
        (true, true) => slurm::hosts(&spec.slurm.hosts)?,
        _ => vec![runner.here.clone()],
    };
    let program = vellum_sweep::files::FileId::of(&runner.program);
    let program = program.doing(|| "reading this program")?.sha256;
    let cells = grid::cells(&spec, &program, &hosts);
    let root = args.results.as_deref().unwrap_or(&spec.results);
    if args.dry_run {
        let text = dry(&cells, root);
        return Ok(io::stdout().lock().write_all(text.as_bytes())?);
    }
    let results = Results::open(&args.output)?;
    results.spare(&files(&cells))?;
    let store = Store::open(root)?;
    let claim = store.claim()?;
    store.clear_partial()?;
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let style = Style::detect(args.quiet);
    let ran = match args.slurm {
        true => slurm::run(
            &cells,
            &store,
            &runner.program,
            &spec.slurm,
            style,
            &interrupt,
        ),
        false => {
            let jobs = args.jobs.map(usize::from).or(spec.jobs);
            let jobs = jobs.unwrap_or_else(simulated::host_cpus);
            local::run(&cells, &store, &runner, jobs, style, &interrupt)
        }
    };
    let done = ran?;
    drop(claim);
    let found = findings::findings(&spec.name, &cells, &done);
    results.print(|_| text::render(&found), &found)?;
    verdict(&found, &done)
}

/// The files that cells are given: traces, machines.
fn files(cells: &[Cell]) -> Vec<PathBuf> {
    let words = cells.iter().flat_map(|cell| &cell.words);
    let files = words.filter_map(|word| match word {
        Word::File(file) => Some(file.path.clone()),
        Word::Text(_) => None,
    });
    files.collect()
}

/// Who runs cells here.
pub fn runner() -> Runner {
    // A node of a cluster may have another name there than in its network.
    let node = std::env::var("SLURMD_NODENAME").ok();
    Runner {
        // Still this program when another one has been built in its place.
        program: "/proc/self/exe".into(),
        here: HostId {
            name: node.unwrap_or_else(host_name),
            kernel: environment::here().kernel,
        },
        machine: MACHINE_LOCK.into(),
    }
}

fn read(path: &Path) -> Result<Spec, Failure> {
    let workloads: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
    let benchmarks: Vec<&str> = BENCHMARKS.iter().map(|one| one.name).collect();
    let known = Known {
        design: &|design| {
            let checked = common_pages(&[design.to_owned()]);
            checked
                .map(|_| ())
                .map_err(|failure| failure.message().to_owned())
        },
        size: &|text| size::parse(text).map(|_| ()),
        trace: &|path| {
            let opened = TraceReader::open(path);
            opened
                .map(|_| ())
                .map_err(|error| Failure::from(error).message().to_owned())
        },
        workloads: &workloads,
        benchmarks: &benchmarks,
    };
    Spec::read(path, &known).blame_input()
}

/// The cells without running any.
fn dry(cells: &[Cell], root: &Path) -> String {
    let is_finished = |cell: &&Cell| {
        let name = format!("{}.json", cell.key());
        root.join("cells").join(name).exists()
    };
    let finished = cells.iter().filter(is_finished).count();
    let timed = cells.iter().filter(|cell| cell.timed).count();
    let mut text = format!(
        "{} cells, {timed} of them timed; {finished} finished in {}\n",
        cells.len(),
        root.display()
    );
    for cell in cells.iter().filter(|cell| !is_finished(cell)) {
        text += &cell.command_line();
        if let Some(host) = &cell.host {
            text += &format!("    # on {}", host.name);
        }
        text.push('\n');
    }
    text
}

fn verdict(found: &Sweep, done: &Done) -> Result<(), Failure> {
    if done.interrupted {
        return Err(Failure::interrupted(format!(
            "interrupted after {} of {} cells; the same command goes on",
            found.finished, found.cells
        )));
    }
    if !found.failed.is_empty() {
        return Err(Failure::failed(format!(
            "{} of {} cells failed; the same command tries them again",
            found.failed.len(),
            found.cells
        )));
    }
    match found.rows.iter().filter(|row| row.refuted).count() {
        0 => Ok(()),
        rows => Err(Failure::refuted(format!(
            "a check did not hold in {rows} of {} rows",
            found.rows.len()
        ))),
    }
}
