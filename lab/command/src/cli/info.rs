//! `vellum info`: what a trace holds.

mod cpu_time;
mod survey;
mod text;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::ValueHint;

use super::given::Given;
use super::{Failure, OrFail};
use crate::report::Detail;
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::{EventKind, TraceReader};

const EXAMPLES: &str = "\
Anonymous pages that no fork ever shared need only one reverse mapping; `singletons` is
their share as far as the trace tells. The peak of pages in use is an estimate: pages that the
workload faulted, wrote or read, from their first use to the end of their mapping or file.
`vellum replay` and `vellum plan memory` count frames in use: pages, page tables and records.

Examples:
  vellum info build.vellum
  vellum info build.vellum --details
  vellum info build.vellum --json | jq .events
  vellum info smaps.txt        # a dump of /proc/PID/smaps";

/// Say what a trace holds and where it was made
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct InfoArgs {
    /// The trace, or a text that `vellum import` reads
    #[arg(value_hint = ValueHint::FilePath)]
    trace: PathBuf,

    /// Print everything: every count, all commands, what was invisible
    #[arg(long, visible_alias = "all")]
    details: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Reads the whole trace and prints its summary.
pub fn run(args: InfoArgs) -> Result<(), Failure> {
    let style = Style::detect(args.quiet);
    let given = Given::open(&args.trace, style, &Interrupt::manual())?;
    let trace = TraceReader::open(given.path()).blame_input()?;
    let mut progress = Progress::new(style, "reading", trace.header().events, "events");
    let mut survey = survey::Survey::new(&trace);
    for event in trace.events_and_accesses() {
        let event = event.blame_input()?;
        survey.take(trace.header(), &event);
        progress.advance(u64::from(!matches!(event.kind, EventKind::Accessed { .. })));
    }
    progress.finish();
    let mut report = survey.report(&trace);
    report.trace = args.trace.display().to_string();
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        let detail = match args.details {
            true => Detail::Full,
            false => Detail::Summary,
        };
        text::print(&mut out, &report, detail)?;
    }
    out.flush()?;
    Ok(())
}
