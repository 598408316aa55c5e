//! Traces from what other tools printed: `perf script`, ftrace, `strace`, valgrind's
//! lackey, DynamoRIO's drmemtrace, DAMON, and `/proc/PID/smaps`.
//!
//! Each importer turns lines into the records that the recorder knows, and the
//! recorder's own translation makes events of them; only touches that no tool
//! reported are made here (`strace` and `accesses` say how). Whatever the
//! text is, an import ends in a trace that keeps the rules of traces or in an
//! error; memory stays proportional to what the text tells, and each line that
//! the trace lacks is accounted for in the [`Report`].

mod accesses;
mod damon;
mod detect;
mod drmemtrace;
mod feed;
mod foreign;
mod lackey;
mod lines;
mod memory;
mod notes;
mod packed;
pub mod perf_script;
mod report;
mod smaps;
mod strace;
mod stream;
mod tree;

use std::io;

pub use detect::Format;
pub use lines::Input;
pub use memory::Imported;
pub use report::{Place, Reason, Report};
pub use stream::{AccessKind, Each, Streamed, stream};

use vellum_record::Sink;
use vellum_terminal::progress::{Interrupt, Progress};
use vellum_trace::{TraceError, TraceWriter};

/// Bytes of an input that detection looks at.
const HEAD: usize = 1 << 16;

/// Pages of a mapping that are touched when strace text shows it, unless asked
/// otherwise: 4 MiB.
pub const DEFAULT_TOUCH_LIMIT: u64 = 1024;

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// An input could not be read.
    #[error("{name}: cannot read: {source}")]
    Read {
        /// Which input.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// What an input is cannot be told.
    #[error(
        "{name}: which tool printed this cannot be told from its first lines; say it with --from. \
         Lines look like this:\n{looks}"
    )]
    Unknown {
        /// Which input.
        name: String,
        /// A line of each format.
        looks: &'static str,
    },
    /// An input is nothing that can be read, or too much of it could not be used
    /// ([`Report::is_doubtful`]).
    #[error("{0}")]
    Format(String),
    /// No line made an event.
    #[error(
        "{names}: nothing to import: none of {lines} {unit}s is an event that {format} tells of \
         memory; `vellum import --help` says how to make such text{reasons}"
    )]
    Nothing {
        /// The inputs.
        names: String,
        /// Lines in them, or records.
        lines: u64,
        /// What one of them is called.
        unit: &'static str,
        /// What was expected.
        format: &'static str,
        /// What the lines are, a line for each reason, each after a line's end.
        reasons: String,
    },
    /// The user asked to stop.
    #[error("interrupted; nothing was written")]
    Interrupted,
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The translation failed otherwise.
    #[error("{0}")]
    Translation(String),
}

/// How to import.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What the text is; `None`: whatever it looks like.
    pub format: Option<Format>,
    /// For strace text: pages of a mapping that are touched when it appears.
    pub touch_limit: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            format: None,
            touch_limit: DEFAULT_TOUCH_LIMIT,
        }
    }
}

/// What an input is. Nothing of it is lost to who reads it then.
///
/// # Errors
/// It cannot be read, or is nothing that can be imported.
pub fn recognise(input: &mut Input) -> Result<Format, ImportError> {
    detect::settle(std::slice::from_mut(input), None)
}

/// Imports the inputs, in this order, into `writer`, which the caller finishes.
///
/// # Errors
/// The text cannot be read, is of no known kind or holds no event; the user
/// interrupted; the trace cannot be written.
pub fn import(
    inputs: Vec<Input>,
    options: &Options,
    writer: &mut TraceWriter,
    progress: &mut Progress,
    interrupt: &Interrupt,
) -> Result<(Format, Report), ImportError> {
    let mut watch = Watch {
        progress,
        interrupt,
        lines: 0,
    };
    run(inputs, options, writer, &mut watch)
}

/// Imports text that lies in memory into memory.
///
/// # Errors
/// As [`import`].
pub fn import_text(
    text: &[u8],
    options: &Options,
) -> Result<(Format, Imported, Report), ImportError> {
    let input = Input::new("text", Box::new(io::Cursor::new(text.to_vec())));
    import_inputs(vec![input], options)
}

/// Imports inputs into memory.
///
/// # Errors
/// As [`import`].
pub fn import_inputs(
    inputs: Vec<Input>,
    options: &Options,
) -> Result<(Format, Imported, Report), ImportError> {
    let mut progress = Progress::new(
        vellum_terminal::progress::Style::Quiet,
        "importing",
        0,
        "bytes",
    );
    let interrupt = Interrupt::manual();
    let mut watch = Watch {
        progress: &mut progress,
        interrupt: &interrupt,
        lines: 0,
    };
    let mut imported = Imported::default();
    let (format, report) = run(inputs, options, &mut imported, &mut watch)?;
    Ok((format, imported, report))
}

