//! Where the results of a command go: tables on standard output, or what `--json` and
//! `--html` say.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use clap::Args;
use clap::builder::ValueHint;
use sha2::{Digest, Sha256};
use vellum_page::Overview;
use vellum_results::history::Passage;
use vellum_results::run::TraceFile;
use vellum_results::{Document, Kind, Loaded, Run};

use super::kept::{DbArgs, Keeper};
use super::outputs::{OutputFile, OutputOrStdout, OutputPath};
use super::refuse;
use super::{Failure, OrFail};
use crate::history::gate::{self, Expected, Gate};
use crate::history::{self, Kept};
use crate::linux::environment::{self, host_name};
use crate::program;
use crate::report::Detail;
use crate::report::json;
use crate::report::published::Format;
use vellum_trace::TraceReader;

/// Where the results go
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Write everything as JSON to a file; `-` prints it instead of the tables
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<OutputOrStdout>,
    /// Write everything as one HTML page, with pictures, to look at and to send to others
    /// (docs/report.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<OutputPath>,
    /// Print everything: all tables, what is zero, and designs with all their options
    #[arg(long)]
    details: bool,
    /// Keep the result in a database (`vellum history`)
    #[arg(long, help_heading = KEEPING, hide_short_help = true)]
    #[cfg_attr(
        not(feature = "history"),
        arg(help = "Keep the result in a database: not built in")
    )]
    keep: bool,
    /// A remark to keep with it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true,
          requires = "keep", help_heading = KEEPING, hide_short_help = true)]
    note: String,
    #[command(flatten)]
    db: DbArgs,
}

/// Heading of the options about kept results.
pub const KEEPING: &str = "Kept results";

impl OutputArgs {
    /// Tables, and JSON where it is said; `-` prints that instead.
    pub fn json(json: Option<OutputOrStdout>) -> Self {
        Self {
            json,
            ..Self::default()
        }
    }

    /// How much is printed.
    fn detail(&self) -> Detail {
        match self.details {
            true => Detail::Full,
            false => Detail::Summary,
        }
    }

    /// Refuses what is about pages and kept results, for commands whose results are none.
    ///
    /// # Errors
    /// It is asked for.
    pub fn refuse_all_but_json(&self, why: &str) -> Result<(), Failure> {
        refuse(
            &[(self.html.is_some(), "--html"), (self.keep, "--keep")],
            why,
        )
    }

    /// Where results are kept.
    pub fn db(&self) -> &DbArgs {
        &self.db
    }
}

/// The results of a command that measures.
#[derive(Debug)]
pub struct Results {
    /// JSON is printed instead of the tables.
    prints_json: bool,
    detail: Detail,
    json: Option<OutputFile>,
    html: Option<OutputFile>,
    keeper: Option<Keeper>,
    gate: Option<Gate>,
    run: Run,
    traces: Vec<PathBuf>,
}

impl Results {
    /// What the options ask for. A file that cannot be written is refused here, before
    /// any time is spent.
    pub fn open(output: &OutputArgs) -> Result<Self, Failure> {
        let json = output.json.as_ref().and_then(OutputOrStdout::file);
        let json = json.map(OutputPath::create);
        let html = output.html.as_ref().map(OutputPath::create);
        let keeper = output.keep.then(|| Keeper::open(&output.db, &output.note));
        let results = Self {
            prints_json: output.json == Some(OutputOrStdout::Stdout),
            detail: output.detail(),
            json: json.transpose()?,
            html: html.transpose()?,
            keeper: keeper.transpose()?,
            gate: None,
            run: here(),
            traces: Vec::new(),
        };
        if let Some(keeper) = &results.keeper {
            results.spare(&[keeper.path().to_owned()])?;
        }
        Ok(results)
    }

    /// Holds the result against saved ones.
    ///
    /// # Errors
    /// They do not fit, or `traces` cannot be read.
    pub fn hold_against(
        &mut self,
        saved: Vec<Kept>,
        limit: f64,
        expected: &Expected<'_>,
        traces: &[PathBuf],
    ) -> Result<(), Failure> {
        for path in traces {
            TraceReader::open(path).blame_input()?;
        }
        self.read_from(traces)?;
        self.identify();
        self.gate = Some(Gate::new(saved, limit, expected, &self.run)?);
        Ok(())
    }

    /// Whether nothing but tables is wanted.
    fn only_tables(&self) -> bool {
        let is_written = self.json.is_some() || self.html.is_some() || self.keeper.is_some();
        !self.prints_json && !is_written
    }

    /// Notes the traces that the results are about.
    ///
    /// # Errors
    /// The results would replace one of them.
    pub fn read_from(&mut self, traces: &[PathBuf]) -> Result<(), Failure> {
        self.spare(traces)?;
        self.traces = traces.to_vec();
        Ok(())
    }

    /// Refuses to replace `inputs`, which the command line does not name.
    ///
    /// # Errors
    /// The results would replace one of them.
    pub fn spare(&self, inputs: &[PathBuf]) -> Result<(), Failure> {
        let mut files = self.json.iter().chain(&self.html);
        files.try_for_each(|file| file.spares(inputs))
    }

