//! What a command is given to read: a trace, or a text of another tool, of which one is made that is
//! gone when the command ends.

use std::path::{Path, PathBuf};

use super::import::{self, made_of};
use super::{Failure, OrFail};
use crate::host::scratch::Scratch;
use vellum_import::{ImportError, Options, recognise};
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::{DEFAULT_LEVEL, TraceError, TraceReader, TraceWriter};

/// A trace that can be read.
pub struct Given {
    path: PathBuf,
    /// Where the trace lies if it was made.
    _scratch: Option<Scratch>,
}

impl Given {
    /// Whether the file is a trace is left to whoever reads it; if it is a text that `vellum import`
    /// reads, one is made of it.
    ///
    /// # Errors
    /// The text cannot be imported, or the file is neither.
    pub fn open(path: &Path, style: Style, interrupt: &Interrupt) -> Result<Given, Failure> {
        match TraceReader::open(path) {
            Err(foreign @ TraceError::Foreign { .. }) => {
                import_for_now(path, foreign, style, interrupt)
            }
            _ => Ok(Given {
                path: path.to_owned(),
                _scratch: None,
            }),
        }
    }

    /// Where the trace lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn import_for_now(
    path: &Path,
    foreign: TraceError,
    style: Style,
    interrupt: &Interrupt,
) -> Result<Given, Failure> {
    let (mut input, length) = import::open(path)?;
    let format = match recognise(&mut input) {
        Ok(format) => format,
        Err(ImportError::Unknown { .. }) => {
            return Err(Failure::usage(format!(
                "{foreign}, nor text that `vellum import` reads"
            )));
        }
        Err(error) => return Err(import::failure(error)),
    };
    let scratch = Scratch::new(&std::env::temp_dir(), "import").doing(|| "a place for a trace")?;
    // Where a path is shown, it says what the trace was made of.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".vellum");
    let made = scratch.path().join(name);
    let mut progress = Progress::new(style, "importing", length, "bytes");
    let mut writer = TraceWriter::create(&made, DEFAULT_LEVEL)?;
    let options = Options {
        format: Some(format),
        ..Options::default()
    };
    let result =
        vellum_import::import(vec![input], &options, &mut writer, &mut progress, interrupt);
    progress.finish();
    let (format, report) = result.map_err(import::failure)?;
    writer.finish()?;
    if style != Style::Quiet {
        let shown = path.display();
        eprintln!(
            "vellum: {shown} is no trace; one was made of {} for this run (vellum import {shown} -o \
             TRACE keeps it)",
            made_of(format, &report)
        );
        for line in import::skipped(&report, &[shown.to_string()]) {
            eprintln!("vellum: {line}");
        }
    }
    Ok(Given {
        path: made,
        _scratch: Some(scratch),
    })
}
