//! `vellum calibrate`: a description of this machine, and whether it is true.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser, ValueHint};
use vellum_calibrate::{Effort, Error};
use vellum_description::{Description, Figure};

use super::Failure;
use super::outputs::{OutputOrStdout, OutputPath};
use super::results::{OutputArgs, Results};
use super::simulated::host_cpus;
use crate::validate::work::{self, Calibrated};
use crate::validate::{self, Validation};
use vellum_terminal::progress::{Interrupt, Style};

const EXAMPLES: &str = "\
Measure on an idle machine: other programs make every figure worse. The CPUs that the command may
run on are described; restrict them with taskset where the machine is not regular. Every figure says
in the file how it was measured; what cannot be measured here is assumed, and says so.

With --work, only what lies between the core's accesses is measured, for a description that has been
written already, and printed for its tables `work` and `processor`. With --against, workloads are run
by the core on this machine and by its description, and both are printed beside each other: whether
simulations can be believed. Figures that are off are marked, and are no failure.

Examples:
  vellum calibrate -o this.toml
  vellum machines this.toml
  vellum calibrate --work this.toml
  vellum calibrate --against this.toml --json truth.json
  taskset -c 0-7 vellum calibrate -o performance-cores.toml";

/// Measure this machine and describe it for simulations of many CPUs
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CalibrateArgs {
    /// Write the description to FILE, whose name ends in .toml, instead of printing it (`-`)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath,
          value_parser = PathBufValueParser::new().try_map(described))]
    output: Option<OutputOrStdout>,

    /// Measure only the time between accesses, for the description in FILE, and print it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = toml_file,
          conflicts_with_all = ["output", "against"])]
    work: Option<PathBuf>,

    /// Hold simulations on the machine in FILE, which describes this one, against runs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = toml_file,
          conflicts_with = "output")]
    against: Option<PathBuf>,

    /// Write what came out as JSON, too; `-` prints it instead
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath, requires = "against")]
    json: Option<OutputOrStdout>,

    /// First seed of the simulations
    #[arg(long, value_name = "N", default_value_t = 1, requires = "against")]
    seed: u64,

    /// A few rounds of each measurement: shows that it works, its figures are no good
    #[arg(long)]
    quick: bool,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

fn toml_file(path: &str) -> Result<PathBuf, String> {
    match path.ends_with(".toml") {
        true => Ok(PathBuf::from(path)),
        false => Err("descriptions are found by a name that ends in .toml".to_owned()),
    }
}

/// Where a description goes: a file that is found as one, or standard output.
fn described(path: PathBuf) -> Result<OutputOrStdout, String> {
    let output = OutputOrStdout::from(path);
    if let Some(file) = output.file() {
        toml_file(&file.to_string_lossy())?;
    }
    Ok(output)
}

/// Measures.
pub fn run(args: CalibrateArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::on_ctrl_c()?;
    match (&args.work, &args.against) {
        (Some(file), _) => only_work(&args, file, &interrupt),
        (None, Some(file)) => against(&args, file, &interrupt),
        (None, None) => describe(&args, &interrupt),
    }
}

/// Measures everything, and writes the description.
fn describe(args: &CalibrateArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let output = args.output.as_ref().and_then(OutputOrStdout::file);
    let output = output.map(OutputPath::create).transpose()?;
    let mut go_on = |what: &'static str| {
        if !args.quiet {
            eprintln!("vellum: measuring {what}");
        }
        !interrupt.requested()
    };
    let mut machine = match vellum_calibrate::calibrate(args.effort(), &mut go_on) {
        Ok(_) | Err(Error::Interrupted) if interrupt.requested() => {
            return Err(Failure::interrupted("interrupted; nothing was written"));
        }
        Ok(machine) => machine,
        Err(error) => return Err(error.into()),
    };
    go_on("the core");
    let found = args.work_of(&machine, interrupt)?;
    (machine.work, machine.processor.exposed) = (found.work, found.exposed);
    match output {
        Some(file) => file.commit(&machine.to_string())?,
        None => io::stdout()
            .lock()
            .write_all(machine.to_string().as_bytes())?,
    }
    Ok(())
}

/// Measures what lies between accesses, and prints it as the file has it.
fn only_work(args: &CalibrateArgs, file: &Path, interrupt: &Interrupt) -> Result<(), Failure> {
    let machine = read(file)?;
    let found = args.work_of(&machine, interrupt)?;
    let mut out = io::stdout().lock();
    if let Some(exposed) = &found.exposed {
        write!(out, "[processor]\nexposed = {}\n\n", exposed.in_toml())?;
    }
    write!(out, "{}", found.work)?;
    Ok(())
}

/// Holds simulations against runs.
fn against(args: &CalibrateArgs, file: &Path, interrupt: &Interrupt) -> Result<(), Failure> {
    let machine = read(file)?;
    let results = Results::open(&OutputArgs::json(args.json.clone()))?;
    let request = validate::Request {
        name: file.display().to_string(),
        machine: &machine,
        effort: args.effort(),
        seed: args.seed,
        jobs: host_cpus(),
        style: Style::detect(args.quiet),
    };
    let found: Validation = validate::validate(&request, interrupt)?;
    results.print(|_| validate::text::render(&found), &found)
}

fn read(file: &Path) -> Result<Description, Failure> {
    Description::read(file).map_err(|error| Failure::usage(error.to_string()))
}

impl CalibrateArgs {
    fn effort(&self) -> Effort {
        match self.quick {
            true => Effort::Quick,
            false => Effort::Full,
        }
    }

    /// What lies between accesses on a machine, and how much of lost lines a core waits for. What
    /// it is from is told unless nothing is to be.
    fn work_of(&self, machine: &Description, interrupt: &Interrupt) -> Result<Calibrated, Failure> {
        let style = Style::detect(self.quiet);
        let found = work::calibrate(machine, self.effort(), style, interrupt)?;
        if !self.quiet {
            eprint!("{}", validate::text::work(&found));
        }
        Ok(found)
    }
}
