//! `vellum calibrate`: a description of this machine.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::ValueHint;
use vellum_calibrate::{Effort, Error};
use vellum_output::PartialFile;

use super::Failure;
use vellum_terminal::progress::Interrupt;

const EXAMPLES: &str = "\
Measure on an idle machine: other programs make every figure worse. The CPUs that the command may
run on are described; restrict them with taskset where the machine is not regular. Every figure says
in the file how it was measured; what cannot be measured here is assumed, and says so.

Examples:
  vellum calibrate -o this.toml
  vellum machines this.toml
  taskset -c 0-7 vellum calibrate -o performance-cores.toml";

/// Measure this machine and describe it for simulations of many CPUs
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CalibrateArgs {
    /// Write the description to FILE, whose name ends in .toml, instead of printing it
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath,
          value_parser = toml_file)]
    output: Option<PathBuf>,

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

/// Measures.
pub fn run(args: CalibrateArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let output = args.output.as_deref().map(created).transpose()?;
    let effort = match args.quick {
        true => Effort::Quick,
        false => Effort::Full,
    };
    let mut go_on = |what: &'static str| {
        if !args.quiet {
            eprintln!("vellum: measuring {what}");
        }
        !interrupt.requested()
    };
    let machine = match vellum_calibrate::calibrate(effort, &mut go_on) {
        Ok(_) | Err(Error::Interrupted) if interrupt.requested() => {
            return Err(Failure::interrupted("interrupted; nothing was written"));
        }
        Ok(machine) => machine,
        Err(error) => return Err(error.into()),
    };
    match output {
        Some(file) => file.commit(&machine.to_string())?,
        None => io::stdout()
            .lock()
            .write_all(machine.to_string().as_bytes())?,
    }
    Ok(())
}

fn created(path: &Path) -> Result<PartialFile, Failure> {
    PartialFile::create(path)
        .map_err(|error| Failure::from(error).context(path.display().to_string()))
}
