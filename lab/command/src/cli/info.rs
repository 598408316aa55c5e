//! `vellum info`: what a trace holds.

mod cpu_time;
mod survey;
mod text;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::ValueHint;

use super::{Failure, OrFail};
use vellum_terminal::progress::{Progress, Style};
use vellum_trace::{EventKind, TraceReader};

const EXAMPLES: &str = "\
Anonymous pages that no fork ever shared need only one reverse mapping; `singletons` is
their share as far as the trace tells. Peak memory is an estimate: pages that the workload
faulted, wrote or read, from their first use to the end of their mapping or file.

Examples:
  vellum info build.vellum
  vellum info build.vellum --all
  vellum info build.vellum --json | jq .events";

/// Say what a trace holds and where it was made
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct InfoArgs {
    /// The trace
    #[arg(value_hint = ValueHint::FilePath)]
    trace: PathBuf,

    /// List every command, not only those with the most faults
    #[arg(long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Reads the whole trace and prints its summary.
pub fn run(args: InfoArgs) -> Result<(), Failure> {
    let trace = TraceReader::open(&args.trace).blame_input()?;
    let style = Style::detect(args.quiet);
    let mut progress = Progress::new(style, "reading", trace.header().events, "events");
    let mut survey = survey::Survey::new(&trace);
    for event in trace.events_and_accesses() {
        let event = event.blame_input()?;
        survey.take(trace.header(), &event);
        progress.advance(u64::from(!matches!(event.kind, EventKind::Accessed { .. })));
    }
    progress.finish();
    let report = survey.report(&trace);
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        text::print(&mut out, &report, args.all)?;
    }
    out.flush()?;
    Ok(())
}
