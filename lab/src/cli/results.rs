//! Where the results of a command go: tables on standard output, or what `--json` and
//! `--html` say.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use clap::Args;
use clap::builder::ValueHint;
use serde::Serialize;
use sha2::{Digest, Sha256};
use vellum_page::result::run::{Host, Run, TraceFile};
use vellum_page::{Loaded, Overview};

use super::{Failure, OrFail};
use crate::linux::environment::{Environment, host_name};
use crate::report::json;
use crate::report::published::Format;
use vellum_output::PartialFile;
use vellum_trace::TraceReader;

/// Where the results go
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Write everything as JSON to a file; `-` prints it instead of the tables
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Write everything as one HTML page, with pictures, to look at and to send to others
    /// (docs/report.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
}

/// The results of a command that measures.
#[derive(Debug)]
pub struct Results {
    /// JSON is printed instead of the tables.
    prints_json: bool,
    json: Option<Pending>,
    html: Option<Pending>,
    run: Run,
}

/// A file that is written at the end.
#[derive(Debug)]
struct Pending {
    path: PathBuf,
    file: PartialFile,
}

impl Pending {
    fn create(path: &Path) -> Result<Self, Failure> {
        let file = PartialFile::create(path);
        Ok(Self {
            path: path.to_owned(),
            file: file.doing(|| format!("writing {}", path.display()))?,
        })
    }

    fn commit(self, text: &str) -> Result<(), Failure> {
        let written = self.file.commit(text);
        written.doing(|| format!("writing {}", self.path.display()))
    }
}

/// A result whose type does not name its schema.
#[derive(Debug, Serialize)]
pub struct Named<'r, R> {
    /// The name.
    pub schema: &'static str,
    /// The result.
    #[serde(flatten)]
    pub result: &'r R,
}

/// A result as it is written: with how it was made.
#[derive(Serialize)]
struct Written<'r, R> {
    #[serde(flatten)]
    result: &'r R,
    run: &'r Run,
}

impl Results {
    /// What the options ask for. A file that cannot be written is refused here, before
    /// any time is spent.
    pub fn open(output: &OutputArgs) -> Result<Self, Failure> {
        let is_dash = |path: &Path| path == Path::new("-");
        if output.html.as_deref().is_some_and(is_dash) {
            return Err(Failure::usage(
                "--html -: name a file; `--json - | vellum report - -o -` prints a page",
            ));
        }
        let json = output.json.as_deref();
        let json_file = json.filter(|path| !is_dash(path)).map(Pending::create);
        let html = output.html.as_deref().map(Pending::create);
        Ok(Self {
            prints_json: json.is_some_and(is_dash),
            json: json_file.transpose()?,
            html: html.transpose()?,
            run: here(),
        })
    }

    /// Whether nothing but tables is wanted.
    fn only_tables(&self) -> bool {
        !self.prints_json && self.json.is_none() && self.html.is_none()
    }

    /// Notes the traces that the results will be about.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn read_from(&mut self, traces: &[PathBuf]) -> Result<(), Failure> {
        if !self.only_tables() {
            let files = traces.iter().map(|path| trace_file(path));
            self.run.traces = files.collect::<Result<_, Failure>>()?;
        }
        Ok(())
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
        self,
        tables: impl FnOnce() -> String,
        result: &impl Serialize,
    ) -> Result<(), Failure> {
        let written = match self.only_tables() {
            true => None,
            false => Some(json::render(&Written {
                result,
                run: &self.run,
            })?),
        };
        if let (Some(text), Some(file)) = (&written, self.html) {
            let loaded = Loaded::parse("this run", text);
            let loaded = loaded.map_err(|error| Failure::failed(error.to_string()))?;
            file.commit(&vellum_page::render(&[loaded], &Overview::default()))?;
        }
        if let (Some(text), Some(file)) = (&written, self.json) {
            file.commit(text)?;
        }
        let printed = match (self.prints_json, written) {
            (true, Some(text)) => text,
            _ => tables(),
        };
        io::stdout().lock().write_all(printed.as_bytes())?;
        Ok(())
    }
}

/// This run of the program, without traces.
fn here() -> Run {
    let mut arguments = std::env::args_os();
    let program = arguments.next().map(PathBuf::from);
    let program = program.as_deref().and_then(Path::file_name);
    let words = program.map(ToOwned::to_owned).into_iter().chain(arguments);
    let environment = Environment::here();
    Run {
        command: words
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: DateTime::<Utc>::from(SystemTime::now())
            .format("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        host: Host {
            name: host_name(),
            kernel: environment.kernel,
            cpu: environment.cpu,
            cpus: environment.cpus,
            memory: environment.memory,
            huge_pages: environment.huge_pages,
        },
        traces: Vec::new(),
    }
}

/// What identifies a trace, wherever it lies.
fn trace_file(path: &Path) -> Result<TraceFile, Failure> {
    let reading = || format!("reading {}", path.display());
    let trace = TraceReader::open(path).blame_input()?;
    let mut file = File::open(path).doing(reading)?;
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut block = vec![0; 1 << 16];
    loop {
        match file.read(&mut block).doing(reading)? {
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
    Ok(TraceFile {
        path: path.display().to_string(),
        bytes,
        sha256: digits,
        events: trace.header().events,
        command: trace.header().environment.command.clone(),
    })
}