    /// Finds out what identifies the traces.
    fn identify(&mut self) {
        self.run.traces = self.traces.iter().map(|path| trace_file(path)).collect();
    }

    /// Refuses what cannot be printed as `format`, before any time is spent:
    /// `passes` of `arms`.
    pub fn with(&self, format: Format, arms: usize, passes: usize) -> Result<(), Failure> {
        if self.prints_json {
            return Err(Failure::usage(
                "`--json -` prints no tables: leave out --format, or write the JSON to a file",
            ));
        }
        format.takes(arms, passes).map_err(Failure::usage)
    }

    /// Prints and writes them, of all forms only what is wanted.
    pub fn print(
        mut self,
        tables: impl FnOnce(Detail) -> String,
        result: &impl Kind,
    ) -> Result<(), Failure> {
        if self.run.traces.is_empty() && !self.only_tables() {
            self.identify();
        }
        let passage = match &self.gate {
            None => None,
            Some(gate) => {
                let text = self.document(result, None)?;
                Some(gate.judge(&Kept::parse("this run", &text)?)?)
            }
        };
        let written = match self.only_tables() {
            true => None,
            false => Some(self.document(result, passage.as_ref())?),
        };
        if let (Some(text), Some(file)) = (&written, self.json) {
            file.commit(text)?;
        }
        let kept = match (&written, self.keeper) {
            (Some(text), Some(keeper)) => keeper.keep(text, &self.run),
            _ => Ok(()),
        };
        // Whatever becomes of the page, the rest is written.
        let page = match (&written, self.html) {
            (Some(text), Some(file)) => draw(text, file),
            _ => Ok(()),
        };
        let printed = match (self.prints_json, written) {
            (true, Some(text)) => text,
            _ => {
                tables(self.detail)
                    + &passage
                        .as_ref()
                        .map_or_else(String::new, history::text::passage)
            }
        };
        io::stdout().lock().write_all(printed.as_bytes())?;
        kept?;
        page?;
        passage.map_or(Ok(()), passes)
    }

    /// The result as it is written.
    fn document(
        &self,
        result: &impl Kind,
        against: Option<&Passage>,
    ) -> serde_json::Result<String> {
        json::render(&Document::new(result).against(against).made_by(&self.run))
    }
}

/// A result as one picture of its own.
///
/// # Errors
/// Its kind has none.
pub fn picture(result: &impl Kind) -> Result<String, Failure> {
    let loaded = Loaded::of_value("this run", serde_json::to_value(Document::new(result))?);
    let loaded = loaded.map_err(|error| Failure::failed(error.to_string()))?;
    vellum_page::picture(&loaded).ok_or_else(|| Failure::failed("the result has no picture"))
}

/// Draws a result as a page.
fn draw(text: &str, file: OutputFile) -> Result<(), Failure> {
    let loaded = Loaded::parse("this run", text);
    let loaded = loaded.map_err(|error| Failure::failed(format!("the page: {error}")))?;
    file.commit(&vellum_page::render(&[loaded], &Overview::default()))
}

/// Whether the gate lets a run pass.
fn passes(passage: Passage) -> Result<(), Failure> {
    let slower: Vec<String> = gate::slower(&passage)
        .map(|change| format!("{}: {}", change.design, history::text::verdict(change)))
        .collect();
    match slower.is_empty() {
        true => Ok(()),
        false => Err(Failure::slower(format!(
            "slower than {} by more than {:.2} %: {}",
            passage.against,
            passage.limit * 100.0,
            slower.join("; ")
        ))),
    }
}

/// This run of the program, without traces.
fn here() -> Run {
    let mut arguments = std::env::args_os();
    let program = arguments.next().map(PathBuf::from);
    let program = program.as_deref().and_then(Path::file_name);
    let words = program.map(ToOwned::to_owned).into_iter().chain(arguments);
    let here = environment::here();
    Run {
        command: words
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: program::checksum().map_or_else(|_| String::new(), |sum| format!("{sum:08x}")),
        started: DateTime::<Utc>::from(SystemTime::now())
            .format("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        host: here.host(host_name()),
        traces: Vec::new(),
    }
}

/// What identifies a trace, wherever it lies. What was measured is not lost if the trace
/// has gone meanwhile: then only its path is told.
fn trace_file(path: &Path) -> TraceFile {
    let unread = TraceFile {
        path: path.display().to_string(),
        ..TraceFile::default()
    };
    let (Ok(trace), Ok((bytes, sha256))) = (TraceReader::open(path), hash(path)) else {
        return unread;
    };
    TraceFile {
        bytes,
        sha256,
        events: trace.header().events,
        command: trace.header().environment.command.clone(),
        ..unread
    }
}

/// Length and SHA-256 of a file.
fn hash(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut block = vec![0; 1 << 16];
    loop {
        match file.read(&mut block)? {
            0 => break,
            count => {
                hash.update(&block[..count]);
                bytes += count as u64;
            }
        }
    }
    let digits = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok((bytes, digits))
}
