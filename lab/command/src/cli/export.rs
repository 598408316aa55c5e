//! `vellum export`: a trace as a table for other tools.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::ValueHint;
use clap::{Args, ValueEnum};

use super::outputs::OutputOrStdout;
use super::{Failure, OrFail};
use vellum_export::{Output, cachesim, csv, rows::Row};
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
    output: OutputOrStdout,

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
    #[cfg_attr(
        not(feature = "parquet"),
        value(help = "Every event, as Apache Parquet: not built in")
    )]
    Parquet,
    /// Page-cache requests for libCacheSim, comma-separated
    Libcachesim,
}

/// Exports.
pub fn run(args: ExportArgs) -> Result<(), Failure> {
    let trace = TraceReader::open(&args.trace).blame_input()?;
    let mut export = Export {
        trace: &trace,
        progress: Progress::new(
            Style::detect(args.quiet),
            "exporting",
            trace.header().events,
            "events",
        ),
        interrupt: Interrupt::on_ctrl_c()?,
        place: args.output.to_string(),
    };
    let output = match &args.output {
        OutputOrStdout::Stdout => Output::stdout(),
        OutputOrStdout::File(path) => {
            Output::create(path).doing(|| format!("{}: cannot create", export.place))?
        }
    };
    let (rows, output) = match args.format {
        Format::Csv => export.csv(output),
        Format::Parquet => export.parquet(output),
        Format::Libcachesim => export.cachesim(output),
    }?;
    export.progress.finish();
    let place = export.place;
    let bytes = output.finish().doing(|| cannot_write(&place))?;
    if !args.quiet {
        eprintln!("vellum: {place}: {rows} rows, {:.1} MB", bytes as f64 / 1e6);
    }
    Ok(())
}

struct Export<'a> {
    trace: &'a TraceReader,
    progress: Progress,
    interrupt: Interrupt,
    /// Where the table goes, for messages.
    place: String,
}

fn cannot_write(place: &str) -> String {
    format!("{place}: cannot write")
}

impl Export<'_> {
    /// Calls `take`, which writes, for each event; stops at Ctrl-C.
    fn each<E: Into<Failure>>(
        &mut self,
        mut take: impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<u64, Failure> {
        let mut events = 0u64;
        for event in self.trace.events() {
            if events.is_multiple_of(1024) && self.interrupt.requested() {
                return Err(Failure::interrupted("interrupted; nothing was written"));
            }
            let event = event.blame_input()?;
            take(&event).doing(|| cannot_write(&self.place))?;
            events += 1;
            self.progress.advance(1);
        }
        Ok(events)
    }

    fn csv(&mut self, mut output: Output) -> Result<(u64, Output), Failure> {
        csv::head(&mut output).doing(|| cannot_write(&self.place))?;
        let header = self.trace.header();
        let rows = self.each(|event| csv::row(&mut output, &Row::of(header, event)))?;
        Ok((rows, output))
    }

    #[cfg(feature = "parquet")]
    fn parquet(&mut self, output: Output) -> Result<(u64, Output), Failure> {
        let mut table =
            vellum_export::parquet::Table::new(output).doing(|| cannot_write(&self.place))?;
        let header = self.trace.header();
        let rows = self.each(|event| table.push(&Row::of(header, event)))?;
        let output = table.finish().doing(|| cannot_write(&self.place))?;
        Ok((rows, output))
    }

    #[cfg(not(feature = "parquet"))]
    fn parquet(&mut self, _: Output) -> Result<(u64, Output), Failure> {
        let missing = crate::built_in::PARQUET.missing("`--format parquet`");
        Err(Failure::usage(missing))
    }

    fn cachesim(&mut self, mut output: Output) -> Result<(u64, Output), Failure> {
        cachesim::head(&mut output).doing(|| cannot_write(&self.place))?;
        let mut requests = cachesim::Requests::default();
        self.each(|event| requests.take(&mut output, event))?;
        output.flush().doing(|| cannot_write(&self.place))?;
        Ok((requests.count(), output))
    }
}
