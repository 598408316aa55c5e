//! `vellum sweep-cell`: a cell of `vellum sweep --slurm`, as a job runs it.

use std::path::PathBuf;

use clap::Args;
use clap::builder::ValueHint;
use vellum_sweep::slurm::worker::{self, Task};

use super::{Failure, OrFail, sweep};
use vellum_terminal::progress::Interrupt;

const EXAMPLES: &str = "\
Jobs that `vellum sweep --slurm` submits run this; there is little reason to run it by hand.

Exit codes: 0 the cell is finished, 1 it failed, 130 it was stopped.";

/// Run one cell of a sweep on a node of a cluster (part of `vellum sweep --slurm`)
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SweepCellArgs {
    /// Plan of the round
    #[arg(value_hint = ValueHint::FilePath)]
    plan: PathBuf,
    /// Number of the task
    task: usize,
}

/// Runs the cell.
pub fn run(args: SweepCellArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    match worker::run(&args.plan, args.task, &sweep::runner(), &interrupt)? {
        Task::Finished => Ok(()),
        Task::Failed(why) => Err(Failure::failed(why.trim_end())),
        Task::Interrupted => Err(Failure::interrupted("stopped")),
    }
}