fn run(
    mut inputs: Vec<Input>,
    options: &Options,
    sink: &mut dyn Sink,
    watch: &mut Watch<'_>,
) -> Result<(Format, Report), ImportError> {
    let format = detect::settle(&mut inputs, options.format)?;
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let mut counted = memory::Counting::new(sink);
    let report = match format {
        Format::PerfScript => {
            perf_script::import(inputs, perf_script::Printer::Perf, &mut counted, watch)
        }
        Format::Ftrace => {
            perf_script::import(inputs, perf_script::Printer::Ftrace, &mut counted, watch)
        }
        Format::Strace => strace::import(inputs, options.touch_limit, &mut counted, watch),
        Format::Lackey => lackey::import(inputs, &mut counted, watch),
        Format::Drmemtrace => drmemtrace::import(inputs, &mut counted, watch),
        Format::Damon => damon::import(inputs, &mut counted, watch),
        Format::Smaps => smaps::import(inputs, &mut counted, watch),
    }?;
    judge(&names, format, counted.events(), &report)?;
    Ok((format, report))
}

/// Refuses what told nothing, or what cannot be what it was taken for.
fn judge(names: &[String], format: Format, told: u64, report: &Report) -> Result<(), ImportError> {
    if told == 0 {
        return Err(ImportError::Nothing {
            names: names.join(", "),
            lines: report.lines,
            unit: report.unit(),
            format: format.name(),
            reasons: after_line_ends(&report.text(names)),
        });
    }
    if report.is_doubtful() {
        return Err(ImportError::Format(format!(
            "{}: {} of the {} {}s that should tell something cannot be used; nothing was written{}",
            names.join(", "),
            report.skips(),
            report.skips() + report.used(),
            report.unit(),
            after_line_ends(&report.text(names))
        )));
    }
    Ok(())
}

/// The first lines of a list, each after a line's end.
fn after_line_ends(list: &[String]) -> String {
    const MOST: usize = 12;
    let mut text = String::new();
    for line in list.iter().take(MOST) {
        text.push('\n');
        text.push_str(line);
    }
    if list.len() > MOST {
        text.push_str(&format!("\n… and {} more reasons", list.len() - MOST));
    }
    text
}

/// Progress and Ctrl-C, looked at now and then.
pub(crate) struct Watch<'a> {
    progress: &'a mut Progress,
    interrupt: &'a Interrupt,
    lines: u64,
}

impl Watch<'_> {
    /// A line of `bytes` bytes was read.
    pub(crate) fn line(&mut self, bytes: u64) -> Result<(), ImportError> {
        self.lines += 1;
        self.progress.advance(bytes);
        if self.lines % 1024 == 1 && self.interrupt.requested() {
            return Err(ImportError::Interrupted);
        }
        Ok(())
    }
}

/// What is known of each input, of which `take` is given every line but those that are too long.
pub(crate) fn each_as<T: Default>(
    inputs: Vec<Input>,
    watch: &mut Watch<'_>,
    report: &mut Report,
    mut take: impl FnMut(&mut T, Place, &str, &mut Report),
) -> Result<Vec<T>, ImportError> {
    let mut known: Vec<T> = Vec::new();
    known.resize_with(inputs.len(), T::default);
    report.lines = each_line(inputs, watch, |place, text, cut| {
        match cut {
            true => report.skip(place, "a line longer than 65536 bytes"),
            false => take(&mut known[place.input], place, text, report),
        }
        Ok(())
    })?;
    Ok(known)
}

/// Calls `take` for each line of all inputs, one input after the other.
pub(crate) fn each_line(
    inputs: Vec<Input>,
    watch: &mut Watch<'_>,
    mut take: impl FnMut(Place, &str, bool) -> Result<(), ImportError>,
) -> Result<u64, ImportError> {
    let mut lines = 0;
    for (index, mut input) in inputs.into_iter().enumerate() {
        loop {
            let before = input.bytes();
            let next = input.next_line().map_err(|source| ImportError::Read {
                name: input.name.clone(),
                source,
            })?;
            let Some((line, cut)) = next else { break };
            lines += 1;
            watch.line(input.bytes() - before)?;
            let place = Place {
                input: index,
                line: input.line(),
            };
            take(place, &line, cut)?;
        }
    }
    Ok(lines)
}
