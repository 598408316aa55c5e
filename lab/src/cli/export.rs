//! `vellum export`: a trace as a table for other tools.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::builder::ValueHint;
use clap::{Args, ValueEnum};

use super::{Failure, OrFail};
use vellum_export::{Output, cachesim, csv, parquet, rows::Row};
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::{Event, TraceReader};

const EXAMPLES: &str = "\
The columns are described in docs/import-export.md. CSV and Parquet hold every event, one a
row. libcachesim holds the requests that reach the page cache, for its csv reader:
  cachesim pages.csv csv lru 64mb -t \"time-col=1, obj-id-col=2, obj-size-col=3,
    delimiter=,, has-header=true, obj-id-is-num=true\"

Examples:
  vellum export build.vellum --format csv -o build.csv
  vellum export build.vellum --format csv -o - | head
  vellum export build.vellum --format parquet -o build.parquet
  vellum export build.vellum --format libcachesim -o pages.csv";

/// Write a trace as CSV, as Parquet, or as page-cache requests
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// The trace
    #[arg(value_hint = ValueHint::FilePath)]
    trace: PathBuf,

    /// What to write
    #[arg(short, long, value_enum)]
    format: Format,

    /// Write to FILE; `-` is standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// What can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// Every event, comma-separated
    Csv,
    /// Every event, as Apache Parquet
    Parquet,
    /// Page-cache requests for libCacheSim, comma-separated
    Libcachesim,
}

/// Exports.
pub fn run(args: ExportArgs) -> Result<(), Failure> {
    let path = args.output.display().to_string();
    let trace = TraceReader::open(&args.trace).blame_input()?;
    if same_file(&args.trace, &args.output) {
        return Err(Failure::usage(format!(
            "{path}: the table would replace the trace"
        )));
    }
    if path != "-" && fs::metadata(&args.output).is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Failure::usage(format!("{path}: it is a directory")));
    }
    let mut export = Export {
        trace: &trace,
        progress: Progress::new(
            Style::detect(args.quiet),
            "exporting",
            trace.header().events,
            "events",
        ),
        interrupt: Interrupt::on_ctrl_c()?,
    };
    let output = Output::create(&args.output).doing(|| format!("{path}: cannot create"))?;
    let (rows, output) = match args.format {
        Format::Csv => export.csv(output),
        Format::Parquet => export.parquet(output),
        Format::Libcachesim => export.cachesim(output),
    }?;
    export.progress.finish();
    let bytes = output.finish().doing(|| format!("{path}: cannot write"))?;
    if !args.quiet {
        eprintln!("vellum: {path}: {rows} rows, {:.1} MB", bytes as f64 / 1e6);
    }
    Ok(())
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (fs::canonicalize(a), fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

struct Export<'a> {
    trace: &'a TraceReader,
    progress: Progress,
    interrupt: Interrupt,
}

impl Export<'_> {
    /// Calls `take` for each event; stops at Ctrl-C.
    fn each(
        &mut self,
        mut take: impl FnMut(&Event) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        let mut events = 0u64;
        for event in self.trace.events() {
            if events.is_multiple_of(1024) && self.interrupt.requested() {
                return Err(Failure::interrupted("interrupted; nothing was written"));
            }
            take(&event.blame_input()?)?;
            events += 1;
            self.progress.advance(1);
        }
        Ok(events)
    }

    fn csv(&mut self, mut output: Output) -> Result<(u64, Output), Failure> {
        csv::head(&mut output)?;
        let header = self.trace.header();
        let rows = self.each(|event| Ok(csv::row(&mut output, &Row::of(header, event))?))?;
        Ok((rows, output))
    }

    fn parquet(&mut self, output: Output) -> Result<(u64, Output), Failure> {
        let mut table = parquet::Table::new(output)?;
        let header = self.trace.header();
        let rows = self.each(|event| Ok(table.push(&Row::of(header, event))?))?;
        Ok((rows, table.finish()?))
    }

    fn cachesim(&mut self, mut output: Output) -> Result<(u64, Output), Failure> {
        cachesim::head(&mut output)?;
        let mut requests = cachesim::Requests::default();
        self.each(|event| Ok(requests.take(&mut output, event)?))?;
        output.flush()?;
        Ok((requests.count(), output))
    }
}
