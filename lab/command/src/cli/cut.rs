//! `vellum cut`: a part of a trace that is a trace.

use std::path::PathBuf;

use clap::Args;
use clap::builder::ValueHint;

use super::dump::micros;
use super::outputs::OutputPath;
use super::{Failure, OrFail};
use crate::excerpt;
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::cut::Selection;
use vellum_trace::{DEFAULT_LEVEL, Header, TaskId, TraceReader, TraceWriter};

const EXAMPLES: &str = "\
A cut replays on its own. Tasks that are there when it begins get the mappings and the
resident pages they had, as events at time 0. Two things do not survive: pages that tasks
shared by fork before the cut are separate pages in it, and the page cache starts empty.

Task numbers are those that `vellum dump` prints in its second column.

Examples:
  vellum cut build.vellum -o part.vellum --from 30 --to 60
  vellum cut build.vellum -o cc1.vellum --task 1234
  vellum cut build.vellum -o shell.vellum --pid 4711 --to 12.5";

/// Cut a time window or a sub-tree of processes out of a trace
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CutArgs {
    /// The trace
    #[arg(value_hint = ValueHint::FilePath)]
    trace: PathBuf,

    /// Write the cut to FILE
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: OutputPath,

    /// Begin at this time
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    from: f64,

    /// End before this time
    #[arg(long, value_name = "SECONDS")]
    to: Option<f64>,

    /// Only this task and its descendants
    #[arg(short, long, value_name = "NUMBER", conflicts_with = "pid")]
    task: Option<u32>,

    /// Only the task with this recorded process id, and its descendants
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,

    /// How hard to compress the cut, from 1 (fast) to 22 (small)
    #[arg(long, value_name = "LEVEL", default_value_t = DEFAULT_LEVEL,
          value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Cuts.
pub fn run(args: CutArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let from_us = micros(args.from)?;
    let to_us = args.to.map(micros).transpose()?.unwrap_or(u64::MAX);
    if from_us >= to_us {
        return Err(Failure::usage("--from must lie before --to"));
    }
    let trace = TraceReader::open(&args.trace).blame_input()?;
    let header = trace.header();
    if from_us > header.duration_us {
        let end = header.duration_us as f64 / 1e6;
        return Err(Failure::usage(format!(
            "the trace ends at {end} s, before --from"
        )));
    }
    let root = match (args.task, args.pid) {
        (Some(task), _) => Some(known_task(header, task)?),
        (None, Some(pid)) => Some(task_of_pid(header, pid)?),
        (None, None) => None,
    };
    let selection = Selection {
        root,
        from_us,
        to_us,
    };
    let writer = TraceWriter::create(&*args.output, args.level)?;
    let style = Style::detect(args.quiet);
    let (events, bytes) = excerpt::write(&trace, selection, writer, style, &interrupt)?;
    if !args.quiet {
        let (output, mb) = (args.output.display(), bytes as f64 / 1e6);
        eprintln!("vellum: {output}: {events} events, {mb:.1} MB");
    }
    Ok(())
}

fn known_task(header: &Header, task: u32) -> Result<TaskId, Failure> {
    if (task as usize) < header.tasks.len() {
        return Ok(TaskId(task));
    }
    let last = header.tasks.len().saturating_sub(1);
    Err(Failure::usage(format!(
        "there is no task {task}: the trace has tasks 0 to {last}"
    )))
}

fn task_of_pid(header: &Header, pid: u32) -> Result<TaskId, Failure> {
    let tasks = header.tasks.iter().enumerate();
    let found: Vec<usize> = tasks
        .filter(|(_, task)| task.pid == pid)
        .map(|(index, _)| index)
        .collect();
    match found[..] {
        [] => Err(Failure::usage(format!("no task has process id {pid}"))),
        [task] => Ok(TaskId(task as u32)),
        _ => Err(Failure::usage(format!(
            "tasks {found:?} all had process id {pid}: choose one with --task"
        ))),
    }
}
